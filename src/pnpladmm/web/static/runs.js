// Runs: they wait in the server's queue. While one is not over, its progress is asked for again and again.

import {get, post, remove} from './api.js';
import {toast} from './dom.js';
import {closeResult, hideLive, showLive, showResult} from './compare.js';
import {togglePreview} from './preview.js';
import {app, isEmpty, path, tell} from './store.js';

const EVERY = 400;
const OVER = ['done', 'failed', 'cancelled', 'interrupted'];
export const isOver = (run) => OVER.includes(run.state);
let timer = null, liveStep = null;

export async function startRun() {
  if (isEmpty()) { toast('Say first what blurred the picture.', 'note'); return; }
  await act(() => post(path('/runs'), {sketch: app.sketch, settings: app.settings}));
  togglePreview(false);
  closeResult();
  tell('go', 'results');
}

export const cancelRun = (run) => act(() => post(path(`/runs/${run.number}/cancel`)));
export const runAgain = (run) => act(() => post(path(`/runs/${run.number}/again`)));
export async function removeRun(run) {
  if (app.shown === run.number) closeResult();
  await act(() => remove(path(`/runs/${run.number}`)));
}

async function act(what) {
  try { await what(); } catch (error) { toast(error.message); }
  await watchRuns(true);
}

// Ask for all runs; go on asking while one of them is not over.
export async function watchRuns(now = false) {
  clearTimeout(timer);
  const project = app.project?.id;
  if (!project) return;
  try {
    const before = new Map(app.runs.map((run) => [run.number, run.state]));
    const runs = await get(path('/runs'));
    if (app.project?.id !== project) return;
    app.runs = runs;
    for (const run of runs) if (run.state === 'done' && before.has(run.number) && before.get(run.number) !== 'done') finished(run);
    const running = runs.find((run) => run.state === 'running');
    if (running?.progress?.live) {
      const step = `${running.number} ${running.progress.live}`;
      if (step !== liveStep && app.tab === 'results' && app.shown === null) {
        liveStep = step;
        showLive(running.number);
      }
    } else if (!running) hideLive();
    tell('runs');
  } catch (error) { if (now) toast(error.message); }
  if (app.runs.some((run) => !isOver(run))) timer = setTimeout(watchRuns, EVERY);
}

function finished(run) {
  hideLive();
  // What someone looks at now stays.
  if (app.tab === 'results' && app.shown === null) showResult(run);
  else toast(`Picture ${run.number} is ready: see Results.`, 'note');
}

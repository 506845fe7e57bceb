// Step 3: what is being restored, and what came of it, in words.

import {save} from './api.js';
import {$, el, seconds, toast} from './dom.js';
import {closeResult, showResult} from './compare.js';
import {cancelRun, isOver, removeRun, runAgain} from './runs.js';
import {app, edit, on, path, setSettings, tell} from './store.js';

const MARKS = {good: '\u2713', check: '!', bad: '\u00d7'};
let cards = new Map(); // run number -> {state, node}

export function resetResults() {
  cards = new Map();
  $('panel-results').replaceChildren();
  update();
}

function update() {
  const page = $('panel-results');
  if (!app.project) return;
  if (!app.runs.length) {
    page.replaceChildren(el('div', {class: 'empty'}, el('p', {}, 'No results yet.'),
      el('p', {class: 'help'}, 'Say what blurred the picture, look at the preview, then press Restore picture. You can start several: they wait for each other.')));
    cards.clear();
    return;
  }
  const nodes = app.runs.map((run) => {
    const state = `${run.state} ${app.shown === run.number}`;
    let card = cards.get(run.number);
    if (!card || card.state !== state) {
      card = {state, node: build(run)};
      cards.set(run.number, card);
    }
    card.node.refresh?.(run);
    return card.node;
  });
  if (nodes.length !== page.children.length || nodes.some((node, i) => page.children[i] !== node)) page.replaceChildren(...nodes);
}

function build(run) {
  if (run.state === 'done') return result(run);
  if (isOver(run)) return stopped(run);
  return progress(run);
}

const card = (run, ...children) => el('article', {class: `card ${run.state}`, 'data-run': run.number, 'data-state': run.state, 'aria-label': `Result ${run.number}`}, ...children);
const button = (label, onclick, attributes = {}) => el('button', {type: 'button', onclick, ...attributes}, label);

function progress(run) {
  const bar = el('progress', {max: 1, 'aria-label': 'Progress'}), words = el('p', {class: 'help', role: 'status'});
  const node = card(run, el('h3', {}, `Picture ${run.number}`), bar, words, el('div', {class: 'row'}, button('Cancel', () => cancelRun(run))));
  node.refresh = (now) => {
    const p = now.progress;
    if (now.state === 'waiting' || !p) {
      bar.removeAttribute('value');
      words.textContent = now.ahead > 1 ? `Waiting: ${now.ahead - 1} before it` : 'Waiting';
      return;
    }
    if (p.step) bar.value = Math.min(0.98, p.step / p.steps);
    else bar.removeAttribute('value');
    const left = p.left > 0 ? `, about ${seconds(p.left)} left` : '';
    words.textContent = `${p.stage[0].toUpperCase()}${p.stage.slice(1)}${p.step ? `, step ${p.step} of ${p.steps}` : ''}${p.tiles ? ` (tile ${p.tile} of ${p.tiles})` : ''}${left}`;
  };
  return node;
}

function stopped(run) {
  const words = {cancelled: 'Cancelled.', interrupted: 'The server was stopped during this run. Nothing is lost: run it again.', failed: run.error}[run.state];
  return card(run, el('h3', {}, `Picture ${run.number}`), el('p', {class: run.state === 'failed' ? 'problem' : 'help'}, words),
    el('div', {class: 'row'}, button('Run again', () => runAgain(run)), button('Remove', () => removeRun(run), {class: 'quiet'})));
}

function result(run) {
  const {verdict, outcome} = run, shown = app.shown === run.number;
  const took = run.ended && run.started ? ` \u00b7 ${seconds(run.ended - run.started)}` : '';
  return card(run,
    el('h3', {}, `Picture ${run.number}`, el('span', {class: 'soft'}, `${took}`)),
    el('div', {class: `verdict ${verdict.mark}`}, el('span', {class: 'mark', 'aria-hidden': 'true'}, MARKS[verdict.mark]), el('strong', {}, verdict.headline)),
    ...verdict.advice.map((line) => el('p', {class: 'advice'}, line)),
    el('div', {class: 'row'},
      button('Save picture', () => download(run, 'picture'), {class: 'primary'}),
      shown ? button('Back to editing', () => { closeResult(); tell('go', 'blur'); }) : button('Compare', () => showResult(run))),
    details(run, outcome, verdict));
}

function details(run, outcome, verdict) {
  const check = outcome.residual?.[0];
  const numbers = [
    ['What was left over', check ? `${check.size.toFixed(2)} times the noise (1 is ideal), neighbours alike by ${check.correlation.toFixed(2)} (0 is ideal)` : 'not measured'],
    ['Noise', verdict.noise], ['Is it proved?', verdict.certificate], ['In the words of the theory', `Convergence ${outcome.certificate.words}`],
    ['Work', `${outcome.iterations} steps, ${outcome.seconds} s: ${outcome.status}`],
  ];
  const command = el('code', {class: 'command', tabindex: 0, 'aria-label': 'Command line'}, run.command);
  return el('details', {},
    el('summary', {}, 'Details, files and command line'),
    el('dl', {class: 'facts'}, ...numbers.flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)])),
    outcome.notes.length ? el('ul', {class: 'notes'}, ...outcome.notes.map((note) => el('li', {}, note))) : null,
    el('div', {class: 'row'}, button('Job file', () => download(run, 'job')), button('Blur file', () => download(run, 'blur')),
      button('Use this blur', () => reuse(run)), button('Remove', () => removeRun(run), {class: 'quiet'})),
    el('p', {class: 'help'}, 'This command gives the same picture again:'), command,
    el('div', {class: 'row'}, button('Copy the command', () => copy(run.command))));
}

function reuse(run) {
  closeResult();
  edit((sketch) => Object.assign(sketch, structuredClone(run.sketch)));
  setSettings(run.settings);
  tell('go', 'blur');
}

async function download(run, what) {
  try { toast(`Saved ${await save(path(`/runs/${run.number}/download/${what}`))}`, 'note'); } catch (error) { toast(error.message); }
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast('Copied.', 'note');
  } catch { toast('The browser did not allow it: mark the text and copy it.', 'note'); }
}

on('runs', update);
on('shown', update);

// Before and after, at any zoom: a slider, side by side, or one of them.

import {bitmap} from './api.js';
import {$, choice} from './dom.js';
import {draggable} from './pointer.js';
import {Tiles} from './tiles.js';
import {fit, follow, redraw, setPane, toScreen, view} from './view.js';
import {app, path, tell} from './store.js';

const MODES = [
  {value: 'slider', label: 'Slider', title: 'Drag the border (S)'}, {value: 'side', label: 'Side by side', title: 'The same place twice'},
  {value: 'before', label: 'Before'}, {value: 'after', label: 'After'},
];
const divider = $('divider');
export const compare = {before: null, after: null, live: null, mode: 'slider', share: 0.5};
const modes = choice({label: 'How to compare', options: MODES, value: 'slider', onchange: setMode});

export function openPicture() {
  closeResult();
  compare.before?.close();
  compare.before = new Tiles(path('/tiles'), app.facts, redraw);
  $('compare').replaceChildren(modes);
}

export function showResult(run) {
  closeResult();
  app.shown = run.number;
  compare.after = new Tiles(path(`/runs/${run.number}/tiles`), {...app.facts, levels: run.outcome.levels}, redraw);
  setMode(compare.mode);
  tell('shown');
}

export function closeResult() {
  compare.after?.close();
  compare.after = null;
  app.shown = null;
  setPane(() => view.width);
  tell('shown');
  redraw();
}

export function setMode(mode) {
  const side = (m) => m === 'side';
  const changed = side(mode) !== side(compare.mode);
  compare.mode = mode;
  setPane(side(mode) && compare.after ? () => view.width / 2 : () => view.width);
  modes.update(mode);
  if (changed && compare.after) fit();
  redraw();
}

// The picture of a run as it becomes sharp.
export async function showLive(number) {
  try {
    const image = await bitmap(path(`/runs/${number}/live`));
    compare.live?.close();
    compare.live = image;
  } catch { /* not there yet */ }
  redraw();
}

export function hideLive() {
  compare.live?.close();
  compare.live = null;
  redraw();
}

// --- drawing -------------------------------------------------------------------------------------------------------

export function paintPictures(context) {
  const after = compare.after, {width, height, ratio} = view;
  if (!compare.before) return;
  if (!after) {
    pane(context, compare.before, 0, width);
    if (compare.live) paintLive(context);
    return;
  }
  if (compare.mode === 'side') {
    pane(context, compare.before, 0, width / 2);
    pane(context, after, width / 2, width / 2, width / 2);
    return;
  }
  const border = compare.mode === 'before' ? width : compare.mode === 'after' ? 0 : compare.share * width;
  if (border > 0) pane(context, compare.before, 0, border);
  if (border < width) pane(context, after, border, width - border);

  function pane(c, tiles, left, w, shift = 0) {
    c.save();
    c.beginPath();
    c.rect(left, 0, w, height);
    c.clip();
    c.translate(shift, 0);
    tiles.draw(c, {scale: view.scale, x: view.x, y: view.y}, shift ? w : left + w, height, ratio);
    c.restore();
  }
}

function paintLive(context) {
  const [l, t] = toScreen([-0.5, -0.5]);
  context.imageSmoothingEnabled = true;
  context.drawImage(compare.live, l, t, app.facts.width * view.scale, app.facts.height * view.scale);
}

follow(() => {
  const after = compare.after !== null, slider = after && compare.mode === 'slider', side = after && compare.mode === 'side';
  $('compare').hidden = !after;
  divider.hidden = !slider && !side;
  divider.classList.toggle('fixed', side);
  divider.style.left = `${100 * (side ? 0.5 : compare.share)}%`;
  divider.setAttribute('aria-valuenow', String(Math.round(100 * compare.share)));
  $('before-label').hidden = !after || compare.mode === 'after';
  $('after-label').hidden = !after || compare.mode === 'before';
});

draggable(divider, (dx) => moveDivider(dx * view.scale / view.width));
function moveDivider(by) {
  if (compare.mode !== 'slider') return;
  compare.share = Math.min(1, Math.max(0, compare.share + by));
  redraw();
}
divider.addEventListener('keydown', (event) => {
  const by = {ArrowLeft: -0.02, ArrowDown: -0.02, ArrowRight: 0.02, ArrowUp: 0.02}[event.key];
  if (!by) return;
  event.preventDefault();
  event.stopPropagation();
  moveDivider(by);
});

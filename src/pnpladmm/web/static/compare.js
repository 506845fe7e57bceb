// Before and after, at any zoom: a slider, side by side, or one of them.

import {bitmap} from './api.js';
import {$, choice} from './dom.js';
import {draggable} from './pointer.js';
import {Tiles} from './tiles.js';
import {canvas, fit, follow, redraw, setPane, toScreen, view} from './view.js';
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
  if (compare.mode === 'side') fit();
  tell('shown');
}

export function closeResult() {
  const wasBeside = compare.after && compare.mode === 'side';
  compare.after?.close();
  compare.after = null;
  app.shown = null;
  setPane(() => view.width);
  if (wasBeside) fit();
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
  if (!compare.before) return;
  const panes = layout(view.width);
  const complete = panes.map((pane) => paintPane(context, pane));
  if (!compare.after && compare.live) paintLive(context);
  // For those who drive the page from outside: whether all tiles are there.
  canvas.dataset.complete = String(complete.every(Boolean));
}

// Which picture is shown where: from `left`, `wide` pixels; moved by `shift` if beside the other.
function layout(width) {
  const {before, after, mode} = compare;
  if (!after) return [{tiles: before, left: 0, wide: width, shift: 0}];
  if (mode === 'side') {
    const half = width / 2;
    return [{tiles: before, left: 0, wide: half, shift: 0}, {tiles: after, left: half, wide: half, shift: half}];
  }
  const border = mode === 'before' ? width : mode === 'after' ? 0 : compare.share * width;
  return [{tiles: before, left: 0, wide: border, shift: 0}, {tiles: after, left: border, wide: width - border, shift: 0}]
    .filter(({wide}) => wide > 0);
}

function paintPane(context, {tiles, left, wide, shift}) {
  const {height, ratio} = view;
  context.save();
  context.beginPath();
  context.rect(left, 0, wide, height);
  context.clip();
  context.translate(shift, 0);
  const complete = tiles.draw(context, {scale: view.scale, x: view.x, y: view.y}, shift ? wide : left + wide, height, ratio);
  context.restore();
  return complete;
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

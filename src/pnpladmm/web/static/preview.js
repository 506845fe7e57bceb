// A small square of the picture, restored at once, and again when anything changes. It can be dragged.

import {fromBase64, post} from './api.js';
import {$, toast} from './dom.js';
import {draggable} from './pointer.js';
import {follow, redraw, toScreen, view} from './view.js';
import {app, isEmpty, on, path} from './store.js';

const SIDE = 256;
const box = $('preview-box'), handle = $('preview-handle'), divider = $('preview-divider'), text = $('preview-text');
const state = {on: false, left: 0, top: 0, width: SIDE, height: SIDE, image: null, at: null, share: 0.5, order: 0};
let waiting = null, running = null;

export const previewIsOn = () => state.on;

export function togglePreview(wanted = !state.on) {
  if (wanted && isEmpty()) { toast('Say first what blurred the picture.', 'note'); return; }
  state.on = wanted && !app.shown;
  $('preview-toggle').setAttribute('aria-pressed', String(state.on));
  box.hidden = !state.on;
  if (!state.on) advise([]);
  if (state.on) {
    if (!inView()) centre();
    soon(0);
  } else running?.abort();
  redraw();
}

export function resetPreview() {
  state.image = null;
  state.at = null;
  togglePreview(false);
}

const clamp = (v, most) => Math.round(Math.min(Math.max(0, v), Math.max(0, most)));

function place(left, top) {
  state.width = Math.min(SIDE, app.facts.width);
  state.height = Math.min(SIDE, app.facts.height);
  state.left = clamp(left, app.facts.width - state.width);
  state.top = clamp(top, app.facts.height - state.height);
}

function inView() {
  const [x, y] = [(state.left + SIDE / 2 - view.x) * view.scale, (state.top + SIDE / 2 - view.y) * view.scale];
  return state.at && x > 0 && y > 0 && x < view.width && y < view.height;
}

function centre() {
  place(view.x + view.width / 2 / view.scale - SIDE / 2, view.y + view.height / 2 / view.scale - SIDE / 2);
}

// --- asking the server ---------------------------------------------------------------------------------------------

function soon(delay = 160) {
  if (!state.on) return;
  clearTimeout(waiting);
  waiting = setTimeout(ask, delay);
  box.dataset.state = 'working';
  text.textContent = 'Preview: restoring\u2026';
}

async function ask() {
  if (isEmpty()) { togglePreview(false); return; }
  running?.abort();
  running = new AbortController();
  const mine = ++state.order, begun = performance.now();
  const order = {box: {left: state.left, top: state.top, width: state.width, height: state.height}, sketch: app.sketch, settings: app.settings};
  try {
    const made = await post(path('/preview'), order, {signal: running.signal});
    const image = await fromBase64(made.png);
    if (mine !== state.order || !state.on) return;
    state.image?.close();
    Object.assign(state, {image, at: made.box});
    box.dataset.state = 'ready';
    box.dataset.seconds = ((performance.now() - begun) / 1000).toFixed(2);
    text.textContent = `Preview \u00b7 noise ${made.noise.toFixed(1)} of 255`;
    advise(made.advice);
    redraw();
  } catch (error) {
    if (error.name === 'AbortError' || error.status === 409 || mine !== state.order) return;
    box.dataset.state = 'failed';
    text.textContent = 'Preview failed';
    toast(error.message);
  }
}

// What does not fit here, in words.
function advise(lines) {
  $('preview-note').hidden = !lines.length;
  $('preview-note').textContent = lines.join(' ');
}

// --- showing it ----------------------------------------------------------------------------------------------------

export function paintPreview(context) {
  if (!state.on || !state.image || !state.at) return;
  const [l, t] = toScreen([state.at.left - 0.5, state.at.top - 0.5]), w = state.at.width * view.scale, h = state.at.height * view.scale;
  context.beginPath();
  context.rect(l + w * state.share, t, w * (1 - state.share), h);
  context.clip();
  context.imageSmoothingEnabled = view.scale * view.ratio < 2;
  context.drawImage(state.image, l, t, w, h);
}

follow(() => {
  if (!state.on) return;
  const [l, t] = toScreen([state.left - 0.5, state.top - 0.5]);
  Object.assign(box.style, {left: `${l}px`, top: `${t}px`, width: `${state.width * view.scale}px`, height: `${state.height * view.scale}px`});
  divider.style.left = `${100 * state.share}%`;
  divider.setAttribute('aria-valuenow', String(Math.round(100 * state.share)));
});

let exact = [0, 0];
handle.addEventListener('pointerdown', () => { exact = [state.left, state.top]; });
draggable(handle, (dx, dy) => {
  exact = [exact[0] + dx, exact[1] + dy];
  place(...exact);
  soon();
  redraw();
});
draggable(divider, (dx) => moveDivider(dx / state.width));

function moveDivider(by) {
  state.share = Math.min(1, Math.max(0, state.share + by));
  redraw();
}

const ARROWS = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
handle.addEventListener('keydown', (event) => {
  const way = ARROWS[event.key];
  if (!way) return;
  event.preventDefault();
  event.stopPropagation();
  place(state.left + way[0] * 32, state.top + way[1] * 32);
  soon();
  redraw();
});
divider.addEventListener('keydown', (event) => {
  const way = ARROWS[event.key];
  if (!way) return;
  event.preventDefault();
  event.stopPropagation();
  moveDivider((way[0] - way[1]) * 0.05);
});

on('sketch', () => soon());
on('settings', () => soon());

// A small pad on which the path of the light is drawn. One square of the grid is one pixel of the picture.

import {post} from './api.js';
import {el, slider, toast} from './dom.js';
import {app, path, setKernel} from './store.js';

const SIDE = 264;
let size = 31, cells = new Float32Array(31 * 31), width = 1.2;

export function pad() {
  const canvas = el('canvas', {class: 'pad', width: SIDE, height: SIDE, tabindex: 0, role: 'img', 'aria-label': 'Drawing pad for the path of the light'});
  const context = canvas.getContext('2d');
  let last = null;

  const cell = (event) => {
    const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width * size - 0.5, (event.clientY - box.top) / box.height * size - 0.5];
  };
  function show() {
    context.fillStyle = '#101114';
    context.fillRect(0, 0, SIDE, SIDE);
    const step = SIDE / size;
    for (let i = 0; i < cells.length; i += 1) {
      if (!cells[i]) continue;
      context.fillStyle = `rgba(255,214,64,${Math.sqrt(cells[i])})`;
      context.fillRect((i % size) * step, Math.floor(i / size) * step, step, step);
    }
    context.strokeStyle = 'rgba(255,255,255,.14)';
    context.beginPath();
    context.moveTo(SIDE / 2, 0); context.lineTo(SIDE / 2, SIDE);
    context.moveTo(0, SIDE / 2); context.lineTo(SIDE, SIDE / 2);
    context.stroke();
  }
  // A soft round pen along the way from a to b.
  function line(a, b) {
    const steps = Math.max(1, Math.ceil(Math.hypot(b[0] - a[0], b[1] - a[1]) * 2));
    for (let k = 0; k <= steps; k += 1) {
      const x = a[0] + (b[0] - a[0]) * k / steps, y = a[1] + (b[1] - a[1]) * k / steps, reach = Math.ceil(width);
      for (let r = Math.max(0, Math.floor(y) - reach); r <= Math.min(size - 1, Math.ceil(y) + reach); r += 1) {
        for (let c = Math.max(0, Math.floor(x) - reach); c <= Math.min(size - 1, Math.ceil(x) + reach); c += 1) {
          const i = r * size + c;
          cells[i] = Math.min(1, Math.max(cells[i], 1 - Math.hypot(c - x, r - y) / width));
        }
      }
    }
    show();
  }
  async function use() {
    const rows = Array.from({length: size}, (_, r) => Array.from(cells.subarray(r * size, (r + 1) * size), (v) => Math.round(v * 1000) / 1000));
    if (!cells.some((v) => v > 0)) return;
    try {
      const made = await post(path('/drawn'), {rows});
      app.project.files[made.id] = made;
      setKernel({kernel: made.id});
    } catch (error) { toast(error.message); }
  }
  canvas.addEventListener('pointerdown', (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = cell(event);
    line(last, last);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!last) return;
    const now = cell(event);
    line(last, now);
    last = now;
  });
  for (const name of ['pointerup', 'pointercancel']) canvas.addEventListener(name, () => { if (last) use(); last = null; });
  show();
  return el('div', {class: 'pad-box'}, canvas,
    slider({label: 'Pad', unit: 'px', min: 9, max: 101, step: 2, value: size, onchange: (v) => { size = v; cells = new Float32Array(v * v); show(); }}),
    el('div', {class: 'row'}, el('button', {type: 'button', class: 'quiet', onclick: () => { cells.fill(0); show(); }}, 'Clear')),
    el('p', {class: 'help'}, 'Draw the path that a point of light took. Where it stayed longer, draw again.'));
}

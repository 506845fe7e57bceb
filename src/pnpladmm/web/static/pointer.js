// Mouse, pen and fingers on the picture: they move it, or they draw with the chosen tool.

import {$} from './dom.js';
import {canvas, follow, panBy, redraw, toPicture, view, zoomBy} from './view.js';
import {app, on} from './store.js';

// A tool has down(point, event), move(point, event), up(point, event), cancel(), and a cursor. Points are in pixels of
// the picture.
const tools = new Map();
export const addTool = (name, tool) => tools.set(name, tool);

const down = new Map(); // pointers on the picture: id -> place on the screen
let drawing = null, panning = false, spaceHeld = false;
export const hover = {point: null};

const place = (event) => {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};

canvas.addEventListener('pointerdown', (event) => {
  canvas.setPointerCapture(event.pointerId);
  canvas.focus({preventScroll: true});
  down.set(event.pointerId, place(event));
  if (down.size === 2) { // two fingers move and zoom; what one of them began is taken back
    drawing?.cancel?.();
    drawing = null;
    panning = true;
    return;
  }
  const tool = tools.get(app.tool);
  if (event.button === 1 || event.button === 2 || spaceHeld || !tool) {
    panning = true;
    cursor();
    return;
  }
  drawing = tool;
  tool.down(toPicture(place(event)), event);
  redraw();
});

canvas.addEventListener('pointermove', (event) => {
  const now = place(event), before = down.get(event.pointerId);
  hover.point = toPicture(now);
  if (!before) {
    if (tools.get(app.tool)) {
      tools.get(app.tool).hover?.(hover.point, event);
      redraw();
    }
    return;
  }
  if (down.size === 2) pinch(event.pointerId, before, now);
  else if (panning) panBy(now[0] - before[0], now[1] - before[1]);
  else if (drawing) {
    // A fast hand makes several points in one frame.
    for (const one of event.getCoalescedEvents?.() ?? [event]) drawing.move(toPicture(place(one)), one);
    redraw();
  }
  down.set(event.pointerId, now);
});

function pinch(id, before, now) {
  const other = [...down.entries()].find(([key]) => key !== id)[1];
  const distance = (a) => Math.hypot(a[0] - other[0], a[1] - other[1]);
  panBy((now[0] - before[0]) / 2, (now[1] - before[1]) / 2);
  zoomBy(distance(now) / Math.max(1, distance(before)), [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2]);
}

function release(event) {
  if (!down.delete(event.pointerId)) return;
  if (drawing && event.type === 'pointerup') drawing.up(toPicture(place(event)), event);
  else drawing?.cancel?.();
  drawing = null;
  if (!down.size) panning = false;
  cursor();
  redraw();
}

canvas.addEventListener('pointerup', release);
canvas.addEventListener('pointercancel', release);
canvas.addEventListener('pointerleave', () => { hover.point = null; redraw(); });
canvas.addEventListener('contextmenu', (event) => event.preventDefault());
canvas.addEventListener('dblclick', (event) => tools.get(app.tool)?.double?.(toPicture(place(event)), event));

canvas.addEventListener('wheel', (event) => {
  event.preventDefault();
  const unit = event.deltaMode === 1 ? 30 : 1;
  if (event.shiftKey) panBy(-(event.deltaY + event.deltaX) * unit, 0);
  else zoomBy(Math.exp(-Math.max(-200, Math.min(200, event.deltaY * unit)) * (event.ctrlKey ? 0.01 : 0.002)), place(event));
}, {passive: false});

export function holdSpace(held) {
  spaceHeld = held;
  cursor();
}

export const cancelTool = () => tools.get(app.tool)?.cancel?.();
export const finishTool = () => tools.get(app.tool)?.finish?.();

function cursor() {
  const tool = tools.get(app.tool);
  canvas.style.cursor = panning ? 'grabbing' : spaceHeld || !tool ? 'grab' : tool.cursor ?? 'crosshair';
}
on('tool', cursor);
follow(() => { if (!canvas.style.cursor) cursor(); });

// Let an element over the picture be dragged; `move` gets the way in pixels of the picture.
export function draggable(element, move) {
  let last = null;
  element.addEventListener('pointerdown', (event) => {
    element.setPointerCapture(event.pointerId);
    last = [event.clientX, event.clientY];
    event.preventDefault();
    element.focus();
  });
  element.addEventListener('pointermove', (event) => {
    if (!last) return;
    const box = $('stage').getBoundingClientRect();
    move((event.clientX - last[0]) / view.scale, (event.clientY - last[1]) / view.scale, [event.clientX - box.left, event.clientY - box.top]);
    last = [event.clientX, event.clientY];
  });
  for (const name of ['pointerup', 'pointercancel']) element.addEventListener(name, () => { last = null; });
}

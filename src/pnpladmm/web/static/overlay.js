// What lies over the picture: regions in soft colours, the kernel at its true size, the line or outline being drawn.

import {fromBase64, get, post} from './api.js';
import {hover} from './pointer.js';
import {previewIsOn} from './preview.js';
import {drawn} from './tools.js';
import {redraw, toScreen, view} from './view.js';
import {activeKernel, app, kindOf, on, path, tell} from './store.js';

// Colours that stay apart for most eyes.
export const COLOURS = ['#3b82f6', '#f59e0b', '#10b981', '#ef4444', '#a855f7', '#06b6d4', '#84cc16', '#ec4899'];
export const colourOf = (index) => COLOURS[index % COLOURS.length];
const LIGHT = '#ffffff', DARK = 'rgba(0,0,0,.65)';

// --- the kernel, as the server draws it ----------------------------------------------------------------------------

// `places` are where it lies over the picture: one for a kernel, several for a field from a file.
export const shown = {image: null, width: 0, height: 0, of: null, places: []};
let asking = new AbortController();

async function askForKernel() {
  const kernel = activeKernel(), file = app.sketch.file, key = JSON.stringify([app.project?.id, file, kernel]);
  if (key === shown.of) return;
  shown.of = key;
  asking.abort();
  const {signal} = asking = new AbortController();
  let made = [];
  try {
    if (file) made = (await get(path(`/files/${file}/field`), {signal})).places;
    else if (kernel) made = [await post(path('/kernel'), kernel, {signal})];
    const images = await Promise.all(made.map(({png}) => fromBase64(png)));
    if (signal.aborted) return;
    shown.places = made.map((one, i) => ({...one, image: tinted(images[i])}));
    Object.assign(shown, {image: null, width: 0, height: 0}, shown.places[Math.floor(shown.places.length / 2)]);
  } catch {
    if (signal.aborted) return;
    shown.of = null;
  }
  tell('kernel');
  redraw();
}
on('sketch', askForKernel);
on('tool', askForKernel);

// White where the kernel is strong, clear where it is 0.
function tinted(image) {
  const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext('2d');
  context.drawImage(image, 0, 0);
  const data = context.getImageData(0, 0, image.width, image.height), bytes = data.data;
  for (let i = 0; i < bytes.length; i += 4) {
    bytes[i + 3] = bytes[i];
    [bytes[i], bytes[i + 1], bytes[i + 2]] = [255, 214, 64];
  }
  context.putImageData(data, 0, 0);
  return canvas;
}

// --- drawing -------------------------------------------------------------------------------------------------------

export function paintOverlay(context) {
  app.sketch.regions.forEach((region, index) => paintRegion(context, region, index));
  if (drawn.stroke) paintStrokes(context, [...(app.sketch.regions[app.active]?.strokes ?? []), drawn.stroke], colourOf(Math.max(0, app.active)), true);
  paintOutline(context);
  if (app.tab === 'blur' && !previewIsOn()) paintKernel(context);
  paintBrush(context);
}

function paintRegion(context, region, index) {
  const chosen = index === app.active, colour = colourOf(index);
  if (region.strokes || region.mask) {
    if (!(drawn.stroke && chosen)) paintStrokes(context, region.strokes ?? [], colour, chosen);
    return;
  }
  const corners = region.polygon ?? boxCorners(region.rectangle);
  trace(context, corners);
  context.closePath();
  context.globalAlpha = chosen ? 0.28 : 0.16;
  context.fillStyle = colour;
  context.fill();
  context.globalAlpha = 1;
  outlined(context, colour, chosen ? 2.5 : 1.5);
}

const boxCorners = ([l, t, r, b]) => [[l, t], [r, t], [r, b], [l, b]];

function trace(context, points) {
  context.beginPath();
  points.forEach((point, i) => context[i ? 'lineTo' : 'moveTo'](...toScreen(point)));
}

function outlined(context, colour, width) {
  context.lineJoin = 'round';
  context.lineWidth = width + 2;
  context.strokeStyle = DARK;
  context.stroke();
  context.lineWidth = width;
  context.strokeStyle = colour;
  context.stroke();
}

// Strokes lie over each other in their own layer, so that their overlaps are not darker and erasing works.
let layer = null;
function paintStrokes(context, strokes, colour, chosen) {
  if (!strokes.length) return;
  const w = Math.ceil(view.width), h = Math.ceil(view.height);
  if (!layer || layer.width !== w || layer.height !== h) layer = new OffscreenCanvas(w, h);
  const c = layer.getContext('2d');
  c.clearRect(0, 0, w, h);
  c.lineCap = c.lineJoin = 'round';
  for (const stroke of strokes) {
    c.globalCompositeOperation = stroke.erase ? 'destination-out' : 'source-over';
    c.fillStyle = c.strokeStyle = colour;
    c.lineWidth = 2 * stroke.radius * view.scale;
    if (stroke.points.length === 1) {
      c.beginPath();
      c.arc(...toScreen(stroke.points[0]), stroke.radius * view.scale, 0, 7);
      c.fill();
    } else {
      trace(c, stroke.points);
      c.stroke();
    }
  }
  context.globalAlpha = chosen ? 0.42 : 0.26;
  context.drawImage(layer, 0, 0);
  context.globalAlpha = 1;
}

function paintOutline(context) {
  const corners = drawn.outline;
  if (!corners?.length) return;
  trace(context, hover.point ? [...corners, hover.point] : corners);
  outlined(context, LIGHT, 2);
  for (const [i, corner] of corners.entries()) dot(context, toScreen(corner), i === 0 && corners.length > 2 ? 7 : 4);
}

function dot(context, [x, y], radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 7);
  context.fillStyle = LIGHT;
  context.fill();
  context.lineWidth = 1.5;
  context.strokeStyle = DARK;
  context.stroke();
}

export const anchor = () => app.anchor ?? regionMiddle() ?? [view.picture.width / 2, view.picture.height / 2];

function regionMiddle() {
  const region = app.sketch.regions[app.active];
  if (!region) return null;
  const points = region.polygon ?? (region.rectangle ? boxCorners(region.rectangle) : (region.strokes ?? []).flatMap((s) => s.points));
  if (!points.length) return null;
  const mean = (i) => points.reduce((sum, p) => sum + p[i], 0) / points.length;
  return [mean(0), mean(1)];
}

function paintField(context) {
  for (const {x, y, image, width, height} of shown.places) paintImage(context, image, toScreen([x, y]), width, height);
}

function paintImage(context, image, [x, y], width, height) {
  const w = width * view.scale, h = height * view.scale;
  context.imageSmoothingEnabled = false;
  context.globalAlpha = 0.9;
  context.drawImage(image, x - w / 2, y - h / 2, w, h);
  context.globalAlpha = 1;
}

function paintKernel(context) {
  if (app.sketch.file) { paintField(context); return; }
  const kernel = activeKernel();
  if (!kernel) return;
  const [x, y] = toScreen(anchor()), kind = kindOf(kernel);
  if (shown.image) paintImage(context, shown.image, [x, y], shown.width, shown.height);
  context.beginPath();
  if (kind === 'motion') {
    const half = kernel.motion.length / 2 * view.scale, turn = kernel.motion.angle * Math.PI / 180;
    const [dx, dy] = [Math.cos(turn) * half, -Math.sin(turn) * half];
    context.moveTo(x - dx, y - dy);
    context.lineTo(x + dx, y + dy);
    outlined(context, LIGHT, 2);
    const size = Math.min(5, Math.max(2.5, half / 5));
    dot(context, [x - dx, y - dy], size);
    dot(context, [x + dx, y + dy], size);
  } else if (kind === 'defocus' || kind === 'gaussian') {
    const sigma = kernel.gaussian?.sigma;
    const radius = kernel.defocus?.radius ?? (Array.isArray(sigma) ? Math.max(...sigma) : sigma);
    context.arc(x, y, Math.max(3, radius * view.scale), 0, 7);
    outlined(context, LIGHT, 2);
  } else {
    const side = Math.max(12, Math.max(shown.width, shown.height) * view.scale);
    context.rect(x - side / 2, y - side / 2, side, side);
    outlined(context, LIGHT, 1.5);
  }
}

function paintBrush(context) {
  if (!hover.point) return;
  const star = app.tool === 'star';
  if (!star && app.tool !== 'brush' && app.tool !== 'erase') return;
  const [x, y] = toScreen(hover.point);
  context.beginPath();
  if (star) {
    const side = drawn.star * view.scale;
    context.rect(x - side / 2, y - side / 2, side, side);
  } else context.arc(x, y, Math.max(1, app.brush * view.scale), 0, 7);
  outlined(context, LIGHT, 1.5);
}

// The window onto the picture: where it is, how large, and what is drawn on it. Everything is drawn in one frame.

import {$} from './dom.js';

export const canvas = $('canvas');
const context = canvas.getContext('2d', {alpha: false});
const MOST = 40;

export const view = {scale: 1, x: 0, y: 0, width: 1, height: 1, ratio: 1, picture: null};
const painters = [];
const followers = [];
let due = false;

export const paintWith = (painter) => painters.push(painter); // painter(context, view): draws
export const follow = (follower) => followers.push(follower); // follower(view): moves elements over the picture

export function redraw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    paint();
  });
}

function paint() {
  if (!view.picture || !view.width) return;
  context.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
  context.fillStyle = getComputedStyle(canvas).getPropertyValue('--stage').trim() || '#222';
  context.fillRect(0, 0, view.width, view.height);
  for (const painter of painters) {
    context.save();
    painter(context, view);
    context.restore();
  }
  for (const follower of followers) follower(view);
  $('zoom-text').textContent = `${(100 * view.scale * view.ratio).toFixed(view.scale * view.ratio < 0.1 ? 1 : 0)}%`;
  // For those who drive the page from outside, such as its tests.
  canvas.dataset.view = JSON.stringify([view.scale, view.x, view.y]);
}

export const toScreen = ([x, y]) => [(x + 0.5 - view.x) * view.scale, (y + 0.5 - view.y) * view.scale];
export const toPicture = ([x, y]) => [x / view.scale + view.x - 0.5, y / view.scale + view.y - 0.5];

const least = () => Math.min(1, 0.5 * fitScale());
let paneWidth = () => view.width; // beside each other, each half has its own
export const setPane = (width) => { paneWidth = width; };
const fitScale = () => Math.min((paneWidth() - 32) / view.picture.width, (view.height - 32) / view.picture.height);

export function fit() {
  if (!view.picture) return;
  view.scale = Math.min(fitScale(), 8 / view.ratio);
  view.x = view.picture.width / 2 - paneWidth() / 2 / view.scale;
  view.y = view.picture.height / 2 - view.height / 2 / view.scale;
  redraw();
}

export function zoomTo(scale, [sx, sy] = [paneWidth() / 2, view.height / 2]) {
  const wanted = Math.min(MOST, Math.max(least(), scale));
  view.x += sx / view.scale - sx / wanted;
  view.y += sy / view.scale - sy / wanted;
  view.scale = wanted;
  keepInside();
  redraw();
}

export const zoomBy = (factor, at) => zoomTo(view.scale * factor, at);

export function panBy(dx, dy) {
  view.x -= dx / view.scale;
  view.y -= dy / view.scale;
  keepInside();
  redraw();
}

// Some of the picture stays in view.
function keepInside() {
  const w = paneWidth() / view.scale, h = view.height / view.scale, margin = 60 / view.scale;
  view.x = Math.min(view.picture.width - margin, Math.max(margin - w, view.x));
  view.y = Math.min(view.picture.height - margin, Math.max(margin - h, view.y));
}

export function setPicture(facts) {
  view.picture = facts;
  resize();
  fit();
}

function resize() {
  const box = canvas.parentElement.getBoundingClientRect();
  const middle = [view.x + view.width / 2 / view.scale, view.y + view.height / 2 / view.scale];
  view.ratio = window.devicePixelRatio || 1;
  const grown = view.width !== box.width || view.height !== box.height;
  view.width = box.width;
  view.height = box.height;
  canvas.width = Math.max(1, Math.round(box.width * view.ratio));
  canvas.height = Math.max(1, Math.round(box.height * view.ratio));
  if (view.picture && grown) {
    view.x = middle[0] - view.width / 2 / view.scale;
    view.y = middle[1] - view.height / 2 / view.scale;
    redraw();
  }
}

new ResizeObserver(() => { resize(); redraw(); }).observe(canvas.parentElement);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
$('zoom-in').addEventListener('click', () => zoomBy(1.5));
$('zoom-out').addEventListener('click', () => zoomBy(1 / 1.5));
$('zoom-fit').addEventListener('click', fit);
$('zoom-one').addEventListener('click', () => zoomTo(1 / view.ratio));

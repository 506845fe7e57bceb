// What is open, what was drawn, and the way back. Every change is saved on the server a moment later.

import {put} from './api.js';
import {toast} from './dom.js';

const listeners = new Map();
export const on = (what, listener) => listeners.set(what, [...(listeners.get(what) ?? []), listener]);
export const tell = (what, detail) => (listeners.get(what) ?? []).forEach((listener) => listener(detail));

export const app = {
  server: null, project: null, facts: null,
  sketch: null, settings: null,
  active: -1, // the region that is edited; -1 is the whole picture
  kind: null, // the kind of blur that is chosen while nothing is drawn yet
  tool: 'hand', brush: 30, anchor: null,
  tab: 'blur', runs: [], shown: null, // the run whose result is shown
};

export const path = (rest = '') => `/projects/${app.project.id}${rest}`;

export function openProject(project) {
  saveAll(); // of the one before
  Object.assign(app, {
    project, facts: project.picture, sketch: project.sketch, settings: project.settings,
    active: -1, kind: null, tool: 'hand', anchor: null, runs: [], shown: null,
  });
  past.length = future.length = 0;
  tell('project');
  tell('sketch');
}

// --- the blur, with undo -------------------------------------------------------------------------------------------

const past = [], future = [];
let last = {key: null, time: 0};

// Change the blur. Changes with the same key that follow at once are one step back: a slider that moves.
export function edit(change, keyOfChange = null, within = 800) {
  const now = performance.now();
  if (keyOfChange === null || keyOfChange !== last.key || now - last.time > within) past.push(JSON.stringify(app.sketch));
  if (past.length > 100) past.shift();
  last = {key: keyOfChange, time: now};
  future.length = 0;
  const next = structuredClone(app.sketch);
  change(next);
  app.sketch = next;
  afterEdit();
}

function step(from, to) {
  if (!from.length) return;
  to.push(JSON.stringify(app.sketch));
  app.sketch = JSON.parse(from.pop());
  last.key = null;
  afterEdit();
}

export const undo = () => step(past, future);
export const redo = () => step(future, past);
export const canUndo = () => past.length > 0;
export const canRedo = () => future.length > 0;

function afterEdit() {
  app.active = Math.min(app.active, app.sketch.regions.length - 1);
  saveSoon('sketch');
  tell('sketch');
}

export function setSettings(values) {
  app.settings = {...app.settings, ...values};
  saveSoon('settings');
  tell('settings');
}

// --- saving --------------------------------------------------------------------------------------------------------

const waiting = new Map(); // 'sketch' or 'settings' -> {timer, address}
let sending = 0;

function saveSoon(what) {
  clearTimeout(waiting.get(what)?.timer);
  waiting.set(what, {address: path(`/${what}`), timer: setTimeout(() => saveNow(what), 300)});
  mark();
}

async function saveNow(what, keepalive = false) {
  const {address, timer} = waiting.get(what);
  clearTimeout(timer);
  waiting.delete(what);
  sending += 1;
  try { await put(address, app[what], {keepalive}); } catch (error) { toast(error.message); }
  sending -= 1;
  mark();
}

// What was drawn a moment before the page is left is saved too.
export function saveAll(keepalive = false) {
  for (const what of [...waiting.keys()]) saveNow(what, keepalive);
}
addEventListener('pagehide', () => saveAll(true));

// For those who drive the page from outside, such as its tests.
function mark() { document.body.dataset.saved = String(!waiting.size && !sending); }

// --- the part that is being edited ---------------------------------------------------------------------------------

export const kernelOf = (sketch, index) => (index < 0 ? sketch.background : sketch.regions[index]?.kernel) ?? null;
export const activeKernel = () => kernelOf(app.sketch, app.active);
export const isEmpty = (sketch = app.sketch) => !sketch.background && !sketch.regions.length && !sketch.file;

export function setKernel(kernel, keyOfChange = null, within = undefined) {
  app.kind = null;
  edit((sketch) => {
    sketch.file = null;
    if (app.active < 0) sketch.background = kernel;
    else sketch.regions[app.active].kernel = kernel;
  }, keyOfChange, within);
}

// 'motion', 'gaussian', 'defocus', or 'kernel' for one from a file.
export const kindOf = (kernel) => Object.keys(kernel ?? {}).find((name) => kernel[name] !== null && kernel[name] !== undefined) ?? null;

export function setTool(tool) {
  app.tool = tool;
  tell('tool');
}

export function select(index) {
  app.active = index;
  app.kind = null;
  app.anchor = null;
  if (app.tool !== 'brush' && app.tool !== 'erase') app.tool = 'hand';
  tell('sketch');
  tell('tool');
}

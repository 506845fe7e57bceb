// Keyboard shortcuts. They are quiet while someone types into a field, and while the help is open.

import {$} from './dom.js';
import {removeRegion, startRegion} from './blur_panel.js';
import {compare, setMode} from './compare.js';
import {showHelp} from './help.js';
import {cancelTool, finishTool, holdSpace} from './pointer.js';
import {togglePreview} from './preview.js';
import {startRun} from './runs.js';
import {fit, panBy, redraw, view, zoomBy, zoomTo} from './view.js';
import {app, redo, setTool, undo} from './store.js';

const STEP = 60;
const PLAIN = {
  '+': () => zoomBy(1.5), '=': () => zoomBy(1.5), '-': () => zoomBy(1 / 1.5), 0: fit, 1: () => zoomTo(1 / view.ratio),
  ArrowLeft: () => panBy(STEP, 0), ArrowRight: () => panBy(-STEP, 0), ArrowUp: () => panBy(0, STEP), ArrowDown: () => panBy(0, -STEP),
  m: () => setTool('motion'), l: () => startRegion('outline'), b: () => startRegion('brush'), e: () => setTool('erase'),
  '[': () => resizeBrush(0.8), ']': () => resizeBrush(1.25), Enter: finishTool, p: () => togglePreview(), r: startRun,
  s: () => setMode(compare.mode === 'side' ? 'slider' : 'side'),
  Escape: () => { cancelTool(); setTool('hand'); redraw(); },
  Delete: () => { if (app.active >= 0) removeRegion(app.active); },
};

function resizeBrush(factor) {
  app.brush = Math.max(1, app.brush * factor);
  setTool(app.tool);
  redraw();
}

const typing = (target) => target.matches('input[type=number], input[type=text], textarea, select, [contenteditable]');

addEventListener('keydown', (event) => {
  if (!app.project || $('help-dialog').open || typing(event.target)) return;
  const control = event.ctrlKey || event.metaKey, key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (control && key === 'z') { event.preventDefault(); (event.shiftKey ? redo : undo)(); return; }
  if (control && key === 'y') { event.preventDefault(); redo(); return; }
  if (control || event.altKey) return;
  if (event.key === '?') { showHelp(); return; }
  // Buttons and sliders keep their own keys.
  const own = event.target.matches('button, summary, input, [role=slider], [role=tab], [role=radio]');
  if (own && (key === 'Enter' || key === ' ' || key.startsWith('Arrow'))) return;
  if (key === ' ') { event.preventDefault(); holdSpace(true); return; }
  const what = PLAIN[key];
  if (what) { event.preventDefault(); what(); }
});
addEventListener('keyup', (event) => { if (event.key === ' ') holdSpace(false); });

// The page: it shows what the server knows, and sends what the user draws. It decides nothing about a restoration.

import {post, upload} from './api.js';
import {buildBlurPanel} from './blur_panel.js';
import {closeResult, openPicture, paintPictures} from './compare.js';
import {$, toast} from './dom.js';
import {showHelp} from './help.js';
import './keys.js';
import {paintOverlay} from './overlay.js';
import {paintPreview, resetPreview, togglePreview} from './preview.js';
import {buildSettingsPanel} from './settings_panel.js';
import {resetResults} from './results_panel.js';
import {startRun, watchRuns} from './runs.js';
import {open, openFile, showStart} from './start.js';
import {paintWith, redraw, setPicture} from './view.js';
import {app, canRedo, canUndo, edit, isEmpty, on, path, redo, saveAll, tell, undo} from './store.js';

// --- painting, from below to above ---------------------------------------------------------------------------------

paintWith((context) => { if (app.project) paintPictures(context); });
paintWith((context) => { if (app.project && app.shown === null) paintPreview(context); });
paintWith((context) => { if (app.project && app.shown === null && app.tab !== 'results') paintOverlay(context); });

// --- the parts of the page -----------------------------------------------------------------------------------------

on('project', () => {
  $('title').textContent = app.project.name;
  document.title = `${app.project.name} \u2013 pnpladmm`;
  resetPreview();
  openPicture();
  setPicture(app.facts);
  buildBlurPanel();
  buildSettingsPanel();
  resetResults();
  showTab('blur');
  watchRuns();
});

on('closed', () => {
  $('title').textContent = '';
  document.title = 'pnpladmm: restore a picture';
  history.replaceState(null, '', location.pathname);
});

on('sketch', () => {
  $('undo').disabled = !canUndo();
  $('redo').disabled = !canRedo();
  $('restore').disabled = $('preview-toggle').disabled = isEmpty();
  hint();
  redraw();
});
on('tool', () => { hint(); redraw(); });
on('shown', () => { hint(); $('preview-toggle').disabled = app.shown !== null || isEmpty(); redraw(); });

const HINTS = {
  motion: 'Drag a line along a streak', disc: 'Drag from the middle of a disc to its rim', outline: 'Click the corners; Enter closes the outline',
  brush: 'Paint where the blur is another one', erase: 'Erase what you painted', star: 'Click a star, bead or lamp',
};

function hint() {
  const words = app.tab === 'blur' && app.shown === null ? HINTS[app.tool] : null;
  $('hint').hidden = !words;
  $('hint').textContent = words ?? '';
}

// --- tabs ----------------------------------------------------------------------------------------------------------

const TABS = ['blur', 'settings', 'results'];

function showTab(name) {
  app.tab = name;
  for (const tab of TABS) {
    const chosen = tab === name;
    $(`tab-${tab}`).setAttribute('aria-selected', String(chosen));
    $(`tab-${tab}`).tabIndex = chosen ? 0 : -1;
    $(`panel-${tab}`).hidden = !chosen;
  }
  if (name !== 'results' && app.shown !== null) closeResult();
  hint();
  redraw();
}

for (const tab of TABS) {
  $(`tab-${tab}`).addEventListener('click', () => showTab(tab));
  $(`tab-${tab}`).addEventListener('keydown', (event) => {
    const by = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!by) return;
    const next = TABS[(TABS.indexOf(tab) + by + TABS.length) % TABS.length];
    showTab(next);
    $(`tab-${next}`).focus();
  });
}
on('go', showTab);

// --- files ---------------------------------------------------------------------------------------------------------

const BLUR_FILES = /\.(ya?ml|npz|mat|psf|zip|csv)$/i;

async function loadBlur(files) {
  try {
    let found = null, main = null;
    const beside = {};
    for (const file of files) {
      const sent = await upload(path('/files'), file, file.name);
      if (sent.sketch) { found = sent; continue; } // a ZIP
      beside[file.name] = sent.id;
      if (/\.ya?ml$/i.test(file.name) || !main) main = sent.id;
    }
    found ??= await post(path('/load'), {file: main, beside});
    app.project.files = found.files;
    const alone = found.sketch.background && !found.sketch.regions.length && app.active >= 0;
    edit((sketch) => {
      // One kernel, while a region is chosen, is for that region.
      if (alone) sketch.regions[app.active].kernel = found.sketch.background;
      else Object.assign(sketch, found.sketch);
    });
    app.kind = null;
    tell('sketch');
    if (found.words.length && !found.sketch.file) toast(found.words[1] ?? found.words[0], 'note');
  } catch (error) { toast(error.message); }
}

$('pick-picture').addEventListener('change', (event) => {
  const file = event.target.files[0];
  event.target.value = '';
  if (file) openFile(file);
});
$('pick-blur').addEventListener('change', (event) => {
  const files = [...event.target.files];
  event.target.value = '';
  if (files.length) loadBlur(files);
});
addEventListener('dragover', (event) => { event.preventDefault(); document.body.dataset.drag = 'true'; });
addEventListener('dragleave', (event) => { if (!event.relatedTarget) delete document.body.dataset.drag; });
addEventListener('drop', (event) => {
  event.preventDefault();
  delete document.body.dataset.drag;
  const files = [...event.dataTransfer.files];
  if (!files.length) return;
  if (app.project && files.some((file) => BLUR_FILES.test(file.name))) loadBlur(files);
  else openFile(files[0]);
});

// --- buttons -------------------------------------------------------------------------------------------------------

$('undo').addEventListener('click', undo);
$('redo').addEventListener('click', redo);
$('help').addEventListener('click', showHelp);
$('home').addEventListener('click', () => { saveAll(); showStart(); });
$('preview-toggle').addEventListener('click', () => togglePreview());
$('restore').addEventListener('click', startRun);
addEventListener('unhandledrejection', (event) => toast(String(event.reason?.message ?? event.reason)));

// An address with a new key, pasted into this tab: a browser takes that for a place on the same page.
addEventListener('hashchange', () => { if (location.hash.includes('key=')) location.reload(); });

// --- begin: the project in the address, else the first page -----------------------------------------------------------

const wanted = new URLSearchParams(location.hash.slice(1)).get('project');
await showStart();
if (wanted && app.server?.projects.some((project) => project.id === wanted)) await open(wanted);
Object.assign(document.body.dataset, {ready: 'true', saved: 'true'});

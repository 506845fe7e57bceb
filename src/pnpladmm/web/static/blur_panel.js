// Step 1: what blurred the picture, here or there.

import {save} from './api.js';
import {$, choice, el, slider, toast} from './dom.js';
import {FIND, findValues} from './find.js';
import {pad} from './pad.js';
import {colourOf, shown} from './overlay.js';
import {drawn} from './tools.js';
import {redraw} from './view.js';
import {activeKernel, app, edit, isEmpty, kindOf, on, path, select, setKernel, setTool} from './store.js';

const KINDS = [
  {value: 'motion', label: 'Camera shake', glyph: 'motion', title: 'The camera or the subject moved along a line'},
  {value: 'defocus', label: 'Out of focus', glyph: 'disc', title: 'The lens was focused elsewhere'},
  {value: 'gaussian', label: 'Soft', glyph: 'soft', title: 'A Gaussian: haze, diffusion, a soft lens'},
  {value: 'draw', label: 'Draw the path', glyph: 'path', title: 'Draw the path that a point of light took'},
  {value: 'star', label: 'Click a star', glyph: 'star', title: 'Take a star, bead or lamp of this picture'},
  {value: 'file', label: 'PSF file', glyph: 'file', title: 'A picture of a point of light, or any blur file'},
];
const START = {motion: {length: 15, angle: 0}, defocus: {radius: 4}, gaussian: {sigma: 2}};
const TOOLS = {motion: 'motion', defocus: 'disc', star: 'star'};

const parts = {};

export function buildBlurPanel() {
  const kinds = app.server.ways.length ? [FIND, ...KINDS] : KINDS;
  parts.kinds = choice({label: 'What blurred it', options: kinds, value: null, kind: 'kinds', onchange: chooseKind});
  parts.where = el('div', {class: 'where', role: 'radiogroup', 'aria-label': 'Where'});
  parts.values = el('div', {class: 'values'});
  parts.thumb = el('canvas', {class: 'thumb', width: 96, height: 96, role: 'img', 'aria-label': 'The blur of a point of light'});
  parts.caption = el('p', {class: 'help'});
  parts.seam = slider({
    label: 'Soft edge', unit: 'px', min: 0, max: 60, step: 1, value: app.sketch.feather,
    hint: 'How wide the transition between regions is.', onchange: (v) => edit((s) => { s.feather = v; }, 'feather'),
  });
  parts.file = el('p', {class: 'note'});
  const button = (label, tool, title) => el('button', {type: 'button', title, onclick: () => startRegion(tool), 'data-tool': tool}, label);
  parts.tools = [button('Paint a region', 'brush', 'Paint with a brush (B)'), button('Outline a region', 'outline', 'Click its corners (L)')];
  parts.brush = el('div', {class: 'brush-bar'},
    choice({label: 'Brush', options: [{value: 'brush', label: 'Paint'}, {value: 'erase', label: 'Erase'}], value: 'brush', onchange: setTool}),
    slider({label: 'Brush size', unit: 'px', min: 1, max: Math.max(60, Math.round(app.facts.width / 4)), step: 1, value: app.brush, log: true, onchange: (v) => { app.brush = v; redraw(); }}));
  $('panel-blur').replaceChildren(
    el('h2', {}, 'Where'), parts.where, el('div', {class: 'row'}, ...parts.tools), parts.brush,
    el('h2', {}, 'What blurred it'), parts.kinds, parts.values,
    el('div', {class: 'thumb-row'}, parts.thumb, parts.caption), parts.file, parts.seam,
    el('div', {class: 'row files'},
      el('button', {type: 'button', class: 'quiet', onclick: () => $('pick-blur').click()}, 'Load a blur file'),
      el('button', {type: 'button', class: 'quiet', id: 'save-blur', onclick: saveBlur}, 'Save the blur file')));
  update();
}

async function saveBlur() {
  try { toast(`Saved ${await save(path('/download-blur'), app.sketch)}`, 'note'); } catch (error) { toast(error.message); }
}

export function startRegion(tool) {
  if (tool === 'brush' && !app.sketch.regions[app.active]?.strokes) app.active = -1;
  if (tool === 'brush' && app.brush === 30) app.brush = Math.max(4, Math.round(Math.max(app.facts.width, app.facts.height) / 30));
  setTool(app.tool === tool ? 'hand' : tool);
  update();
}

function chooseKind(kind) {
  app.kind = kind;
  if (START[kind] && kindOf(activeKernel()) !== kind) {
    setKernel({[kind]: {...START[kind]}});
    app.kind = null;
  }
  setTool(TOOLS[kind] ?? 'hand');
  if (kind === 'file') $('pick-blur').click();
  update();
  parts.values.scrollIntoView({block: 'nearest'});
}

const FOUND = 'found in the picture';

// The kind that is marked: what is drawn, or what was chosen and waits for a drawing.
function currentKind() {
  if (app.kind) return app.kind;
  if (app.active < 0 && app.project.files[app.sketch.file]?.name === FOUND) return 'find';
  const kind = kindOf(activeKernel());
  if (kind === 'kernel') {
    const name = app.project.files[activeKernel().kernel]?.name;
    return {drawn: 'draw', 'a star': 'star', [FOUND]: 'find'}[name] ?? 'file';
  }
  return kind;
}

const VALUES = {
  motion: (k) => [
    slider({label: 'Length', unit: 'px', min: 1, max: 200, step: 0.1, value: k?.motion.length ?? 15, log: true, onchange: (v) => change('motion', {length: v})}),
    slider({label: 'Angle', unit: '\u00b0', min: 0, max: 180, step: 0.5, value: k?.motion.angle ?? 0, onchange: (v) => change('motion', {angle: v})}),
    el('p', {class: 'help'}, 'Drag a line along a streak in the picture: that gives both.')],
  defocus: (k) => [
    slider({label: 'Radius', unit: 'px', min: 0.5, max: 100, step: 0.1, value: k?.defocus.radius ?? 4, log: true, onchange: (v) => change('defocus', {radius: v})}),
    el('p', {class: 'help'}, 'A point of light became a disc of this size. You can drag on the picture from the middle of a disc to its rim.')],
  gaussian: (k) => [
    slider({label: 'Width', unit: 'px', min: 0.3, max: 50, step: 0.1, value: one(k?.gaussian.sigma ?? 2), log: true, onchange: (v) => change('gaussian', {sigma: v})}),
    el('p', {class: 'help'}, 'The standard deviation. A soft edge is about three times as wide.')],
  draw: () => [pad()],
  star: () => [
    slider({label: 'Square', unit: 'px', min: 9, max: 151, step: 2, value: drawn.star, onchange: (v) => { drawn.star = v; redraw(); }}),
    el('p', {class: 'help'}, 'Click a star, bead or lamp that stands alone. The square should hold all of its light, and dark sky around it.')],
  file: () => [
    el('button', {type: 'button', onclick: () => $('pick-blur').click()}, 'Choose the file'),
    el('p', {class: 'help'}, 'PNG, TIFF, NPY, FITS, MAT, PSFEx or YAML. Choose a YAML file together with the files that it names, or a ZIP of them.')],
  find: findValues,
};
const one = (sigma) => (Array.isArray(sigma) ? Math.max(...sigma) : sigma);

function change(kind, values) {
  setKernel({[kind]: {...START[kind], ...activeKernel()?.[kind], ...values}}, `${kind} ${Object.keys(values)[0]} ${app.active}`);
}

// --- showing what is ------------------------------------------------------------------------------------------------

let valuesFor = null;

export function update() {
  if (!parts.kinds) return;
  const kind = currentKind();
  parts.kinds.update(kind);
  const key = `${app.project.id} ${kind} ${app.active}`;
  if (key !== valuesFor) {
    valuesFor = key;
    parts.values.replaceChildren(...(kind ? VALUES[kind](kind === kindOf(activeKernel()) ? activeKernel() : null) : []));
    if (!kind) parts.values.append(el('p', {class: 'help'}, 'Choose what happened. You can try several: nothing is lost.'));
  }
  refreshValues();
  parts.seam.hidden = !app.sketch.regions.length;
  parts.seam.update(app.sketch.feather);
  parts.brush.hidden = app.tool !== 'brush' && app.tool !== 'erase';
  if (!parts.brush.hidden) {
    parts.brush.firstChild.update(app.tool);
    parts.brush.lastChild.update(app.brush);
  }
  for (const tool of parts.tools) tool.setAttribute('aria-pressed', String(app.tool === tool.dataset.tool));
  parts.file.hidden = !app.sketch.file;
  parts.file.textContent = app.sketch.file ? wordsOnFile(app.project.files[app.sketch.file]) : '';
  $('save-blur').disabled = isEmpty();
  showKernel();
  showWhere();
}

function wordsOnFile(file) {
  const from = file?.name === FOUND ? 'Found in the picture.' : `From a file: ${file?.name ?? 'blur'}.`;
  return [from, ...(file?.words ?? []), 'Choosing a kind of blur replaces it.'].join(' ');
}

// Sliders follow what was dragged on the picture or undone.
function refreshValues() {
  const kernel = activeKernel(), kind = kindOf(kernel);
  if (kind !== currentKind()) return; // another kind was chosen, and waits for its drawing
  const numbers = {motion: [kernel?.motion?.length, kernel?.motion?.angle], defocus: [kernel?.defocus?.radius], gaussian: [one(kernel?.gaussian?.sigma)]}[kind] ?? [];
  numbers.forEach((value, i) => parts.values.children[i]?.update?.(value));
}

function showWhere() {
  const entries = [{index: -1, label: app.sketch.regions.length ? 'Everywhere else' : 'Whole picture'},
    ...app.sketch.regions.map((region, index) => ({index, label: `Region ${index + 1}`}))];
  parts.where.replaceChildren(...entries.map(({index, label}) => {
    const chosen = index === app.active;
    const dot = el('span', {class: 'dot', 'aria-hidden': 'true'});
    dot.style.background = index < 0 ? 'transparent' : colourOf(index);
    const blur = kindOf(index < 0 ? app.sketch.background : app.sketch.regions[index].kernel);
    return el('div', {class: `chip${chosen ? ' chosen' : ''}`},
      el('button', {type: 'button', role: 'radio', 'aria-checked': String(chosen), onclick: () => select(index)}, dot, label,
        el('span', {class: 'soft'}, blur ? ` ${NAMES[blur]}` : index < 0 && !app.sketch.file ? ' sharp' : '')),
      index < 0 ? (app.sketch.regions.length && app.sketch.background
        ? el('button', {type: 'button', class: 'icon', title: 'Sharp here', 'aria-label': 'No blur everywhere else', onclick: () => edit((s) => { s.background = null; })}, '\u00d7') : null)
        : el('button', {type: 'button', class: 'icon', title: 'Remove', 'aria-label': `Remove region ${index + 1}`, onclick: () => removeRegion(index)}, '\u00d7'));
  }));
}
const NAMES = {motion: 'shake', defocus: 'focus', gaussian: 'soft', kernel: 'PSF'};

export function removeRegion(index) {
  edit((sketch) => { sketch.regions.splice(index, 1); });
  select(-1);
}

function showKernel() {
  if (!parts.thumb) return;
  const c = parts.thumb.getContext('2d'), {image, width, height} = shown;
  c.fillStyle = '#101114';
  c.fillRect(0, 0, 96, 96);
  const waiting = app.kind !== null; // another kind was chosen, and nothing is drawn yet
  parts.thumb.parentElement.hidden = !image || waiting || isEmpty() || (!activeKernel() && !app.sketch.file);
  if (!image) return;
  const scale = Math.min(88 / width, 88 / height);
  c.imageSmoothingEnabled = false;
  c.drawImage(image, 48 - width * scale / 2, 48 - height * scale / 2, width * scale, height * scale);
  parts.caption.textContent = `What a point of light became: ${width} \u00d7 ${height} pixels. It lies over the picture at its true size${shown.places.length > 1 ? ', at several places' : ''}.`;
}

on('sketch', update);
on('tool', update);
on('kernel', showKernel);

// The first page: open a picture, or go on with one that was open before.

import {bitmap, get, remove, upload} from './api.js';
import {$, el, toast} from './dom.js';
import {app, openProject, tell} from './store.js';

export async function showStart() {
  app.project = null;
  tell('closed');
  try { app.server = await get('/state'); } catch (error) { noServer(error); return; }
  const recent = app.server.projects;
  $('pick-picture').accept = Object.values(app.server.formats).flat().map(suffixForDialog).join(',');
  $('work').hidden = true;
  $('start').hidden = false;
  document.body.dataset.page = 'start';
  $('start').replaceChildren(
    el('div', {class: 'welcome'},
      el('h1', {}, 'Make a blurred picture sharp'),
      el('p', {class: 'lead'}, 'Open it, say what blurred it, and look. The picture stays on this computer.'),
      el('div', {class: 'drop', id: 'drop'},
        el('button', {type: 'button', class: 'primary large', onclick: () => $('pick-picture').click()}, 'Choose a picture'),
        el('p', {class: 'soft'}, 'or drop one here'), el('p', {class: 'help'}, `${Object.keys(app.server.formats).join(', ')}, up to ${app.server.limits.pixels / 1e6} megapixels`)),
      recent.length ? el('h2', {}, 'Go on with') : null,
      recent.length ? el('ul', {class: 'recent'}, ...recent.slice(0, 12).map(recentEntry)) : null));
}

// A dialog for files looks at the last suffix alone: '.gz' for '.fits.gz'.
const suffixForDialog = (suffix) => suffix.slice(suffix.lastIndexOf('.'));

function recentEntry(project) {
  const thumb = el('canvas', {width: 120, height: 90, 'aria-hidden': 'true'});
  bitmap(`/projects/${project.id}/tiles/${project.levels - 1}/0/0`).then((image) => {
    const scale = Math.max(120 / image.width, 90 / image.height), w = image.width * scale, h = image.height * scale;
    thumb.getContext('2d').drawImage(image, (120 - w) / 2, (90 - h) / 2, w, h);
    image.close();
  }).catch(() => {});
  return el('li', {},
    el('button', {type: 'button', class: 'project', onclick: () => open(project.id)}, thumb,
      el('span', {class: 'name'}, project.name), el('span', {class: 'soft'}, `${project.width} \u00d7 ${project.height}`)),
    el('button', {type: 'button', class: 'icon forget', 'aria-label': `Remove ${project.name}`, title: 'Remove it with its results',
      onclick: () => forget(project)}, '\u00d7'));
}

async function forget(project) {
  if (!window.confirm(`Remove ${project.name} and its results from this computer?`)) return;
  try { await remove(`/projects/${project.id}`); } catch (error) { toast(error.message); }
  showStart();
}

export async function open(id) {
  try { enter(await get(`/projects/${id}`)); } catch (error) { toast(error.message); showStart(); }
}

function enter(project) {
  $('start').hidden = true;
  $('work').hidden = false;
  document.body.dataset.page = 'work';
  history.replaceState(null, '', `#project=${project.id}`);
  openProject(project);
}

export async function openFile(file) {
  const limits = app.server?.limits;
  if (limits && file.size > limits.upload) { toast(`${file.name} is too large: at most ${limits.upload >> 20} MiB.`); return; }
  document.body.dataset.busy = 'true';
  const drop = $('drop');
  drop?.replaceChildren(el('p', {class: 'lead', role: 'status'}, 'Reading the picture\u2026'), el('progress', {'aria-label': 'Reading the picture'}));
  try {
    enter(await upload('/projects', file, file.name));
  } catch (error) {
    toast(error.message);
    if (!app.project) showStart();
  }
  delete document.body.dataset.busy;
}

function noServer(error) {
  $('work').hidden = true;
  $('start').hidden = false;
  document.body.dataset.page = 'locked';
  $('start').replaceChildren(el('div', {class: 'welcome'}, el('h1', {}, error.status === 401 ? 'This page needs its key' : 'The server does not answer'),
    el('p', {class: 'lead'}, error.message)));
}

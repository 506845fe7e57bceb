// "Find it for me": the server looks for the blur in the picture, and can be stopped.

import {get, post, remove} from './api.js';
import {choice, el, toast} from './dom.js';
import {app, edit, on, path, tell} from './store.js';

export const FIND = {value: 'find', label: 'Find it for me', glyph: 'find', title: 'Find the blur in the picture itself'};
const state = {busy: false, way: null, words: ''};

// What the panel shows: the ways that the server knows, and a button.
export function findValues() {
  const ways = app.server.ways;
  if (!ways.some((way) => way.name === state.way)) state.way = ways[0].name;
  const line = el('p', {class: 'help', role: 'status'});
  const button = el('button', {type: 'button', class: 'wide', onclick: () => (state.busy ? stop() : find())});
  const options = ways.map(({name, title}) => ({value: name, label: title}));
  const kinds = choice({label: 'How to find it', options, value: state.way, onchange: (name) => { state.way = name; state.words = ''; show(); }});
  function show() {
    button.textContent = state.busy ? 'Stop looking' : 'Find the blur';
    line.textContent = state.words || `${ways.find((way) => way.name === state.way).words} Look at the preview before you trust it.`;
    for (const one of kinds.children) one.disabled = state.busy;
  }
  state.show = show;
  show();
  return [kinds, line, button];
}
on('find', () => state.show?.());
on('project', () => { if (!state.busy) state.words = ''; });

function say(words) {
  state.words = words;
  tell('find');
}

async function find() {
  const place = path('/estimate'), project = app.project.id;
  state.busy = true;
  say('Looking\u2026');
  const watching = setInterval(async () => {
    try {
      const {stage, share} = await get(place);
      if (state.busy && stage) say(`Looking: ${stage}${share ? `, ${Math.round(100 * share)} %` : ''}`);
    } catch { /* not begun, or over */ }
  }, 700);
  let words = '';
  try {
    const made = await post(place, {way: state.way, linear: app.settings.linear});
    if (app.project?.id === project) {
      app.project.files[made.id] = made;
      app.kind = null;
      edit((sketch) => Object.assign(sketch, {background: null, regions: [], file: made.id}));
      words = 'Found. Look at the preview.';
    }
  } catch (error) { words = /ended early/.test(error.message) ? '' : error.message; }
  clearInterval(watching);
  state.busy = false;
  say(words);
}

const stop = () => remove(path('/estimate')).catch((error) => toast(error.message));

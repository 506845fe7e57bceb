// Step 2: how to restore. Each setting says in one line what it does.

import {$, choice, el, slider} from './dom.js';
import {app, on, setSettings} from './store.js';

const QUALITY = {
  quick: 'Half the work. Good for a first look.',
  standard: 'The usual choice.',
  best: 'A large network: a little sharper, about ten times slower.',
};
const parts = {};

export function buildSettingsPanel() {
  const {settings, server, facts} = app;
  parts.strength = slider({
    label: 'Strength', min: 0.3, max: 3, step: 0.05, value: settings.strength, log: true,
    hint: 'More is smoother, less is crisper. 1 suits most pictures.', onchange: (v) => setSettings({strength: v}),
  });
  parts.noise = choice({
    label: 'Noise', options: [{value: 'auto', label: 'Measure it'}, {value: 'given', label: 'I know it'}],
    value: settings.noise === 'auto' ? 'auto' : 'given', onchange: (v) => setSettings({noise: v === 'auto' ? 'auto' : 3}),
  });
  parts.level = slider({
    label: 'Noise level', unit: 'of 255', min: 0.2, max: 60, step: 0.1, value: settings.noise === 'auto' ? 3 : settings.noise, log: true,
    hint: 'The grain of the camera. More gives a smoother result.', onchange: (v) => setSettings({noise: v}),
  });
  const qualities = ['quick', 'standard', 'best'].map((value) => ({
    value, label: value[0].toUpperCase() + value.slice(1), disabled: value === 'best' && !server.best,
    title: value === 'best' && !server.best ? 'The large network is not installed' : QUALITY[value],
  }));
  parts.quality = choice({label: 'Quality', options: qualities, value: settings.quality, onchange: (v) => setSettings({quality: v})});
  parts.qualityHelp = el('p', {class: 'help'});
  parts.linear = el('input', {type: 'checkbox', id: 'linear', checked: settings.linear, disabled: !facts.tone, onchange: () => setSettings({linear: parts.linear.checked})});
  $('panel-settings').replaceChildren(
    parts.strength,
    el('div', {class: 'field'}, el('span', {class: 'label'}, 'Noise'), parts.noise, el('p', {class: 'help'}, 'Grain is told from detail by this number. The program can measure it.')),
    parts.level,
    el('div', {class: 'field'}, el('span', {class: 'label'}, 'Quality'), parts.quality, parts.qualityHelp),
    el('div', {class: 'field'}, el('label', {class: 'check', for: 'linear'}, parts.linear, 'Linear light'),
      el('p', {class: 'help'}, facts.tone ? 'For lamps and other strong contrasts: works with light as the lens saw it.' : 'This picture holds light already: nothing to convert.')),
    pictureFacts());
  update();
}

function pictureFacts() {
  const {facts, project} = app;
  const rows = [['Picture', project.name], ['Size', `${facts.width} \u00d7 ${facts.height}${facts.pages > 1 ? `, ${facts.pages} pages` : ''}`],
    ['Depth', `${facts.depth}, ${facts.format}`], ...facts.notes.map((note) => ['Note', note])];
  return el('dl', {class: 'facts'}, ...rows.flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
}

function update() {
  if (!parts.strength) return;
  const {settings} = app, auto = settings.noise === 'auto';
  parts.strength.update(settings.strength);
  parts.noise.update(auto ? 'auto' : 'given');
  parts.level.hidden = auto;
  if (!auto) parts.level.update(settings.noise);
  parts.quality.update(settings.quality);
  parts.qualityHelp.textContent = QUALITY[settings.quality];
  parts.linear.checked = settings.linear;
}
on('settings', update);

// The help: what to do, and the keys.

import {$, el} from './dom.js';

const STEPS = [
  ['Open', 'Drop a picture on the page. It stays on this computer, in full depth.'],
  ['Say what blurred it', 'For camera shake, drag a line along a streak. For a lens out of focus, set the size of the disc. Paint or outline regions where the blur is another one.'],
  ['Preview', 'A small square is restored at once. Drag it to a place with edges. Rings mean: too long or too wide.'],
  ['Restore', 'The whole picture in full depth. Compare, then save.'],
];
const KEYS = [
  ['Wheel, + and \u2212', 'zoom'], ['0, 1', 'whole picture, single pixels'], ['Arrows, Space and drag', 'move the picture'],
  ['M, L, B, E', 'motion line, outline, brush, eraser'], ['[ and ]', 'smaller, larger brush'], ['Enter, Esc', 'close the outline, leave the tool'],
  ['Delete', 'remove the chosen region'], ['Ctrl Z, Ctrl Shift Z', 'undo, redo'], ['P', 'preview'], ['R', 'restore the picture'], ['S', 'slider or side by side'], ['?', 'this help'],
];

export function showHelp() {
  const dialog = $('help-dialog');
  dialog.replaceChildren(
    el('h2', {id: 'help-title'}, 'Help'),
    el('ol', {class: 'steps'}, ...STEPS.map(([name, words]) => el('li', {}, el('strong', {}, `${name}. `), words))),
    el('h3', {}, 'Keys'),
    el('dl', {class: 'keys'}, ...KEYS.flatMap(([keys, words]) => [el('dt', {}, keys), el('dd', {}, words)])),
    el('div', {class: 'row end'}, el('button', {type: 'button', class: 'primary', onclick: () => dialog.close()}, 'Close')));
  dialog.showModal();
}

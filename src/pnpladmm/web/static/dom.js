// Elements without HTML strings: what a file or a user says is only ever text.

export const $ = (id) => document.getElementById(id);

// el('button', {class: 'x', onclick: f, 'aria-label': 'Save'}, 'Save', child)
export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (key === 'value' || key === 'checked' || key === 'disabled' || key === 'hidden') node[key] = value;
    else node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function toast(message, kind = 'bad') {
  const note = el('div', {class: `toast ${kind}`}, el('span', {}, message),
    el('button', {class: 'icon', type: 'button', 'aria-label': 'Close', onclick: () => note.remove()}, '\u00d7'));
  const all = $('toasts');
  while (all.children.length >= 3) all.firstChild.remove();
  all.append(note);
  setTimeout(() => note.remove(), kind === 'bad' ? 12000 : 4000);
}

// A label, a slider and a number that belong together, and one line on what they do.
export function slider({label, hint, unit = '', min, max, step, value, log = false, onchange}) {
  const name = `${label}${unit ? `, ${unit}` : ''}`;
  const toSlider = (v) => (log ? Math.log(v / min) / Math.log(max / min) * 1000 : v);
  const fromSlider = (v) => (log ? min * (max / min) ** (v / 1000) : v);
  const digits = step < 0.1 ? 2 : step < 1 ? 1 : 0;
  const show = (v) => Number(v).toFixed(digits);
  const range = el('input', {
    type: 'range', min: log ? 0 : min, max: log ? 1000 : max, step: log ? 1 : step, value: toSlider(value), 'aria-label': name,
  });
  const number = el('input', {type: 'number', min, max, step, value: show(value), 'aria-label': `${name}, number`});
  const set = (v) => onchange(Math.min(max, Math.max(min, Math.round(v / step) * step)));
  range.addEventListener('input', () => { const v = fromSlider(Number(range.value)); number.value = show(v); set(v); });
  number.addEventListener('change', () => {
    const v = Number(number.value);
    if (Number.isFinite(v)) { range.value = toSlider(Math.min(max, Math.max(min, v))); set(v); }
  });
  const node = el('div', {class: 'field'},
    el('div', {class: 'field-head'}, el('span', {class: 'label'}, label), el('span', {class: 'number'}, number, el('span', {class: 'unit'}, unit))),
    range, hint ? el('p', {class: 'help'}, hint) : null);
  node.update = (v) => {
    if (document.activeElement !== number) number.value = show(v);
    if (document.activeElement !== range || Math.abs(fromSlider(Number(range.value)) - v) > step) range.value = toSlider(v);
  };
  return node;
}

// Buttons of which one is chosen; arrow keys move between them.
export function choice({label, options, value, onchange, kind = 'segments'}) {
  const node = el('div', {class: kind, role: 'radiogroup', 'aria-label': label});
  const buttons = options.map((option) => el('button', {
    type: 'button', role: 'radio', 'data-value': option.value, 'aria-checked': String(option.value === value),
    tabindex: option.value === value || (value === null && option === options[0]) ? 0 : -1,
    title: option.title, disabled: Boolean(option.disabled), onclick: () => choose(option.value),
  }, ...(option.glyph ? [el('span', {class: `glyph glyph-${option.glyph}`, 'aria-hidden': 'true'})] : []), el('span', {}, option.label)));
  function mark(chosen) {
    for (const button of buttons) {
      const is = button.dataset.value === chosen;
      button.setAttribute('aria-checked', String(is));
      button.tabIndex = is ? 0 : -1;
    }
    if (!buttons.some((b) => b.tabIndex === 0)) buttons[0].tabIndex = 0;
  }
  function choose(chosen) { mark(chosen); onchange(chosen); }
  node.addEventListener('keydown', (event) => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const open = buttons.filter((b) => !b.disabled);
    const next = open[(open.indexOf(document.activeElement) + step + open.length) % open.length];
    next.focus();
    choose(next.dataset.value);
  });
  node.append(...buttons);
  node.update = mark;
  return node;
}

export const seconds = (s) => (s < 90 ? `${Math.max(1, Math.round(s))} s` : `${Math.round(s / 60)} min`);

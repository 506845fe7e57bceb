// The tools that say what the blur is: a line for a motion, an outline or a brush for a region, a click for a star.

import {post} from './api.js';
import {toast} from './dom.js';
import {addTool} from './pointer.js';
import {redraw, view} from './view.js';
import {app, edit, path, select, setKernel, setTool, tell} from './store.js';

export const drawn = {line: null, outline: null, stroke: null, star: 31};
const round = (v, digits = 1) => Math.round(v * 10 ** digits) / 10 ** digits;
const pair = ([x, y]) => [round(x), round(y)];
export const START_KERNEL = {defocus: {radius: 3}};

// --- one drag is one step back, and is taken back whole when a second finger comes ------------------------------------

const drag = {number: 0, before: null};
const key = () => `drag ${drag.number}`;

function begin() {
  drag.number += 1;
  drag.before = structuredClone(app.sketch);
}

const dragKernel = (kernel) => setKernel(kernel, key(), Infinity);

function takeBack() {
  if (JSON.stringify(app.sketch) === JSON.stringify(drag.before)) return;
  edit((sketch) => Object.assign(sketch, drag.before), key(), Infinity);
}

// --- motion: a line along the streaks ------------------------------------------------------------------------------

addTool('motion', {
  down(point) {
    begin();
    drawn.line = [point, point];
  },
  move(point) {
    drawn.line[1] = point;
    app.anchor = middle(drawn.line);
    const {length, angle} = measured(drawn.line);
    if (length >= 1) dragKernel({motion: {length: Math.min(length, 200), angle}});
  },
  up() { drawn.line = null; },
  cancel() {
    if (drawn.line) takeBack();
    drawn.line = null;
  },
});

const middle = ([a, b]) => [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];

// Degrees counter-clockwise from the right; a line has no arrow, so 0 to 180.
function measured([a, b]) {
  const angle = (Math.atan2(a[1] - b[1], b[0] - a[0]) * 180 / Math.PI + 360) % 180;
  return {length: round(Math.hypot(b[0] - a[0], b[1] - a[1])), angle: round(angle) % 180};
}

// --- out of focus: from the middle of a disc to its rim -----------------------------------------------------------

addTool('disc', {
  down(point) {
    begin();
    app.anchor = point;
  },
  move(point) {
    const radius = round(Math.hypot(point[0] - app.anchor[0], point[1] - app.anchor[1]));
    if (radius >= 0.5) dragKernel({defocus: {radius: Math.min(radius, 100)}});
  },
  up() { drag.before = null; },
  cancel() { if (drag.before) takeBack(); },
});

// --- regions -------------------------------------------------------------------------------------------------------

addTool('outline', {
  down(point) {
    const corners = drawn.outline ?? (drawn.outline = []);
    const near = corners.length > 2 && Math.hypot(point[0] - corners[0][0], point[1] - corners[0][1]) * view.scale < 12;
    if (near) this.finish();
    else if (corners.length < 100) corners.push(pair(point));
    tell('tool');
  },
  move() {},
  up() {},
  double() { this.finish(); },
  finish() {
    const corners = withoutTwins(drawn.outline ?? []);
    drawn.outline = null;
    if (corners.length >= 3) addRegion({polygon: corners});
    setTool('hand');
  },
  cancel() {
    drawn.outline = null;
    setTool('hand');
  },
});

// A double click makes its point twice.
function withoutTwins(corners) {
  return corners.filter((c, i) => i === 0 || Math.hypot(c[0] - corners[i - 1][0], c[1] - corners[i - 1][1]) * view.scale > 3);
}

export function addRegion(shape) {
  edit((sketch) => {
    sketch.file = null;
    sketch.regions.push({...shape, kernel: structuredClone(START_KERNEL)});
  });
  select(app.sketch.regions.length - 1);
}

function brush(erase) {
  return {
    cursor: 'none',
    down(point) {
      if (app.active < 0 || app.sketch.regions[app.active].strokes === null || app.sketch.regions[app.active].strokes === undefined) {
        if (erase) { toast('Choose a painted region first.', 'note'); return; }
        addRegion({strokes: []});
        setTool('brush');
      }
      drawn.stroke = {radius: round(app.brush), points: [pair(point)], erase};
    },
    move(point) {
      const points = drawn.stroke?.points;
      if (!points) return;
      const last = points[points.length - 1];
      if (Math.hypot(point[0] - last[0], point[1] - last[1]) > Math.max(0.5, app.brush / 6)) points.push(pair(point));
    },
    up() {
      const stroke = drawn.stroke;
      drawn.stroke = null;
      if (stroke) edit((sketch) => sketch.regions[app.active].strokes.push(stroke));
    },
    cancel() { drawn.stroke = null; },
  };
}
addTool('brush', brush(false));
addTool('erase', brush(true));

// --- a star or bead ------------------------------------------------------------------------------------------------

addTool('star', {
  down() {},
  move() {},
  async up(point) {
    try {
      const made = await post(path('/star'), {x: point[0], y: point[1], size: drawn.star});
      app.anchor = [made.x, made.y];
      app.project.files[made.id] = made;
      setKernel({kernel: made.id});
      toast('The star is the picture of a point of light now.', 'note');
    } catch (error) { toast(error.message); }
    redraw();
  },
});

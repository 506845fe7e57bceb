// A large picture in tiles. What is in view is fetched in the level that fits the zoom; until it is there, a coarser
// level is shown. Tiles are decoded outside of the main thread.

import {bitmap} from './api.js';

const TILE = 512, AT_ONCE = 6, KEPT = 260;

export class Tiles {
  constructor(address, facts, changed) {
    Object.assign(this, {address, changed, width: facts.width, height: facts.height, levels: facts.levels});
    this.kept = new Map(); // key -> bitmap, the least used first
    this.wanted = new Map(); // key -> place
    this.busy = 0;
    this.gone = false;
  }

  close() {
    this.gone = true;
    for (const image of this.kept.values()) image?.close();
    this.kept.clear();
  }

  // Draw what is visible of the picture; `place` says where its corner lies and how large its pixels are.
  draw(context, place, width, height, ratio) {
    const fitting = Math.floor(Math.log2(1 / (place.scale * ratio)) + 0.01);
    const level = Math.min(this.levels - 1, Math.max(0, fitting));
    context.imageSmoothingEnabled = place.scale * ratio < 2;
    context.imageSmoothingQuality = 'low';
    this.wanted.clear();
    const missing = this.drawLevel(context, place, width, height, this.levels - 1, level !== this.levels - 1);
    if (level === this.levels - 1) return !missing;
    // Coarser tiles below those that are not there yet.
    for (let k = this.levels - 2; k > level; k -= 1) this.drawLevel(context, place, width, height, k, true, true);
    return !this.drawLevel(context, place, width, height, level, false);
  }

  drawLevel(context, place, width, height, level, below, onlyKept = false) {
    const side = TILE * 2 ** level, {scale, x, y} = place;
    const first = [Math.max(0, Math.floor(y / side)), Math.max(0, Math.floor(x / side))];
    const lastRow = Math.min(Math.ceil(this.height / side) - 1, Math.floor((y + height / scale) / side));
    const lastColumn = Math.min(Math.ceil(this.width / side) - 1, Math.floor((x + width / scale) / side));
    let missing = 0;
    for (let row = first[0]; row <= lastRow; row += 1) {
      for (let column = first[1]; column <= lastColumn; column += 1) {
        const key = `${level}/${row}/${column}`, image = this.kept.get(key);
        if (!image) {
          missing += 1;
          if (!onlyKept) this.want(key, below);
          continue;
        }
        this.kept.delete(key); // used now: last in the row
        this.kept.set(key, image);
        this.drawTile(context, image, place, level, row, column);
      }
    }
    return missing;
  }

  drawTile(context, image, {scale, x, y}, level, row, column) {
    const size = 2 ** level, left = column * TILE * size, top = row * TILE * size;
    const right = Math.min(this.width, left + image.width * size), bottom = Math.min(this.height, top + image.height * size);
    // Whole pixels of the screen, so that no seam shows between tiles.
    const l = Math.round((left - x) * scale), t = Math.round((top - y) * scale);
    const r = Math.round((right - x) * scale), b = Math.round((bottom - y) * scale);
    if (r > l && b > t) context.drawImage(image, 0, 0, (right - left) / size, (bottom - top) / size, l, t, r - l, b - t);
  }

  want(key, first) {
    if (this.kept.has(key)) return;
    this.wanted.set(key, first);
    queueMicrotask(() => this.fetchNext());
  }

  fetchNext() {
    while (!this.gone && this.busy < AT_ONCE && this.wanted.size) {
      const keys = [...this.wanted.keys()];
      const key = keys.find((k) => this.wanted.get(k)) ?? keys[0];
      this.wanted.delete(key);
      this.busy += 1;
      this.kept.set(key, null);
      bitmap(`${this.address}/${key}`).then((image) => {
        if (this.gone) { image.close(); return; }
        this.kept.set(key, image);
        this.trim();
        this.changed();
      }).catch(() => this.kept.delete(key)).finally(() => {
        this.busy -= 1;
        this.fetchNext();
      });
    }
  }

  trim() {
    for (const [key, image] of this.kept) {
      if (this.kept.size <= KEPT) break;
      if (image === null || key.startsWith(`${this.levels - 1}/`)) continue;
      image.close();
      this.kept.delete(key);
    }
  }
}

// What a person would complain about on the page: an object of functions, each of which returns lines of text.

{
  // Text with less contrast than WCAG 2.1 AA asks for.
  lowContrast() {
    const parse = (c) => { const [r, g, b, a = 1] = c.match(/[\d.]+/g).map(Number); return [r, g, b, a]; };
    const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
    const ground = (node) => {
      const layers = [];
      for (let n = node; n; n = n.parentElement) {
        layers.push(parse(getComputedStyle(n).backgroundColor));
        if (layers.at(-1)[3] === 1) break;
      }
      return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
    };
    const light = (colour) => {
      const [r, g, b] = colour.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const poor = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode.parentElement, words = walker.currentNode.data.trim();
      if (!words || node.closest('script, noscript, :disabled')) continue;
      if (!node.checkVisibility({visibilityProperty: true})) continue;
      const style = getComputedStyle(node), below = ground(node);
      const [a, b] = [light(over(parse(style.color), below)), light(below)].sort((x, y) => y - x);
      const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
      const found = (a + 0.05) / (b + 0.05), least = size >= 24 || (size >= 18.66 && bold) ? 3 : 4.5;
      if (found < least) poor.push(`${words}: contrast ${found.toFixed(2)}`);
    }
    return poor;
  },

  // Controls that a screen reader could not name.
  nameless() {
    const controls = 'button, input, [role=slider], [role=radio], [role=tab], canvas, progress';
    return [...document.querySelectorAll(controls)]
      .filter((n) => n.checkVisibility() && n.getAttribute('aria-hidden') !== 'true')
      .filter((n) => !(n.getAttribute('aria-label') || n.textContent.trim() || n.labels?.length || n.title))
      .map((n) => `no name: ${n.outerHTML.slice(0, 80)}`);
  },

  // What is cut off or lies over something else that can be pressed.
  cutOff() {
    const bad = [], name = (n) => n.textContent || n.ariaLabel || n.id;
    const all = [...document.querySelectorAll('button, input, output, summary, p, h1, h2, h3, dd, dt')]
      .filter((n) => n.checkVisibility() && n.getBoundingClientRect().width);
    for (const n of all) {
      const box = n.getBoundingClientRect();
      if (box.left < -1 || box.right > document.documentElement.clientWidth + 1) bad.push(`beyond the window: ${name(n)}`);
      const inner = n.clientWidth && n.tagName !== 'INPUT' && getComputedStyle(n).display !== 'inline';
      if (inner && n.scrollWidth > n.clientWidth + 2) bad.push(`cut off: ${name(n)}`);
    }
    const isSeen = (n) => { // not scrolled out of the panel
      const panel = n.closest('.pages')?.getBoundingClientRect(), box = n.getBoundingClientRect();
      return !panel || (box.bottom <= panel.bottom + 1 && box.top >= panel.top - 1);
    };
    // Toasts go away, and the cross of a recent project lies on it.
    const pressed = all.filter((n) => n.matches('button, input') && !n.closest('dialog, .toasts, .recent') && isSeen(n));
    for (const [i, a] of pressed.entries()) {
      for (const b of pressed.slice(i + 1)) {
        if (a.contains(b) || b.contains(a)) continue;
        const s = a.getBoundingClientRect(), t = b.getBoundingClientRect();
        const width = Math.min(s.right, t.right) - Math.max(s.left, t.left);
        const height = Math.min(s.bottom, t.bottom) - Math.max(s.top, t.top);
        if (width > 2 && height > 2) bad.push(`${name(a)} overlaps ${name(b)}`);
      }
    }
    return bad;
  },
}

// Elements, markers and colours. Text enters the page as text, never as markup.
const el = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
};
const svg = (tag, attributes = {}, ...children) => {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};
const FILTERED = "Nothing is left of this by the filters.";
const empty = (text) => el("p", { class: "empty" }, text);
const card = (title, chart) => el("figure", { class: "card" }, el("figcaption", {}, title), chart);
const colour = (style) => (style < 0 ? "var(--none)" : `var(--s${style % 9})`);
const dash = (style) => (style < 0 ? "" : DASHES[style % DASHES.length]);

/** The marker of a style around a point; the same shapes as in the PNG files. */
const marker = (style, x, y, size = 4, attributes = {}) => {
  const r = size;
  const polygon = (...points) => svg("polygon", { points: points.map(([a, b]) => `${x + a * r},${y + b * r}`).join(" "), ...attributes });
  switch (style < 0 ? 0 : style % 9) {
    case 1: return polygon([-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]);
    case 2: return polygon([0, -1.15], [1.05, 0.85], [-1.05, 0.85]);
    case 3: return polygon([0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]);
    case 4: return polygon([0, 1.15], [1.05, -0.85], [-1.05, -0.85]);
    case 5: return polygon(
      [-0.4, -1.1], [0.4, -1.1], [0.4, -0.4], [1.1, -0.4], [1.1, 0.4], [0.4, 0.4],
      [0.4, 1.1], [-0.4, 1.1], [-0.4, 0.4], [-1.1, 0.4], [-1.1, -0.4], [-0.4, -0.4],
    );
    case 6: return polygon(
      [-1.1, -0.6], [-0.6, -1.1], [0, -0.5], [0.6, -1.1], [1.1, -0.6], [0.5, 0],
      [1.1, 0.6], [0.6, 1.1], [0, 0.5], [-0.6, 1.1], [-1.1, 0.6], [-0.5, 0],
    );
    case 7: return polygon([-1.15, 0], [0.85, -1.05], [0.85, 1.05]);
    case 8: return polygon([1.15, 0], [-0.85, -1.05], [-0.85, 1.05]);
    default: return svg("circle", { cx: x, cy: y, r, ...attributes });
  }
};
const hollow = (s) => ({ fill: "var(--raised)", stroke: colour(s.style), class: "mark" });
const swatch = (s, line = true) => {
  const node = svg("svg", { width: 26, height: 12, "aria-hidden": "true" });
  if (s.ours) {
    const look = { stroke: colour(s.style), "stroke-width": 2, "stroke-dasharray": dash(s.style) };
    if (line) node.append(svg("line", { x1: 0, x2: 26, y1: 6, y2: 6, ...look }));
    node.append(marker(s.style, 13, 6, 3.6, { fill: colour(s.style) }));
  } else if (s.style >= 0) {
    node.append(svg("line", { x1: 3, x2: 23, y1: 6, y2: 6, stroke: colour(s.style), class: "printed" }));
    node.append(marker(s.style, 13, 6, 3.6, hollow(s)));
  } else node.append(svg("line", { x1: 9, x2: 17, y1: 6, y2: 6, class: "tick" }));
  return node;
};

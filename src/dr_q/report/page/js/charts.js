// What all charts share: drawn when they come into view, and again when what they show changes; pointer and keyboard.
const charts = new Map();
const drawNow = (node) => {
  const chart = charts.get(node);
  if (chart && chart.stale && node.clientWidth) {
    chart.stale = false;
    node.replaceChildren(chart.draw(node.clientWidth));
    node.style.minHeight = "0";  // it was the room kept until now
  }
};
const observer = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const chart = charts.get(entry.target);
    if (chart) chart.near = entry.isIntersecting;
    if (entry.isIntersecting) drawNow(entry.target);
  }
}, { rootMargin: "300px" });
const chartNode = (draw, height) => {
  const node = el("div", { class: "chart" });
  if (height) node.style.minHeight = `${height}px`;
  charts.set(node, { draw, stale: true, near: false });
  observer.observe(node);
  return node;
};
const forget = (container) => {
  for (const node of container.querySelectorAll(".chart")) { observer.unobserve(node); charts.delete(node); }
  container.replaceChildren();
};
const drawAll = () => { for (const node of charts.keys()) drawNow(node); };
const redraw = () => {
  for (const [node, chart] of charts) { chart.stale = true; if (chart.near) drawNow(node); }
};

/** Pointer and keyboard over a chart: `points` are where values are; `show` marks one and fills the tooltip. */
const interactive = (root, points, nearest, show, first) => {
  let active = -1;
  const overlay = svg("g", { "pointer-events": "none" });
  root.append(overlay);
  const go = (index, event) => {
    if (index < 0 || !points.length) return;
    active = index;
    overlay.replaceChildren();
    const box = root.getBoundingClientRect();
    const [x, y] = show(points[index], overlay);
    showTip(points[index].title, points[index].pairs, event ? event.clientX : box.left + x, event ? event.clientY : box.top + y);
  };
  const leave = () => { active = -1; overlay.replaceChildren(); hideTip(); };
  const move = (event) => {
    const box = root.getBoundingClientRect();
    const index = nearest(event.clientX - box.left, event.clientY - box.top);
    if (index < 0) leave(); else go(index, event);
  };
  root.addEventListener("pointermove", move);
  root.addEventListener("pointerdown", move);
  root.addEventListener("pointerleave", leave);
  root.addEventListener("focus", () => { if (root.matches(":focus-visible")) go(first); });
  root.addEventListener("blur", leave);
  root.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key in steps) go(Math.max(0, Math.min(points.length - 1, (active < 0 ? first : active) + steps[event.key])));
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(points.length - 1);
    else if (event.key === "Escape") { leave(); return; }
    else return;
    event.preventDefault();
  });
};

const plotRoot = (width, height, label) => {
  const root = svg("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, height, tabindex: 0, role: "img", "aria-label": label });
  root.style.maxWidth = `${width}px`;
  return root;
};

// The controls: filters, links, contents.
const boxes = [];
const checkbox = (container, text, sample, value, get, set) => {
  const input = el("input", { type: "checkbox", value });
  input.addEventListener("change", () => { set(input.checked); changed(); });
  boxes.push(() => { input.checked = get(); });
  container.append(el("label", { class: "check" }, input, sample, el("span", {}, text)));
};
const setIn = (set, key, on) => { if (on) set.add(key); else set.delete(key); };
const syncControls = () => {
  for (const sync of boxes) sync();
  if ($("search").value !== state.q) $("search").value = state.q;
  $("all-tasks").checked = state.all;
};
const changed = () => { syncControls(); writeHash(); render(); };
const setUp = () => {
  for (const s of data.suites) checkbox($("suite-filter"), s.title, null, s.name, () => state.suites.has(s.name), (on) => {
    setIn(state.suites, s.name, on);
    state.suites = new Set(data.suites.map((one) => one.name).filter((name) => state.suites.has(name)));
  });
  for (const s of data.series) {
    const sample = s.ours || s.style >= 0 ? swatch(s) : null;
    const box = $(s.ours ? "preset-filter" : "paper-filter");
    const hide = (on) => setIn(state.hide, s.key, !on);
    checkbox(box, s.name, sample, s.key, () => !state.hide.has(s.key), hide);
  }
  const theirs = data.series.filter((s) => !s.ours);
  $("paper-fieldset").hidden = !theirs.length;
  $("paper-all").addEventListener("click", () => { for (const s of theirs) state.hide.delete(s.key); changed(); });
  $("paper-none").addEventListener("click", () => { for (const s of theirs) state.hide.add(s.key); changed(); });
  $("all-tasks-label").hidden = !Object.values(data.tables).some((table) => table.rows.some((row) => !row.has_runs));
  $("all-tasks").addEventListener("change", () => { state.all = $("all-tasks").checked; changed(); });
  let pause = 0;
  const search = () => { state.q = $("search").value; changed(); };
  $("search").addEventListener("input", () => { clearTimeout(pause); pause = setTimeout(search, 120); });
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("reset").addEventListener("click", () => { clear(); changed(); });
  $("copy").addEventListener("click", async () => {
    writeHash();
    try {
      await navigator.clipboard.writeText(location.href);
      $("copied").textContent = "The link is on the clipboard.";
    } catch {
      $("copied").textContent = location.href;
    }
  });
  for (const section of document.querySelectorAll("main > section")) {
    if (section.id === "reference" && !data.references.length) continue;
    if (section.id === "grid" && !data.grids.length) continue;
    $("contents").append(el("li", {}, el("a", { href: `#${section.id}` }, section.querySelector("h2").textContent)));
  }
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest('a[href^="#"]') : null;
    if (!link) return;
    event.preventDefault();
    state.at = link.getAttribute("href").slice(1);
    writeHash();
    const narrow = matchMedia("(max-width: 860px)").matches;
    if (narrow) $("panel").open = false;
    goTo(state.at);
  });
};
const goTo = (id) => {
  const target = $(id);
  if (!target) return;
  target.scrollIntoView();
  if (!target.hasAttribute("tabindex")) target.setAttribute("tabindex", "-1");
  target.focus({ preventScroll: true });
};

// What is filtered, hidden and sorted; the address holds it, so that a link shares it.
const state = { suites: new Set(), hide: new Set(), q: "", all: false, sort: new Map(), at: "" };
const clear = () => {
  state.suites = new Set(data.suites.map((s) => s.name));
  state.hide = new Set();
  state.q = "";
  state.all = false;
  state.sort = new Map();
};
const readHash = () => {
  clear();
  const hash = location.hash.slice(1);
  if (/^[\w-]+$/.test(hash)) { state.at = hash; return; }
  const given = new URLSearchParams(hash);
  if (given.has("suites")) state.suites = new Set(given.get("suites").split(",").filter((name) => suiteTitle.has(name)));
  for (const key of given.getAll("hide")) if (series.has(key)) state.hide.add(key);
  state.q = given.get("q") ?? "";
  state.all = given.get("all") === "1";
  for (const one of given.getAll("sort")) {
    const found = /^([\w-]+)\.(\d+)\.(up|down)$/.exec(one);
    if (found && Object.hasOwn(data.tables, found[1])) state.sort.set(found[1], { column: +found[2], up: found[3] === "up" });
  }
  state.at = given.get("at") ?? "";
};
const writeHash = () => {
  const given = new URLSearchParams();
  if (state.suites.size < data.suites.length) given.set("suites", [...state.suites].join(","));
  for (const key of state.hide) given.append("hide", key);
  if (state.q) given.set("q", state.q);
  if (state.all) given.set("all", "1");
  for (const [name, { column, up }] of state.sort) given.append("sort", `${name}.${column}.${up ? "up" : "down"}`);
  if (state.at) given.set("at", state.at);
  const text = given.toString();
  history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
};
const matches = (task) => task.toLowerCase().includes(state.q.trim().toLowerCase());
const visible = (row) =>
  (!row.suite || state.suites.has(row.suite)) && (!row.series || !state.hide.has(row.series)) &&
  (!row.task || matches(row.task)) && (row.has_runs !== false || state.all);
const shownPresets = () => data.series.filter((s) => s.ours && !state.hide.has(s.key));
const shownSuites = () => data.suites.filter((s) => state.suites.has(s.name));

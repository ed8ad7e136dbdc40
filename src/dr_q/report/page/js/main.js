// The beginning: fill in the page and draw it.
applyTheme();
panel();
$("version").textContent = data.version;
$("facts").textContent = data.facts.join(" · ");
for (const node of document.querySelectorAll("[data-fill]")) {
  const value = data[node.dataset.fill];
  node.textContent = typeof value === "number" ? value.toLocaleString("en-US") : value;
}
setUp();
readHash();
syncControls();
render();
if (state.at) goTo(state.at);
performance.mark("dr-q-ready");

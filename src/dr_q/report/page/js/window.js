// Light and dark, the width of the window, printing, scrolling.
const dark = matchMedia("(prefers-color-scheme: dark)");
let theme = "auto";
try { theme = localStorage.getItem("dr-q-theme") ?? "auto"; } catch { /* storage may be switched off for files */ }
if (!["auto", "light", "dark"].includes(theme)) theme = "auto";
const applyTheme = () => {
  document.documentElement.dataset.theme = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
  $("theme").textContent = `Theme: ${theme}`;
  $("theme").setAttribute("aria-label", theme === "auto" ? "Colours: as the system" : `Colours: ${theme}`);
};
dark.addEventListener("change", applyTheme);
$("theme").addEventListener("click", () => {
  theme = { auto: "dark", dark: "light", light: "auto" }[theme];
  try { localStorage.setItem("dr-q-theme", theme); } catch { /* as above */ }
  applyTheme();
});
const narrow = matchMedia("(max-width: 860px)");
const panel = () => { $("panel").open = !narrow.matches; };
narrow.addEventListener("change", panel);
let width = innerWidth, wait = 0;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  clearTimeout(wait);
  wait = setTimeout(redraw, 120);
});
addEventListener("beforeprint", drawAll);
addEventListener("scroll", () => (shownAgain ?? hideTip)(), { passive: true });
addEventListener("hashchange", () => { readHash(); syncControls(); render(); if (state.at) goTo(state.at); });

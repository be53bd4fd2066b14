"use strict";
// Keys, the choice of dark or light, and waiting for an index. Every page works without this file.
const root = document.documentElement;
const kept = localStorage.getItem("theme");
if (kept === "dark" || kept === "light") root.dataset.theme = kept;
const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
});

const rows = () => [...document.querySelectorAll("ol.rows > li > a")];
function step(by) {
  const all = rows();
  const at = all.indexOf(document.activeElement);
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by];
  if (next) next.focus();
}
document.addEventListener("keydown", (event) => {
  const writing = event.target.closest("input, textarea, select");
  if (event.key === "Escape" && writing) return writing.blur();
  if (writing || event.ctrlKey || event.altKey || event.metaKey) return;
  const named = [...document.querySelectorAll("[data-key]")].filter((each) => each.dataset.key === event.key).pop();
  if (named) {
    event.preventDefault();
    if (named.matches("input, textarea")) named.focus(); else named.click();
  } else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
  else if (event.key === "n" || event.key === "p") document.querySelector(`a[rel=${event.key === "n" ? "next" : "prev"}]`)?.click();
  else if (event.key === "?") location.assign("/keys");
});
if (document.getElementById("waiting")) setTimeout(() => location.reload(), 1000);
// A training that runs: its figures come by themselves, and the focus stays where it is.
async function live() {
  const part = document.querySelector("[data-live]");
  if (!part) return;
  const answer = await fetch(location.href).catch(() => null);
  if (answer?.ok) part.replaceWith(new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live"));
  setTimeout(live, 2000);
}
setTimeout(live, 2000);

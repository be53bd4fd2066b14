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
// Answers, as they are written; the less likely a piece was, the stronger its line.
async function answer(slot) {
  const [text, state] = ["[data-text]", "[data-state]"].map((each) => slot.querySelector(each));
  const form = new URLSearchParams(new FormData(document.getElementById("asked")));
  form.set("model", slot.dataset.model);
  form.set("seed", slot.dataset.seed);
  let rest = "", whole = "", sum = 0, pieces = 0, ended = "broke off";
  const show = (line) => {
    const piece = JSON.parse(line);
    if (piece.problem) ended = piece.problem;
    if (piece.end) ended = piece.end === "length" ? "cut: it may take more tokens" : "done";
    if (!piece.text) return;
    whole += piece.text;
    const span = text.appendChild(document.createElement("span"));
    span.textContent = piece.text;
    if (piece.logprob == null) return;
    sum += piece.logprob;
    pieces += 1;
    span.title = `probability ${Math.exp(piece.logprob).toFixed(3)}`;
    span.className = piece.logprob > -0.7 ? "" : piece.logprob > -1.6 ? "l1" : piece.logprob > -3 ? "l2" : "l3";
  };
  try {
    const reply = await fetch("/generate/answer", { method: "POST", body: form });
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      rest += part.value;
      const lines = rest.split("\n");
      rest = lines.pop();
      lines.forEach(show);
    }
  } catch (error) { ended = String(error); }
  state.textContent = ended + (pieces ? `, ${(sum / pieces).toFixed(2)} nats a piece` : "");
  const judge = slot.querySelector("[data-judge]");
  if (judge && ended === "done") {
    judge.hidden = false;
    judge.querySelector("[name=answer]").value = whole;
    judge.querySelector("[name=correction]").value = whole;
  }
  return ended === "done" ? whole : null;
}
const slots = [...document.querySelectorAll("[data-answer]")];
Promise.all(slots.map(answer)).then((answers) => {
  const vote = document.querySelector("[data-vote]");
  if (!vote || answers.some((each) => each == null)) return;
  ["one", "other"].forEach((name, place) => { vote.elements[`${name}_answer`].value = answers[place]; });
  vote.hidden = false;
});

// How far a correction is from the answer, while it is written.
document.querySelectorAll("[data-correction]").forEach((field) => field.addEventListener("input", () => {
  const was = field.form.elements.answer.value, now = field.value;
  let start = 0, end = 0;
  while (start < Math.min(was.length, now.length) && was[start] === now[start]) start++;
  while (end < Math.min(was.length, now.length) - start && was.at(-1 - end) === now.at(-1 - end)) end++;
  const out = field.closest("details").querySelector("[data-diff]");
  out.replaceChildren();
  for (const [tag, part] of [["del", was.slice(start, was.length - end)], ["ins", now.slice(start, now.length - end)]])
    if (part) out.appendChild(document.createElement(tag)).textContent = part.slice(0, 400);
}));

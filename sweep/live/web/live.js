"use strict";
// The page asks every two seconds what has changed: its text, the figure's numbers, curves. What is equal stays: focus,
// what is open, what is selected.

const WAIT_MS = { least: 2000, most: 10000 };
const seen = {}; // versions of the parts that the page has
let draw = null; // of `curves.js`, once there is a figure

function morph(old, now) {
  if (old.nodeType !== now.nodeType || old.nodeName !== now.nodeName || old.id !== now.id) return old.replaceWith(now);
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  if ("kept" in old.dataset) return; // a script has filled it
  for (const { name } of [...old.attributes]) if (name !== "open" && !now.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of now.attributes) if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  const before = [...old.childNodes];
  [...now.childNodes].forEach((node, index) => (before[index] ? morph(before[index], node) : old.append(node)));
  before.slice(now.childNodes.length).forEach((node) => node.remove());
}

const show = {
  page(text) {
    const now = new DOMParser().parseFromString(text, "text/html");
    if (now.getElementById("state").dataset.shown !== study().shown) return location.reload(); // another one trains
    morph(document.querySelector("main"), now.querySelector("main"));
  },
  figure(chart) {
    if (draw) return draw(chart, []);
    document.getElementById("data").textContent = JSON.stringify(chart);
    document.getElementById("drawn").hidden = false;
    draw = drawn();
  },
  curves: (found) => draw?.(null, found),
  problem: (text) => (document.getElementById("problem").textContent = text),
};
const study = () => document.getElementById("state").dataset;

async function poll() {
  const began = performance.now();
  let title = document.title.replace(/^not connected: /, "");
  try {
    const answer = await fetch(`/state?${new URLSearchParams({ study: study().asked, ...seen })}`);
    if (!answer.ok) throw answer;
    for (const [part, { version, content }] of Object.entries(await answer.json())) {
      show[part](content);
      seen[part] = version;
    }
  } catch {
    title = `not connected: ${title}`;
  }
  document.title = title;
  const rest = 9 * (performance.now() - began); // the machine also trains
  setTimeout(poll, Math.min(Math.max(WAIT_MS.least, rest), WAIT_MS.most));
}

localStorage.setItem("mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true"); // else MLflow opens its assistant over the columns
if (location.search) history.replaceState(null, "", location.pathname); // the token
if (document.getElementById("state")) poll();

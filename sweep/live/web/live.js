"use strict";
// The page asks every two seconds how it is by now. What is equal stays: focus, what is open, what is selected.

const WAIT_MS = { least: 2000, most: 10000 };

function morph(old, now) {
  if (old.nodeType !== now.nodeType || old.nodeName !== now.nodeName || old.id !== now.id) return old.replaceWith(now);
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (name !== "open" && !now.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of now.attributes) if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  const before = [...old.childNodes];
  [...now.childNodes].forEach((node, index) => (before[index] ? morph(before[index], node) : old.append(node)));
  before.slice(now.childNodes.length).forEach((node) => node.remove());
}

async function poll() {
  const began = performance.now();
  let title = document.title.replace(/^not connected: /, "");
  try {
    const answer = await fetch(location.pathname);
    if (!answer.ok) throw answer;
    const now = new DOMParser().parseFromString(await answer.text(), "text/html");
    morph(document.querySelector("main"), now.querySelector("main"));
    title = now.title;
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

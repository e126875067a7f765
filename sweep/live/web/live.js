"use strict";
// The page reads itself again when the server says that something changed. What is equal stays: focus, what is open, what is selected.

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

async function readAgain() {
  const answer = await fetch(location.href);
  if (!answer.ok) return;
  const now = new DOMParser().parseFromString(await answer.text(), "text/html");
  morph(document.querySelector("main"), now.querySelector("main"));
}

localStorage.setItem("mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true"); // else MLflow opens its assistant over the columns
if (location.search) history.replaceState(null, "", location.pathname); // the token
const events = new EventSource("/events");
events.onmessage = readAgain;
events.onerror = () => (document.title = document.title.replace(/^(not connected: )?/, "not connected: "));
events.onopen = () => (document.title = document.title.replace(/^not connected: /, ""));

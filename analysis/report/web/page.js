// Controls

function options(select, names) {
  select.replaceChildren();
  names.forEach((name) => add(select, "option", { value: name }, name));
}

function chooseTask() {
  const before = $("model").value;
  options($("model"), data.panels.filter((panel) => panel.task === $("task").value).map((panel) => panel.model));
  if ([...$("model").options].some((option) => option.value === before)) $("model").value = before;
  choosePanel();
}

function choosePanel() {
  const before = shown?.handle.rates[at].text;
  shown = data.panels.find((panel) => panel.task === $("task").value && panel.model === $("model").value);
  $("variants").querySelectorAll("label").forEach((label) => label.remove());
  for (const line of shown.lines) addSwitch(line);
  const kept = shown.handle.rates.findIndex((rate) => rate.text === before);
  at = kept < 0 ? shown.handle.start : kept;
  draw();
}

function addSwitch(line) {
  const label = add($("variants"), "label");
  const box = add(label, "input", { type: "checkbox", value: line.variant });
  box.checked = !off.has(line.variant);
  const sample = add(label, "svg", { width: 26, height: 14, "aria-hidden": "true" });
  add(sample, "line", { x1: 0, x2: 26, y1: 7, y2: 7, stroke: line.colour, "stroke-width": 2, "stroke-dasharray": line.dash });
  marker(sample, line, 13, 7);
  add(label, "span", {}, line.variant);
  box.addEventListener("change", () => {
    box.checked ? off.delete(line.variant) : off.add(line.variant);
    draw();
  });
}

// While a sweep runs the page reads itself again, and what was chosen stays. Where a browser keeps nothing, the page starts anew.

const LIVE = document.querySelector(".live");
const KEPT = "lr-sweep:" + location.pathname;

function keep() {
  const chosen = { task: $("task").value, model: $("model").value, rate: shown?.handle.rates[at].text, off: [...off] };
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(chosen));
  } catch {}
}

function restore() {
  let kept = null;
  try {
    if (LIVE) kept = JSON.parse(sessionStorage.getItem(KEPT));
  } catch {}
  kept?.off.forEach((variant) => off.add(variant));
  if (data.panels.some((panel) => panel.task === kept?.task)) $("task").value = kept.task;
  chooseTask();
  if (data.panels.some((panel) => panel.task === kept?.task && panel.model === kept.model)) {
    $("model").value = kept.model;
    choosePanel();
  }
  const index = shown.handle.rates.findIndex((rate) => rate.text === kept?.rate);
  if (index >= 0 && handle) moveTo(index);
}

function readAgain() {
  if (handle?.dragged) return setTimeout(readAgain, 500);
  keep();
  location.reload();
}

plot.addEventListener("pointermove", (event) => handle?.dragged || showNear(nearest(event)));
plot.addEventListener("pointerdown", (event) => handle?.dragged || showNear(nearest(event)));
plot.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hideTooltip());
plot.addEventListener("focusin", () => showNear(points.find(({ node }) => node === document.activeElement)));
plot.addEventListener("focusout", hideTooltip);
plot.addEventListener("keydown", move);

// A frame that scrolls can be reached by the keyboard, also one in a table that is opened later.
function reachFrames() {
  for (const frame of document.querySelectorAll(".scroll")) if (frame.scrollWidth > frame.clientWidth) frame.tabIndex = 0;
}
reachFrames();
document.addEventListener("toggle", reachFrames, { capture: true });
// On paper everything is open.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => (each.open = true)));
if (data.panels.length) {
  options($("task"), unique(data.panels.map((panel) => panel.task)));
  $("choose-model").hidden = unique(data.panels.map((panel) => panel.model)).length < 2;
  $("task").addEventListener("change", chooseTask);
  $("model").addEventListener("change", choosePanel);
  $("sweep").hidden = false;
  restore();
  new ResizeObserver(() => plot.firstChild.viewBox.baseVal.width === Math.max(plot.clientWidth, 260) || draw()).observe(plot);
  // The images show the same.
  for (const still of $("sweep").parentNode.querySelectorAll("details:has(img)")) still.open = false;
}
if (LIVE) setTimeout(readAgain, 1000 * LIVE.dataset.refreshS);

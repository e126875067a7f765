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
  const before = shown?.handle.rates[at]?.text;
  shown = data.panels.find((panel) => panel.task === $("task").value && panel.model === $("model").value);
  $("variants").querySelectorAll("label").forEach((label) => label.remove());
  for (const line of shown.lines) addSwitch(line);
  drawAt(before);
}

function drawAt(text) {
  const kept = shown.handle.rates.findIndex((rate) => rate.text === text);
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
  $("choose-task").hidden = $("task").options.length < 2;
  $("choose-model").hidden = unique(data.panels.map((panel) => panel.model)).length < 2;
  $("task").addEventListener("change", chooseTask);
  $("model").addEventListener("change", choosePanel);
  $("sweep").hidden = false;
  chooseTask();
  new ResizeObserver(() => plot.firstChild.viewBox.baseVal.width === Math.max(plot.clientWidth, 260) || draw()).observe(plot);
  // The images show the same.
  for (const still of $("sweep").parentNode.querySelectorAll("details:has(img)")) still.open = false;
}

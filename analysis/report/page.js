"use strict";
// The chart of the report: test accuracy, or another metric, against learning rate, one line a variant. It draws the data that `chart.py` wrote
// into the page and computes no statistics. Text from the study only ever becomes text nodes and attribute values.
(() => {
  const HEIGHT = { least: 280, most: 460, share: 0.55 };
  const MARGIN = { top: 28, right: 16, bottom: 48, left: 52 };
  const SIDE = 1.8; // the axis extends by this factor beyond the learning rates swept, as in the images
  const LABEL_WIDTH = 56; // pixels that a label of the x axis needs
  const LOST_ROW = 16; // pixels between the crosses of two variants
  const REACH = 40; // pixels from which the pointer finds a point
  const TIE = 4; // points this close together share a tooltip
  const AWAY = 14; // pixels from a point to its tooltip
  const FIXED_COLOUR = "#B00020";
  // Markers by matplotlib's letters: corners on the unit circle's square, y downwards.
  const MARKERS = {
    v: [[-1, -0.8], [1, -0.8], [0, 1]],
    "^": [[-1, 0.8], [1, 0.8], [0, -1]],
    s: [[-0.85, -0.85], [0.85, -0.85], [0.85, 0.85], [-0.85, 0.85]],
    D: [[0, -1.15], [1.15, 0], [0, 1.15], [-1.15, 0]],
    P: [[-0.35, -1], [0.35, -1], [0.35, -0.35], [1, -0.35], [1, 0.35], [0.35, 0.35], [0.35, 1], [-0.35, 1], [-0.35, 0.35], [-1, 0.35], [-1, -0.35], [-0.35, -0.35]],
    X: [[-1, -0.6], [-0.6, -1], [0, -0.4], [0.6, -1], [1, -0.6], [0.4, 0], [1, 0.6], [0.6, 1], [0, 0.4], [-0.6, 1], [-1, 0.6], [-0.4, 0]],
    p: [[0, -1], [0.95, -0.31], [0.59, 0.81], [-0.59, 0.81], [-0.95, -0.31]],
  };

  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const metric = data.metric ?? { title: "Test accuracy", axis: "test accuracy (%)", chosen_on: "validation", unit: " %", least: 0, most: 100 };
  const plot = $("plot");
  const off = new Set(); // names of the variants switched off
  let shown; // the panel that is drawn
  let points = []; // of the visible lines, as drawn: {point, line, x, y, node}

  const unique = (values) => [...new Set(values)];
  const closest = (found, away) => found.reduce((a, b) => (a && away(a) <= away(b) ? a : b), null);

  function add(parent, name, attributes = {}, text = null) {
    const space = parent instanceof SVGElement || name === "svg" ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
    const node = document.createElementNS(space, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== null) node.textContent = text;
    return parent.appendChild(node);
  }

  function marker(parent, line, x, y, filled = true, size = 4.5) {
    const look = { fill: filled ? line.colour : "#fff", stroke: line.colour, "stroke-width": 1.5 };
    if (!MARKERS[line.marker]) return add(parent, "circle", { cx: x, cy: y, r: size, ...look });
    const corners = MARKERS[line.marker].map(([dx, dy]) => `${x + size * dx},${y + size * dy}`);
    return add(parent, "polygon", { points: corners.join(" "), ...look });
  }

  function cross(parent, x, y, colour) {
    const d = `M${x - 4} ${y - 4}l8 8m0 -8l-8 8`;
    return add(parent, "path", { d, stroke: colour, "stroke-width": 1.8, fill: "none" });
  }

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
    shown = data.panels.find((panel) => panel.task === $("task").value && panel.model === $("model").value);
    $("variants").querySelectorAll("label").forEach((label) => label.remove());
    for (const line of shown.lines) addSwitch(line);
    draw();
  }

  function addSwitch(line) {
    const label = add($("variants"), "label");
    const box = add(label, "input", { type: "checkbox", value: line.variant });
    box.checked = !off.has(line.variant);
    const sample = add(label, "svg", { width: 26, height: 14, "aria-hidden": "true" });
    add(sample, "line", { x1: 0, x2: 26, y1: 7, y2: 7, stroke: line.colour, "stroke-width": 2 });
    marker(sample, line, 13, 7);
    add(label, "span", {}, line.variant);
    box.addEventListener("change", () => {
      box.checked ? off.delete(line.variant) : off.add(line.variant);
      draw();
    });
  }

  // Scales. They follow all of a panel's variants, so that nothing moves when one is switched off.

  function scales(width, height) {
    const every = shown.lines.flatMap((line) => line.points);
    const rates = every.map((point) => point.rate).concat(shown.fixed ? [shown.fixed.rate] : []);
    const [low, high] = [Math.log(Math.min(...rates) / SIDE), Math.log(Math.max(...rates) * SIDE)];
    const values = every.filter((point) => point.mean !== null).flatMap((point) => [point.mean - point.sem, point.mean + point.sem]);
    const empty = !values.length;
    if (!empty) values.push(...shown.lines.map((line) => line.published).filter((value) => value !== null));
    const ends = !empty ? [Math.min(...values), Math.max(...values)] : [metric.least ?? 0, metric.most ?? 1];
    const little = metric.most === null ? 0.01 * Math.abs(ends[1]) || 0.5 : 0.5;
    const room = !empty ? Math.max(0.08 * (ends[1] - ends[0]), little) : 0;
    const [bottom, top] = [Math.max(metric.least ?? -Infinity, ends[0] - room), Math.min(metric.most ?? Infinity, ends[1] + room)];
    const lost = every.some((point) => point.kind === "diverged" || point.kind === "none") ? shown.lines.length * LOST_ROW : 0;
    const [left, floor] = [MARGIN.left, height - MARGIN.bottom];
    const x = (rate) => left + ((Math.log(rate) - low) / (high - low)) * (width - left - MARGIN.right);
    const y = (value) => floor - lost - ((value - bottom) / (top - bottom)) * (floor - lost - MARGIN.top);
    return { x, y, bottom, top, floor, empty };
  }

  function stepsBetween(low, high) {
    const rough = (high - low) / 5;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
    const count = Math.floor(high / step + 1e-9) - Math.ceil(low / step - 1e-9) + 1;
    const digits = Math.max(0, -Math.floor(Math.log10(step)));
    return Array.from({ length: count }, (_, i) => (Math.ceil(low / step - 1e-9) + i) * step).map((value) => [value, value.toFixed(digits)]);
  }

  // Drawing

  function draw() {
    plot.replaceChildren();
    points = [];
    const width = Math.max(plot.clientWidth, 260);
    const height = Math.min(Math.max(width * HEIGHT.share, HEIGHT.least), HEIGHT.most);
    const label = `${metric.title} against learning rate, ${shown.task}, ${shown.model}`;
    const svg = add(plot, "svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label });
    const scale = scales(width, height);
    drawAxes(svg, scale, width, height);
    shown.lines.forEach((line, row) => off.has(line.variant) || drawLine(svg, scale, line, row, width));
    if (scale.empty) add(svg, "text", { x: width / 2, y: height / 2, "text-anchor": "middle", class: "axis" }, "no values yet");
    if (points.length) points[0].node.setAttribute("tabindex", 0);
    add(plot, "div", { id: "tooltip", class: "tooltip", role: "tooltip", hidden: "" });
    drawKey();
  }

  function drawAxes(svg, scale, width, height) {
    const right = width - MARGIN.right;
    for (const [value, text] of stepsBetween(scale.bottom, scale.top)) {
      add(svg, "line", { x1: MARGIN.left, x2: right, y1: scale.y(value), y2: scale.y(value), stroke: "#e6e6e6" });
      add(svg, "text", { x: MARGIN.left - 8, y: scale.y(value) + 4, "text-anchor": "end", class: "axis" }, text);
    }
    const swept = new Map(shown.lines.flatMap((line) => line.points).map((point) => [point.rate, point.rate_text]));
    let last = -Infinity;
    for (const [rate, text] of [...swept].sort((a, b) => a[0] - b[0])) {
      const x = scale.x(rate);
      add(svg, "line", { x1: x, x2: x, y1: MARGIN.top, y2: scale.floor + 4, stroke: "#e6e6e6" });
      if (x - last < LABEL_WIDTH) continue;
      add(svg, "text", { x, y: scale.floor + 18, "text-anchor": "middle", class: "axis" }, text);
      last = x;
    }
    add(svg, "path", { d: `M${MARGIN.left} ${MARGIN.top}V${scale.floor}H${right}`, stroke: "#555", fill: "none" });
    add(svg, "text", { x: (MARGIN.left + right) / 2, y: height - 8, "text-anchor": "middle", class: "axis" }, "learning rate (log scale)");
    add(svg, "text", { x: 4, y: 14, class: "axis" }, metric.axis);
    if (!shown.fixed) return;
    const x = scale.x(shown.fixed.rate);
    const dashed = { stroke: FIXED_COLOUR, "stroke-width": 1.3, "stroke-dasharray": "6 4", class: "fixed" };
    add(svg, "line", { x1: x, x2: x, y1: MARGIN.top, y2: scale.floor, ...dashed });
  }

  function drawLine(svg, scale, line, row, width) {
    const group = add(svg, "g", { "data-variant": line.variant, role: "group", "aria-label": line.variant });
    const known = line.points.filter((point) => point.mean !== null);
    if (line.published !== null) {
      const dotted = { stroke: line.colour, "stroke-width": 1.4, "stroke-dasharray": "2 4", class: "published" };
      add(group, "line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: scale.y(line.published), y2: scale.y(line.published), ...dotted });
    }
    const path = known.map((point) => `${scale.x(point.rate)},${scale.y(point.mean)}`);
    add(group, "polyline", { points: path.join(" "), stroke: line.colour, "stroke-width": 2, fill: "none" });
    for (const point of known.filter((each) => each.sem)) drawSem(group, scale, line, point);
    for (const point of line.points) drawPoint(group, scale, line, point, scale.floor - LOST_ROW * (row + 0.6));
  }

  function drawSem(group, scale, line, point) {
    const x = scale.x(point.rate);
    const [low, high] = [scale.y(point.mean - point.sem), scale.y(point.mean + point.sem)];
    const d = `M${x} ${low}V${high}M${x - 3} ${low}h6M${x - 3} ${high}h6`;
    add(group, "path", { d, stroke: line.colour, "stroke-width": 1.5, fill: "none", class: "sem" });
  }

  function drawPoint(group, scale, line, point, below) {
    const x = scale.x(point.rate);
    const y = point.mean === null ? below : scale.y(point.mean);
    const [variant, ...rest] = describe(line, point);
    const name = [variant, place(point), ...rest].join(", ");
    const node = add(group, "g", { class: "point", role: "img", tabindex: -1, "aria-label": name, "data-rate": point.rate_text });
    add(node, "circle", { cx: x, cy: y, r: 10, fill: "#0000", class: "halo" });
    if (point.chosen) add(node, "circle", { cx: x, cy: y, r: 9, fill: "none", stroke: line.colour, class: "chosen" });
    if (point.kind === "diverged") cross(node, x, below, line.colour);
    if (point.mean !== null) marker(node, line, x, y, point.kind === "full");
    else if (point.kind === "none") add(node, "circle", { cx: x, cy: y, r: 3, fill: "none", stroke: line.colour, "stroke-dasharray": "2 2" });
    points.push({ point, line, x, y, node });
  }

  function drawKey() {
    const key = $("key");
    key.replaceChildren();
    const every = shown.lines.flatMap((line) => line.points);
    const has = (kind) => every.some((point) => point.kind === kind);
    const entry = (wanted, text, draw) => {
      if (!wanted) return;
      const item = add(key, "span");
      draw(add(item, "svg", { width: 26, height: 20, "aria-hidden": "true" }));
      item.append(text);
    };
    const ring = { cx: 13, cy: 10, fill: "none", stroke: "#555" };
    const rule = { x1: 0, x2: 26, y1: 10, y2: 10, "stroke-width": 1.5 };
    entry(every.some((point) => point.chosen), `chosen on ${metric.chosen_on}`, (svg) => add(svg, "circle", { ...ring, r: 9 }));
    entry(has("partial"), "not all seeds", (svg) => add(svg, "circle", { ...ring, r: 4.5 }));
    entry(has("diverged"), "all seeds diverged", (svg) => cross(svg, 13, 10, "#555"));
    entry(has("none"), "no value: failed or missing", (svg) => add(svg, "circle", { ...ring, r: 3, "stroke-dasharray": "2 2" }));
    entry(shown.fixed, shown.fixed?.label, (svg) => add(svg, "line", { ...rule, stroke: FIXED_COLOUR, "stroke-dasharray": "6 4" }));
    entry(shown.lines.some((line) => line.published !== null), "published best (Rothermel et al. 2021)", (svg) => add(svg, "line", { ...rule, stroke: "#555", "stroke-dasharray": "2 4" }));
  }

  // Values under the pointer, and under the keyboard's focus

  const place = (point) => `${shown.task}, ${shown.model}, learning rate ${point.rate_text}`;

  function describe(line, point) {
    const value = point.mean === null ? point.text : `${point.text}${metric.unit}` + (point.sem === null ? ", one seed: no SEM" : " (mean ± SEM)");
    const parts = [line.variant, value, `${point.seeds} seeds have a value`, point.lost];
    if (point.chosen) parts.push(`chosen on ${metric.chosen_on}`);
    if (line.published !== null) parts.push(`published best ${line.published_text} %`);
    return parts;
  }

  function showNear(found) {
    const tooltip = $("tooltip");
    hideTooltip();
    if (!found) return;
    tooltip.replaceChildren();
    add(tooltip, "span", {}, place(found.point));
    for (const other of points.filter((each) => Math.hypot(each.x - found.x, each.y - found.y) <= TIE)) {
      const block = add(tooltip, "div");
      const [name, ...rest] = describe(other.line, other.point);
      add(block, "b", {}, name);
      for (const text of rest) add(block, "span", {}, text);
      other.node.classList.add("near");
    }
    tooltip.hidden = false;
    const [width, height] = [tooltip.offsetWidth, tooltip.offsetHeight];
    const right = plot.clientWidth - width;
    const sides = [found.x + AWAY, found.x - AWAY - width].filter((left) => left >= 0 && left <= right);
    const above = found.y - AWAY - height;
    const [left, top] = sides.length
      ? [sides[0], Math.max(0, Math.min(found.y - 20, plot.clientHeight - height))]
      : [Math.max(0, Math.min(found.x - width / 2, right)), above >= 0 ? above : found.y + AWAY];
    Object.assign(tooltip.style, { left: `${left}px`, top: `${top}px` });
  }

  function hideTooltip() {
    $("tooltip").hidden = true;
    points.forEach(({ node }) => node.classList.remove("near"));
  }

  function nearest(event) {
    const box = plot.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const away = (each) => Math.hypot(each.x - x, each.y - y);
    return closest(points.filter((each) => away(each) <= REACH), away);
  }

  function move(event) {
    const here = points.find(({ node }) => node === document.activeElement);
    if (event.key === "Escape") return hideTooltip();
    const [along, across] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [];
    if (!here || along === undefined) return;
    event.preventDefault();
    const lines = unique(points.map(({ line }) => line));
    const there = points.filter(({ line }) => line === lines[lines.indexOf(here.line) + across]);
    const next = along ? there[there.indexOf(here) + along] : closest(there, (each) => Math.abs(each.x - here.x));
    if (!next) return;
    here.node.setAttribute("tabindex", -1);
    next.node.setAttribute("tabindex", 0);
    next.node.focus();
  }

  plot.addEventListener("pointermove", (event) => showNear(nearest(event)));
  plot.addEventListener("pointerdown", (event) => showNear(nearest(event)));
  plot.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hideTooltip());
  plot.addEventListener("focusin", () => showNear(points.find(({ node }) => node === document.activeElement)));
  plot.addEventListener("focusout", hideTooltip);
  plot.addEventListener("keydown", move);

  for (const frame of document.querySelectorAll(".scroll")) if (frame.scrollWidth > frame.clientWidth) frame.tabIndex = 0;
  if (data.panels.length) {
    options($("task"), unique(data.panels.map((panel) => panel.task)));
    $("choose-model").hidden = unique(data.panels.map((panel) => panel.model)).length < 2;
    $("task").addEventListener("change", chooseTask);
    $("model").addEventListener("change", choosePanel);
    $("sweep").hidden = false;
    chooseTask();
    new ResizeObserver(() => plot.firstChild.viewBox.baseVal.width === Math.max(plot.clientWidth, 260) || draw()).observe(plot);
    // The images show the same; on paper they are what is shown.
    const stills = [...$("sweep").parentNode.querySelectorAll("details")];
    stills.forEach((still) => (still.open = false));
    addEventListener("beforeprint", () => stills.forEach((still) => (still.open = true)));
  }
})();

// The chart: scales, axes, lines and key.

// Scales. They follow all of a panel's variants, so that nothing moves when one is switched off.

function scales(width, height) {
  const every = shown.lines.flatMap((line) => line.points);
  const rates = every.map((point) => point.rate);
  const [low, high] = [Math.log(Math.min(...rates) / SIDE), Math.log(Math.max(...rates) * SIDE)];
  const values = every.filter((point) => point.mean !== null).flatMap((point) => [point.mean - point.sem, point.mean + point.sem]);
  for (const line of shown.lines) values.push(...line.seeds, ...(line.fresh?.ends ?? []));
  const empty = !values.length;
  const ends = !empty ? [Math.min(...values), Math.max(...values)] : [metric.least ?? 0, metric.most ?? 1];
  const little = metric.most === null ? 0.01 * Math.abs(ends[1]) || 0.5 : 0.5;
  const room = !empty ? Math.max(0.08 * (ends[1] - ends[0]), little) : 0;
  const [bottom, top] = [Math.max(metric.least ?? -Infinity, ends[0] - room), Math.min(metric.most ?? Infinity, ends[1] + room)];
  const lost = every.some((point) => point.mean === null || point.kind === "diverged") ? shown.lines.length * LOST_ROW : 0;
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
  handle = null;
  $("reading").replaceChildren();
  const width = Math.max(plot.clientWidth, 260);
  const height = Math.min(Math.max(width * HEIGHT.share, HEIGHT.least), HEIGHT.most);
  const label = `${metric.title} against learning rate, ${shown.task}, ${shown.model}`;
  const svg = add(plot, "svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label });
  const scale = scales(width, height);
  if (!scale.empty) drawShades(svg, scale, width);
  drawAxes(svg, scale, width, height);
  shown.lines.forEach((line, row) => off.has(line.variant) || drawLine(svg, scale, line, row));
  if (scale.empty) add(svg, "text", { x: width / 2, y: height / 2, "text-anchor": "middle", class: "axis" }, "no values yet");
  if (!scale.empty) drawHandle(svg, scale, width);
  if (points.length) points[0].node.setAttribute("tabindex", 0);
  add(plot, "div", { id: "tooltip", class: "tooltip", role: "tooltip", hidden: "" });
  drawKey();
}

function drawAxes(svg, scale, width, height) {
  const right = width - MARGIN.right;
  for (const [value, text] of stepsBetween(scale.bottom, scale.top)) {
    add(svg, "line", { x1: MARGIN.left, x2: right, y1: scale.y(value), y2: scale.y(value), class: "grid" });
    add(svg, "text", { x: MARGIN.left - 8, y: scale.y(value) + 4, "text-anchor": "end", class: "axis" }, text);
  }
  const swept = new Map(shown.lines.flatMap((line) => line.points).map((point) => [point.rate, point.rate_text]));
  let last = -Infinity;
  for (const [rate, text] of [...swept].sort((a, b) => a[0] - b[0])) {
    const x = scale.x(rate);
    add(svg, "line", { x1: x, x2: x, y1: MARGIN.top, y2: scale.floor + 4, class: "grid" });
    if (x - last < LABEL_WIDTH) continue;
    add(svg, "text", { x, y: scale.floor + 18, "text-anchor": "middle", class: "axis" }, text);
    last = x;
  }
  add(svg, "path", { d: `M${MARGIN.left} ${MARGIN.top}V${scale.floor}H${right}`, class: "frame" });
  add(svg, "text", { x: (MARGIN.left + right) / 2, y: height - 8, "text-anchor": "middle", class: "axis" }, "learning rate (log scale)");
  add(svg, "text", { x: 4, y: 12, class: "axis" }, metric.axis);
}

function drawLine(svg, scale, line, row) {
  const group = add(svg, "g", { "data-variant": line.variant, role: "group", "aria-label": line.variant });
  const known = line.points.filter((point) => point.mean !== null);
  const path = known.map((point) => `${scale.x(point.rate)},${scale.y(point.mean)}`);
  add(group, "polyline", { points: path.join(" "), stroke: line.colour, "stroke-width": 2, "stroke-dasharray": line.dash, fill: "none" });
  for (const point of known.filter((each) => each.sem)) drawSem(group, scale, line, point);
  for (const point of line.points.filter((each) => each.chosen)) drawSeeds(group, scale, line, point);
  for (const point of line.points) drawPoint(group, scale, line, point, scale.floor - LOST_ROW * (row + 0.6));
}

// Beside the ring of a chosen rate: single seeds, and the mean of fresh ones with its interval.
function drawSeeds(group, scale, line, point) {
  const x = scale.x(point.rate) + BESIDE;
  const mark = add(group, "g", { class: "seeds" });
  const dots = line.seeds.map((value) => `M${x} ${scale.y(value)}h0`).join("");
  add(mark, "path", { d: dots, stroke: line.colour, "stroke-width": 3.4, "stroke-linecap": "round", "stroke-opacity": 0.6, class: "dots" });
  if (!line.fresh) return;
  const [low, high] = line.fresh.ends.map(scale.y);
  const bar = line.fresh.ends.length ? `M${x} ${low}V${high}` : "";
  const fresh = add(mark, "path", { d: `${bar}M${x - 5} ${scale.y(line.fresh.mean)}h10`, stroke: line.colour, "stroke-width": 1.5, fill: "none", class: "fresh" });
  add(fresh, "title", {}, ofFresh(line.fresh));
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
  if (point.chosen && line.edge) edgeArrow(node, x, y, line.edge, line.colour);
  if (point.kind === "diverged") cross(node, x, below, line.colour);
  if (point.mean !== null) marker(node, line, x, y, point.kind === "full");
  else if (point.kind !== "diverged") add(node, "circle", { cx: x, cy: y, r: 3, fill: "none", stroke: line.colour, "stroke-dasharray": "2 2" });
  points.push({ point, line, x, y, node });
}

// From the ring of a best rate that is the smallest or largest tried, to where a better one may be.
function edgeArrow(parent, x, y, edge, colour) {
  const way = edge === "high" ? 1 : -1;
  const d = `M${x + 9 * way} ${y}h${9 * way}l${-4 * way} -4m${4 * way} 4l${-4 * way} 4`;
  add(parent, "path", { d, stroke: colour, "stroke-width": 1.5, fill: "none", class: "edge" });
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
  const ring = { cx: 13, cy: 10, class: "sample" };
  entry(every.some((point) => point.chosen), `chosen on ${metric.chosen_on}`, (svg) => add(svg, "circle", { ...ring, r: 9 }));
  entry(shown.lines.some((line) => line.edge), "best rate at the edge of those tried", (svg) => edgeArrow(svg, -1, 10, "high", "currentColor"));
  entry(shown.lines.some((line) => line.seeds.length), "single seeds at the chosen rate", (svg) => [5, 9, 15].map((cy) => add(svg, "circle", { cx: 13, cy, r: 1.7, fill: "currentColor" })));
  entry(shown.lines.some((line) => line.fresh), "mean of fresh seeds, 95% interval", (svg) => add(svg, "path", { d: "M13 2V18M8 10h10", "stroke-width": 1.5, class: "sample" }));
  entry(has("partial"), "fewer seeds", (svg) => add(svg, "circle", { ...ring, r: 4.5 }));
  entry(has("diverged"), "all seeds diverged", (svg) => cross(svg, 13, 10, "currentColor"));
  entry(has("none"), "no value", (svg) => add(svg, "circle", { ...ring, r: 3, "stroke-dasharray": "2 2" }));
  const flips = (kind, sure) => shown.handle.rates.some((rate) => rate.kind === kind && rate.sure === sure);
  const tint = (kind, sure) => (svg) => {
    const band = add(svg, "g", { class: flipClass(kind, sure) });
    drawTint(band, sure, { x: 2, width: 22, y: 2, height: 16 });
    add(band, "rect", { x: 2, width: 22, y: 14, height: 4, class: "strip" });
  };
  for (const [sure, doubt] of [[true, ""], [false, ", not significant"]]) {
    entry(flips("winner", sure), `another winner than tuned${doubt}`, tint("winner", sure));
    entry(flips("order", sure), `tuned winner, another order${doubt}`, tint("order", sure));
  }
}

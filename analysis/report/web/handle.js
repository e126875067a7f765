// The handle: a line that is dragged along the learning rates that were tried, and beside the chart what a comparison
// at that rate alone would have concluded. Orders and shading come from page.py.

const GRIP = { width: 58, height: 20, top: 20 };
const STRIPE = { step: 7, width: 3 };
const STRIP = 6; // pixels of the bar that repeats the shading on the axis, for eyes that do not see the tint
const IN_WORDS = {
  same: "the tuned order",
  order: "the tuned winner, but another order",
  winner: "another winner than the tuned one",
  unknown: "not comparable: a variant has no value here",
};
const UNSURE = "; but the difference here is not significant";
let at = 0; // index in `shown.handle.rates`
let handle = null; // the group that is moved, and what it knows: {node, label, scale}

// Which variants: names by place, the best first; equal ones in one place.

const names = (order) => order.map((level) => level.map((index) => shown.lines[index].variant).join(" = ")).join(" > ");
const known = (order) => (order.length ? names(order) : "nothing: no variant has a value");

const meant = (rate) => `${IN_WORDS[rate.kind]}${rate.sure ? "" : UNSURE}`;

function said(rate) {
  const lost = rate.lost ? ` (${rate.lost})` : "";
  return `At ${rate.text} you would have concluded: ${known(rate.order)}${lost}.`;
}

function tuned() {
  const [first, ...others] = shown.handle.tuned;
  const conditions = others.flat().map((index) => shown.lines[index].condition).filter(Boolean);
  return first ? `After tuning: ${[names(shown.handle.tuned), ...conditions].join(", ")}.` : "";
}

// The chart's part

function drawShades(svg, scale, width) {
  const rates = shown.handle.rates.map((each) => scale.x(each.rate));
  const ends = [MARGIN.left, ...rates.slice(1).map((x, i) => (x + rates[i]) / 2), width - MARGIN.right];
  for (const [i, { kind, sure }] of shown.handle.rates.entries()) {
    if (kind !== "winner" && kind !== "order") continue;
    const [x, wide] = [ends[i], ends[i + 1] - ends[i]];
    const band = add(svg, "g", { class: flipClass(kind, sure) });
    drawTint(band, sure, { x, width: wide, y: MARGIN.top, height: scale.floor - MARGIN.top });
    add(band, "rect", { x, width: wide, y: scale.floor - STRIP, height: STRIP, class: "strip" });
  }
}

const flipClass = (kind, sure) => `flip ${kind}${sure ? "" : " unsure"}`;

// The tint of a band: whole, or in stripes where the flip cannot be distinguished from chance.
function drawTint(band, sure, { x, width, y, height }) {
  const [step, wide] = sure ? [width, width] : [STRIPE.step, STRIPE.width];
  for (let left = x; left < x + width; left += step) {
    add(band, "rect", { x: left, width: Math.min(wide, x + width - left), y, height, class: "tint" });
  }
}

function drawHandle(svg, scale, width) {
  const node = add(svg, "g", { class: "handle", role: "slider", tabindex: 0, "aria-label": "Learning rate of the comparison" });
  node.setAttribute("aria-orientation", "horizontal");
  node.setAttribute("aria-valuemin", 0);
  node.setAttribute("aria-valuemax", shown.handle.rates.length - 1);
  add(node, "line", { x1: 0, x2: 0, y1: GRIP.top + GRIP.height, y2: scale.floor, class: "line" });
  add(node, "rect", { x: -14, width: 28, y: MARGIN.top, height: scale.floor - MARGIN.top, class: "reach" });
  add(node, "rect", { x: -GRIP.width / 2, width: GRIP.width, y: GRIP.top, height: GRIP.height, rx: 10, class: "grip" });
  const label = add(node, "text", { x: 0, y: GRIP.top + 14.5, "text-anchor": "middle", class: "grip-text" });
  const axis = { x: MARGIN.left, width: width - MARGIN.left - MARGIN.right, y: scale.floor, height: 26, class: "reach axis-reach" };
  for (const target of [node, add(svg, "rect", axis)]) listen(target, svg);
  handle = { node, label, scale };
  svg.addEventListener("click", (event) => event.pointerType === "mouse" && follow(event, svg)); // a tap shows values
  node.addEventListener("keydown", step);
  moveTo(at);
}

function listen(target, svg) {
  target.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    event.preventDefault();
    target.setPointerCapture(event.pointerId);
    handle.node.focus({ preventScroll: true });
    handle.dragged = true;
    follow(event, svg);
  });
  target.addEventListener("pointermove", (event) => handle.dragged && follow(event, svg));
  for (const end of ["pointerup", "pointercancel"]) target.addEventListener(end, () => (handle.dragged = false));
}

function follow(event, svg) {
  const x = event.clientX - svg.getBoundingClientRect().left;
  const away = (index) => Math.abs(handle.scale.x(shown.handle.rates[index].rate) - x);
  hideTooltip();
  const nearby = closest([...shown.handle.rates.keys()], away);
  if (nearby !== at) moveTo(nearby);
}

function step(event) {
  const end = shown.handle.rates.length - 1;
  const to = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, Home: 0, End: end }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  moveTo(Math.min(Math.max(to, 0), end));
}

function moveTo(index) {
  at = index;
  const rate = shown.handle.rates[at];
  const { node, label, scale } = handle;
  node.setAttribute("transform", `translate(${scale.x(rate.rate)} 0)`);
  node.setAttribute("class", `handle ${rate.kind}`);
  node.setAttribute("aria-valuenow", at);
  node.setAttribute("aria-valuetext", [said(rate), tuned(), `This is ${meant(rate)}.`].filter(Boolean).join(" "));
  label.textContent = rate.text;
  readOut(rate);
}

// What stands beside it

function readOut(rate) {
  const reading = $("reading");
  reading.replaceChildren();
  add(reading, "p", { class: "said" }, said(rate));
  if (!shown.handle.tuned.length) return;
  add(reading, "p", {}, tuned());
  add(reading, "p", { class: `kind ${rate.sure ? rate.kind : ""}` }, `At ${rate.text}: ${meant(rate)}.`);
  const columns = add(reading, "div", { class: "orders" });
  listOrder(columns, `At ${rate.text}`, rate.order, (line) => line.points.find((point) => point.rate === rate.rate));
  listOrder(columns, "After tuning", shown.handle.tuned, tunedPoint, true);
}

// Of fresh seeds, where these compare the variants.
function tunedPoint(line) {
  const point = line.points.find((each) => each.chosen);
  return point && line.fresh ? { ...point, text: line.fresh.text, few: "" } : point;
}

function listOrder(columns, title, order, pointOf, withRate = false) {
  const list = add(columns, "div");
  add(list, "b", {}, title);
  const items = add(list, "ol");
  for (const [place, level] of order.entries()) {
    for (const index of level) {
      const line = shown.lines[index];
      const point = pointOf(line);
      const item = add(items, "li", { value: place + 1 });
      const sample = add(item, "svg", { width: 14, height: 14, "aria-hidden": "true" });
      marker(sample, line, 7, 7);
      add(item, "span", {}, line.variant);
      add(item, "small", {}, `${point.text}${metric.unit}${point.few ?? ""}${withRate && point.rate_text ? `, at ${point.rate_text}` : ""}`);
    }
  }
}

// Values under the pointer, and under the keyboard's focus

const place = (point) => `${shown.task}, ${shown.model}, learning rate ${point.rate_text}`;

const ofFresh = ({ text, seeds, interval }) => `${text}${metric.unit} on ${seeds}${interval && `, 95% interval ${interval}`}`;

function describe(line, point) {
  const value = point.mean === null ? point.text : `${point.text}${metric.unit}` + (point.sem === null ? ", one seed: no SEM" : " (mean ± SEM)");
  const parts = [line.variant, value, `${point.seeds} seeds have a value`, point.lost];
  if (point.chosen) parts.push(`chosen on ${metric.chosen_on}`, ...(line.fresh ? [ofFresh(line.fresh)] : []), ...(line.condition ? [`best only ${line.condition}`] : []));
  return parts.filter(Boolean);
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

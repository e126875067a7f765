// Learning curves: a panel a variant, a line a run, coloured by learning rate. The chart above them is the report's.

const PANEL = { height: 180, left: 46, right: 10, top: 8, bottom: 26 };
const NEAR = 30; // pixels from which the pointer finds a curve
const curves = new Map(); // by run id
let picked = null; // the id of the run that is named

const rates = () => [...new Map(shown.lines.flatMap((line) => line.points).map((point) => [point.rate, point.rate_text]))].sort((a, b) => a[0] - b[0]);

function tinted(node, rate) {
  const [swept, place] = [rates().length - 1, rates().findIndex(([each]) => each === rate)];
  node.style.setProperty("--place", swept > 0 && place >= 0 ? place / swept : 0.5);
  return node;
}

function drawCurves() {
  const here = [...curves.values()].filter((run) => run.task === shown.task && run.model === shown.model && run.steps.length);
  const values = here.flatMap((run) => run.values).sort((a, b) => a - b);
  const cut = metric.most === null ? Math.floor(0.02 * values.length) : 0; // a loss that explodes would flatten the rest
  const ends = [values[cut], values[values.length - 1 - cut]];
  const range = ends[0] < ends[1] ? ends : [ends[0] - 1, ends[0] + 1];
  const last = Math.max(...here.map((run) => run.num_steps));
  $("rates").replaceChildren("learning rate:");
  for (const [rate, text] of rates()) {
    const sample = add(add($("rates"), "span"), "svg", { width: 22, height: 12, "aria-hidden": "true" });
    tinted(add(sample, "path", { d: "M2 6h18", class: "curve" }), rate);
    sample.after(text);
  }
  $("curves").replaceChildren();
  if (!here.length) return add($("curves"), "p", { class: "hint" }, "No run was evaluated yet.");
  const begun = shown.lines.filter(({ variant }) => here.some((run) => run.variant === variant));
  const panels = begun.map(({ variant }) => [add($("curves"), "figure"), here.filter((run) => run.variant === variant)]);
  for (const [figure, runs] of panels) drawPanel(figure, runs, range, last); // once all have their width
}

function drawPanel(figure, found, [low, high], last) {
  const { variant } = found[0];
  add(figure, "figcaption", {}, `${variant} (${found.length} run${found.length === 1 ? "" : "s"})`);
  const width = Math.max(figure.clientWidth, 200);
  const label = `${variant}: arrow keys go from run to run`;
  const svg = add(figure, "svg", { viewBox: `0 0 ${width} ${PANEL.height}`, tabindex: 0, role: "group", "aria-label": label });
  const floor = PANEL.height - PANEL.bottom;
  const x = (step) => PANEL.left + (step / last) * (width - PANEL.left - PANEL.right);
  const y = (value) => floor - Math.min(Math.max((value - low) / (high - low), 0), 1) * (floor - PANEL.top);
  for (const [value, text] of stepsBetween(low, high)) {
    add(svg, "line", { x1: PANEL.left, x2: width - PANEL.right, y1: y(value), y2: y(value), class: "grid" });
    add(svg, "text", { x: PANEL.left - 6, y: y(value) + 4, "text-anchor": "end", class: "axis" }, text);
  }
  add(svg, "text", { x: PANEL.left, y: floor + 18, class: "axis" }, "0");
  add(svg, "text", { x: width - PANEL.right, y: floor + 18, "text-anchor": "end", class: "axis" }, `step ${last}`);
  const runs = found.map((run) => ({ run, at: run.steps.map((step, i) => [x(step), y(run.values[i])]) })).sort((a, b) => a.run.rate - b.run.rate || a.run.seed - b.run.seed);
  const path = (lines) => lines.map(({ at }) => `M${at.map((each) => each.map((value) => value.toFixed(1))).join("L")}h${at.length > 1 ? 0 : 4}`).join("");
  for (const [rate] of rates()) tinted(add(svg, "path", { d: path(runs.filter(({ run }) => run.rate === rate)), class: "curve" }), rate);
  const mark = tinted(add(svg, "path", { class: "curve picked" }), null);
  const tooltip = add(figure, "div", { class: "tooltip", role: "status", hidden: "" });
  const name = (line) => {
    picked = line?.run.run_id ?? null;
    for (const other of $("curves").querySelectorAll(".tooltip")) other.hidden = true;
    for (const other of $("curves").querySelectorAll(".picked")) other.removeAttribute("d");
    if (!line) return;
    mark.setAttribute("d", path([line]));
    tooltip.hidden = false;
    const { run, at } = line;
    tooltip.replaceChildren();
    add(tooltip, "b", {}, `learning rate ${run.rate_text}, seed ${run.seed}`);
    for (const text of [`${run.last} at step ${run.steps.at(-1)}`, `run ${run.run_id}`]) add(tooltip, "span", {}, text);
    const [right, below] = [at.at(-1)[0] < width / 2, at.at(-1)[1] < PANEL.height / 2];
    Object.assign(tooltip.style, { left: right ? "auto" : "46px", right: right ? "0" : "auto", top: below ? "auto" : "1.6rem", bottom: below ? "26px" : "auto" });
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const away = ({ at }) => Math.min(...at.map((each) => Math.hypot(each[0] - event.clientX + box.left, each[1] - event.clientY + box.top)));
    name(closest(runs.filter((line) => away(line) <= NEAR), away));
  });
  svg.addEventListener("pointerleave", () => name(null));
  svg.addEventListener("blur", () => name(null));
  const open = () => picked && location.assign(`/runs/${picked}`);
  svg.addEventListener("click", (event) => event.pointerType === "mouse" && open());
  svg.addEventListener("keydown", (event) => {
    if (event.key === "Enter") open();
    const way = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!way || !runs.length) return;
    event.preventDefault();
    const before = runs.findIndex(({ run }) => run.run_id === picked);
    name(runs[before < 0 ? 0 : (before + way + runs.length) % runs.length]);
  });
  const again = runs.find(({ run }) => run.run_id === picked);
  if (again) name(again);
}

// The figure again, with other numbers. What has the focus keeps it, and the handle its learning rate.
function drawAgain(panels) {
  const titles = (each) => JSON.stringify(each.map(({ task, model, lines }) => [task, model, lines.map((line) => line.variant)]));
  if (titles(panels) !== titles(data.panels)) return location.reload(); // the study was changed
  const line = document.activeElement.closest("#plot [data-variant]")?.dataset.variant;
  const inside = line ? `[data-variant="${CSS.escape(line)}"] [data-rate="${document.activeElement.dataset.rate}"]` : ".handle";
  const focused = plot.contains(document.activeElement) ? inside : null;
  const before = shown.handle.rates[at]?.text;
  const place = data.panels.indexOf(shown);
  data.panels = panels;
  shown = panels[place];
  drawAt(before);
  if (focused) plot.querySelector(focused)?.focus({ preventScroll: true });
}

$("task").parentNode.hidden = $("task").options.length < 2;
for (const select of [$("task"), $("model")]) select.addEventListener("change", drawCurves);
let width = $("curves").clientWidth;
new ResizeObserver(() => width !== (width = $("curves").clientWidth) && drawCurves()).observe($("curves"));
drawCurves();
return (chart, found) => {
  if (chart) drawAgain(chart.panels);
  for (const run of found) curves.set(run.run_id, run);
  drawCurves();
};

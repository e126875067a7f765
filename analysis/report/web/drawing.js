// What the other files share: constants, the data of the page, and how an element is added.

const HEIGHT = { least: 280, most: 460, share: 0.55 };
const MARGIN = { top: 46, right: 16, bottom: 48, left: 52 };
const SIDE = 1.8; // the axis extends by this factor beyond the learning rates swept, as in the images
const LABEL_WIDTH = 56; // pixels that a label of the x axis needs
const LOST_ROW = 16; // pixels between the crosses of two variants
const REACH = 40; // pixels from which the pointer finds a point
const TIE = 4; // points this close together share a tooltip
const BESIDE = 13; // pixels from the middle of a chosen rate's ring to the values of its seeds
const AWAY = 14; // pixels from a point to its tooltip
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
const { metric } = data;
const plot = $("plot");
const off = new Set(); // names of the variants switched off
let shown; // the panel that is drawn
let points = []; // of the visible lines, as drawn: {point, line, x, y, node}

const unique = (values) => [...new Set(values)];
const closest = (found, away) => found.reduce((a, b) => (a !== null && away(a) <= away(b) ? a : b), null);

function add(parent, name, attributes = {}, text = null) {
  const space = parent instanceof SVGElement || name === "svg" ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
  const node = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== null) node.append(...(node instanceof SVGElement || name === "option" ? [text] : unbroken(text)));
  return parent.appendChild(node);
}

// Names and learning rates stay whole, as in the page's own text: see page.py.
function unbroken(text) {
  const whole = (name) => Object.assign(document.createElement("data"), { value: name, textContent: name });
  return text.split(/([\w.+]+(?:-[\w.+]+)+)/).map((part, i) => (i % 2 ? whole(part) : part));
}

function marker(parent, line, x, y, filled = true, size = 4.5) {
  const look = { stroke: line.colour, "stroke-width": 1.5, ...(filled ? { fill: line.colour } : { class: "hollow" }) };
  if (!MARKERS[line.marker]) return add(parent, "circle", { cx: x, cy: y, r: size, ...look });
  const corners = MARKERS[line.marker].map(([dx, dy]) => `${x + size * dx},${y + size * dy}`);
  return add(parent, "polygon", { points: corners.join(" "), ...look });
}

function cross(parent, x, y, colour) {
  const d = `M${x - 4} ${y - 4}l8 8m0 -8l-8 8`;
  return add(parent, "path", { d, stroke: colour, "stroke-width": 1.8, fill: "none" });
}

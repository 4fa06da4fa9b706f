// Two flows on the same tokens as one drawing: edges that carry more in the second, and edges that carry less.

import {element, percent, svgElement} from "./elements.js";

const ROW = 24;
const LABEL = 120;
const TOP = 34;
const WIDEST = 11;

// `difference` is the answer of /difference: edges [layer, i, j, share of the first, share of the second].
export function differenceDrawing({layers, edges, nodes}, labels) {
  const column = layers > 8 ? 64 : 132;
  const x = layer => LABEL + 16 + layer * column;
  const y = token => TOP + 12 + token * ROW;
  const width = x(layers) + 16 + LABEL;
  const height = TOP + labels.length * ROW + 8;
  const name = `Difference of two flows on ${labels.length} tokens`;
  const svg = svgElement("svg", {class: "drawing difference-drawing", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name});
  const words = (text, attributes) => {
    const node = svgElement("text", attributes);
    node.textContent = text;
    svg.append(node);
  };
  for (let layer = 0; layer <= layers; layer++) {
    words(layer === 0 ? "input" : layer === layers ? "output" : String(layer), {class: "layer-head", x: x(layer), y: 16, "text-anchor": "middle"});
  }
  const largest = Math.max(...edges.map(([, , , a, b]) => Math.abs(b - a)), 0) || 1;
  const weakestFirst = [...edges].sort((p, q) => Math.abs(p[4] - p[3]) - Math.abs(q[4] - q[3]));
  for (const [layer, i, j, a, b] of weakestFirst) {
    const strength = Math.abs(b - a) / largest;
    const half = column / 2;
    const path = svgElement("path", {
      class: b > a ? "gains" : "loses",
      d: `M${x(layer)} ${y(j)}c${half} 0 ${half} ${(i - j) * ROW} ${column} ${(i - j) * ROW}`,
      "stroke-width": Math.max(WIDEST * strength, 0.4).toFixed(2),
      "stroke-opacity": (0.12 + 0.75 * Math.sqrt(strength)).toFixed(2),
    });
    const title = svgElement("title");
    title.textContent = `${labels[j]} → ${labels[i]}, layer ${layer}: ${percent(a)} → ${percent(b)} of the flow`;
    path.append(title);
    svg.append(path);
  }
  labels.forEach((label, token) => {
    for (let layer = 0; layer <= layers; layer++) {
      const most = Math.max(nodes[0][layer][token], nodes[1][layer][token]);
      const radius = 6 * Math.sqrt(most);
      if (radius > 0.7) svg.append(svgElement("circle", {class: "node", cx: x(layer), cy: y(token), r: radius.toFixed(2)}));
    }
    words(label, {x: LABEL, y: y(token), "text-anchor": "end"});
    words(label, {x: x(layers) + 16, y: y(token)});
  });
  return element("div", {class: "scroll"}, svg);
}

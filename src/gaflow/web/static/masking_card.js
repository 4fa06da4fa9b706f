// Masking from the top: the model reads the text without its strongest tokens, one more at a time.
//
// The curve is the faithfulness of this very explanation; the band is where random orders lie. This runs the model.

import {button, card, element, percent, svgElement} from "./elements.js";
import {attempt, watched} from "./shell.js";
import {textOf} from "./shading.js";

const POINTS = 24; // of a curve, at most
const RANDOM_ORDERS = 20;
const WIDTH = 520;
const HEIGHT = 150;
const EDGE = {left: 40, right: 12, top: 10, bottom: 26};

// `at` is the number of masked tokens in the link, `onMove` is told a new one.
export function maskingCard({id, attribution: att}, at, onMove) {
  const box = card("Mask from the top");
  const measure = button("Measure", () => attempt(run), {class: "measure"});
  const note = element("p", {class: "note"}, "Takes the strongest tokens away, and asks the model each time. " +
    "If the explanation is faithful, the probability falls faster than in random orders.");
  box.append(note, element("p", {class: "buttons"}, measure));

  async function run() {
    measure.disabled = true;
    try {
      const count = att.segments.filter(segment => segment >= 0).length;
      const answer = await watched("Masking …", "mask", {id, levels: levelsFor(count), random_orders: RANDOM_ORDERS});
      draw(answer);
    } finally {
      measure.disabled = false;
    }
  }

  function draw(answer) {
    const marks = [0, ...answer.masked];
    const curve = [answer.unmasked, ...answer.probability];
    const low = [answer.unmasked, ...answer.band.low];
    const high = [answer.unmasked, ...answer.band.high];
    const mean = [answer.unmasked, ...answer.band.mean];
    const predictions = [att.prediction, ...answer.prediction];
    const svg = sparkLine(marks, curve, low, mean, high, answer.tokens, att.label);
    const slider = element("input", {type: "range", class: "masked", min: 0, max: marks.length - 1, step: 1});
    const readout = element("p", {class: "readout", "aria-live": "polite"});
    const passage = element("div");
    const better = answer.probability.filter((value, k) => value < answer.band.low[k]).length;
    const verdict = `Below the random band at ${better} of ${answer.probability.length} points.`;

    function show(index) {
      const masked = marks[index];
      const label = element("b", {}, `${att.label} ${percent(curve[index])}`);
      const chance = index ? `; random orders ${percent(low[index])} to ${percent(high[index])}` : "";
      const predicted = predictions[index] === att.label ? "" : `; the model now predicts ${predictions[index]}`;
      readout.replaceChildren(`${masked} of ${answer.tokens} tokens masked: `, label, chance + predicted);
      slider.setAttribute("aria-valuetext", readout.textContent);
      svg.move(index);
      if (answer.order) passage.replaceChildren(withoutTokens(att, new Set(answer.order.slice(0, masked))));
    }

    slider.addEventListener("input", () => { show(Number(slider.value)); onMove(marks[slider.value]); });
    const start = marks.indexOf(Number(at || 0));
    slider.value = Math.max(start, 0);
    const control = element("label", {class: "field"}, element("span", {}, "Masked tokens"), slider);
    const words = element("p", {class: "note"}, `${verdict} Band: the middle 90% of ${RANDOM_ORDERS} random orders; dashed: their mean.`);
    box.replaceChildren(box.firstChild, element("div", {class: "masking"}, element("div", {}, svg.element, words),
      element("div", {}, control, readout, passage)));
    show(Number(slider.value));
  }

  return {element: box, run: () => attempt(run)};
}

// Per cents at which one token more is masked, or evenly spaced ones for long texts.
function levelsFor(count) {
  const levels = new Set();
  const steps = Math.min(Math.max(count, 1), POINTS);
  for (let step = 1; step <= steps; step++) {
    levels.add(Math.min(100, Math.max(1, Math.round(100 * Math.round(step * count / steps) / Math.max(count, 1)))));
  }
  return [...levels];
}

function withoutTokens(att, masked) {
  const units = [];
  att.segments.forEach((segment, i) => {
    const [start, end] = att.offsets[i];
    const last = units[units.length - 1];
    if (segment >= 0 && end > start && !(last && last.segment === segment && start < last.end)) {
      units.push({segment, start, end, token: i});
    }
  });
  return textOf(att, units, (unit, text) => {
    return masked.has(unit.token) ? element("s", {class: "masked-token"}, text) : element("span", {}, text);
  });
}

function sparkLine(marks, curve, low, mean, high, count, label) {
  const x = mark => EDGE.left + (WIDTH - EDGE.left - EDGE.right) * mark / Math.max(count, 1);
  const y = value => EDGE.top + (HEIGHT - EDGE.top - EDGE.bottom) * (1 - value);
  const points = values => values.map((value, k) => `${x(marks[k]).toFixed(1)},${y(value).toFixed(1)}`);
  const attributes = {class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img"};
  const name = `Probability of ${label} from ${percent(curve[0])} with no token masked to ${percent(curve.at(-1))} with all`;
  const svg = svgElement("svg", {...attributes, "aria-label": name});
  const words = (text, place) => {
    const node = svgElement("text", place);
    node.textContent = text;
    svg.append(node);
  };
  for (const level of [0, 0.5, 1]) {
    svg.append(svgElement("line", {class: "grid", x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(level), y2: y(level)}));
    words(percent(level, 0), {x: EDGE.left - 6, y: y(level) + 4, "text-anchor": "end"});
  }
  words("0", {x: x(0), y: HEIGHT - 6, "text-anchor": "middle"});
  words(`${count} tokens masked`, {x: WIDTH - EDGE.right, y: HEIGHT - 6, "text-anchor": "end"});
  svg.append(svgElement("polygon", {class: "band", points: [...points(high), ...points(low).reverse()].join(" ")}));
  svg.append(svgElement("polyline", {class: "mean", points: points(mean).join(" ")}));
  svg.append(svgElement("polyline", {class: "curve", points: points(curve).join(" ")}));
  const dot = svgElement("circle", {class: "dot", r: 5});
  svg.append(dot);
  return {
    element: svg,
    move(index) {
      dot.setAttribute("cx", x(marks[index]));
      dot.setAttribute("cy", y(curve[index]));
    },
  };
}

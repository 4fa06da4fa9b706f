// Compare: two explanations side by side. They may differ in text, model, target, method or layer.
//
// Link: the two questions with the prefixes a. and b., and a.layer, b.layer.

import {post} from "./api.js";
import {align, rankCorrelation, ranks} from "./align.js";
import {bar, button, card, element, number, percent, select} from "./elements.js";
import {differenceDrawing} from "./difference_drawing.js";
import {remember} from "./link.js";
import {questionForm} from "./question_form.js";
import {explained, isAsked, questionIn, targetName} from "./results.js";
import {legend, shadeClass, shadedWords, sumOfSizes, textOf} from "./shading.js";
import {attempt, latest} from "./shell.js";

const SIDES = ["a", "b"];
const DIFFERENCE_EDGES = 360;
const LISTED = 40; // rows of the table
const EXAMPLES = {a: {text: "although this dog is not cute, it is very smart."}, b: {text: "although this dog is cute, it is not very smart."}};
const begin = latest();

const forms = {};
const layers = {}; // selects of the node layer
let result = null;
let values = {};

export function prepare(room) {
  const sides = SIDES.map(name => {
    forms[name] = questionForm({action: "Compare", onAsk: null});
    layers[name] = select([["", "input: the scores"]], "", {"aria-label": `Layer of ${name.toUpperCase()}`, class: "layer-choice"});
    forms[name].element.querySelector(".fields").append(element("label", {class: "field"}, element("span", {}, "Layer"), layers[name]));
    forms[name].element.addEventListener("submit", () => attempt(ask));
    forms[name].fill(EXAMPLES[name]);
    const box = card(name.toUpperCase(), forms[name].element);
    box.classList.add("side", `side-${name}`);
    return box;
  });
  const copy = button("Copy A to B", () => {
    forms.b.fill(forms.a.question());
    layers.b.replaceChildren(...[...layers.a.options].map(option => option.cloneNode(true)));
    layers.b.value = layers.a.value;
  });
  const swap = button("Swap", () => {
    const [a, b] = SIDES.map(name => forms[name].question());
    forms.a.fill(b);
    forms.b.fill(a);
    const [first, second] = [layers.a.value, layers.b.value];
    offerLayers("a", [...layers.b.options].length - 1, second);
    offerLayers("b", [...layers.a.options].length - 1, first);
  });
  result = element("div", {class: "result"});
  room.append(element("div", {class: "intro"}, element("h1", {}, "What makes the difference?"),
    element("p", {class: "note"}, "Compare two texts, models, targets, methods or layers.")),
  element("div", {class: "sides"}, ...sides),
  element("p", {class: "buttons"}, button("Compare", () => attempt(ask), {class: "primary compare"}), copy, swap), result);
}

export async function show(linked) {
  values = linked;
  document.title = "Compare · gaflow";
  const questions = SIDES.map(name => questionIn(values, `${name}.`));
  if (!questions.every(isAsked)) {
    result.replaceChildren();
    return;
  }
  SIDES.forEach((name, k) => forms[name].fill(questions[k]));
  await load(questions);
}

async function ask() {
  if (!SIDES.every(name => forms[name].element.reportValidity())) return;
  values = {};
  const questions = SIDES.map(name => forms[name].question());
  questions.forEach((question, k) => {
    for (const [name, value] of Object.entries(question)) values[`${SIDES[k]}.${name}`] = value;
    values[`${SIDES[k]}.layer`] = layers[SIDES[k]].value;
  });
  await load(questions);
}

async function load(questions) {
  const isLatest = begin();
  result.classList.add("waiting");
  remember("compare", values);
  try {
    const answers = await Promise.all(questions.map(explained));
    if (!isLatest()) return;
    SIDES.forEach((name, k) => offerLayers(name, answers[k].attribution.layers ? answers[k].attribution.layers.length : 0, values[`${name}.layer`] || ""));
    const sides = answers.map((answer, k) => sideOf(answer, layers[SIDES[k]].value));
    display(sides);
    await showFlows(sides, isLatest);
  } finally {
    if (isLatest()) result.classList.remove("waiting");
  }
}

function offerLayers(name, count, value) {
  const options = [["", "input: the scores"]];
  for (let layer = 1; layer < count; layer++) options.push([String(layer), layer === count - 1 ? `${layer}: the output` : String(layer)]);
  layers[name].replaceChildren(...options.map(([key, words]) => element("option", {value: key}, words)));
  layers[name].value = options.some(([key]) => key === value) ? value : "";
}

// An explanation with the values of the chosen layer as its scores, and words with shares of them.
function sideOf(answer, layer) {
  const {attribution} = answer;
  const scores = layer && attribution.layers ? attribution.layers[Number(layer)] : attribution.scores;
  const words = attribution.words.map(word => ({...word, score: word.tokens.reduce((sum, token) => sum + scores[token], 0)}));
  const total = sumOfSizes(words.map(word => word.score));
  const att = {...attribution, scores, words};
  return {id: answer.id, drawing: answer.drawing, att, layer, shares: words.map(word => word.score / total)};
}

function display([a, b]) {
  const columns = [a, b].map((side, k) => {
    const {att} = side;
    const probability = att.probability === null ? "" : ` ${percent(att.probability)}`;
    const where = side.layer ? ` · layer ${side.layer}` : "";
    const box = element("section", {class: "card", "aria-label": `Result ${SIDES[k].toUpperCase()}`},
      element("h2", {class: "side-name"}, element("span", {class: "letter"}, SIDES[k].toUpperCase()), `${att.label}${probability}`),
      element("p", {class: "facts"}, `${att.method}${where} · output ${number(att.output)}`),
      shadedWords(att, side.drawing.levels));
    return box;
  });
  const pairs = align(a.att.words.map(keyOf), b.att.words.map(keyOf));
  const changes = pairs.map(([i, j]) => (j === null ? 0 : b.shares[j]) - (i === null ? 0 : a.shares[i]));
  const difference = card("The difference", agreement(a, b, pairs), ...otherTarget(a, b), differenceText(a, b, pairs, changes),
    legend(changes, a.drawing.levels, "share in B minus share in A: orange, the word counts more in B; blue, less"), alignedTable(a, b, pairs, changes));
  difference.classList.add("difference");
  result.replaceChildren(element("div", {class: "sides"}, ...columns), difference, element("div", {class: "flow-difference"}));
}

const keyOf = word => `${word.segment} ${word.text.toLowerCase()}`;
const signed = share => `${share < 0 ? "" : "+"}${percent(share)}`;

function agreement(a, b, pairs) {
  const both = pairs.filter(([i, j]) => i !== null && j !== null);
  const correlation = rankCorrelation(both.map(([i]) => a.shares[i]), both.map(([, j]) => b.shares[j]));
  const topA = ranks(a.shares);
  const topB = ranks(b.shares);
  const common = both.filter(([i, j]) => topA[i] <= 5 && topB[j] <= 5).length;
  const facts = [`${both.length} words in common`];
  if (correlation !== null) facts.push(`rank correlation ${correlation.toFixed(2).replace("-", "−")}`);
  facts.push(`${common} of the 5 strongest in common`);
  return element("p", {class: "facts agreement"}, facts.join(" · "));
}

// Two outputs cannot be compared word by word as one can: what speaks for one may speak against the other.
function otherTarget(a, b) {
  if (a.att.label === b.att.label) return [];
  const target = targetName(a.att);
  const same = button(`Explain “${target}” on both sides`, () => {
    for (const name of SIDES) forms[name].fill({...forms[name].question(), target});
    attempt(ask);
  }, {class: "same-target"});
  return [element("p", {class: "caution"}, `A explains ${a.att.label}, B explains ${b.att.label}. `, same)];
}

// The text of B, shaded by how much more or less its words count than in A; words that only A has are struck out.
function differenceText(a, b, pairs, changes) {
  const largest = Math.max(...changes.map(Math.abs), 0);
  const before = new Map();
  const ofWord = new Map();
  let pending = [];
  pairs.forEach(([i, j], k) => {
    if (j === null) pending.push(i);
    else {
      before.set(j, pending);
      ofWord.set(j, k);
      pending = [];
    }
  });
  const gone = i => element("del", {title: `only in A: ${signed(a.shares[i])}`}, a.att.words[i].text);
  let word = -1;
  const drawn = textOf(b.att, b.att.words, (unit, text) => {
    word += 1;
    const k = ofWord.get(word);
    const tag = pairs[k][0] === null ? "ins" : "span";
    const shaded = element(tag, {class: shadeClass(changes[k], largest, b.drawing.levels), title: signed(changes[k])}, text);
    const missing = before.get(word);
    return missing.length ? element("bdi", {}, ...missing.flatMap(i => [gone(i), " "]), shaded) : shaded;
  });
  if (pending.length) drawn.lastChild.append(...pending.flatMap(i => [" ", gone(i)]));
  return drawn;
}

function alignedTable(a, b, pairs, changes) {
  const largest = Math.max(...a.shares.map(Math.abs), ...b.shares.map(Math.abs)) || 1;
  const order = [...pairs.keys()].sort((x, y) => Math.abs(changes[y]) - Math.abs(changes[x])).slice(0, LISTED);
  const isSigned = [...a.shares, ...b.shares].some(share => share < 0);
  const half = (side, index) => {
    if (index === null) return ["", element("span", {class: "absent"}, "not there")];
    return [bar(side.shares[index] / largest, isSigned), element("span", {class: "number"}, signed(side.shares[index]))];
  };
  const rows = order.sort((x, y) => x - y).map(k => {
    const [i, j] = pairs[k];
    const text = (j === null ? a.att.words[i] : b.att.words[j]).text;
    const cells = [...half(a, i), ...half(b, j), element("b", {class: "number"}, signed(changes[k]))];
    return element("tr", {}, element("th", {scope: "row"}, element("bdi", {}, text)), ...cells.map(cell => element("td", {}, cell)));
  });
  const head = ["word", "A", "", "B", "", "B − A"].map(name => element("th", {scope: "col"}, name));
  head[2].dataset.side = "A"; // where there is no room for bars
  head[4].dataset.side = "B";
  const listed = pairs.length > LISTED ? element("p", {class: "note"}, `The ${LISTED} words that moved most, in the order of the texts.`) : "";
  return element("div", {class: "scroll"}, element("table", {class: "aligned"}, element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...rows)), listed);
}

async function showFlows([a, b], isLatest) {
  const box = result.querySelector(".flow-difference");
  const hasFlow = side => side.drawing.methods.some(method => method.edges.length);
  if (!hasFlow(a) || !hasFlow(b) || a.att.layers.length !== b.att.layers.length) {
    const why = hasFlow(a) && hasFlow(b) ? "The flows have different numbers of layers, so only words are compared." :
      "At least one of the two has no flow, so only words are compared.";
    box.replaceChildren(element("p", {class: "note"}, why));
    return;
  }
  const pairs = align(a.att.tokens, b.att.tokens).filter(([i, j]) => i !== null && j !== null);
  if (!pairs.length) return;
  const difference = await post("difference", {first: a.id, second: b.id, pairs, edges: DIFFERENCE_EDGES});
  if (!isLatest()) return;
  const labels = pairs.map(([i]) => a.drawing.labels[i]);
  const side = a.drawing.names.length > 1 ? "The flow for the output" : "The flow";
  box.replaceChildren(card("Where the flow goes otherwise", element("p", {class: "facts"},
    `${percent(difference.moved)} of the flow takes other edges, averaged over layers`),
  differenceDrawing(difference, labels), element("p", {class: "note"}, `${side} on the tokens that both have. ` +
    "Solid orange: a larger share of the flow in B. Dashed blue: a smaller one. The wider, the larger the difference.")));
}

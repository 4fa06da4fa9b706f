// Flow: the network of an explanation, and tools that change it. Solving it again never runs the model.
//
// Link: the question; `edits` (JSON); `tool`; `side` (which flow of a signed method); `layer`; `ranges`; `note`.

import {post} from "./api.js";
import {button, card, element, flowFrame, number, percent, select} from "./elements.js";
import {Edits, wordsOf} from "./edits.js";
import {factsOf, titleOf, certificateCard} from "./explain_page.js";
import {mountFlow, openedGroups} from "./flow.js";
import {fragment, parsed, remember} from "./link.js";
import {keepTools} from "./keep.js";
import {headCard, modelCheck, readHeads} from "./model_check.js";
import {ranking, stability} from "./ranking.js";
import {EDGES, explained, explainedAgain, isAsked, questionIn} from "./results.js";
import {attempt, latest} from "./shell.js";
import {tokenChips} from "./token_chips.js";

const NARROW = 0.01; // of a cut: edges that carry less are counted, not drawn
const LISTED_EDGES = 6; // of a node
const ROUTES = 8;
const SHARPEST = -9; // exponents of the barrier slider
const EVENEST = 3;
const TOOLS = [["change", "What if"], ["routes", "Routes"], ["paint", "Ends"], ["groups", "Join"], ["keep", "Keep"]];
const beginShow = latest();
const beginSolve = latest();

let room = null;
let values = {};
let question = {};
let original = null; // the explanation: {id, attribution, drawing}
let current = null; // the same, or after edits
let edits = new Edits();
let flow = null; // what mountFlow returned
let choice = null; // a node {layer, tokens}, or an edge {edge: [layer, i, j]}
let ranges = null; // of the scores of `current`
let heads = null; // what the heads of the drawn edges of `original` carry
let parts = {}; // elements of the page

export function prepare(section) {
  room = section;
}

export async function show(linked) {
  const isLatest = beginShow();
  const newQuestion = questionIn(linked);
  const isSame = original && JSON.stringify(newQuestion) === JSON.stringify(question);
  values = linked;
  question = newQuestion;
  edits = new Edits(parsed(values.edits, []));
  if (!isAsked(question)) {
    original = null;
    empty();
    return;
  }
  if (!isSame) {
    room.replaceChildren(element("p", {class: "note loading"}, "Explaining the text …"));
    const answer = await explained(question);
    if (!isLatest()) return;
    original = answer;
    heads = null;
  }
  current = original;
  flow = null;
  choice = null;
  ranges = null;
  if (!current.attribution.layers || !current.drawing.methods.some(method => method.edges.length)) {
    noFlow();
    return;
  }
  build();
  if (edits.list.length) await solve();
  else display();
  if (values.ranges) await showRanges();
}

function empty() {
  document.title = "Flow · gaflow";
  room.replaceChildren(element("div", {class: "intro"}, element("h1", {}, "The flow of a text"),
    element("p", {class: "note"}, "Explain a text first. Its flow opens here, to be changed and solved again."),
    element("p", {class: "buttons"}, element("a", {class: "button primary", href: fragment("explain", {})}, "Go to Explain"))));
}

function noFlow() {
  const {method} = current.attribution;
  const link = fragment("flow", {...question, run: "", row: "", text: current.attribution.text, method: "", text_pair: current.attribution.pair || ""});
  room.replaceChildren(element("div", {class: "intro"}, element("h1", {}, "No flow here"),
    element("p", {class: "note"}, `${method} has no flow to draw, or it was not stored. Explain the text by a flow method.`),
    element("p", {class: "buttons"}, element("a", {class: "button primary", href: link}, "Explain it by the default method"))));
}

function build() {
  const att = original.attribution;
  parts = {
    headline: element("h1", {class: "headline"}),
    facts: element("p", {class: "facts"}),
    view: element("div", {class: "view"}),
    slider: element("input", {type: "range", class: "layer-slider", min: -1, step: 1, "aria-label": "Layer"}),
    tool: element("div", {class: "tool"}),
    barrier: barrierControl(),
    check: element("div", {}),
    history: element("div", {class: "history"}),
    ranking: ranking(),
    certificate: element("div", {class: "certificate-place"}),
  };
  parts.panel = element("div", {class: "panel", role: "tabpanel", id: "tool-panel", tabindex: 0},
    parts.tool, parts.barrier.element, parts.check);
  const back = element("a", {href: fragment("explain", question)}, "Change the text or the method");
  const head = element("div", {class: "head"}, parts.headline, parts.facts,
    ...(values.note ? [element("p", {class: "noted"}, values.note)] : []), element("p", {class: "note"}, back));
  parts.tabs = TOOLS.map(([key, name], index) => {
    const tab = button(name, () => openTool(key), {role: "tab", id: `tool-${key}`, "data-tool": key, "aria-controls": "tool-panel"});
    tab.addEventListener("keydown", event => {
      const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
      if (!step) return;
      event.preventDefault();
      const [next] = TOOLS[(index + step + TOOLS.length) % TOOLS.length];
      openTool(next);
      document.getElementById(`tool-${next}`).focus();
    });
    return tab;
  });
  const tabs = element("div", {class: "tabs", role: "tablist", "aria-label": "Tools"}, ...parts.tabs);
  parts.tools = element("section", {class: "card tools", "aria-label": "Tools"}, tabs, parts.panel, parts.history);
  parts.rangesBox = element("input", {type: "checkbox", class: "show-ranges"});
  parts.rangesBox.checked = Boolean(values.ranges);
  parts.rangesBox.addEventListener("change", () => {
    values.ranges = parts.rangesBox.checked ? "1" : "";
    ranges = null;
    attempt(values.ranges ? showRanges : async () => showRanking());
    save();
  });
  const scores = card("Scores", element("p", {}, element("label", {}, parts.rangesBox, " How sure is this ranking? " +
    "Show the interval over all maximum flows")), parts.ranking.element);
  scores.classList.add("scores");
  parts.slider.addEventListener("input", () => {
    const layer = Number(parts.slider.value);
    flow.focusLayer(layer < 0 ? null : layer);
    save();
  });
  const drawing = element("section", {class: "card drawing-card", "aria-label": "Flow"}, parts.view);
  room.replaceChildren(head, element("div", {class: "workbench"}, drawing, parts.tools, scores, parts.certificate));
  document.title = `${titleOf(att)} · flow · gaflow`;
  openTool(TOOLS.some(([key]) => key === values.tool) ? values.tool : "change", false);
}

function save() {
  values = {...values, edits: edits.list.length ? JSON.stringify(edits.list) : ""};
  if (flow) {
    const state = flow.state();
    values.side = state.method ? String(state.method) : "";
    values.layer = state.layer === null ? "" : String(state.layer);
  }
  remember("flow", values);
}

function display(opened = null) {
  const {attribution: att, drawing} = current;
  const probability = att.probability === null ? "" : ` ${percent(att.probability)}`;
  parts.headline.textContent = att.label + probability;
  parts.facts.textContent = factsOf(att);
  const frame = flowFrame(att, drawing);
  frame.classList.add("pick");
  frame.querySelector(".steps .on").after(parts.slider);
  const sameTokens = att.tokens.length === original.attribution.tokens.length && !edits.value("groups");
  const linked = {
    method: Math.min(Number(values.side || 0), drawing.methods.length - 1),
    layer: values.layer ? Math.min(Number(values.layer), drawing.methods[0].layers.length - 1) : null,
  };
  const before = flow && sameTokens ? {...flow.state(), ...(choice && choice.tokens ? {} : {selected: null})} : linked;
  const start = {...before, opened};
  parts.view.replaceChildren(frame);
  const answer = current;
  const open = groups => rowMethods(answer, groups);
  flow = mountFlow(frame, drawing, {pick: true, onPick: picked, start, open});
  frame.querySelector(".choose").addEventListener("change", () => { save(); openTool(values.tool || "change"); });
  frame.querySelector(".steps").addEventListener("click", syncSlider);
  frame.addEventListener("keydown", event => {
    if (event.key === "Enter" && event.target.closest(".names") && flow.state().selected) picked(flow.state().selected);
    setTimeout(syncSlider);
  });
  parts.slider.max = drawing.methods[flow.state().method].layers.length - 1;
  syncSlider();
  markChoice();
  const certificate = certificateCard(att);
  parts.certificate.replaceChildren(certificate);
  showHistory();
  showRanking();
  openTool(values.tool || "change", false);
}

function syncSlider() {
  const {layer} = flow.state();
  parts.slider.value = layer === null ? -1 : layer;
  parts.slider.setAttribute("aria-valuetext", layer === null ? "all layers" : `layer ${layer}`);
  save();
}

const isGrouped = () => edits.value("groups") !== undefined;
const layerCount = () => original.attribution.layers.length - 1;
const isAgainst = () => current.drawing.names[flow.state().method].endsWith(", against");
const side = () => ({id: current.id, against: isAgainst()});

// Solving

async function solve() {
  const isLatest = beginSolve();
  room.classList.add("solving");
  try {
    const answer = edits.list.length ? await solved() : original;
    const opened = await openedAgain(answer);
    if (!isLatest()) return;
    current = answer;
    ranges = null;
    display(opened);
    save();
    if (values.ranges) await showRanges();
  } finally {
    if (isLatest()) room.classList.remove("solving");
  }
}

// The rows of a long text that are open, for the drawing of another answer; null where none is.
async function openedAgain({id, drawing}) {
  const earlier = flow && flow.state().groups;
  if (!earlier || !drawing.units || drawing.tokens.length !== current.drawing.tokens.length) return null;
  const groups = openedGroups(drawing, earlier);
  return {groups, methods: await rowMethods({id, drawing}, groups)};
}

// The flows between rows; those between tokens are there already.
async function rowMethods({id, drawing}, groups) {
  if (groups.every(group => group.length === 1)) return drawing.methods;
  return (await post("drawing", {id, groups, edges: EDGES})).methods;
}

async function solved() {
  try {
    return await post("solve", edits.body(original.id));
  } catch (problem) {
    if (problem.status !== 404) throw problem;
    original = await explainedAgain(question); // the server has dropped the result meanwhile
    return post("solve", edits.body(original.id));
  }
}

// A change that cannot be made is taken back, so that the page never shows edits that were not solved.
async function change(kind, value, together = false) {
  edits.add(kind, value, together);
  await attempt(async () => {
    try {
      await solve();
    } catch (problem) {
      edits.undo();
      edits.future = [];
      showHistory();
      throw problem;
    }
  });
}

function showHistory() {
  const {labels} = original.drawing;
  const items = edits.list.map((edit, index) => element("li", {}, element("span", {}, wordsOf(edit, labels)),
    button("Take back", () => { edits.remove(index); attempt(solve); }, {class: "quiet", "aria-label": `Take back: ${wordsOf(edit, labels)}`})));
  const act = action => () => { action(); attempt(solve); };
  const undo = button("Undo", act(() => edits.undo()), {class: "undo"});
  const redo = button("Redo", act(() => edits.redo()), {class: "redo"});
  const reset = button("Back to the explanation", act(() => edits.clear()), {class: "reset"});
  undo.disabled = !edits.past.length;
  redo.disabled = !edits.future.length;
  reset.disabled = !edits.list.length;
  parts.history.replaceChildren(element("h3", {}, "Changes"),
    items.length ? element("ol", {class: "edits"}, ...items) : element("p", {class: "note"}, "None yet: this is the explanation itself."),
    element("p", {class: "buttons"}, undo, redo, reset));
}

// Scores

function showRanking() {
  const isChanged = current !== original;
  const isComparable = isChanged && !isGrouped();
  const before = original.drawing.methods.map(method => method.value);
  const after = current.drawing.methods.map(method => method.value);
  const {names} = current.drawing;
  let words = names.map((name, k) => `${sideName(name)} ${number(after[k])}`).join(", ");
  if (isChanged) {
    words = names.map((name, k) => `${sideName(name)} ${number(before[k])} → ${number(after[k])}${ratio(before[k], after[k])}`).join(", ");
    if (isComparable) words += `. ${stability(original.attribution.scores, current.attribution.scores)}`;
  }
  parts.ranking.show({
    labels: current.drawing.labels,
    before: isComparable ? original.attribution.scores : null,
    after: current.attribution.scores,
    ranges,
    words: `${words}.`,
  });
}

function sideName(name) {
  if (name.endsWith(", against")) return "flow against";
  return name.endsWith(", for") ? "Flow for" : "Flow";
}

function ratio(before, after) {
  if (!before) return "";
  const moved = after / before - 1;
  return Math.abs(moved) < 5e-4 ? "" : ` (${moved < 0 ? "−" : "+"}${percent(Math.abs(moved))})`;
}

// A signed score is the difference of two flows that do not know of each other, so its range is the difference of theirs.
async function showRanges() {
  const answered = current;
  const {layer} = current.attribution;
  if (layer !== null && layer !== 0) {
    showRanking();
    parts.ranking.element.querySelector(".verdict").append(" Intervals are of scores at the input only.");
    return;
  }
  const sides = current.drawing.names.map(name => name.endsWith(", against"));
  const found = await Promise.all(sides.map(against => post("ranges", {id: answered.id, against})));
  if (answered !== current) return;
  const low = current.attribution.scores.map(() => 0);
  const high = low.slice();
  found.forEach((range, k) => low.forEach((_, i) => {
    low[i] += sides[k] ? -range.high[i] : range.low[i];
    high[i] += sides[k] ? -range.low[i] : range.high[i];
  }));
  ranges = {low, high};
  showRanking();
}

// Tools

function openTool(key, focus = true) {
  values.tool = key === "change" ? "" : key;
  for (const tab of parts.tabs) {
    const isOpen = tab.dataset.tool === key;
    tab.setAttribute("aria-selected", isOpen);
    tab.tabIndex = isOpen ? 0 : -1;
  }
  parts.panel.setAttribute("aria-labelledby", `tool-${key}`);
  if (!flow) return;
  const tools = {change: changeTool, routes: routesTool, paint: paintTool, groups: groupTool, keep: keepTool};
  const active = document.activeElement;
  const wasInside = parts.tool.contains(active) || parts.check.contains(active);
  parts.tool.replaceChildren(...tools[key]());
  parts.barrier.element.hidden = key !== "change";
  parts.barrier.show();
  const hasModel = key === "change" && !question.run;
  parts.check.replaceChildren(...(hasModel ? [modelCheck({edits, original, before: original.drawing, after: current.drawing})] : []));
  if (wasInside) keepFocus(active);
  if (focus) save();
}

// The button that was pressed may be gone; then its successor gets the focus, or else the tab.
function keepFocus(active) {
  const [name] = active.className.split(" ");
  const successor = name && parts.panel.querySelector(`.${CSS.escape(name)}:not(:disabled)`);
  (successor || parts.tabs.find(tab => tab.tabIndex === 0)).focus({preventScroll: true});
}

function picked(next) {
  if (values.tool === "paint" && next.tokens && next.tokens.length) {
    const last = current.drawing.methods[flow.state().method].layers.length - 1;
    const kind = next.layer === last && next.layer > 0 ? "sources" : "targets";
    const painted = new Set(edits.value(kind) || []);
    for (const token of next.tokens) if (!painted.delete(token)) painted.add(token);
    change(kind, painted.size ? [...painted].sort((a, b) => a - b) : null);
    return;
  }
  choice = next;
  markChoice();
  openTool("change");
}

function markChoice() {
  const edge = choice && choice.edge;
  flow.mark(edge ? [{layer: edge[0], i: edge[1], j: edge[2], capacity: 1}] : [], "picked");
}

function edgesOf(method) {
  return method.edges.flatMap((edges, layer) => {
    const listed = [];
    for (let e = 0; e < edges.length; e += 3) listed.push({edge: [layer, edges[e], edges[e + 1]], amount: edges[e + 2] / 1e6});
    return listed;
  });
}

function nameOfEdge([, i, j]) {
  const {labels} = current.drawing;
  return `${labels[j]} → ${labels[i]}`;
}

function changeTool() {
  const found = [];
  const {labels} = current.drawing;
  if (isGrouped()) {
    found.push(element("p", {class: "note"}, "Nodes and edges can be cut before tokens are joined: undo the join first."));
  } else if (choice && choice.edge) {
    const [layer] = choice.edge;
    found.push(element("p", {class: "selection"}, "Edge ", element("b", {}, nameOfEdge(choice.edge)), `, layer ${layer}`));
    const factor = select([["2", "2×"], ["5", "5×"], ["10", "10×"], ["100", "100×"]], "2", {class: "factor", "aria-label": "Factor"});
    found.push(element("p", {class: "buttons"}, button("Cut it", () => {
      const {edge} = choice;
      choice = null;
      change("cut_edges", edge);
    }, {class: "cut-edge"}), button("Widen it", () => widen(choice.edge, Number(factor.value)), {class: "widen"}), factor));
  } else if (choice && choice.tokens.length) {
    const names = choice.tokens.map(token => labels[token]).join(" ");
    found.push(element("p", {class: "selection"}, "Node ", element("b", {}, names), `, layer ${choice.layer}`));
    const cutNode = button("Cut it", () => {
      const {layer, tokens} = choice;
      choice = null;
      change("cut_nodes", [layer, tokens[0]]);
    }, {class: "cut-node"});
    cutNode.disabled = choice.tokens.length !== 1;
    const skip = button(`Skip layer ${choice.layer} above it`, () => change("skip_layers", choice.layer), {class: "skip-layer"});
    skip.disabled = choice.layer >= layerCount();
    found.push(element("p", {class: "buttons"}, cutNode, skip), edgeList());
  } else {
    found.push(element("p", {class: "note selection"}, "Point at a token, a node or an edge of the drawing to follow its flow. " +
      "Click on it to change it."));
  }
  if (!isGrouped() && choice && !question.run) found.push(headCard({heads, choice, id: original.id, label: original.attribution.label, read: showHeads}));
  return found;
}

async function showHeads() {
  heads = await readHeads(original);
  openTool("change");
}

function widen(edge, factor) {
  const earlier = edits.list.findIndex(({kind, value}) => kind === "widen" && value.slice(0, 3).join() === edge.join());
  const all = earlier < 0 ? factor : factor * edits.list[earlier].value[3];
  if (earlier >= 0) edits.list = edits.list.filter((_, k) => k !== earlier);
  change("widen", [...edge, all]);
}

// The strongest edges of the chosen node as buttons: thin lines are hard to hit, and keys cannot point at them.
function edgeList() {
  const token = choice.tokens[0];
  const mine = edgesOf(current.drawing.methods[flow.state().method]).filter(({edge: [layer, i, j]}) => {
    return layer === choice.layer && j === token || layer === choice.layer - 1 && i === token;
  });
  mine.sort((a, b) => b.amount - a.amount);
  const items = mine.slice(0, LISTED_EDGES).map(({edge, amount}) => {
    const pick = button("", () => picked({edge}), {class: "row-button"});
    pick.append(element("span", {}, nameOfEdge(edge)), element("span", {class: "soft"}, `layer ${edge[0]}`), element("span", {class: "number"}, percent(amount)));
    return element("li", {}, pick);
  });
  if (!items.length) return element("p", {class: "note"}, "No edge of this node is among those drawn.");
  return element("div", {}, element("h3", {}, "Its strongest edges"), element("ul", {class: "list edge-list"}, ...items));
}

// The slider stays the same element while networks are solved, or it would slip from under the pointer.
function barrierControl() {
  const slider = element("input", {type: "range", class: "epsilon", min: SHARPEST, max: EVENEST, step: 0.5});
  const shown = element("output", {class: "number"});
  let waiting = null; // the latest value, while an earlier one is solved
  let isSolving = false;
  let isDragged = false; // what a drag passes is one change, which is undone as one

  async function follow() {
    if (isSolving) return;
    isSolving = true;
    while (waiting !== null) {
      const value = waiting;
      waiting = null;
      const together = isDragged;
      isDragged = true;
      await change("epsilon", value, together);
    }
    isSolving = false;
  }

  slider.addEventListener("input", () => {
    waiting = Number((10 ** Number(slider.value)).toPrecision(3));
    shown.textContent = `ε ${waiting.toExponential(0)}`;
    follow();
  });
  for (const end of ["pointerup", "keyup", "change"]) slider.addEventListener(end, () => { isDragged = false; });

  function show() {
    if (isSolving) return;
    const now = edits.value("epsilon") || original.attribution.certificate.epsilon;
    slider.value = Math.round(Math.log10(now) * 2) / 2;
    shown.textContent = `ε ${now.toExponential(0)}`;
    slider.setAttribute("aria-valuetext", shown.textContent);
  }

  const box = element("div", {class: "barrier"}, element("h3", {}, "Barrier"),
    element("label", {class: "field"}, element("span", {class: "ends"}, element("span", {}, "sharp"), shown, element("span", {}, "even")), slider),
    element("p", {class: "note"}, "Sharp: the flow of the fewest, widest routes. Even: shared among all of them."));
  return {element: box, show};
}

function routesTool() {
  const list = element("ol", {class: "list routes"});
  const cutText = element("p", {class: "cut-text", "aria-live": "polite"});
  const rest = element("p", {class: "note rest"});
  const showCut = button("Show the bottleneck", () => attempt(async () => {
    const cut = await post("cut", side());
    const wide = cut.edges.filter(edge => edge.capacity >= NARROW * cut.value);
    flow.mark(wide);
    const drawn = wide.length < cut.edges.length ? ` The drawing shows the widest ${wide.length}.` : "";
    const other = cut.unique ? "" : " Other cuts are as narrow.";
    const value = current.drawing.methods[flow.state().method].value;
    cutText.textContent = cut.dead ? "There is no flow to cut." : `${cut.edges.length} edges, most of them in layer ` +
      `${cut.bottleneck}, hold the flow back. Their capacity is ${number(cut.value)}; the flow is ${number(value)}.${other}${drawn}`;
    widest.replaceChildren(...(isGrouped() ? [] : wide.filter(inNetwork).slice(0, LISTED_EDGES).map(edge => {
      const triple = [edge.layer, edge.i, edge.j];
      const open = button("", () => widen(triple, 2), {class: "row-button", "aria-label": `Widen ${nameOfEdge(triple)}`});
      open.append(element("span", {}, nameOfEdge(triple)), element("span", {class: "soft"}, `layer ${edge.layer}`),
        element("span", {class: "number"}, `${number(edge.capacity)} · widen 2×`));
      return element("li", {}, open);
    })));
  }), {class: "show-cut"});
  const widest = element("ul", {class: "list cut-edges"});
  attempt(() => fillRoutes(list, rest));
  const meaning = element("p", {class: "note"}, "Routes and the bottleneck show the solution of the flow problem, and no more. " +
    "In our tests, as many edges of the largest capacities mattered as much to the model, or more.");
  return [meaning, element("h3", {}, "Widest routes"), list, rest, element("h3", {}, "Bottleneck"),
    element("p", {class: "note"}, "The minimum cut: edges that no flow can pass by. Widen one, and watch the cut move."),
    element("p", {class: "buttons"}, showCut, button("Clear", () => { flow.mark([]); flow.mark([], "route"); cutText.textContent = ""; widest.replaceChildren(); }, {class: "quiet"})),
    cutText, widest];
}

const inNetwork = edge => edge.layer >= 0 && edge.layer < layerCount();

async function fillRoutes(list, rest) {
  const answered = current;
  const {routes, rest: left, value} = await post("routes", {...side(), k: ROUTES});
  if (answered !== current || !list.isConnected) return;
  const {labels} = current.drawing;
  list.replaceChildren(...routes.map(({tokens, amount, share, narrowest}) => {
    const light = button("", () => {
      const isLit = light.getAttribute("aria-pressed") === "true";
      for (const other of list.querySelectorAll("[aria-pressed]")) other.setAttribute("aria-pressed", "false");
      light.setAttribute("aria-pressed", !isLit);
      const edges = tokens.slice(1).map((upper, layer) => ({layer, i: upper, j: tokens[layer], capacity: amount}));
      flow.mark(isLit ? [] : edges, "route");
    }, {class: "row-button light", "aria-pressed": false});
    light.append(element("b", {class: "number"}, percent(share)), element("span", {}, shortened(tokens).map(token => labels[token]).join(" → ")));
    const without = button("Without it", () => change("cut_edges", narrowest), {class: "quiet without"});
    without.disabled = isGrouped() || !narrowest;
    without.title = "Cuts the route where it is narrowest, and solves again";
    return element("li", {}, light, without);
  }));
  rest.textContent = value ? `All other routes carry ${percent(left / value)}. Together: 100%.` : "Nothing flows.";
}

// Tokens that follow themselves are one stop.
const shortened = tokens => tokens.filter((token, k) => k === 0 || token !== tokens[k - 1]);

function paintTool() {
  const {labels} = original.drawing;
  if (isGrouped()) return [element("p", {class: "note"}, "Paint before tokens are joined: undo the join first.")];
  const row = (kind, title, note) => [element("h3", {}, title), element("p", {class: "note"}, note),
    tokenChips({labels, chosen: edits.value(kind) || [], name: title, onChange: tokens => change(kind, tokens.length ? tokens : null)}),
    element("p", {class: "buttons"}, button("All tokens", () => change(kind, null), {class: `quiet all-${kind}`}))];
  return [element("p", {class: "note"}, "Which part of the answer rests on which part of the text? Drag over tokens here, or " +
    "click on names in the drawing: on the right where flow starts, on the left where it ends."),
  ...row("sources", "Flow starts at", "Output positions. None chosen: where the model reads its answer, or all."),
  ...row("targets", "Flow ends at", "Input tokens. None chosen: all.")];
}

function groupTool() {
  const {labels} = original.drawing;
  const groups = edits.value("groups");
  const units = select([["", "tokens"], ["word", "words"], ["sentence", "sentences"], ["own", "groups of my own"]],
    Array.isArray(groups) ? "own" : groups || "", {class: "units", "aria-label": "Units"});
  units.addEventListener("change", () => {
    if (units.value === "own") change("groups", []);
    else change("groups", units.value || null);
  });
  const found = [element("p", {class: "note"}, "Joined tokens are one node in every layer; the network is solved on them."),
    element("p", {}, element("label", {}, "Nodes are ", units))];
  const own = Array.isArray(groups) ? groups : [];
  let chosen = [];
  const name = element("input", {class: "group-name", placeholder: "Name, if you like", "aria-label": "Name of the group", maxlength: 100});
  const join = button("Join them", () => {
    const others = own.filter(group => !group.tokens.some(token => chosen.includes(token)));
    change("groups", [...others, {tokens: chosen, name: name.value.trim()}]);
  }, {class: "join primary"});
  join.disabled = true;
  name.addEventListener("keydown", event => { if (event.key === "Enter" && !join.disabled) join.click(); });
  const chips = tokenChips({labels, chosen: [], name: "Tokens to join", onChange: tokens => {
    chosen = tokens;
    join.disabled = tokens.length < 2;
  }});
  found.push(element("h3", {}, "Join tokens"), element("p", {class: "note"}, "Drag over the tokens of a phrase."), chips,
    element("p", {class: "buttons"}, name, join));
  if (own.length) {
    found.push(element("h3", {}, "Groups"), element("ul", {class: "list groups"}, ...own.map((group, index) => {
      const text = group.tokens.map(token => labels[token]).join(" ");
      const split = button("Split", () => {
        const others = own.filter((_, k) => k !== index);
        change("groups", others.length ? others : null);
      }, {class: "quiet", "aria-label": `Split: ${group.name || text}`});
      return element("li", {}, element("span", {}, group.name ? element("b", {}, `${group.name}: `) : "", text), split);
    })));
  }
  return found;
}

function keepTool() {
  const title = () => `${titleOf(current.attribution)}${edits.list.length ? ` (${edits.list.length} changes)` : ""}`;
  return [element("p", {class: "note"}, "Files have the result as it is now, with its changes."),
    keepTools({answer: current, question, edits, title, note: values.note, onNote: note => { values.note = note; save(); }})];
}


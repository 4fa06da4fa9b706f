// The explorer: asks the API, shows the answer, and changes its network.
//
// The state lies in the fragment of the address, which browsers never send: page, text, text_pair, model, method,
// target and edits (as JSON). Each edit is {kind, value}; bodyOf turns them into a request of /solve.

import {get, post, work} from "./api.js";
import {element, flowFrame, number, table, visible} from "./elements.js";
import {mountFlow} from "./flow.js";

const EDGES = 600;
const FIELDS = ["text", "text_pair", "model", "method", "target"];
const LISTED = 12; // rows of tables
const NARROW = 0.01; // of a cut: edges that carry less are counted, not drawn

const find = selector => document.querySelector(selector);
const form = find("form.ask");
const field = name => form.elements[name];
const say = (selector, text) => { find(selector).textContent = visible(text); };

let original = null; // the explanation: {id, attribution, drawing}
let current = null; // the same, or after edits
let edits = [];
let flow = null; // what mountFlow returned
let choice = null; // {layer, tokens} that was clicked in the drawing
let request = 0; // the latest solve: answers of earlier ones are dropped
let stop = null;

// State in the address

function readState() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const token = parameters.get("token");
  if (token) {
    sessionStorage.setItem("token", token);
    parameters.delete("token");
    history.replaceState(null, "", "#" + parameters);
  }
  return parameters;
}

function writeState() {
  const parameters = new URLSearchParams({page: "explain"});
  for (const name of FIELDS) if (field(name).value) parameters.set(name, field(name).value);
  if (edits.length) parameters.set("edits", JSON.stringify(edits));
  history.replaceState(null, "", "#" + parameters);
}

function showPage(name) {
  const rooms = [...document.querySelectorAll(".room")];
  const page = rooms.some(room => room.id === name) ? name : "explain";
  for (const room of rooms) room.hidden = room.id !== page;
  for (const link of document.querySelectorAll("[data-page]")) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function complain(problem) {
  const line = find(".problem");
  line.hidden = !problem;
  if (!problem) return;
  say(".problem", problem.detail || `The server does not answer (${problem.message || problem}).`);
  const wrong = field(problem.argument);
  for (const name of FIELDS) field(name).removeAttribute("aria-invalid");
  if (wrong) {
    wrong.setAttribute("aria-invalid", "true");
    wrong.focus();
  }
}

async function attempt(action) {
  complain(null);
  try {
    await action();
  } catch (problem) {
    complain(problem);
  }
}

// Explain

function question() {
  const body = {text: field("text").value};
  for (const name of ["text_pair", "model", "method", "target"]) if (field(name).value) body[name] = field(name).value;
  return body;
}

async function explain() {
  const bar = find(".ask progress");
  const button = find(".ask .stop");
  bar.value = 0;
  bar.hidden = button.hidden = false;
  request += 1;
  try {
    original = await work("explain", {...question(), edges: EDGES}, {
      progress: fraction => { bar.value = fraction; },
      started: stopper => { stop = stopper; },
    });
  } finally {
    bar.hidden = button.hidden = true;
  }
  current = original;
  flow = null; // tokens and layers that were chosen are those of another text
  show();
  if (edits.length) await solve();
  writeState();
  const {predictions} = await post("predictions", {...onlyText(), count: 20});
  find("#targets").replaceChildren(...predictions.map(({label}) => element("option", {value: label})));
}

function onlyText() {
  const {text, text_pair, model} = question();
  return JSON.parse(JSON.stringify({text, text_pair, model})); // without what is undefined
}

function show() {
  const att = current.attribution;
  const probability = att.probability === null ? "" : ` ${(100 * att.probability).toFixed(1)}%`;
  say(".headline", att.label + probability);
  const facts = [`explained by ${att.method}`, `${att.tokens.length} tokens`];
  if (att.label !== att.prediction) facts.push(`the model predicts ${att.prediction}`);
  if (att.facts.warning) facts.push(att.facts.warning);
  if (att.certificate) facts.push(certified(att.certificate));
  say(".facts", facts.join(" · "));
  find(".result").hidden = false;
  const frame = flowFrame(att, current.drawing);
  frame.classList.toggle("pick", find(".cut-edges").checked);
  const state = flow && current.drawing.methods.length > flow.state().method ? flow.state() : {};
  if (!choice) state.selected = null;
  const same = current.attribution.tokens.length === original.attribution.tokens.length;
  find(".view").replaceChildren(frame);
  flow = mountFlow(frame, current.drawing, {pick: true, onPick: pick, start: same ? state : {method: state.method}});
  frame.querySelector(".choose").addEventListener("change", () => attempt(showRoutes));
  choice = flow.state().selected;
  showEdits();
  showChanges();
  say(".cut-text", "");
  find(".routes").replaceChildren();
  find(".curve").replaceChildren();
  find(".panels").hidden = !att.certificate;
  if (att.certificate) attempt(showRoutes);
}

function certified(certificate) {
  if (certificate.dead) return "no path from the output to the input";
  const error = Math.max(certificate.conservation, certificate.dual, certificate.centrality);
  return `${certificate.converged ? "certified" : "not certified"}: optimal to ${error.toExponential(0)}`;
}

// Edits

function pick({edge, layer, tokens}) {
  if (edge) {
    if (find(".cut-edges").checked) change({kind: "cut_edges", value: edge});
    return;
  }
  choice = {layer, tokens};
  showEdits();
}

function bodyOf() {
  const body = {id: original.id, cut_edges: [], cut_nodes: [], skip_layers: [], edges: EDGES};
  for (const {kind, value} of edits) {
    if (Array.isArray(body[kind])) body[kind].push(value);
    else body[kind] = value;
  }
  return body;
}

function change(edit) {
  if (edit.kind in {groups: 1, epsilon: 1, targets: 1}) edits = edits.filter(other => other.kind !== edit.kind);
  if (edit.value !== null) edits.push(edit);
  if (edit.kind === "cut_nodes") choice = null; // nothing flows there any more
  attempt(solve);
}

async function solve() {
  request += 1;
  const number = request;
  const answer = edits.length ? await post("solve", bodyOf()) : original;
  if (number !== request) return;
  current = answer;
  show();
  writeState();
}

function nameOf(token) {
  return `“${original.drawing.labels[token]}”`;
}

function wordsOf({kind, value}) {
  if (kind === "cut_edges") return `edge cut: ${nameOf(value[1])} to ${nameOf(value[2])}, layer ${value[0]}`;
  if (kind === "cut_nodes") return `node cut: ${nameOf(value[1])}, layer ${value[0]}`;
  if (kind === "skip_layers") return `layer ${value} skipped`;
  if (kind === "targets") return `flow only to ${value.map(nameOf).join(", ")}`;
  if (kind === "groups") return `tokens joined into ${value}s`;
  return `epsilon ${value}`;
}

function showEdits() {
  const grouped = edits.some(edit => edit.kind === "groups");
  const one = choice && choice.tokens.length === 1 && !grouped;
  const place = one ? `Chosen: ${nameOf(choice.tokens[0])}, layer ${choice.layer}.` : "Click on a node to choose it.";
  say(".selection", grouped ? "Nodes and edges can be cut before tokens are joined." : place);
  find(".cut-node").disabled = find(".only-target").disabled = !one;
  const layers = original.attribution.layers ? original.attribution.layers.length - 1 : 0;
  find(".skip-layer").disabled = !one || choice.layer >= layers;
  find(".cut-edges").disabled = grouped;
  find(".edits").replaceChildren(...edits.map(edit => element("li", {}, wordsOf(edit))));
  find(".undo").disabled = find(".reset").disabled = !edits.length;
  const value = kind => (edits.find(edit => edit.kind === kind) || {}).value;
  find(".groups").value = value("groups") || "";
  const exponent = Math.round(Math.log10(value("epsilon") || 1e-6));
  find(".epsilon").value = exponent;
  say(".exponent", String(exponent));
}

function ranks(scores) {
  const order = [...scores.keys()].sort((a, b) => Math.abs(scores[b]) - Math.abs(scores[a]) || a - b);
  const places = [];
  order.forEach((token, rank) => { places[token] = rank + 1; });
  return places;
}

function showChanges() {
  const box = find(".changes .scroll");
  box.replaceChildren();
  if (current === original) {
    say(".verdict", "Nothing yet.");
    return;
  }
  const values = [original, current].map(({drawing}) => drawing.methods.map(method => method.value));
  const names = current.drawing.names;
  say(".verdict", names.map((name, k) => `${name}: ${number(values[0][k])} → ${number(values[1][k])}`).join("; "));
  const before = original.attribution.scores;
  const after = current.attribution.scores;
  if (before.length !== after.length) return;
  const ranksBefore = ranks(before);
  const ranksAfter = ranks(after);
  const moved = [...after.keys()].sort((a, b) => Math.abs(after[b] - before[b]) - Math.abs(after[a] - before[a]));
  const rank = i => (ranksBefore[i] === ranksAfter[i] ? ranksAfter[i] : `${ranksBefore[i]} → ${ranksAfter[i]}`);
  const rows = moved.slice(0, LISTED).map(i => [original.drawing.labels[i], number(before[i]), number(after[i]), rank(i)]);
  box.append(table(["token", "before", "after", "rank"], rows));
}

// Bottleneck, routes, masking

function side() {
  return {id: current.id, against: current.drawing.names[flow.state().method].endsWith(", against")};
}

async function showCut() {
  const cut = await post("cut", side());
  const wide = cut.edges.filter(edge => edge.capacity >= NARROW * cut.value);
  flow.mark(wide);
  const count = `${cut.edges.length} edges hold the flow back, above all in layer ${cut.bottleneck}. They carry `;
  const drawn = wide.length < cut.edges.length ? ` The drawing shows the widest ${wide.length}.` : "";
  const text = `${count}${number(cut.value)} together${cut.unique ? "" : "; other cuts are as narrow"}.${drawn}`;
  say(".cut-text", cut.dead ? "There is no flow to cut." : text);
}

async function showRoutes() {
  const answered = current;
  const method = flow.state().method;
  const {routes} = await post("routes", {...side(), k: 5});
  if (answered !== current || method !== flow.state().method) return;
  const {labels} = current.drawing;
  const items = routes.map(({tokens, share}) => {
    return element("li", {}, element("b", {}, `${(100 * share).toFixed(1)}%`), ` ${tokens.map(i => labels[i]).join(" → ")}`);
  });
  find(".routes").replaceChildren(...items);
}

async function showMask() {
  const answer = await work("mask", {id: current.id}, {progress: () => {}, started: () => {}});
  const percent = value => `${(100 * value).toFixed(1)}%`;
  const rows = answer.levels.map((level, k) => {
    return [`${level}%`, percent(answer.probability[k]), percent(answer.random[k]), answer.prediction[k]];
  });
  const {label} = current.attribution;
  rows.unshift(["0%", percent(answer.unmasked), percent(answer.unmasked), label]);
  find(".curve").replaceChildren(table(["masked", label, "by chance", "prediction"], rows));
}

// About

async function showAbout() {
  const [{models}, {methods}, {version}] = await Promise.all(["models", "methods", "health"].map(get));
  for (const {name} of models) field("model").append(element("option", {value: name}, name));
  for (const {name} of methods) field("method").append(element("option", {value: name}, name));
  const state = model => (model.loaded ? `${model.class}, ${model.task}` : "not loaded yet");
  find(".models").append(table(["model", "state"], models.map(model => [model.name, state(model)])));
  const rows = methods.map(({name, description, signed, passes}) => [name, description, signed ? "yes" : "no", passes]);
  find(".methods").append(table(["method", "what it does", "signed", "passes of the model"], rows));
  say(".version", `gaflow ${version}.`);
}

async function begin() {
  const parameters = readState();
  showPage(parameters.get("page"));
  await showAbout();
  for (const name of FIELDS) if (parameters.has(name)) field(name).value = parameters.get(name);
  try {
    edits = JSON.parse(parameters.get("edits") || "[]");
  } catch {
    edits = [];
  }
  if (parameters.has("text")) await explain();
}

form.addEventListener("submit", event => {
  event.preventDefault();
  edits = [];
  attempt(explain);
});
field("text").addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});
find(".ask .stop").addEventListener("click", () => stop && stop());
find(".cut-node").addEventListener("click", () => change({kind: "cut_nodes", value: [choice.layer, choice.tokens[0]]}));
find(".skip-layer").addEventListener("click", () => change({kind: "skip_layers", value: choice.layer}));
find(".only-target").addEventListener("click", () => change({kind: "targets", value: choice.tokens}));
find(".cut-edges").addEventListener("change", event => find(".view .flow").classList.toggle("pick", event.target.checked));
find(".groups").addEventListener("change", event => change({kind: "groups", value: event.target.value || null}));
find(".epsilon").addEventListener("change", event => change({kind: "epsilon", value: 10 ** Number(event.target.value)}));
find(".undo").addEventListener("click", () => { edits.pop(); attempt(solve); });
find(".reset").addEventListener("click", () => { edits = []; attempt(solve); });
find(".show-cut").addEventListener("click", () => attempt(showCut));
find(".show-mask").addEventListener("click", () => attempt(showMask));
window.addEventListener("hashchange", () => showPage(readState().get("page")));

attempt(begin);

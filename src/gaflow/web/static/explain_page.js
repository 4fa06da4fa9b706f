// Explain: a text, its prediction, and how much each word counted. The text can be edited in place.
//
// Link: the question; `also` (further methods, separated by commas); `before` (the text before it was edited);
// `masked` (how many tokens are masked); `note`.

import {post} from "./api.js";
import {align} from "./align.js";
import {bar, button, card, decimalsFor, element, percent, table} from "./elements.js";
import {fragment, remember} from "./link.js";
import {keepTools} from "./keep.js";
import {maskingCard} from "./masking_card.js";
import {questionForm} from "./question_form.js";
import {EDGES, explained, isAsked, questionIn, targetName, textIn} from "./results.js";
import {legend, shadeClass, shadedWords, sumOfSizes, textOf} from "./shading.js";
import {attempt, latest, server, watched} from "./shell.js";

const EXAMPLE = "although this dog is not cute, it is very smart.";
const EXAMPLES = [EXAMPLE, "the plot is thin, but the acting is superb.", "i did not expect to like it, and i was right."];
const GUIDE = [
  ["flow", "Flow", "The network behind the scores. Cut a part of it, and see at once what follows."],
  ["compare", "Compare", "Two texts, models, outputs or methods side by side, and what makes the difference."],
  ["data", "Data", "The explanations of a whole data set, by row and by word."],
];
const TOP = 8; // words that are listed
const MASKED_AT_ONCE = 40; // tokens: longer texts wait for a click
const begin = latest();

let form = null;
let values = {};
let result = null;

export function prepare(room) {
  form = questionForm({action: "Explain", onAsk: ask});
  form.fill({text: EXAMPLE});
  result = element("div", {class: "result"});
  const intro = element("div", {class: "intro"}, element("h1", {}, "Why did the model say that?"),
    element("p", {class: "note"}, "Write a text. gaflow shows how much each word counted, and proves how exact that is."));
  room.append(intro, form.element, result);
}

export async function show(linked) {
  values = linked;
  const question = questionIn(values);
  if (!isAsked(question)) {
    result.replaceChildren(...welcome());
    return;
  }
  if (!question.run) form.fill(question);
  await load(question);
}

// What the page has before anything is asked: texts to try, and where to go.
function welcome() {
  const examples = EXAMPLES.map(text => button(text, () => {
    form.fill({text});
    ask();
  }, {class: "chip example"}));
  const guide = GUIDE.map(([page, name, words]) => element("li", {},
    element("a", {href: fragment(page, {})}, name), element("p", {class: "note"}, words)));
  return [element("div", {class: "examples-row"}, element("h2", {}, "Try one"), ...examples),
    element("ul", {class: "guide"}, ...guide)];
}

function ask() {
  values = form.question();
  const also = document.querySelector(".also-list") ? alsoChosen() : [];
  if (also.length) values.also = also.join(",");
  attempt(() => load(questionIn(values)));
}

async function load(question) {
  const isLatest = begin();
  result.classList.add("waiting");
  remember("explain", values);
  try {
    const answer = await explained(question);
    if (!isLatest()) return;
    display(question, answer);
    await Promise.all([showTargets(question, answer, isLatest), showAlso(question, isLatest), showBefore(question, answer, isLatest)]);
  } finally {
    if (isLatest()) result.classList.remove("waiting");
  }
}

function display(question, answer) {
  const {attribution: att, drawing} = answer;
  const probability = att.probability === null ? "" : ` ${percent(att.probability)}`;
  document.title = `${att.label}${probability} · gaflow`;
  const head = element("div", {class: "head"},
    element("h1", {class: "headline"}, `${att.label}${probability}`), element("p", {class: "facts"}, factsOf(att)),
    ...(values.note ? [element("p", {class: "noted"}, values.note)] : []));
  const targets = element("div", {class: "targets", role: "group", "aria-label": "Outputs"});
  const passage = element("div", {class: "passage"}, shadedWords(att, drawing.levels));
  const edit = button("Edit the text", () => editInPlace(question, att, passage), {class: "edit"});
  const flowLink = element("a", {class: "button to-flow", href: fragment("flow", question)}, "See its flow");
  const tools = element("p", {class: "buttons"}, ...(question.run ? [again(att)] : [edit]), ...(att.layers ? [flowLink] : []),
    ...(question.run ? [] : [compareLink(question)]));
  const scores = att.words.map(word => word.score);
  const words = drawing.legends[Math.min(...scores, 0) < 0 ? "signed" : "positive"].replaceAll("token", "word");
  const text = card("The text", passage, legend(scores, drawing.levels, words), element("div", {class: "change"}), tools,
    element("div", {class: "also"}));
  const cards = element("div", {class: "cards"}, topWords(att), certificateCard(att));
  const parts = [head, targets, text, cards];
  if (!question.run) {
    const masking = maskingCard(answer, values.masked, count => {
      values.masked = count || "";
      remember("explain", values);
    });
    parts.push(masking.element);
    if (values.masked || att.tokens.length <= MASKED_AT_ONCE && att.probability !== null) masking.run();
  }
  parts.push(card("Keep and share", keepTools({
    answer, question, edits: null, title: () => titleOf(att), note: values.note, onNote: note => {
      values.note = note;
      remember("explain", values);
    },
  })));
  result.replaceChildren(...parts);
}

export function titleOf(att) {
  const text = [...att.text];
  const short = text.length > 60 ? `${text.slice(0, 59).join("")}…` : att.text;
  return `${att.label}, ${att.method}: ${short}`;
}

export function factsOf(att) {
  const facts = [`explained by ${att.method}`, `${att.tokens.length} tokens`];
  if (att.label !== att.prediction) facts.push(`the model predicts ${att.prediction}`);
  if (att.truncated) facts.push("only the beginning was read");
  if (att.facts.warning) facts.push(att.facts.warning);
  return facts.join(" · ");
}

function compareLink(question) {
  const sides = {};
  for (const [name, value] of Object.entries(question)) sides[`a.${name}`] = sides[`b.${name}`] = value;
  return element("a", {class: "button", href: fragment("compare", sides)}, "Compare it");
}

function again(att) {
  const question = {text: att.text, method: att.method, text_pair: att.pair || ""};
  return element("a", {class: "button", href: fragment("explain", question)}, "Explain it again here");
}

// Targets: the outputs that can be explained; click on one to explain it.
async function showTargets(question, answer, isLatest) {
  const box = result.querySelector(".targets");
  if (question.run) return;
  const {predictions} = await post("predictions", {...textIn(question), count: 6});
  if (!isLatest()) return;
  form.offerTargets(predictions.map(targetName));
  const chips = predictions.map(prediction => {
    const {label, probability} = prediction;
    const chosen = label === answer.attribution.label;
    const chip = button("", () => attempt(() => {
      values = {...values, target: targetName(prediction), before: "", masked: ""};
      form.fill(questionIn(values));
      return load(questionIn(values));
    }), {class: "chip", "aria-pressed": chosen});
    chip.append(element("span", {}, label));
    if (probability !== null) chip.append(bar(probability, false), element("span", {class: "number"}, percent(probability)));
    return chip;
  });
  box.replaceChildren(...chips);
}

// Further methods, side by side from one trace.
const alsoChosen = () => [...result.querySelectorAll(".also-list input:checked")].map(box => box.value);

async function showAlso(question, isLatest) {
  if (question.run) return;
  const chosen = (values.also || "").split(",").filter(Boolean);
  const box = result.querySelector(".also");
  const rows = element("div", {class: "also-rows"});
  const boxes = server.methods.map(({name, description}) => {
    const input = element("input", {type: "checkbox", value: name});
    input.checked = chosen.includes(name);
    return element("label", {title: description || ""}, input, ` ${name}`);
  });
  const list = element("details", {class: "also-list"}, element("summary", {}, "Other methods beside it"),
    element("div", {class: "checks"}, ...boxes));
  list.open = chosen.length > 0;
  list.addEventListener("change", () => {
    values.also = alsoChosen().join(",");
    remember("explain", values);
    attempt(() => fillAlso(question, rows, () => rows.isConnected));
  });
  box.replaceChildren(list, rows);
  if (chosen.length) await fillAlso(question, rows, isLatest);
}

async function fillAlso(question, rows, isLatest) {
  const methods = (values.also || "").split(",").filter(Boolean);
  if (!methods.length) {
    rows.replaceChildren();
    return;
  }
  const body = {...textIn(question), methods, edges: EDGES};
  if (question.target) body.target = question.target;
  const {results} = await watched("Comparing methods …", "compare", body);
  if (!isLatest()) return;
  rows.replaceChildren(...Object.entries(results).map(([name, {attribution, drawing}]) => {
    return element("div", {class: "also-row"}, element("h3", {}, name), shadedWords(attribution, drawing.levels));
  }));
}

function topWords(att) {
  const strongest = [...att.words].sort((a, b) => Math.abs(b.score) - Math.abs(a.score)).slice(0, TOP);
  const largest = Math.max(...strongest.map(word => Math.abs(word.score)), 0) || 1;
  const total = sumOfSizes(att.words.map(word => word.score));
  const signed = att.words.some(word => word.score < 0);
  const written = decimalsFor(strongest.map(word => word.score));
  const rows = strongest.map(word => [
    word.text, bar(word.score / largest, signed), written(word.score), percent(Math.abs(word.score) / total),
  ]);
  const box = card("Top words", table(["word", "", "score", "share"], rows));
  box.classList.add("top-words");
  return box;
}

export function certificateCard(att) {
  const box = card("Certificate");
  box.classList.add("certificate");
  const {certificate} = att;
  if (!certificate) {
    box.append(element("p", {class: "note"}, `${att.method} solves no flow, so there is nothing to certify.`));
    return box;
  }
  if (certificate.dead) {
    box.append(element("p", {}, "No path leads from the output to the input; every score is 0."));
    return box;
  }
  const small = value => (value === null ? "–" : value.toExponential(0));
  const error = Math.max(certificate.conservation, certificate.dual, certificate.centrality);
  const verdict = certificate.converged ? `Solved to ${small(error)}` : "Not converged: do not rely on these scores";
  const rows = [
    ["Flow is conserved at every node to", small(certificate.conservation)],
    ["Prices of edges fit together to", small(certificate.dual)],
    ["Edges balance flow and slack to", small(certificate.centrality)],
    ["More flow is possible by at most", certificate.cut > 0 ? small(Math.max(certificate.gap, 0) / certificate.cut) : "–"],
    ["Barrier ε", small(certificate.epsilon)],
    ["Steps of the solver", String(certificate.iterations)],
  ];
  const list = element("dl", {});
  for (const [term, value] of rows) list.append(element("dt", {}, term), element("dd", {}, value));
  box.append(element("p", {class: certificate.converged ? "seal" : "seal broken"}, verdict), list,
    element("p", {class: "note"}, "Checked after solving, relative to the flow. This is about the arithmetic: it does not mean that the explanation is right."));
  return box;
}

// Editing in place

function editInPlace(question, att, passage) {
  const text = element("textarea", {class: "in-place", rows: 3, "aria-label": "Edit the text"}, "");
  text.value = att.text;
  function leave() {
    passage.replaceChildren(...shaded);
    result.querySelector(".edit").hidden = false;
    result.querySelector(".edit").focus();
  }
  const shaded = [...passage.childNodes];
  function send() {
    if (text.value === att.text) { leave(); return; }
    values = {...values, text: text.value, before: att.text, masked: ""};
    form.fill(questionIn(values));
    attempt(() => load(questionIn(values)));
  }
  text.addEventListener("keydown", event => {
    if (event.key === "Escape") leave();
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    send();
  });
  result.querySelector(".edit").hidden = true;
  passage.replaceChildren(text, element("p", {class: "buttons"}, button("Explain the change", send, {class: "primary send"}),
    button("Leave it", leave)));
  text.focus();
}

// What an edit of the text changed: words that came, words that went, and importance that moved.
async function showBefore(question, answer, isLatest) {
  const box = result.querySelector(".change");
  if (!values.before || values.before === question.text || question.run) return;
  const target = question.target || targetName(answer.attribution); // the same output on both sides
  const earlier = await explained({...question, text: values.before, target});
  if (!isLatest()) return;
  const before = earlier.attribution;
  const after = answer.attribution;
  const sharesBefore = shares(before);
  const sharesAfter = shares(after);
  const pairs = align(before.words.map(keyOf), after.words.map(keyOf));
  const largest = Math.max(...pairs.map(([i, j]) => Math.abs((sharesAfter[j] || 0) - (sharesBefore[i] || 0))), 0);
  const oldWord = new Map(pairs.filter(([i, j]) => i !== null && j !== null).map(([i, j]) => [j, i]));
  const goneBefore = new Map(); // word of the new text, or its end -> words that were there before it
  let pending = [];
  for (const [i, j] of pairs) {
    if (j === null) pending.push(i);
    else if (pending.length) { goneBefore.set(j, pending); pending = []; }
  }
  const gone = words => words.map(i => element("del", {title: `gone: ${change(0, sharesBefore[i])}`}, before.words[i].text));
  let word = -1;
  const drawn = textOf(after, after.words, (unit, text) => {
    word += 1;
    const isNew = !oldWord.has(word);
    const earlierShare = isNew ? 0 : sharesBefore[oldWord.get(word)];
    const difference = sharesAfter[word] - earlierShare;
    const title = isNew ? `added: ${change(sharesAfter[word], 0)}` : change(sharesAfter[word], earlierShare);
    const shaded = element(isNew ? "ins" : "span", {class: shadeClass(difference, largest, answer.drawing.levels), title}, text);
    if (!goneBefore.has(word)) return shaded;
    return element("bdi", {}, ...gone(goneBefore.get(word)), " ", shaded);
  });
  if (pending.length) drawn.lastChild.append(" ", ...gone(pending));
  const moved = (before.probability === null || after.probability === null) ? "" :
    `: ${before.label} ${percent(before.probability)} → ${after.label} ${percent(after.probability)}`;
  const back = button("Back to the text before", () => {
    values = {...values, text: values.before, before: ""};
    form.fill(questionIn(values));
    attempt(() => load(questionIn(values)));
  });
  box.replaceChildren(element("h3", {}, `What the edit changed${moved}`), drawn,
    element("p", {class: "note"}, "Shades show how the share of each word moved: orange more for this output, blue less. " +
      "Underlined: added. Struck out: gone."), element("p", {class: "buttons"}, back));
}

const keyOf = word => `${word.segment} ${word.text}`;

function shares(att) {
  const total = sumOfSizes(att.words.map(word => word.score));
  return att.words.map(word => word.score / total);
}

const signedPercent = share => `${share < 0 ? "" : "+"}${percent(share)}`;
const change = (now, earlier) => `${signedPercent(earlier)} → ${signedPercent(now)} of all scores`;

// Explanations by their question, so that pages that ask the same one share the answer.
//
// A question is {text, text_pair, model, method, target}, or {run, row, method} for what was saved.

import {post} from "./api.js";
import {watched} from "./shell.js";

export const QUESTION = ["text", "text_pair", "model", "method", "target", "run", "row"];
export const EDGES = 600; // of a drawing
const REMEMBERED = 12;

const answers = new Map(); // key of a question -> promise of {id, attribution, drawing}

// The server keeps the latest results only. When it has dropped one, all are asked for again.
document.addEventListener("dropped", () => answers.clear());

export function questionIn(values, prefix = "") {
  const question = {};
  for (const name of QUESTION) if (values[prefix + name]) question[name] = values[prefix + name];
  return question;
}

export const isAsked = question => Boolean(question.text || question.run);

export function textIn({text, text_pair, model}) {
  const body = {text};
  if (text_pair) body.text_pair = text_pair;
  if (model) body.model = model;
  return body;
}

function ask(question) {
  if (question.run) {
    const parameters = new URLSearchParams({edges: EDGES});
    if (question.row) parameters.set("row", question.row);
    if (question.method) parameters.set("method", question.method);
    return post(`runs/${encodeURIComponent(question.run)}/open?${parameters}`, {});
  }
  const body = {...textIn(question), edges: EDGES};
  if (question.method) body.method = question.method;
  if (question.target) body.target = question.target;
  return watched("Explaining …", "explain", body);
}

export function explained(question) {
  const key = JSON.stringify(QUESTION.map(name => question[name] || ""));
  if (!answers.has(key)) {
    const answer = ask(question);
    answers.set(key, answer);
    answer.catch(() => answers.delete(key));
    while (answers.size > REMEMBERED) answers.delete(answers.keys().next().value);
  }
  return answers.get(key);
}

// The same from the server again, where it has dropped the old answer.
export function explainedAgain(question) {
  answers.clear();
  return explained(question);
}

// The name by which a prediction can be asked for as a target.
export const targetName = ({target, label}) => (typeof target === "string" ? target : label);

// About: the models and methods of this server, what they cost, its limits and its API.

import {element, table} from "./elements.js";
import {get} from "./api.js";
import {server} from "./shell.js";

let room = null;

export function prepare(section) {
  room = section;
}

export async function show() {
  document.title = "About · gaflow";
  const [{models}, {limits}] = await Promise.all([get("models"), get("limits")]);
  server.models = models;
  room.replaceChildren(
    element("div", {class: "intro"}, element("h1", {}, "About this server"),
      element("p", {class: "note"}, `gaflow ${server.version}. Everything runs here: the page asks no other site, and no text leaves this server.`)),
    part("Models", "models", modelTable(models)), part("Methods", "methods", methodTable()),
    part("Limits", "limits", limitTable(limits)),
    element("section", {class: "card api"}, element("h2", {}, "API"), element("p", {}, "Programs can ask for all that this page shows. " +
      "The requests are described at ", element("a", {href: "/api/v1/openapi.json"}, "/api/v1/openapi.json"), "."),
    element("pre", {}, `curl ${location.origin}/api/v1/explain -H 'Content-Type: application/json' -d '{"text": "a gripping film."}'`)));
}

function part(title, name, content) {
  return element("section", {class: `card ${name}`, "aria-label": title}, element("h2", {}, title), element("div", {class: "scroll"}, content));
}

function modelTable(models) {
  const rows = models.map(model => [model.name, model.loaded ? model.class : "not loaded yet", model.task || "–",
    model.labels && model.labels.length ? model.labels.slice(0, 6).join(", ") : "–", model.tokens ? String(model.tokens) : "–"]);
  return table(["model", "class", "task", "labels", "tokens"], rows);
}

function methodTable() {
  const rows = server.methods.map(({name, description, family, signed, passes}) => [name, description || "–", family || "–", signed ? "for and against" : "size only", passes || "–"]);
  return table(["method", "what it does", "family", "scores", "passes of the model"], rows);
}

const limitWords = (name, value) => (name.endsWith("_bytes") ? `${(value / 2 ** 20).toLocaleString("en")} MiB` : value.toLocaleString("en"));

function limitTable(limits) {
  const names = {
    tokens: "tokens of a text", body_bytes: "size of a request", methods: "methods of a comparison", seconds: "seconds for one explanation",
    queue: "requests that wait", solves: "networks solved at the same time", kept_bytes: "size of all results in memory", idle_seconds: "seconds until an idle model is unloaded",
  };
  const rows = Object.entries(limits).map(([name, value]) => [names[name] || name, element("span", {class: "number"}, limitWords(name, value))]);
  return table(["limit", "value"], rows);
}

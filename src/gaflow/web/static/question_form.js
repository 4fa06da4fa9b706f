// The form of a question: a text or two, model, method and target. Explain has one of them, Compare two.

import {button, element, field, select} from "./elements.js";
import {server} from "./shell.js";

const FIELDS = ["text", "text_pair", "model", "method", "target"];

// `onAsk` is called when the form is sent. Returns {element, question(), fill(question), offerTargets(names)}.
export function questionForm({action, onAsk, rows = 2}) {
  const text = element("textarea", {name: "text", rows, required: "", placeholder: "Write or paste a text"});
  const pair = element("textarea", {name: "text_pair", rows: 1});
  const model = select(server.models.map(({name}) => [name, name]), "", {name: "model"});
  model.selectedIndex = 0;
  const methods = server.methods.map(({name}) => [name, name]);
  const method = select([["", "the default"], ...methods], "", {name: "method"});
  const list = element("datalist", {id: `targets-${Math.random().toString(36).slice(2)}`});
  const target = element("input", {name: "target", autocomplete: "off", list: list.id, placeholder: "the prediction"});
  const second = field("Second text, for models that read two", pair);
  second.classList.add("wide");
  second.hidden = true;
  const more = button("Add a second text", () => { second.hidden = false; more.hidden = true; pair.focus(); }, {class: "quiet"});
  const wide = field("Text", text);
  wide.classList.add("wide");
  const send = element("button", {type: "submit", class: "primary"}, action);
  const form = element("form", {class: "ask"}, wide, second,
    element("div", {class: "fields"}, field("Model", model), field("Method", method), field("Target", target), list),
    element("div", {class: "buttons"}, ...(onAsk ? [send] : []), more));
  const controls = {text, text_pair: pair, model, method, target};

  function grow() { // as tall as its text, where the browser does not do that by itself
    if (CSS.supports("field-sizing", "content")) return;
    text.style.height = "auto";
    text.style.height = `${text.scrollHeight + 2}px`;
  }

  form.addEventListener("submit", event => {
    event.preventDefault();
    if (onAsk) onAsk();
  });
  text.addEventListener("keydown", event => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  text.addEventListener("input", grow);

  function question() {
    const asked = {};
    for (const name of FIELDS) if (controls[name].value) asked[name] = controls[name].value;
    if (server.models.length && asked.model === server.models[0].name) delete asked.model;
    if (second.hidden) delete asked.text_pair;
    return asked;
  }

  function fill(values) {
    for (const name of FIELDS) {
      if (name === "model" && !values.model) model.selectedIndex = 0;
      else controls[name].value = values[name] || "";
    }
    second.hidden = !values.text_pair;
    more.hidden = !second.hidden;
    grow();
  }

  function offerTargets(names) {
    list.replaceChildren(...names.map(name => element("option", {value: name})));
  }

  return {element: form, question, fill, offerTargets, focus: () => text.focus()};
}

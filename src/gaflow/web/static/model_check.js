// What the model itself says, beside what its network says. This runs the model; nothing else on the flow page does.

import {button, element, number, percent} from "./elements.js";
import {attempt, watched} from "./shell.js";

// The same cuts in the network and in the model, side by side.
export function modelCheck({edits, original, before, after}) {
  const body = edits.modelBody(original.id);
  const count = body.cut_edges.length + body.cut_nodes.length + body.skip_layers.length;
  const out = element("div", {class: "two-answers", "aria-live": "polite"});
  const run = button("Ask the model", () => attempt(async () => {
    const answer = await watched("Running the model without this attention …", "remove", body);
    out.replaceChildren(networkAnswer(before, after), modelAnswer(answer, original.attribution.label));
  }), {class: "ask-model"});
  run.disabled = count === 0;
  const words = count ? "Removes the attention of what you cut or skipped from the model, and runs it." :
    "Cut an edge or a node, or skip a layer. Then you can compare with the model itself.";
  return element("div", {class: "model-check"}, element("h3", {}, "What does the model say?"), element("p", {class: "note"}, words),
    element("p", {class: "buttons"}, run), out);
}

function networkAnswer(before, after) {
  const net = drawing => drawing.methods.reduce((sum, method, k) => {
    return sum + (drawing.names[k].endsWith(", against") ? -method.value : method.value);
  }, 0);
  const name = before.names.length > 1 ? "flow for minus against" : "flow";
  return element("div", {class: "answer"}, element("h4", {}, "In the network"),
    element("p", {class: "big"}, `${number(net(before))} → ${number(net(after))}`), element("p", {class: "note"}, name));
}

function modelAnswer({labels, before, after, prediction, to_itself}, label) {
  const index = Math.max(labels.indexOf(label), 0);
  const kept = to_itself ? " A token keeps what its residual stream carries." : "";
  return element("div", {class: "answer"}, element("h4", {}, "In the model"),
    element("p", {class: "big"}, `${percent(before[index])} → ${percent(after[index])}`),
    element("p", {class: "note"}, `probability of ${labels[index]}; it predicts ${prediction}.${kept}`));
}

// Attention times gradient of each head, for all edges that are drawn: {layer,i,j -> amounts}.
export async function readHeads({id, drawing}) {
  const edges = new Map();
  for (const method of drawing.methods) {
    method.edges.forEach((flat, layer) => {
      for (let e = 0; e < flat.length; e += 3) edges.set(`${layer},${flat[e]},${flat[e + 1]}`, [layer, flat[e], flat[e + 1]]);
    });
  }
  const answer = await watched("Reading the heads …", "heads", {id, edges: [...edges.values()]});
  return new Map(answer.edges.map((edge, k) => [edge.join(), answer.amounts[k]]));
}

// The heads of the chosen edge, or of the drawn edges that end at the chosen node (that start there, at the input).
// A click on a head removes it from the model, from this layer only.
export function headCard({heads, choice, id, label, read}) {
  const box = element("div", {class: "heads-card"}, element("h3", {}, "Heads"));
  if (!heads) {
    box.append(element("p", {class: "note"}, "Which heads carry it? Reading them runs the model once."),
      element("p", {class: "buttons"}, button("Show the heads", () => attempt(read), {class: "show-heads"})));
    return box;
  }
  const isMine = ([layer, i, j]) => {
    if (choice.edge) return [layer, i, j].join() === choice.edge.join();
    if (choice.layer === 0) return layer === 0 && choice.tokens.includes(j);
    return layer === choice.layer - 1 && choice.tokens.includes(i);
  };
  let sums = null;
  for (const [key, amounts] of heads) {
    if (!isMine(key.split(",").map(Number))) continue;
    sums = sums ? sums.map((sum, head) => sum + amounts[head]) : amounts;
  }
  if (!sums) {
    box.append(element("p", {class: "note"}, "No edge of it is among those drawn."));
    return box;
  }
  const largest = Math.max(...sums.map(Math.abs)) || 1;
  const layer = choice.edge ? choice.edge[0] : Math.max(choice.layer - 1, 0);
  const out = element("p", {class: "without-head", "aria-live": "polite"});
  const remove = head => attempt(async () => {
    const answer = await watched("Running the model without this head …", "remove", {id, cut_heads: [[layer, head]]});
    const index = Math.max(answer.labels.indexOf(label), 0);
    const change = element("b", {}, `${percent(answer.before[index])} → ${percent(answer.after[index])}`);
    out.replaceChildren(`Without head ${head} of layer ${layer}, the model says ${answer.labels[index]} `, change, ".");
  });
  box.append(element("ol", {class: "head-bars"}, ...sums.map((sum, head) => {
    const part = element("i", {class: sum < 0 ? "less" : "more"});
    part.style.height = `${100 * Math.abs(sum) / largest}%`;
    const press = button("", () => remove(head), {class: "head", title: `${number(sum)}; click: the model without it`, "aria-label": `Remove head ${head}, ${number(sum)}`});
    press.append(element("span", {class: "column"}, part), element("span", {class: "number"}, String(head)));
    return element("li", {}, press);
  })), out, element("p", {class: "note"}, "Attention times gradient, summed over the edges that are drawn; striped: against the " +
    "output. Click on a head to run the model without it."));
  return box;
}

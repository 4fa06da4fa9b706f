// The notebook widget, an anywidget module: draws with mountFlow, and asks Python to solve changed networks.
//
// The model holds frame (HTML of templates/flow_widget.html), data, facts, problem, selected and edits, which
// gaflow/notebook/connected_drawing.py explains. Requests carry a number, which the answer repeats.
function render({model, el}) {
  let flow = null;
  let choice = null; // a node {layer, tokens}, or an edge {edge: [layer, i, j]}
  let lastNumber = 0;
  const waiting = new Map(); // requests by number
  const past = []; // edits before the latest ones

  el.replaceChildren(document.createRange().createContextualFragment(model.get("frame")));
  const page = el.querySelector(".flow");
  const find = selector => page.querySelector(selector);

  function ask(request) {
    lastNumber += 1;
    const number = lastNumber;
    model.send({...request, number});
    return new Promise((resolve, reject) => waiting.set(number, {resolve, reject}));
  }

  function answered(message) {
    const request = waiting.get(message.number);
    if (!request) return;
    waiting.delete(message.number);
    if (message.problem) request.reject({detail: message.problem});
    else request.resolve(message);
  }

  function draw() {
    const start = flow ? flow.state() : {selected: model.get("selected")};
    if (flow) flow.leave();
    flow = mountFlow(page, model.get("data"), {
      pick: true,
      start,
      onPick: next => { choice = next; tell(); },
      onSelect: ({selected}) => {
        model.set("selected", selected);
        model.save_changes();
      },
      open: async groups => (await ask({kind: "open", groups})).methods,
    });
    tell();
  }

  function tell() {
    const labels = model.get("data").labels;
    const words = choice && (choice.edge || choice.tokens).length ? nameOf(choice, labels) : "";
    find(".choice").textContent = words || "Click on a node or an edge to change the network.";
    find(".cut").disabled = !words;
    const layers = model.get("data").methods[0].layers.length - 1;
    find(".skip").disabled = !words || Boolean(choice.edge) || choice.layer >= layers;
    find(".reset").disabled = !Object.values(model.get("edits")).some(list => list.length);
    find(".undo").disabled = !past.length;
    find(".verdict").textContent = model.get("facts");
    const problem = model.get("problem");
    find(".problem").textContent = problem;
    find(".problem").hidden = !problem;
    flow.mark(choice && choice.edge ? [{layer: choice.edge[0], i: choice.edge[1], j: choice.edge[2], capacity: 1}] : [], "picked");
  }

  function nameOf({edge, layer, tokens}, labels) {
    if (edge) return `${labels[edge[2]]} → ${labels[edge[1]]}, layer ${edge[0]}`;
    return `${tokens.map(token => labels[token]).join(" ")}, layer ${layer}`;
  }

  function change(edits) {
    ask({kind: "edit", edits}).catch(() => tell());
  }

  function added(kind, values) {
    const edits = model.get("edits");
    past.push(edits);
    return {...edits, [kind]: [...(edits[kind] || []), ...values]};
  }

  find(".cut").addEventListener("click", () => {
    const {edge, layer, tokens} = choice;
    choice = null;
    change(edge ? added("cut_edges", [edge]) : added("cut_nodes", tokens.map(token => [layer, token])));
  });
  find(".skip").addEventListener("click", () => change(added("skip_layers", [choice.layer])));
  find(".undo").addEventListener("click", () => change(past.pop()));
  find(".reset").addEventListener("click", () => { past.push(model.get("edits")); change({}); });

  const onSelected = () => {
    if (JSON.stringify(flow.state().selected) !== JSON.stringify(model.get("selected"))) flow.select(model.get("selected"));
  };
  model.on("change:data", draw);
  model.on("change:facts", tell);
  model.on("change:problem", tell);
  model.on("change:selected", onSelected);
  model.on("msg:custom", answered);
  draw();
  return () => {
    model.off("change:data", draw);
    model.off("change:facts", tell);
    model.off("change:problem", tell);
    model.off("change:selected", onSelected);
    model.off("msg:custom", answered);
    flow.leave();
  };
}

export default {render};

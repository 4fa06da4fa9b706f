// Tokens as a row of toggle buttons. Dragging across them toggles all that are passed; keys toggle them one by one.

import {element} from "./elements.js";

// `onChange` is told the chosen tokens, in order, when a gesture ends.
export function tokenChips({labels, chosen, onChange, name}) {
  const pressed = new Set(chosen);
  let dragged = null; // {from, value, before}
  const box = element("div", {class: "chips", role: "group", "aria-label": name});
  const chips = labels.map((label, token) => {
    return element("button", {type: "button", class: "token", "data-token": token, "aria-pressed": pressed.has(token)}, label);
  });
  box.append(...chips);

  function paint() {
    chips.forEach((chip, token) => chip.setAttribute("aria-pressed", pressed.has(token)));
  }

  function end() {
    window.removeEventListener("pointerup", end);
    window.removeEventListener("pointercancel", end);
    if (!dragged) return;
    dragged = null;
    onChange([...pressed].sort((a, b) => a - b));
  }

  function extend(token) {
    pressed.clear();
    for (const other of dragged.before) pressed.add(other);
    const [from, to] = [Math.min(dragged.from, token), Math.max(dragged.from, token)];
    for (let k = from; k <= to; k++) {
      if (dragged.value) pressed.add(k);
      else pressed.delete(k);
    }
    paint();
  }

  const tokenAt = event => {
    const place = document.elementFromPoint(event.clientX, event.clientY);
    const chip = place && place.closest(".token");
    return chip && box.contains(chip) ? Number(chip.dataset.token) : null;
  };

  box.addEventListener("pointerdown", event => {
    const token = tokenAt(event);
    if (token === null || event.button !== 0) return;
    dragged = {from: token, value: !pressed.has(token), before: [...pressed]};
    extend(token);
    window.addEventListener("pointerup", end);
    window.addEventListener("pointercancel", end);
  });
  box.addEventListener("pointermove", event => {
    const token = dragged && tokenAt(event);
    if (token !== null && token !== undefined && dragged) extend(token);
  });
  box.addEventListener("click", event => { // of a key: pointers have been dealt with
    const chip = event.target.closest(".token");
    if (!chip || event.detail !== 0) return;
    const token = Number(chip.dataset.token);
    if (!pressed.delete(token)) pressed.add(token);
    paint();
    onChange([...pressed].sort((a, b) => a - b));
  });
  return box;
}

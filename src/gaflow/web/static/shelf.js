// The shelf: links that were pinned, kept in this browser until they are taken off.

import {button, element} from "./elements.js";

const KEY = "gaflow shelf";
const MOST = 50;

function read() {
  try {
    const pins = JSON.parse(localStorage.getItem(KEY) || "[]");
    return Array.isArray(pins) ? pins.filter(({title, link}) => title && String(link).startsWith("#")) : [];
  } catch {
    return [];
  }
}

function write(pins) {
  localStorage.setItem(KEY, JSON.stringify(pins.slice(-MOST)));
  show();
}

export function pin(title, link) {
  write([...read().filter(other => other.link !== link), {title, link}]);
}

export function prepareShelf() {
  const toggle = document.querySelector(".shelf-button");
  const shelf = document.querySelector("#shelf");
  function open(isOpen) {
    shelf.hidden = !isOpen;
    toggle.setAttribute("aria-expanded", isOpen);
  }
  toggle.addEventListener("click", () => open(shelf.hidden));
  shelf.addEventListener("keydown", event => {
    if (event.key !== "Escape") return;
    open(false);
    toggle.focus();
  });
  shelf.addEventListener("click", event => { if (event.target.closest("a")) open(false); });
  window.addEventListener("storage", show);
  show();
}

function show() {
  const pins = read();
  const shelf = document.querySelector("#shelf");
  document.querySelector(".shelf-button").textContent = pins.length ? `Shelf ${pins.length}` : "Shelf";
  if (!pins.length) {
    shelf.replaceChildren(element("p", {class: "note"}, "The shelf is empty. Pin a result to find it here again; " +
      "it holds links, in this browser only."));
    return;
  }
  const rows = pins.map(({title, link}, index) => {
    const off = button("Take off", () => write(read().filter((_, k) => k !== index)), {class: "quiet", "aria-label": `Take off: ${title}`});
    return element("li", {}, element("a", {href: link}, title), off);
  });
  shelf.replaceChildren(element("ol", {}, ...rows.reverse()));
}

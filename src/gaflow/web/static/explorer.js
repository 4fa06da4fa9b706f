// The explorer: one shell with five pages, each of which shows what the link says.

import * as about from "./about_page.js";
import * as compare from "./compare_page.js";
import * as data from "./data_page.js";
import * as explain from "./explain_page.js";
import * as flow from "./flow_page.js";
import {fragment, readLink} from "./link.js";
import {questionIn} from "./results.js";
import {prepareShelf} from "./shelf.js";
import {attempt, prepareShell, readServer} from "./shell.js";

const pages = {explain, flow, compare, data, about};
const lastLinks = {}; // of each page, so that going there again shows what it showed

function route() {
  const {page, values} = readLink();
  for (const room of document.querySelectorAll(".room")) room.hidden = room.id !== page;
  updateLinks();
  window.scrollTo(0, 0);
  return attempt(() => pages[page].show(values));
}

// The links between pages: each leads back to what its page showed last; Explain and Flow share their question.
function updateLinks() {
  const {page, values} = readLink();
  lastLinks[page] = fragment(page, values);
  if (page === "explain" || page === "flow") {
    const other = page === "flow" ? "explain" : "flow";
    const before = new URLSearchParams((lastLinks[other] || "").slice(1));
    const isSame = JSON.stringify(questionIn(Object.fromEntries(before))) === JSON.stringify(questionIn(values));
    if (!isSame) lastLinks[other] = fragment(other, questionIn(values));
  }
  for (const link of document.querySelectorAll("[data-page]")) {
    link.href = lastLinks[link.dataset.page] || fragment(link.dataset.page, {});
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

async function begin() {
  prepareShell();
  prepareShelf();
  readLink(); // takes the token out of the address
  await readServer();
  for (const [name, page] of Object.entries(pages)) page.prepare(document.getElementById(name));
  window.addEventListener("hashchange", route);
  document.addEventListener("remembered", updateLinks);
  document.querySelector(".skip").addEventListener("click", event => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  await route();
  document.body.dataset.ready = "yes";
}

attempt(begin);

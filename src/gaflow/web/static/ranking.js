// The scores as bars, before and after changes, with the interval over all maximum flows if it is known.
//
// Rows stay in place while their bars move, so that a change can be followed.

import {ranks, rankCorrelation} from "./align.js";
import {decimalsFor, element, number} from "./elements.js";

const LISTED = 14;

export function ranking() {
  const body = element("div", {class: "ranking", role: "table", "aria-label": "Scores before and after"});
  const verdict = element("p", {class: "verdict", "aria-live": "polite"});
  const box = element("div", {}, verdict, body);
  let rows = new Map(); // token -> elements of its row
  let order = "";

  // `before` is null where tokens were joined; `ranges` is {low, high} or null.
  function show({labels, before, after, ranges, words}) {
    verdict.textContent = words;
    const earlier = before || after;
    const sizes = after.map((score, i) => Math.max(Math.abs(score), Math.abs(earlier[i])));
    const listed = [...after.keys()].sort((a, b) => Math.abs(earlier[b]) - Math.abs(earlier[a]) || a - b).slice(0, LISTED);
    for (const token of [...after.keys()].sort((a, b) => sizes[b] - sizes[a]).slice(0, 4)) {
      if (!listed.includes(token)) listed.push(token); // what has risen from far below
    }
    const bounds = ranges ? [...ranges.low, ...ranges.high] : [];
    const least = Math.min(0, ...after, ...earlier, ...bounds);
    const most = Math.max(0, ...after, ...earlier, ...bounds);
    const place = value => (most > least ? 100 * (value - least) / (most - least) : 0);
    const ranksBefore = before && ranks(before);
    const ranksAfter = ranks(after);
    const possible = ranges ? possibleRanks(ranges) : null;
    body.classList.toggle("changed", Boolean(before));
    body.classList.toggle("open", Boolean(possible) && possible.some(([first, last]) => first < last));
    const written = decimalsFor([...after, ...earlier]);
    const key = listed.map(token => `${token} ${labels[token]}`).join("\n");
    if (key !== order) {
      order = key;
      rows = new Map(listed.map(token => [token, newRow(labels[token])]));
      body.replaceChildren(...[...rows.values()].map(row => row.element));
    }
    for (const token of listed) {
      const row = rows.get(token);
      const score = after[token];
      row.bar.className = score < 0 ? "less" : "more";
      row.bar.style.left = `${place(Math.min(score, 0))}%`;
      row.bar.style.width = `${place(Math.max(score, 0)) - place(Math.min(score, 0))}%`;
      row.tick.hidden = !before || before[token] === score;
      row.tick.style.left = `${place(earlier[token])}%`;
      row.zero.style.left = `${place(0)}%`;
      row.zero.hidden = least === 0;
      row.range.hidden = !ranges;
      if (ranges) {
        row.range.style.left = `${place(ranges.low[token])}%`;
        row.range.style.width = `${place(ranges.high[token]) - place(ranges.low[token])}%`;
        row.range.title = `between ${number(ranges.low[token])} and ${number(ranges.high[token])} in all maximum flows`;
      }
      row.before.textContent = before && before[token] !== score ? `${written(earlier[token])} →` : "";
      row.value.textContent = written(score);
      const moved = before && ranksBefore[token] !== ranksAfter[token];
      row.rank.textContent = moved ? `${ranksBefore[token]} → ${ranksAfter[token]}` : String(ranksAfter[token]);
      const [first, last] = possible ? possible[token] : [0, 0];
      row.open.hidden = first === last;
      row.open.textContent = `${first} to ${last}`;
    }
  }

  return {element: box, show};
}

function newRow(label) {
  const bar = element("i", {class: "more"});
  const tick = element("u", {class: "tick", title: "before"});
  const zero = element("u", {class: "zero"});
  const range = element("u", {class: "range"});
  const track = element("span", {class: "track", role: "cell"}, bar, zero, tick, range);
  const open = element("span", {class: "open-order", title: "Which of these ranks it has is arbitrary: maximum flows differ."});
  const before = element("span", {class: "number soft"});
  const value = element("span", {class: "number"});
  const rank = element("span", {});
  const place = element("span", {class: "rank", role: "cell"}, rank, " ", open);
  const name = element("span", {class: "name", role: "rowheader"}, element("bdi", {}, label));
  const values = element("span", {class: "values", role: "cell"}, before, " ", value);
  return {element: element("div", {class: "line", role: "row"}, place, name, track, values), bar, tick, zero, range, before, value, rank, open};
}

// The ranks [first, last] that each token can have by size, if every score may lie anywhere in its interval.
function possibleRanks({low, high}) {
  const least = low.map((value, i) => (value <= 0 && high[i] >= 0 ? 0 : Math.min(Math.abs(value), Math.abs(high[i]))));
  const most = low.map((value, i) => Math.max(Math.abs(value), Math.abs(high[i])));
  const slack = 1e-9 * Math.max(...most, 0); // differences of rounding leave no order open
  return least.map((_, i) => [
    1 + least.filter((value, other) => other !== i && value > most[i] + slack).length,
    1 + most.filter((value, other) => other !== i && value > least[i] + slack).length,
  ]);
}

// How steady the ranking is, in words.
export function stability(before, after) {
  const correlation = rankCorrelation(before, after);
  if (correlation === null) return "";
  const first = ranks(before);
  const second = ranks(after);
  const kept = first.filter((rank, i) => rank <= 5 && second[i] <= 5).length;
  return `Stability: rank correlation ${correlation.toFixed(2).replace("-", "−")}, ${kept} of the ${Math.min(5, before.length)} strongest stay`;
}

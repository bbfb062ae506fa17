import {
  byId, chance, count, element, get, percent, qualityParts, replaceIfNew, showPage, signIn, thingList,
} from "./label_page.js";

const POLL = 4000;
const HOVER = 120; // milliseconds over a point before its thing is asked for
const SIZE = 420; // of the map, in its own units

const shown = new Map(); // section -> what it was drawn from, so that nothing is drawn twice
const things = new Map(); // row -> its thing
let spots = new Map(); // row -> its circle
let chosen = null;
let kind = null;
let timer = 0;

async function start() {
  const setup = await signIn();
  if (!setup) return;
  if (!setup.is_owner) return location.replace("/");
  kind = setup.task.kind;
  byId("question").textContent = setup.task.question;
  byId("to-judging").hidden = !setup.judges;
  showPage();
  poll();
  document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
}

async function poll() {
  clearTimeout(timer);
  if (document.hidden) return;
  try {
    showFindings(await get("/api/findings"));
  } catch (error) {
    showStatus(`${error.message} What is shown is from before; the page tries again by itself.`);
  }
  timer = setTimeout(poll, POLL);
}

function showFindings(findings) {
  showStatus(findings.status);
  section("counts", [findings.n_answers, findings.n_random, findings.n_unsure, findings.kappa], drawCounts);
  section("quality", [findings.quality, findings.curve], drawQuality);
  section("plan", [findings.plan, findings.n_answers], drawPlan);
  section("directions", [findings.directions], drawDirections);
  section("doubtful", [findings.doubtful, findings.no_doubts], drawDoubtful);
  section("annotators", [findings.annotators, findings.kappa], drawAnnotators);
  showMap(findings.map);
}

function showStatus(words) {
  const box = byId("status");
  if (box.textContent !== (words ?? "")) box.textContent = words ?? "";
  box.hidden = !words;
}

// Draw a section only if what it shows has changed: the rest of the page stays as it is.
function section(id, given, draw) {
  const text = JSON.stringify(given);
  if (shown.get(id) === text) return;
  shown.set(id, text);
  replaceIfNew(byId(id), draw(...given));
}

const missing = (words) => [element("p", { class: "muted" }, words)];

function drawCounts(n, nRandom, nUnsure, kappa) {
  const figures = [["Answers", n], ["of them to random questions", nRandom], ["Can’t say", nUnsure]]
    .map(([name, value]) => [name, (value ?? 0).toLocaleString("en")]);
  if (kappa) figures.push(["Agreement of annotators (kappa)", kappa.kappa.toFixed(2)]);
  return figures.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)));
}

function drawQuality(quality, curve) {
  if (!quality) return missing("Answers to random questions measure the quality, once there are enough of them.");
  const points = (curve ?? []).filter((each) => each.agreement !== null);
  const chart = points.length > 1 ? [drawCurve(points, quality.baseline)] : [];
  const reading = quality.reading ? [element("p", { class: "reading muted" }, quality.reading)] : [];
  return [...qualityParts(quality).slice(0, 2), ...reading, ...chart];
}

function drawPlan(plan, n) {
  if (!plan) return missing("The number of answers needed is projected once a metric is learned.");
  if (plan.needed === null) return [element("p", {}, plan.reading)];
  const share = Math.min((n ?? 0) / plan.needed, 1);
  return [element("p", { class: "large" }, plan.needed.toLocaleString("en"), " ",
    element("small", {}, `answers, ${(n ?? 0).toLocaleString("en")} given`)),
  shareBar(share, `${percent(share)} of the answers needed`),
  element("p", { class: "reading" }, plan.reading)];
}

function shareBar(share, words) {
  const fill = element("span");
  fill.style.setProperty("--share", `${100 * share}%`);
  return element("div", { class: "shares" },
    element("div", { class: "line", role: "img", "aria-label": words }, element("div", { class: "bar" }, fill)));
}

function drawDirections(directions) {
  if (!directions?.length) return missing("The directions of the metric appear after its first fit.");
  return [element("ul", { class: "shares" }, ...directions.map(directionOf))];
}

function directionOf({ share, weights }) {
  const fill = element("span");
  fill.style.setProperty("--share", `${100 * share}%`);
  const words = weights.map(([name, value]) => `${name || "(no name)"} ${figure(value, 2)}`);
  return element("li", {},
    element("div", { class: "line" }, element("span", {}, percent(share)), element("div", { class: "bar" }, fill)),
    element("div", { class: "weights" }, words.join(" · ")));
}

function drawDoubtful(doubtful, reason) {
  if (!doubtful.length) return missing(reason);
  return [element("ul", { class: "doubts" }, ...doubtful.map((each) => element("li", {}, ...doubtOf(each))))];
}

// "P1 and P2: ana said close; the metric says 93% far."  Of three things, the first is the reference.
function doubtOf({ things: ids, annotator, answer, expected, probability }) {
  const who = element("bdi", { class: "who" }, annotator);
  const [first, second, third] = ids.map((id) => element("bdi", {}, id));
  const share = chance(probability);
  if (!third) {
    const says = kind === "levels" ? `${expected} (${share})` : `${share} ${expected}`;
    return [first, " and ", second, ": ", who, ` said ${answer}; the metric says ${says}.`];
  }
  const [nearer, other] = answer === "left" ? [second, third] : [third, second];
  return [first, ": ", who, " said that ", nearer, " is nearer than ", other, `; the metric says ${share} `,
    other.cloneNode(true), "."];
}

function drawAnnotators(annotators, kappa) {
  if (!annotators?.length) return missing("Nobody has answered yet.");
  const heads = ["Name", "Answers", "Seconds each", "Kappa", "Shared", "Strictness", "Verdict"];
  const rows = annotators.map((each) => [each.name, figure(each.n, 0), figure(each.seconds, 1), kappaOf(each),
    figure(each.n_shared, 0), figure(each.strictness, 2), each.verdict ?? "–"]);
  const n = annotators.length > 1 ? heads.length : 3; // one person can't be compared
  const table = tableOf(heads.slice(0, n), rows.map((row) => row.slice(0, n)), [1, 2, 3, 4, 5]);
  return [...(kappa?.reading ? [element("p", { class: "reading" }, kappa.reading)] : []), table];
}

function figure(value, decimals) {
  return value === null || value === undefined ? "–" : value.toFixed(decimals).replace("-", "−");
}

function kappaOf({ kappa, kappa_low: low, kappa_high: high }) {
  const interval = low === null || low === undefined ? "" : ` (${figure(low, 2)} to ${figure(high, 2)})`;
  return `${figure(kappa, 2)}${interval}`;
}

// On a phone each row becomes a block, in which data-name says what a value is.
function tableOf(heads, rows, numbers = []) {
  const align = (index) => (numbers.includes(index) ? "number" : null);
  const cell = (words, index) => element(index ? "td" : "th",
    { class: align(index), "data-name": heads[index], scope: index ? null : "row" }, element("bdi", {}, words ?? "–"));
  const head = heads.map((words, index) => element("th", { scope: "col", class: align(index) }, words));
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map(cell)))));
  return element("div", { class: "scroll reflow", tabindex: "0", role: "group", "aria-label": heads.join(", ") }, table);
}

// ---- drawings

function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
  made.append(...children);
  return made;
}

// The agreement over the number of answers: a line in the band of its interval, and the baseline.
function drawCurve(points, baseline) {
  const [width, height, left, right, top, bottom] = [Math.min(byId("quality").clientWidth, 540), 220, 46, 12, 12, 30];
  const most = Math.max(...points.map((each) => each.n));
  const least = Math.max(0, Math.floor(10 * Math.min(baseline ?? 1, ...points.map((each) => each.low)) - 0.2) / 10);
  const x = (n) => left + (n / most) * (width - left - right);
  const y = (share) => top + ((1 - share) / (1 - least)) * (height - top - bottom);
  const line = (ends) => ends.map(([n, share]) => `${x(n).toFixed(1)},${y(share).toFixed(1)}`).join(" ");
  const band = [...points.map((each) => [each.n, each.high]), ...points.toReversed().map((each) => [each.n, each.low])];
  const last = points.at(-1);
  const words = `Agreement over the number of answers: from ${percent(points[0].agreement)} after ${points[0].n} to `
    + `${percent(last.agreement)} after ${last.n}.`;
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words });
  for (const share of ticks(least)) {
    svg.append(drawn("line", { class: "grid", x1: left, x2: width - right, y1: y(share), y2: y(share) }),
      drawn("text", { class: "end", x: left - 6, y: y(share) + 4 }, percent(share)));
  }
  svg.append(drawn("polygon", { class: "band", points: line(band) }));
  if (typeof baseline === "number") svg.append(...baselineOf(baseline, left, width - right, y(baseline)));
  svg.append(drawn("polyline", { class: "curve", points: line(points.map((each) => [each.n, each.agreement])) }),
    drawn("circle", { class: "mark", cx: x(last.n), cy: y(last.agreement), r: 4.5 }),
    drawn("text", { x: left, y: height - 14 }, "0"),
    drawn("text", { class: "end", x: width - right, y: height - 14 }, count(most, "answer")));
  return svg;
}

function baselineOf(share, left, right, height) {
  return [drawn("line", { class: "baseline", x1: left, x2: right, y1: height, y2: height }),
    drawn("text", { class: "end", x: right - 2, y: height - 5 }, `always the same answer: ${percent(share)}`)];
}

function ticks(least) {
  const step = least < 0.5 ? 0.2 : 0.1;
  const found = [];
  for (let share = 1; share > least - 1e-9; share -= step) found.push(share);
  return found;
}

// ---- the map: circles move to their new places, and stay the same elements

function showMap(map) {
  const box = byId("map");
  if (!map?.rows?.length) {
    spots = new Map();
    return section("map", [null], () => missing(
      "The map appears after the first fit: points that the metric takes for close lie close to each other.",
    ));
  }
  if (!spots.size) {
    shown.delete("map");
    box.replaceChildren(...mapFrame());
  }
  const place = placesOf(map, box.querySelector(".plane"));
  const rows = new Set(map.rows);
  spots.forEach((spot, row) => { if (!rows.has(row)) { spot.remove(); spots.delete(row); } });
  map.rows.forEach((row, index) => putSpot(row, ...place(index)));
  const share = percent(map.shares[0] + (map.shares[1] ?? 0));
  box.querySelector(".axes").textContent = `The two strongest directions hold ${share} of the metric.`;
  section("map-table", [map.rows, map.ids], drawMapTable);
}

function mapFrame() {
  const plane = drawn("svg", { class: "plane", "aria-hidden": "true" });
  plane.addEventListener("pointerover", (event) => hover(event.target));
  plane.addEventListener("click", (event) => choose(event.target));
  return [element("div", { class: "map" }, plane, element("div", { id: "thing", role: "status" },
    element("p", { class: "muted" }, "Point at a dot to see what it is."))),
  element("p", { class: "reading muted axes" }),
  element("details", {}, element("summary", {}, "The points as a table"), element("div", { id: "map-table" }))];
}

// Equal units on both axes, as a distance on the map stands for a distance in the metric.
function placesOf({ x, y }, plane) {
  const [left, right, low, high] = [Math.min(...x), Math.max(...x), Math.min(...y), Math.max(...y)];
  const scale = (SIZE - 24) / (Math.max(right - left, high - low) || 1);
  const height = Math.max(SIZE / 2, (high - low) * scale + 24);
  const middle = [(left + right) / 2, (low + high) / 2];
  plane.setAttribute("viewBox", `0 0 ${SIZE} ${height}`);
  return (index) => [SIZE / 2 + (x[index] - middle[0]) * scale, height / 2 - (y[index] - middle[1]) * scale];
}

function putSpot(row, x, y) {
  if (!spots.has(row)) {
    const spot = drawn("circle", { class: "spot", r: 5 });
    spot.dataset.row = row;
    spots.set(row, spot);
    document.querySelector(".plane").append(spot);
  }
  spots.get(row).style.transform = `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)`;
}

let hovering = 0;

function hover(target) {
  clearTimeout(hovering);
  const { row } = target.dataset;
  if (row !== undefined && chosen === null) hovering = setTimeout(() => showThing(Number(row)), HOVER);
}

// A click holds a thing in place; another one on the plane lets it go.
function choose(target) {
  clearTimeout(hovering);
  spots.get(chosen)?.classList.remove("chosen");
  chosen = target.dataset.row === undefined ? null : Number(target.dataset.row);
  spots.get(chosen)?.classList.add("chosen");
  if (chosen !== null) showThing(chosen);
}

async function showThing(row) {
  try {
    if (!things.has(row)) things.set(row, await get(`/api/thing/${row}`));
    const thing = things.get(row);
    byId("thing").replaceChildren(element("h3", {}, element("bdi", {}, thing.id)), thingList(thing));
  } catch (error) {
    byId("thing").replaceChildren(element("p", {}, error.message));
  }
}

function drawMapTable(rows, ids) {
  return [element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Points of the map" },
    element("table", {}, element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Point"),
      element("th", { scope: "col" }, "What it is"))),
    element("tbody", {}, ...rows.map((row, index) => {
      const name = ids[index];
      const button = element("button", { type: "button", class: "small", "aria-label": `Show ${name}` }, "Show");
      button.addEventListener("click", () => { choose(spots.get(row)); });
      return element("tr", {}, element("th", { scope: "row" }, element("bdi", {}, name)), element("td", {}, button));
    }))))];
}

start();

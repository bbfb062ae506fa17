// What both pages need: requests, elements made without markup, and things as tables.

const PATIENCE = 10_000;
let token = null;
let name = null;

// An answer with an error status, or none at all (status 0).
export class RequestError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(path, options) {
  let answer;
  try {
    answer = await fetch(path, { ...options, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  } catch {
    throw new RequestError(0, "The server does not answer.");
  }
  const body = answer.status === 204 ? {} : await answer.json().catch(() => ({}));
  if (!answer.ok) throw new RequestError(answer.status, body.error ?? `The server answered ${answer.status}.`);
  return body;
}

export function get(path) {
  return request(path, {});
}

export async function post(path, body) {
  const send = () => request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...(token && { "X-Closefar-Token": token }) },
    body: JSON.stringify(body),
  });
  try {
    return await send();
  } catch (error) {
    if (error.status !== 403 || path === "/enter") throw error;
    const old = token;
    await getSetup();
    if (token === old) throw error;
    return send(); // the token was of a session that has ended
  }
}

async function getSetup() {
  const setup = await get("/api/setup");
  if (name !== null && name !== setup.name) {
    throw new RequestError(401, `${setup.name} has entered in this browser. Open your own address again.`);
  }
  ({ token, name } = setup);
  return setup;
}

// The secret of an address is behind its #, which no browser sends: it is posted once and leaves the address bar.
export async function signIn() {
  const secret = location.hash.slice(1);
  if (secret) history.replaceState(null, "", location.pathname);
  addEventListener("hashchange", () => location.reload());
  for (;;) {
    try {
      if (secret) await post("/enter", { secret });
      return await getSetup();
    } catch (error) {
      showEntrance(error, Boolean(secret));
      if (error.status && error.status < 500 && error.status !== 429) return null;
      await sleep(2000);
    }
  }
}

function showEntrance(error, hadSecret) {
  byId("page").hidden = true;
  byId("entrance").hidden = false;
  const isSignedOut = [401, 403].includes(error.status);
  const advice = "Open the address that closefar label printed for you, complete with the part after #.";
  byId("entrance-reason").textContent = !isSignedOut ? `${error.message} The page tries again by itself.`
    : hadSecret ? `This address is not valid here. ${advice}` : advice;
}

export function showPage() {
  byId("entrance").hidden = true;
  byId("page").hidden = false;
}

export function sleep(milliseconds) {
  return new Promise((done) => { setTimeout(done, milliseconds); });
}

export function byId(id) {
  return document.getElementById(id);
}

// element("p", { class: "note" }, "text", other): texts become text, never markup.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// What is drawn the same stays the same element: nothing flickers, and the focus stays where it is.
export function replaceIfNew(box, parts) {
  const old = [...box.childNodes];
  parts.forEach((part, at) => {
    if (at >= old.length) box.append(part);
    else if (!part.isEqualNode(old[at])) old[at].replaceWith(part);
  });
  old.slice(parts.length).forEach((each) => each.remove());
}

export function percent(share) {
  return `${Math.round(100 * share)}%`;
}

// A probability, which never reads as certain.
export function chance(share) {
  return share > 0.99 ? "more than 99%" : percent(share);
}

export function count(n, noun) {
  return `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
}

// A line from 0 to 1 with a dot at `place`, and a bar from there to each of the `others`.
export function track(place, others = [], ticks = []) {
  const line = element("span", { class: "track", "aria-hidden": "true" });
  const ends = [place, ...others];
  line.append(placed("span", "reach", Math.min(...ends), Math.max(...ends)));
  ticks.forEach((tick) => line.append(placed("span", "tick", tick)));
  line.append(placed("span", "dot", place));
  return line;
}

function placed(tag, name, from, to = from) {
  const mark = element(tag, { class: name });
  mark.style.setProperty("--from", `${100 * from}%`);
  mark.style.setProperty("--length", `${100 * (to - from)}%`);
  return mark;
}

// Things beside each other: a row for each column of the table of points, a column for each thing. `heads` names them.
export function thingsTable(things, heads) {
  const head = element("tr", { role: "row" }, element("td", { role: "cell" }));
  things.forEach((thing, index) => head.append(
    element("th", { scope: "col", role: "columnheader", class: heads[index].isReference ? "reference" : null },
      element("span", { class: "head" }, heads[index].name), " ", element("bdi", { class: "id" }, thing.id)),
  ));
  const rows = things[0].cells.map((_, column) => thingsRow(things, heads, column));
  return element("table", { class: `things of-${things.length}`, role: "table" },
    element("thead", { role: "rowgroup" }, head), element("tbody", { role: "rowgroup" }, ...rows));
}

const SIGNS = { differs: "≠", similar: "≈", same: "=" };
const TITLES = { differs: "differs", similar: "differs less than usual", same: "the same" };

function thingsRow(things, heads, column) {
  const cells = things.map((thing) => thing.cells[column]);
  const state = cells.some((cell) => cell.differs) ? "differs" : cells.some((cell) => cell.difference) ? "similar" : "same";
  const isSeen = cells.every((cell) => cell.kind === "image"); // whether pictures differ is for the eye
  const sign = isSeen ? null : element("span", { class: "sign", title: TITLES[state] }, SIGNS[state]);
  const name = element("th", { scope: "row", role: "rowheader" },
    sign, element("bdi", {}, cells[0].name || "(no name)"));
  return element("tr", { role: "row", class: `${state} ${cells[0].kind}` }, name,
    ...cells.map((cell, index) => element("td",
      { role: "cell", class: `${heads[index].isReference ? "reference" : ""} ${cell.differs ? "marked" : ""}`.trim() || null },
      ...cellParts(cell, things[index].id, comparedPlaces(cells, heads, index)))));
}

// The places that a cell is compared with: of the reference, or of the other thing where there is none.
function comparedPlaces(cells, heads, index) {
  if (heads[index].isReference) return [];
  const hasReference = heads.some((head) => head.isReference);
  return cells.filter((_, other) => other !== index && (!hasReference || heads[other].isReference))
    .map((cell) => cell.place).filter((place) => place !== null);
}

function cellParts(cell, id, places) {
  if (cell.kind === "image") return [imageOf(cell, id)];
  if (cell.kind === "link") return [linkOf(cell)];
  if (cell.kind === "text" && cell.text.length > 160) return [longText(cell)];
  const value = element("bdi", { class: `value ${cell.kind}` }, cell.text);
  if (cell.kind !== "number") return [value];
  const difference = cell.difference && element("span", { class: "difference" }, cell.difference);
  return [element("span", { class: "figure" }, value, " ", difference), track(cell.place, places)];
}

function imageOf(cell, id) {
  const image = element("img", { src: cell.src, alt: `${cell.name} of ${id}` });
  const link = element("a", { href: cell.src, target: "_blank", rel: "noopener noreferrer", class: "image" }, image);
  image.addEventListener("error", () => {
    link.replaceWith(element("span", { class: "value missing" }, "can’t be shown: ", element("bdi", {}, cell.text)));
  });
  return link;
}

function linkOf(cell) {
  if (!/^https?:\/\//i.test(cell.href)) return element("bdi", {}, cell.text);
  return element("a", { href: cell.href, target: "_blank", rel: "noopener noreferrer" }, element("bdi", {}, cell.text));
}

// Focusable, so that the keyboard can scroll it.
function longText(cell) {
  const label = cell.name || "(no name)";
  return element("div", { class: "long", tabindex: "0", role: "group", "aria-label": label, dir: "auto" }, cell.text);
}

// One thing by itself, as a list of names and values.
export function thingList(thing) {
  const list = element("dl", { class: "thing" });
  for (const cell of thing.cells) {
    list.append(element("div", {}, element("dt", {}, element("bdi", {}, cell.name || "(no name)")),
      element("dd", {}, ...cellParts(cell, thing.id, []))));
  }
  return list;
}

// The quality in words, and as a dot in its interval with the baseline as a tick.
export function qualityParts({ agreement, low, high, baseline }) {
  const always = typeof baseline === "number" ? `; always the most frequent answer: ${percent(baseline)}` : "";
  return [
    element("p", { class: "large" }, percent(agreement), " ", element("small", {}, "agreement")),
    track(agreement, [low, high], typeof baseline === "number" ? [baseline] : []),
    element("p", { class: "reading" },
      `Agrees with ${percent(agreement)} of new answers (${Math.round(100 * low)}–${percent(high)})${always}.`),
  ];
}

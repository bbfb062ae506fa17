import {
  byId, count, element, get, post, qualityParts, replaceIfNew, showPage, signIn, sleep, thingsTable,
} from "./label_page.js";
import { Outbox, randomKey } from "./label_outbox.js";

const HELD = 3; // questions that are here before they are needed
const MOST_HELD = 10;
const GUARD = 250; // milliseconds in which nobody can have read a new question
const PATIENCE = 1000; // for the acknowledgement of an answer
const POLL = 4000;
const PAUSE = 5 * 60_000; // so long without an answer is a rest

const HEADS = {
  pairs: [{ name: "First" }, { name: "Second" }],
  levels: [{ name: "First" }, { name: "Second" }],
  triplets: [{ name: "Left" }, { name: "Reference", isReference: true }, { name: "Right" }],
};
const ORDER = { pairs: [0, 1], levels: [0, 1], triplets: [1, 0, 2] };
const WORDS = { close: "Close", far: "Far", left: "Left is nearer", right: "Right is nearer" };

let setup, outbox;
let current = null; // the question that is shown
let queue = []; // those that come next, drawn already
let given = []; // answers that can be undone, the last at the end: { key, question }
let progress = { n: 0, last_answer: null };
let shownAt = 0;
let isBusy = false;
let filling = null; // a request for questions
let undoneAt = 0;
let isExhausted = false;
let isPaused = false;
let sitting = { start: 0, last: 0 };
let doubtful = [];
let wasAwayBefore = false;
const answered = new Set(); // numbers of questions, which the server may not know of yet

async function start() {
  setup = await signIn();
  if (!setup) return;
  if (!setup.judges) return location.replace("/overview");
  outbox = new Outbox(`${own("outbox")} `, {
    send: async (events) => {
      const answer = await post("/api/events", { events });
      progress = answer.progress;
      return answer.receipts;
    },
    changed: () => {
      if (wasAwayBefore && !outbox.isAway) fill(); // the server is back
      showState();
    },
    refused: (event, reason) => {
      answered.delete(event.question);
      notify(`An answer was not recorded: ${reason}`);
    },
  });
  outbox.waiting.forEach(({ event }) => event.kind === "answer" && answered.add(event.question));
  holdTheOnlyTab();
  showTask();
  listen();
  showPage();
  await outbox.flush();
  await next();
  poll();
}

// ---- what is asked

function next() {
  current = queue.shift() ?? null;
  if (current) show();
  else showNothing();
  return fill();
}

function fill() {
  filling ??= ask().finally(() => { filling = null; });
  return filling;
}

async function ask() {
  if (isPaused) return;
  try {
    const answer = await post("/api/questions", { n: Math.min(HELD + outbox.size, MOST_HELD) });
    progress = answer.progress;
    isExhausted = answer.exhausted;
    answer.questions.filter(isNew).forEach((question) => queue.push(prepared(question)));
  } catch {
    setTimeout(() => { if (!current) fill(); }, 1000);
  }
  if (isPaused) return;
  if (!current && queue.length) {
    current = queue.shift();
    show();
  } else if (!current) {
    showNothing();
  }
  showState();
}

function isNew(question) {
  const here = [current, ...queue].some((each) => each && each.id === question.id);
  return !here && !answered.has(question.id);
}

// Drawn before it is shown, so that its images are loaded by then.
function prepared(question, reading = null) {
  const { kind } = setup.task;
  const things = ORDER[kind].map((index) => question.things[index]);
  return { id: question.id, things, reading, view: thingsTable(things, HEADS[kind]) };
}

function show() {
  byId("things").replaceChildren(current.view);
  byId("panel").classList.remove("waiting");
  byId("leave").hidden = current.reading === null;
  if (current.reading !== null) notify(`${current.reading} What do you say now?`);
  else if (!byId("notice").dataset.stays) notify("");
  delete byId("notice").dataset.stays;
  mark(null);
  isBusy = false;
  shownAt = performance.now();
  const n = current.things[0].cells.filter((_, row) => current.things.some((thing) => thing.cells[row].differs)).length;
  const names = current.things.map((thing) => thing.id).join(", ");
  byId("spoken").textContent = `${setup.task.question} ${names}. ${count(n, "marked difference")}.`;
  showState();
}

function showNothing() {
  const words = isExhausted && !outbox.size
    ? "Every question about these points is answered."
    : outbox.isAway
      ? "The server does not answer. Questions go on when it is back; this page tries by itself."
      : "The next question is on its way.";
  byId("things").replaceChildren(element("p", { class: "empty" }, words));
  byId("panel").classList.add("waiting");
  put("spoken", words);
  isBusy = false;
  showState();
}

// ---- what is answered

async function answer(value) {
  if (isBusy || isPaused || !current || performance.now() - shownAt < GUARD) return;
  isBusy = true;
  const seconds = Math.round(performance.now() - shownAt) / 1000;
  const event = { key: randomKey(), kind: "answer", question: current.id, answer: value, undoes: null, seconds };
  mark(value);
  rest();
  given.push({ key: event.key, question: current });
  answered.add(event.question);
  if (current.reading !== null) forgetDoubt(current.id);
  const wasAway = outbox.isAway;
  const sent = outbox.add(event);
  const hint = setTimeout(showState, 200);
  if (!wasAway) await Promise.race([sent, sleep(PATIENCE).then(() => outbox.giveUpWaiting(event))]);
  clearTimeout(hint);
  next();
}

async function undo() {
  if (isBusy || isPaused || performance.now() - undoneAt < GUARD) return;
  const last = given.pop() ?? earlier();
  if (!last) return;
  isBusy = true;
  undoneAt = performance.now();
  answered.delete(last.question.id);
  if (current && current.reading === null) queue.unshift(current);
  const question = last.question.id;
  const sent = outbox.add({ key: randomKey(), kind: "undo", question, answer: null, undoes: last.key, seconds: 0 });
  if (last.question.view) {
    current = last.question;
    return show();
  }
  await sent;
  await filling;
  await fill();
  const index = queue.findIndex((each) => each.id === last.question.id);
  if (index > 0) queue.unshift(...queue.splice(index, 1));
  next();
}

// The last answer before the page was loaded, which only the server knows.
function earlier() {
  const last = progress.last_answer;
  return last && !outbox.size ? { key: last.key, question: { id: last.question } } : null;
}

async function lookAgain(doubt) {
  if (isBusy || isPaused) return;
  isBusy = true;
  try {
    const question = await post("/api/review", { question: doubt.question });
    if (current && current.reading === null) queue.unshift(current);
    current = prepared(question.question ?? question, doubt.reading);
    show();
    byId("question").focus();
    scrollTo(0, 0);
  } catch (error) {
    isBusy = false;
    notify(error.message);
  }
}

function leave() {
  if (isBusy || !current || current.reading === null) return;
  forgetDoubt(current.id);
  next();
}

function forgetDoubt(question) {
  remember("reviewed", [...recalled("reviewed", []), question].slice(-1000));
  showDoubtful(doubtful);
}

// ---- keys and buttons

function listen() {
  addEventListener("keydown", pressed);
  byId("unsure").addEventListener("click", (event) => clicked(event, () => answer(null)));
  byId("undo").addEventListener("click", (event) => clicked(event, undo));
  byId("leave").addEventListener("click", (event) => clicked(event, leave));
  byId("rested").addEventListener("click", () => { sitting.start = Date.now(); byId("rest").hidden = true; });
  byId("keys-on").checked = recalled("keys", true);
  byId("keys-on").addEventListener("change", () => remember("keys", byId("keys-on").checked));
  addEventListener("online", () => outbox.flush());
}

// After a click the focus goes back to the page: otherwise the space bar would press that button again.
function clicked(event, act) {
  if (event.detail > 0) event.currentTarget.blur();
  act();
}

function pressed(event) {
  const target = event.target instanceof Element ? event.target : document.body;
  const onControl = target.closest("button, a, summary, input");
  if (event.repeat && onControl) event.preventDefault(); // a key held down on a button presses it again and again
  if (event.repeat || event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
  if (target.closest("textarea, select, [contenteditable], input:not([type=checkbox])")) return;
  const key = keyOf(event);
  if (onControl && [" ", "Enter"].includes(key)) return; // these press what has the focus
  if (!byId("keys-on").checked && key !== "Escape") return;
  const act = actions().get(key);
  if (!act) return;
  event.preventDefault();
  act();
}

// The letter, or on keyboards without Latin letters the key where it would be.
function keyOf(event) {
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const code = /^(?:Key|Digit|Numpad)(.)$/.exec(event.code ?? "");
  return code && !/^[\x20-\x7e]$/.test(key) ? code[1].toLowerCase() : key;
}

function actions() {
  const found = new Map([[" ", () => answer(null)], ["u", () => answer(null)], ["z", undo], ["Backspace", undo],
    ["Escape", leave]]);
  setup.task.answers.forEach((value, index) => {
    keysFor(value, index).forEach((key) => found.set(key, () => answer(value)));
  });
  return found;
}

function keysFor(value, index) {
  if (setup.task.kind === "levels") return [String(index + 1)];
  const arrow = ["ArrowLeft", "ArrowRight"][index];
  return setup.task.kind === "pairs" ? [["c", "f"][index], arrow] : [arrow, String(index + 1)];
}

const NAMES = { ArrowLeft: "←", ArrowRight: "→" };
const nameOf = (key) => NAMES[key] ?? key.toUpperCase();

// ---- what is seen

function showTask() {
  const { kind, question, instructions, answers } = setup.task;
  byId("question").textContent = question;
  document.title = `${question} - closefar`;
  byId("to-overview").hidden = !setup.is_owner;
  byId("instructions").hidden = !instructions;
  byId("instructions-text").textContent = instructions;
  byId("instructions").open = recalled("instructions", "") !== instructions;
  byId("instructions").addEventListener("toggle", () => remember("instructions", instructions));
  byId("answers").classList.add(kind);
  byId("answers").replaceChildren(...answers.map(answerButton));
  const rows = answers.map((value, index) => [wordsFor(value), keysFor(value, index).map(nameOf)]);
  rows.push(["Can’t say", ["space", "U"]], ["Undo", ["Z", "backspace"]]);
  byId("keys").replaceChildren(...rows.map(([words, keys]) => element("div", {},
    element("dt", {}, ...keys.map((key) => element("kbd", {}, key))), element("dd", {}, words))));
}

function wordsFor(value) {
  return setup.task.kind === "levels" ? value : WORDS[value] ?? value;
}

function answerButton(value, index, all) {
  const keys = keysFor(value, index);
  const end = setup.task.kind === "levels" && { 0: "closest", [all.length - 1]: "farthest" }[index];
  const button = element("button", { type: "button", class: `answer at-${index}`, "aria-keyshortcuts": keys.join(" ") },
    element("span", { class: "words", dir: "auto" }, wordsFor(value)),
    end && end !== value.toLowerCase() ? element("small", {}, end) : null,
    element("kbd", { "aria-hidden": "true" }, nameOf(keys[0])));
  button.dataset.answer = value;
  button.addEventListener("click", (event) => clicked(event, () => answer(value)));
  return button;
}

// Show which answer was given until the next question is there.
function mark(value) {
  for (const button of byId("panel").querySelectorAll("button")) {
    button.classList.toggle("given", value !== null && button.dataset.answer === value);
  }
}

function notify(words) {
  const notice = byId("notice");
  if (notice.textContent !== words) notice.textContent = words;
  notice.hidden = !words;
  if (words && current?.reading == null) notice.dataset.stays = "1"; // once past the next question
}

function showState() {
  showSaved();
  const waiting = outbox.waiting.reduce((sum, { event }) => sum + (event.kind === "answer" ? 1 : -1), 0);
  const parts = [`${count(Math.max(progress.n + waiting, 0), "answer")}`];
  if (progress.seconds) parts.push(`${progress.seconds.toFixed(progress.seconds < 10 ? 1 : 0)} s each`);
  put("progress", parts.join(" · "));
  byId("undo").disabled = !given.length && !earlier();
}

function showSaved() {
  const n = outbox.size;
  const isAway = n > 0 && outbox.isAway;
  const isLost = [401, 403].includes(outbox.error?.status);
  const until = isLost ? "you open your own address again" : "the server is back";
  const words = n === 0 ? "All answers are saved."
    : `${count(n, "answer")} ${n === 1 ? "is" : "are"} kept here until ${until}.`;
  put("saved", n === 0 || isAway ? words : "Saving…");
  byId("saved").classList.toggle("away", isAway);
  if (isAway || wasAwayBefore) put("saved-spoken", words); // an answer that is saved at once is not worth a word
  wasAwayBefore = isAway;
}

function put(id, words) {
  if (byId(id).textContent !== words) byId(id).textContent = words;
}

function rest() {
  const now = Date.now();
  if (now - sitting.last > PAUSE) sitting.start = now;
  sitting.last = now;
  const minutes = Math.round((now - sitting.start) / 60_000);
  const isLong = minutes >= setup.rest_after;
  byId("rest").hidden = !isLong;
  if (isLong) put("rest-text", `You have judged for ${minutes} minutes. Answers stay consistent with a short rest.`);
}

// ---- what was learned

async function poll() {
  if (isPaused) return;
  if (!document.hidden) {
    try { showFindings(await get("/api/findings")); } catch { /* the state of saving tells */ }
  }
  setTimeout(poll, POLL);
}

function showFindings(findings) {
  const parts = findings.quality ? qualityParts(findings.quality) : [];
  const needed = findings.plan?.reading;
  if (needed) parts.push(element("p", { class: "reading" }, needed));
  if (findings.status) parts.push(muted(findings.status));
  if (!parts.length && setup.is_owner) parts.push(muted("The quality is shown here once there are enough answers."));
  byId("quality-card").hidden = !parts.length; // annotators are not told
  replaceIfNew(byId("quality"), parts);
  doubtful = findings.doubtful ?? [];
  showDoubtful(doubtful);
}

const muted = (words) => element("p", { class: "reading muted" }, words);

function showDoubtful(all) {
  const seen = new Set(recalled("reviewed", []));
  const open = all.filter((doubt) => doubt.annotator === setup.name && !seen.has(doubt.question)).slice(0, 5);
  byId("again").hidden = !open.length;
  const list = byId("doubtful");
  if (list.dataset.shown === JSON.stringify(open)) return;
  list.dataset.shown = JSON.stringify(open);
  list.replaceChildren(...open.map((doubt) => {
    const button = element("button", { type: "button", class: "small" }, "Look again");
    button.addEventListener("click", (event) => clicked(event, () => lookAgain(doubt)));
    return element("li", {}, element("span", {}, doubt.reading), " ", button);
  }));
}

// ---- this browser

// Names in storage are those of one person and one file of judgements.
const own = (what) => `closefar ${what} ${setup.file} ${setup.name}`;

function remember(what, value) {
  try { localStorage.setItem(own(what), JSON.stringify(value)); } catch { /* forgotten */ }
}

function recalled(what, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(own(what))) ?? otherwise;
  } catch {
    return otherwise;
  }
}

// Of several tabs of one person only the last judges, so that no question is answered in two.
function holdTheOnlyTab() {
  const channel = new BroadcastChannel(own("tabs"));
  channel.addEventListener("message", pause);
  channel.postMessage("here");
}

function pause() {
  isPaused = true;
  outbox.stop();
  const button = element("button", { type: "button" }, "Judge here");
  button.addEventListener("click", () => location.reload());
  byId("things").replaceChildren(element("p", { class: "empty" }, "Judging goes on in another tab. ", button));
  byId("panel").classList.add("waiting");
}

start();

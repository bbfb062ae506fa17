// Answers that the server has not acknowledged yet. Each is kept in localStorage under a name of its own, so that two
// tabs never overwrite each other, and has a random key, so that the server records it once however often it is sent.

const MOST_AT_ONCE = 20;
const FIRST_DELAY = 500;
const LONGEST_DELAY = 10_000;

export function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Outbox {
  // `send` takes a list of events and resolves to their receipts; `changed` is called after each attempt; `refused` is
  // given the event and the reason where the server did not take one.
  constructor(prefix, { send, changed, refused }) {
    Object.assign(this, { prefix, send, changed, refused });
    this.waiting = [];
    this.isAway = false;
    this.isStopped = false;
    this.error = null;
    this.delay = FIRST_DELAY;
    this.most = MOST_AT_ONCE;
    this.sending = null;
    this.timer = 0;
    this.number = 0;
    this.load();
  }

  get size() {
    return this.waiting.length;
  }

  load() {
    const names = stored().filter((name) => name.startsWith(this.prefix)).sort();
    for (const name of names) {
      const event = parsed(localStorage.getItem(name));
      if (event) this.waiting.push({ name, event });
      this.number = Math.max(this.number, Number(name.slice(this.prefix.length).split(" ")[0]) || 0);
    }
  }

  add(event) {
    this.number = Math.max(this.number + 1, Date.now()); // in the order of the answers, whatever the clock does
    const name = `${this.prefix}${String(this.number).padStart(16, "0")} ${event.key}`;
    this.waiting.push({ name, event });
    keep(name, JSON.stringify(event));
    return this.flush();
  }

  // Resolves once everything is acknowledged, or an attempt has failed.
  flush() {
    if (this.isStopped) return Promise.resolve();
    this.sending ??= this.drain().finally(() => { this.sending = null; });
    return this.sending;
  }

  async drain() {
    clearTimeout(this.timer);
    while (this.size && !this.isStopped) {
      const events = this.waiting.slice(0, this.most).map((each) => each.event);
      try {
        this.settle(await this.send(events));
      } catch (error) {
        if (this.setAside(error, events)) continue;
        this.retryLater(error);
        break;
      }
    }
    this.changed();
  }

  settle(receipts) {
    const known = new Map(this.waiting.map((each) => [each.event.key, each]));
    const settled = receipts.filter((receipt) => known.has(receipt.key));
    if (!settled.length) throw new Error("The server acknowledged none of the answers.");
    for (const receipt of settled) {
      this.forget(known.get(receipt.key));
      if (!receipt.recorded) this.refused(known.get(receipt.key).event, receipt.reason);
    }
    Object.assign(this, { isAway: false, error: null, delay: FIRST_DELAY, most: MOST_AT_ONCE });
    this.changed();
  }

  // A request that the server can't read would be refused for ever: find the event in it that is wrong.
  setAside(error, events) {
    if (![400, 413, 422].includes(error.status)) return false;
    if (events.length > 1) {
      this.most = 1;
    } else {
      this.forget(this.waiting[0]);
      this.refused(events[0], error.message);
    }
    return true;
  }

  retryLater(error) {
    this.isAway = true;
    this.error = error;
    if ([401, 403].includes(error.status)) return; // until somebody signs in again
    this.timer = setTimeout(() => this.flush(), this.delay * (0.75 + 0.5 * Math.random()));
    this.delay = Math.min(2 * this.delay, LONGEST_DELAY);
  }

  // The acknowledgement of an event takes too long: go on as if the server were away, until it comes.
  giveUpWaiting(event) {
    if (this.waiting.some((each) => each.event === event)) this.isAway = true;
    this.changed();
  }

  forget(entry) {
    this.waiting = this.waiting.filter((each) => each !== entry);
    try { localStorage.removeItem(entry.name); } catch { /* was never there */ }
  }

  stop() {
    this.isStopped = true;
    clearTimeout(this.timer);
  }
}

// Browsers may forbid storage, or have none left: answers then live as long as the page.
function keep(name, text) {
  try { localStorage.setItem(name, text); } catch { /* as said above */ }
}

function stored() {
  try { return Object.keys(localStorage); } catch { return []; }
}

function parsed(text) {
  try { return JSON.parse(text); } catch { return null; }
}

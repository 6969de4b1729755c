// Following a turn: an EventSource that comes back by itself, and resets without flicker.

import { Turn } from "./turn.js";

const DRAW_EVERY_MS = 30;
// After a reset the retained part comes in one go. It is shown once it is complete, which the
// first newer frame tells, or so much silence.
const REBUILD_QUIET_MS = 150;
const OPEN_AGAIN_MS = 700;

export class Follower {
  #source = null;
  #lastId = "";
  #turn;
  #resetSeq = null;
  #timer = null;
  #closed = false;

  /**
   * @param {object} on what is called: `turn(turn)` whenever there is more to show,
   *   `reset()` after a rewind, `connection(isOpen)`, and `gone()` when the panel says that the
   *   turn is no longer active.
   */
  constructor(conversationId, turnId, on) {
    this.#turn = new Turn(turnId);
    this.on = on;
    this.url = `/api/conversations/${encodeURIComponent(conversationId)}/stream`;
    this.#open();
  }

  get turnId() { return this.#turn.turnId; }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#source?.close();
  }

  #open() {
    if (this.#closed) return;
    const query = new URLSearchParams({ turn_id: this.turnId });
    // The browser repeats the id by itself, but not when it had given up and we open anew.
    if (this.#lastId) query.set("after", this.#lastId);
    this.#source = new EventSource(`${this.url}?${query}`);
    this.#source.onopen = () => this.on.connection(true);
    this.#source.onmessage = (event) => this.#take(event);
    this.#source.onerror = () => this.#lost();
  }

  #lost() {
    if (this.#closed) return;
    if (this.#source.readyState !== EventSource.CLOSED) {
      this.on.connection(false);
      return;
    }
    // It gave up: the turn has ended (204), or the panel or its broker is not there yet.
    this.on.gone();
    setTimeout(() => this.#open(), OPEN_AGAIN_MS);
  }

  #take(event) {
    this.#lastId = event.lastEventId;
    const frame = JSON.parse(event.data);
    this.#turn = this.#turn.apply(frame);
    if (frame.type === "reset") {
      this.#resetSeq = frame.seq;
      this.on.reset();
    } else if (this.#resetSeq !== null && frame.seq > this.#resetSeq) {
      this.#resetSeq = null;
      this.#draw();
    }
    if (this.#turn.end) {
      this.close();
      this.on.connection(true);
      this.#draw();
      return;
    }
    this.#drawSoon();
  }

  #drawSoon() {
    const rebuilding = this.#resetSeq !== null;
    if (this.#timer !== null && !rebuilding) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#draw(), rebuilding ? REBUILD_QUIET_MS : DRAW_EVERY_MS);
  }

  #draw() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#resetSeq = null;
    this.on.turn(this.#turn);
  }
}

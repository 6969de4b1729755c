// The page: which conversation is shown, and what happens when.

import * as api from "./api.js";
import { Follower } from "./follow.js";
import { partsOfRow } from "./turn.js";
import { element, keepAtEnd, makeMessage, reconcile, setText, updateMessage } from "./view.js";
import { endOf, standing } from "./words.js";

const ACTIVE_POLL_MS = 700;
const ENDING_POLL_MS = 150; // the end was seen, the panel has yet to note it
const IDLE_POLL_MS = 3000;
const SUGGESTIONS = [
  "Run the four-step job",
  "Delete the old files",
  "Repeat <b>bold</b> <script>alert(1)</script> مرحبا 👋",
  "Fail, so that I see a failure",
];

const $ = (id) => document.getElementById(id);

const state = {
  conversations: [],
  current: null, // the conversation that is shown; null: a new one
  rows: [],
  live: new Map(), // turns that this page has followed, by id
  statuses: new Map(), // what turn control last said, by turn
  asked: new Map(), // questions that were shown, by key: see `questionSeen`
  isStale: false, // the conversation could not be read
  sending: null, // the text that the panel has not taken yet
  cancelling: null,
};
let follower = null;
let pollTimer = null;
let isPolling = false;
let isPollDue = false;
let toEnd = () => {};
// Other tabs of this browser; what happens elsewhere is seen by asking.
const tabs = new BroadcastChannel("panel");

// What is shown

function messages() {
  const shown = [];
  for (const row of state.rows.filter((each) => each.role === "user")) {
    shown.push({ kind: "user", key: row.turn_id, turnId: row.turn_id, text: row.content });
    const answer = answerOf(row.turn_id);
    if (answer) shown.push({ kind: "assistant", key: row.turn_id, turnId: row.turn_id, ...answer });
  }
  if (state.sending !== null) shown.push({ kind: "user", key: "sending", text: state.sending });
  return shown;
}

function answerOf(turnId) {
  const turn = state.live.get(turnId);
  if (turn) {
    const { parts, question, resets, resumedAt, end } = turn;
    const decided = Boolean(state.asked.get(question?.key)?.isDecided);
    return { parts, question, decided, resets, resumedAt, end, isLive: !end };
  }
  const row = state.rows.find((each) => each.role === "assistant" && each.turn_id === turnId);
  const plain = { question: null, resets: 0, isLive: turnId === state.current?.active_turn_id };
  if (row) return { ...plain, parts: partsOfRow(row), end: endOfRow(row) };
  const status = state.statuses.get(turnId);
  if (plain.isLive || !status?.reachable) return null;
  if (status.status === "failed") return { ...plain, parts: [], end: endOf(status) };
  if (status.status === "unknown") {
    return { ...plain, parts: [], end: { kind: "failed", message: "turn control did not take it" } };
  }
  return null;
}

function endOfRow({ state: rowState, error }) {
  if (rowState !== "failed" && rowState !== "error") return null;
  return { kind: "failed", message: error ?? "" };
}

function draw() {
  const shown = messages();
  $("empty").hidden = shown.length > 0;
  reconcile($("transcript"), shown, makeMessage, (node, message) =>
    updateMessage(node, message, { decide: (...answer) => decide(message.turnId, ...answer) }));
  drawStatus();
  drawConversations();
  const title = state.current?.title || "New conversation";
  setText($("title"), title);
  $("send").disabled = state.sending !== null || Boolean(state.current?.active_turn_id);
}

function drawStatus() {
  const turnId = lastTurnId();
  $("turn-bar").hidden = !turnId && state.sending === null;
  const turn = state.live.get(turnId);
  const status = state.statuses.get(turnId);
  let { kind, words } = state.sending !== null
    ? { kind: "running", words: "Sending" } : standing(turn, rowStatus(turnId) ?? status);
  if (isBusy() && state.cancelling === turnId) words = "Cancelling";
  $("status").dataset.kind = kind;
  setText($("status"), words);
  const canCancel = isBusy() && status?.can_cancel && state.sending === null;
  $("cancel").hidden = !canCancel;
  $("cancel").disabled = state.cancelling === turnId;
  document.title = turnId ? `${words} – ${state.current?.title || "Panel"}` : "Durable panel";
}

/** What the panel has kept of a turn that is over; turn control's last word may be older. */
function rowStatus(turnId) {
  if (turnId === state.current?.active_turn_id) return null;
  const row = state.rows.find((each) => each.role === "assistant" && each.turn_id === turnId);
  if (!row) return null;
  const status = row.state === "error" ? "failed" : row.state;
  return { reachable: true, status, error: { message: row.error } };
}

function drawConversations() {
  const items = state.conversations.map((each) => ({ kind: "conversation", key: each.id, each }));
  reconcile($("conversations"), items,
    ({ key }) => element("li", {}, element("button", { type: "button", onclick: () => open(key) },
      element("span", { class: "name", dir: "auto" }), element("span", { class: "live" }))),
    (node, { each }) => {
      const button = node.firstElementChild;
      if (each.id === state.current?.id) button.setAttribute("aria-current", "page");
      else button.removeAttribute("aria-current");
      setText(button.querySelector(".name"), each.title || "New conversation");
      const isActive = each.active_turn_id && !state.live.get(each.active_turn_id)?.end;
      setText(button.querySelector(".live"), isActive ? "active" : "");
    });
}

function lastTurnId() {
  return state.rows.findLast((row) => row.role === "user")?.turn_id ?? null;
}

/** Whether a turn goes on, as far as this page knows. */
function isBusy() {
  const active = state.current?.active_turn_id;
  return Boolean(active) && !state.live.get(active)?.end;
}

function say(words) {
  $("notice").hidden = !words;
  setText($("notice"), words ?? "");
}

function announce(words) {
  setText($("announcer"), words);
}

// Conversations

async function open(id) {
  follower?.close();
  follower = null;
  state.current = null;
  state.rows = [];
  state.live.clear();
  say(null);
  closeMenu();
  history.replaceState(null, "", id ? `#${id}` : "#");
  if (id) {
    state.current = state.conversations.find((each) => each.id === id) ?? { id, title: "" };
    await load();
  } else draw();
  toEnd();
  pollSoon();
}

/** Read the conversation from the panel, and follow its active turn. */
async function load() {
  const { id } = state.current;
  let found;
  try {
    found = await api.messages(id);
  } catch (error) {
    if (state.current?.id !== id) return;
    if (error.status === 404) {
      await open(null);
      return;
    }
    state.isStale = true;
    failed(error);
    return;
  }
  if (state.current?.id !== id) return;
  state.isStale = false;
  state.current = found.conversation;
  state.rows = found.messages;
  followActive();
  draw();
}

function followActive() {
  const { id, active_turn_id: active } = state.current;
  if (follower && follower.turnId !== active) {
    follower.close();
    follower = null;
  }
  dropHalfTurns(active);
  if (!active || follower || state.live.get(active)?.end) return;
  follower = new Follower(id, active, {
    turn: (turn) => show(id, turn),
    reset: () => pollSoon(),
    connection: (isOpen) => setConnection(isOpen),
    gone: () => { if (state.current?.id === id) load(); },
  });
}

/** A turn that ended while we could not hear it: the panel's row knows more than we do. */
function dropHalfTurns(active) {
  for (const [turnId, turn] of state.live) {
    if (!turn.end && turnId !== active) state.live.delete(turnId);
  }
}

function show(id, turn) {
  if (state.current?.id !== id) return;
  const before = state.live.get(turn.turnId);
  state.live.set(turn.turnId, turn);
  if (turn.question && !state.asked.has(turn.question.key)) {
    state.asked.set(turn.question.key, { wasOpen: false, isDecided: false, misses: 0 });
    announce("The agent asks for your decision.");
    pollSoon();
  }
  if (turn.end && before !== undefined) announce(`${standing(turn, null).words}. ${lastWords(turn)}`);
  if (turn.end) pollSoon();
  draw();
}

function lastWords({ parts, end }) {
  return end.message || (parts.findLast((part) => part.kind === "text")?.text ?? "");
}

// Asking how things stand

function pollSoon() {
  isPollDue = true;
  if (!isPolling) pollNow();
}

/** Ask, and again after a while; never twice at a time. */
async function pollNow() {
  clearTimeout(pollTimer);
  isPolling = true;
  while (isPollDue) {
    isPollDue = false;
    await poll();
  }
  isPolling = false;
  const isEnding = state.current?.active_turn_id && !isBusy();
  const pause = isEnding ? ENDING_POLL_MS : IDLE_POLL_MS;
  pollTimer = setTimeout(pollSoon, isBusy() ? ACTIVE_POLL_MS : pause);
}

async function poll() {
  try {
    if (isBusy()) await askStatus(state.current.id, state.current.active_turn_id);
    await lookAround();
    setConnection(true);
  } catch (error) {
    failed(error);
  }
  draw();
}

async function askStatus(id, turnId) {
  const status = await api.status(id, turnId);
  state.statuses.set(turnId, status);
  const question = state.live.get(turnId)?.question;
  if (question && status.reachable) questionSeen(question, status);
}

/**
 * Learn from turn control whether a question is open or was decided, here or elsewhere. At first
 * its status may lag behind the question, so that one answer without it proves nothing.
 */
function questionSeen({ key, generation }, status) {
  const seen = state.asked.get(key);
  if (!seen || seen.isSending) return;
  const isOurs = generation === null || generation === (status.park_generation ?? null);
  if (status.status === "parked" && isOurs) {
    Object.assign(seen, { wasOpen: true, isDecided: false, misses: 0 });
    return;
  }
  seen.misses += 1;
  seen.isDecided = seen.wasOpen || seen.misses > 1;
}

/** See what other tabs and other people have done, and how the last turn ended. */
async function lookAround() {
  state.conversations = await api.conversations();
  if (!state.current) return;
  const now = state.conversations.find((each) => each.id === state.current.id);
  const isNews = now && now.active_turn_id !== (state.current.active_turn_id ?? null);
  if (isNews || state.isStale) await load();
  const last = lastTurnId();
  if (last && !isBusy() && !answerOf(last) && state.statuses.get(last)?.status !== "failed") {
    state.statuses.set(last, await api.status(state.current.id, last));
  }
}

function failed(error) {
  if (!(error instanceof api.ApiError)) throw error;
  if (error.status === 0) setConnection(false);
  else say(error.message);
}

function setConnection(isOpen) {
  setText($("connection"), isOpen ? "" : "Reconnecting to the panel");
}

// What the user does

async function send(text) {
  state.sending = text;
  say(null);
  draw();
  toEnd();
  try {
    if (!state.current) {
      state.current = await api.createConversation();
      history.replaceState(null, "", `#${state.current.id}`);
    }
    await api.send(state.current.id, text);
  } catch (error) {
    failed(error);
    say(`Not sent: ${error.message}`);
    if (!$("composer-text").value) $("composer-text").value = text;
  }
  state.sending = null;
  if (state.current) await load();
  tabs.postMessage("news");
  draw();
  pollSoon();
}

async function decide(turnId, approved, note) {
  const { question } = state.live.get(turnId);
  const seen = state.asked.get(question.key);
  Object.assign(seen, { isSending: true, isDecided: true });
  say(null);
  draw();
  $("composer-text").focus();
  try {
    await api.decide(state.current.id, {
      turn_id: turnId, approved, note: note || null, park_generation: question.generation,
    });
  } catch (error) {
    failed(error);
    const isLate = error.status === 409 || error.status === 422;
    say(`${isLate ? "Not taken" : "Not sent"}: ${error.message}`);
    seen.isDecided = isLate;
  }
  seen.isSending = false;
  tabs.postMessage("news");
  draw();
  pollSoon();
}

async function cancel() {
  const turnId = state.current.active_turn_id;
  state.cancelling = turnId;
  draw();
  try {
    await api.cancel(state.current.id, turnId);
  } catch (error) {
    failed(error);
    say(`Not cancelled: ${error.message}`);
    state.cancelling = null;
  }
  tabs.postMessage("news");
  draw();
  pollSoon();
}

function closeMenu() {
  $("sidebar").classList.remove("open");
  $("scrim").hidden = true;
  $("menu").setAttribute("aria-expanded", "false");
}

function toggleMenu() {
  const isOpen = $("sidebar").classList.toggle("open");
  $("scrim").hidden = !isOpen;
  $("menu").setAttribute("aria-expanded", String(isOpen));
  if (isOpen) $("new").focus();
}

function submit() {
  const field = $("composer-text");
  const text = field.value.trim();
  if (!text || $("send").disabled) return;
  field.value = "";
  send(text);
}

function listen() {
  toEnd = keepAtEnd($("scroller"), $("transcript"));
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  $("composer-text").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  $("new").addEventListener("click", () => open(null).then(() => $("composer-text").focus()));
  $("cancel").addEventListener("click", cancel);
  $("menu").addEventListener("click", toggleMenu);
  $("scrim").addEventListener("click", closeMenu);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !$("sidebar").classList.contains("open")) return;
    closeMenu();
    $("menu").focus();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) pollSoon(); });
  tabs.addEventListener("message", pollSoon);
  window.addEventListener("hashchange", () => {
    const wanted = location.hash.slice(1) || null;
    if (wanted !== (state.current?.id ?? null)) open(wanted);
  });
  for (const words of SUGGESTIONS) {
    const button = element("button", { type: "button", class: "button", onclick: () => send(words) });
    button.textContent = words;
    $("suggestions").append(element("li", {}, button));
  }
}

async function start() {
  listen();
  draw();
  try {
    const { user, agent } = await api.bootstrap();
    setText($("agent"), `Agent: ${agent}`);
    setText($("user"), `You: ${user}`);
  } catch (error) {
    failed(error);
  }
  await open(location.hash.slice(1) || null);
}

start();

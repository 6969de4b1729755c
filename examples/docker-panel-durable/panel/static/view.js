// The transcript's DOM. Elements are kept by key and only changed where they differ, so nothing
// flickers; all that came from outside becomes text, never HTML.

const AT_END_PX = 80;

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Make `parent` hold exactly these items, in order. Each has a `key`. */
export function reconcile(parent, items, make, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = `${item.kind}|${item.key}`;
    let child = old.get(name);
    if (child) old.delete(name);
    else {
      child = make(item);
      child.dataset.key = name;
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    update(child, item);
  }
  for (const child of old.values()) child.remove();
}

/** Stay at the end, if the reader is there, whatever grows or shrinks; returns how to go there. */
export function keepAtEnd(scroller, content) {
  let isAtEnd = true;
  const toEnd = () => {
    isAtEnd = true;
    scroller.scrollTop = scroller.scrollHeight;
  };
  scroller.addEventListener("scroll", () => {
    const rest = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
    isAtEnd = rest < AT_END_PX;
  }, { passive: true });
  const sizes = new ResizeObserver(() => { if (isAtEnd) toEnd(); });
  sizes.observe(scroller);
  sizes.observe(content);
  return toEnd;
}

// Messages

export function makeMessage({ kind }) {
  const words = kind === "user" ? "You" : "Agent";
  const item = element("li", { class: `message ${kind}` });
  item.append(element("span", { class: "hidden-label" }, `${words}: `));
  item.append(kind === "user"
    ? element("div", { class: "words", dir: "auto" })
    : element("div", { class: "message assistant parts" }));
  return item;
}

/** Show a message; `actions` are what the buttons of a question do. */
export function updateMessage(item, message, actions) {
  item.dataset.turn = message.turnId;
  if (message.kind === "user") {
    setText(item.querySelector(".words"), message.text);
    return;
  }
  item.setAttribute("aria-busy", String(message.isLive));
  reconcile(
    item.querySelector(".parts"), blocks(message), (block) => MAKE[block.kind](block, actions),
    (node, block) => UPDATE[block.kind](node, block),
  );
}

function blocks({ parts, question, decided, resets, resumedAt, end }) {
  const asked = question && parts.findLast(
    (part) => part.kind === "tool" && part.output === null && part.name === question.tool,
  );
  const all = parts.map((part) => part === asked ? { ...part, isAsked: true } : part);
  if (resets > 0) all.splice(resumedAt ?? all.length, 0, { key: "resets", kind: "note", resets });
  // Nothing is to be seen of a text that has only spaces: a box for it would be an odd gap.
  const list = all.filter((part) => part.kind !== "text" || part.text.trim());
  if (question) list.push({ key: question.key, kind: "question", question, decided });
  if (end && end.kind !== "done") list.push({ key: "end", kind: "end", end });
  return list;
}

const MAKE = {
  text: () => element("div", { class: "words", dir: "auto" }),
  tool: makeTool,
  note: () => element("p", { class: "note" }, element("span", { "aria-hidden": "true" }, "↺"),
    element("span", { class: "note-words" })),
  question: makeQuestion,
  end: () => element("p", { class: "end words", dir: "auto" }),
};

const UPDATE = {
  text: (node, { text }) => setText(node, text.trimEnd()),
  tool: updateTool,
  note: updateNote,
  question: updateQuestion,
  end: updateEnd,
};

function makeTool() {
  return element("section", { class: "tool", "aria-label": "Tool call" },
    element("div", { class: "call" },
      element("span", { class: "mark", "aria-hidden": "true" }),
      element("span", { class: "hidden-label state" }),
      element("span", { class: "name", dir: "auto" }),
      element("span", { class: "arguments words", dir: "auto" })),
    element("div", { class: "output words", dir: "auto", tabindex: "0", hidden: true }));
}

const TOOL_STATES = {
  running: ["…", "running"], done: ["✓", "done"], error: ["✗", "failed"],
  asked: ["?", "waits for a decision"],
};

function updateTool(node, part) {
  const state = toolState(part);
  const [mark, words] = TOOL_STATES[state];
  node.dataset.state = state;
  setText(node.querySelector(".mark"), mark);
  setText(node.querySelector(".state"), `Tool call, ${words}: `);
  setText(node.querySelector(".name"), part.name || "tool");
  setText(node.querySelector(".arguments"), compact(part.arguments));
  const output = node.querySelector(".output");
  output.hidden = part.output === null;
  setText(output, part.output ?? "");
  output.setAttribute("aria-label", `Result of ${part.name || "the tool"}`);
}

function toolState({ output, isError, isAsked }) {
  if (output !== null) return isError ? "error" : "done";
  return isAsked ? "asked" : "running";
}

/** `{"label": "one"}` as `label: one`; what is no object stays as it is. */
function compact(json) {
  const given = parsed(json);
  if (given === null || typeof given !== "object" || Array.isArray(given)) return json;
  return Object.entries(given).map(([name, value]) => `${name}: ${plain(value)}`).join("\n");
}

function parsed(json) {
  try {
    return JSON.parse(json);
  } catch {
    return null;
  }
}

function plain(value) {
  if (typeof value === "string") return value;
  if (Array.isArray(value) && value.every((each) => typeof each === "string")) {
    return value.join(", ");
  }
  return JSON.stringify(value);
}

function updateNote(node, { resets }) {
  const times = resets === 1 ? "once" : `${resets} times`;
  setText(node.querySelector(".note-words"),
    `Interrupted ${times}, and taken up again from the last finished step.`);
}

function updateEnd(node, { end }) {
  node.dataset.kind = end.kind;
  const words = end.kind === "cancelled" ? "Cancelled" : "Failed";
  setText(node, end.message ? `${words}: ${end.message}` : words);
}

function makeQuestion({ key }, actions) {
  const note = element("input", { type: "text", id: `note-${key}`, maxlength: "2000", dir: "auto" });
  const answer = (approved) => () => actions.decide(approved, note.value.trim());
  return element("fieldset", { class: "question" },
    element("legend", {}, element("span", { class: "asks" })),
    element("dl", { class: "input" }),
    element("div", {}, element("label", { for: note.id }, "Note (optional)"), note),
    element("div", { class: "answers" },
      element("button", { type: "button", class: "button primary approve", onclick: answer(true) },
        "Approve"),
      element("button", { type: "button", class: "button danger deny", onclick: answer(false) },
        "Deny")),
    element("p", { class: "sent", hidden: true }, "Decided. The turn goes on."));
}

function updateQuestion(node, { question, decided }) {
  setText(node.querySelector(".asks"), question.tool
    ? `May the agent use ${question.tool}?` : "The agent asks for your decision.");
  const input = question.input && typeof question.input === "object" ? question.input
    : { question: question.input };
  const rows = Object.entries(input).filter(([, value]) => value !== undefined && value !== null);
  reconcile(node.querySelector(".input"), rows.map(([key, value]) => ({ kind: "row", key, value })),
    () => element("div", {}, element("dt", { dir: "auto" }),
      element("dd", { class: "words", dir: "auto" })),
    (row, { key, value }) => {
      setText(row.querySelector("dt"), key);
      setText(row.querySelector("dd"), plain(value));
    });
  node.disabled = decided;
  node.querySelector(".answers").hidden = decided;
  node.querySelector(".sent").hidden = !decided;
}

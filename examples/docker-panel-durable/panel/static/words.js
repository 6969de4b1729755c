// How a turn stands, as a kind (for its colour) and in words.

const WAITS = {
  agent: "Waiting for the agent",
  step: "Waiting for the step in flight to finish",
  slot: "Waiting for a free place",
  thread: "Waiting for the turn before it",
};

const OVER = new Set(["done", "failed"]);

/** @returns {{kind: string, words: string}} */
export function standing(turn, status) {
  if (turn?.end) return ended(turn.end);
  if (!status) return { kind: "running", words: "Running" };
  if (!status.reachable) return { kind: "waiting", words: "Waiting for turn control" };
  // The status can be faster than the log, for instance when the broker is just back.
  if (turn && OVER.has(status.status)) return { kind: "running", words: "Catching up" };
  switch (status.status) {
    case "parked": return { kind: "parked", words: "Waiting for your decision" };
    case "done": return ended({ kind: "done" });
    case "failed": return ended(endOf(status));
    case "unknown": return { kind: "waiting", words: "Not known to turn control yet" };
    default: return running(status);
  }
}

/** The end that a status tells, for a turn of which nothing else was kept. */
export function endOf(status) {
  const { code, message } = status.error ?? {};
  return { kind: code === "cancelled" ? "cancelled" : "failed", message: message ?? "", code };
}

function running({ attempts, waiting_for: waitsFor }) {
  const attempt = attempts > 0 ? `attempt ${attempts}` : "";
  if (waitsFor) {
    const words = WAITS[waitsFor] ?? `Waiting for: ${waitsFor}`;
    return { kind: "waiting", words: attempt ? `${words} (${attempt})` : words };
  }
  if (attempt) return { kind: "redriven", words: `Re-driven, ${attempt}` };
  return { kind: "running", words: "Running" };
}

function ended({ kind }) {
  const words = { done: "Done", failed: "Failed", cancelled: "Cancelled" }[kind];
  return { kind, words };
}

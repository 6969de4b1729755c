// The panel's routes.

/** A refusal of the panel, in its words; `status` 0: the panel was not reached. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// No answer is one too: a page must not wait for ever on a connection that has gone dead.
const TIMEOUT_MS = { GET: 10_000, POST: 60_000 };

async function call(method, path, body) {
  let answer;
  try {
    answer = await fetch(`/api${path}`, {
      method,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(TIMEOUT_MS[method]),
    });
  } catch {
    throw new ApiError(0, "The panel does not answer. It is tried again.");
  }
  const found = await answer.json().catch(() => null);
  if (!answer.ok) throw new ApiError(answer.status, inWords(found, answer));
  return found;
}

function inWords(found, answer) {
  const detail = found?.detail;
  if (typeof detail === "string") return detail;
  if (Array.isArray(detail) && detail[0]?.msg) return detail[0].msg;
  return `The panel answered ${answer.status} ${answer.statusText}`;
}

const one = (id) => `/conversations/${encodeURIComponent(id)}`;

export const bootstrap = () => call("GET", "/bootstrap");
export const conversations = () => call("GET", "/projects/default/conversations");
export const createConversation = () => call("POST", "/projects/default/conversations");
export const messages = (id) => call("GET", `${one(id)}/messages`);
export const send = (id, text) => call("POST", `${one(id)}/messages`, { text });
export const status = (id, turnId) =>
  call("GET", `${one(id)}/status?turn_id=${encodeURIComponent(turnId)}`);
export const decide = (id, decision) => call("POST", `${one(id)}/approval`, decision);
export const cancel = (id, turnId) => call("POST", `${one(id)}/cancel`, { turn_id: turnId });

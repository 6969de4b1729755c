// A turn as the page sees it: from frames to parts. Pure, no DOM.

/**
 * @typedef {{key: string, kind: "text", text: string}} TextPart
 * @typedef {{key: string, kind: "tool", callId: string, name: string, arguments: string,
 *            output: string|null, isError: boolean}} ToolPart
 */

/** Everything that is shown of one turn. */
export class Turn {
  constructor(turnId) {
    this.turnId = turnId;
    this.parts = [];
    this.question = null;
    this.end = null;
    this.resets = 0;
    this.resumedAt = null; // how many parts the last reset has left
    this.resetSeq = null;
  }

  /** Take one frame and return the turn after it, which after a reset is another object. */
  apply(frame) {
    if (this.end) return this;
    if (this.resetSeq !== null && frame.seq > this.resetSeq) {
      this.resetSeq = null;
      this.resumedAt = this.parts.length;
    }
    switch (frame.type) {
      case "delta": this.#addText(frame); break;
      case "tool_call": this.#addCall(frame); break;
      case "tool_result": this.#addResult(frame); break;
      case "approval": this.#ask(frame); break;
      case "reset": return this.#begunAnew(frame);
      case "done": this.#endWith("done", "", ""); break;
      case "error": this.#endWith("failed", frame.message, frame.code); break;
      default: // A frame of a later version: nothing that we could show.
    }
    return this;
  }

  #addText({ text, item_id: itemId }) {
    const key = `text:${itemId ?? ""}`;
    let part = itemId ? this.#part(key) : this.parts.at(-1);
    if (part?.kind !== "text") {
      part = { key: itemId ? key : `text:${this.parts.length}`, kind: "text", text: "" };
      this.parts.push(part);
    }
    part.text += text;
    this.question = null;
  }

  #addCall({ tool_call_id: callId, tool_name: name, arguments: given }) {
    const call = this.#call(callId);
    Object.assign(call, { name, arguments: given, output: null, isError: false });
    this.question = null;
  }

  #addResult({ tool_call_id: callId, output, is_error: isError }) {
    Object.assign(this.#call(callId), { output: asText(output), isError: Boolean(isError) });
    this.question = null;
  }

  #ask({ seq, tool_name: tool, input, payload, park_generation: generation }) {
    const key = `${this.turnId}:${seq}`;
    this.question = { key, tool, input: input ?? payload, generation: generation ?? null };
  }

  #endWith(kind, message, code) {
    this.question = null;
    this.end = { kind: code === "cancelled" ? "cancelled" : kind, message: asText(message), code };
  }

  #begunAnew({ seq }) {
    const turn = new Turn(this.turnId);
    turn.resetSeq = seq;
    turn.resets = this.resets + 1;
    return turn;
  }

  #part(key) {
    return this.parts.find((part) => part.key === key);
  }

  #call(callId) {
    const key = `tool:${callId}`;
    let call = this.#part(key);
    if (!call) {
      call = { key, kind: "tool", callId, name: "", arguments: "", output: null, isError: false };
      this.parts.push(call);
    }
    return call;
  }
}

/** The parts of a message that the panel has kept, in the same shape. */
export function partsOfRow(row) {
  return row.parts.map((part, index) => part.type === "text"
    ? { key: `text:${index}`, kind: "text", text: part.text }
    : {
      key: `tool:${part.tool_call_id}:${index}`, kind: "tool", callId: part.tool_call_id,
      name: part.tool_name, arguments: asText(part.input),
      output: part.state === "approval-requested" ? null : asText(part.output),
      isError: Boolean(part.is_error),
    });
}

export function asText(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

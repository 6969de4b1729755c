"""What `turnctl` shows: a turn as it comes, and its status."""

from __future__ import annotations

import json
import time

from rich.console import Console

from vystak_turns_client.fold import Approval, End, Fold, Outcome, Text, ToolCall, Transcript
from vystak_turns_rpc import events
from vystak_turns_rpc.events import TurnMessage
from vystak_turns_rpc.methods import TurnStatusResult
from vystak_turns_rpc.vocabulary import Json

_OUTPUT_MAX = 400


class Screen:
    """Shows a turn message by message; what a rewind took back is marked, the rest shown again."""

    def __init__(self, console: Console, turn_id: str) -> None:
        """`turn_id` stands in the command that decides a question."""
        self._console = console
        self._turn_id = turn_id
        self._fold = Fold()
        self._open_text: str | None = None

    def show(self, message: TurnMessage) -> None:
        """Show the next message of the log."""
        self._fold.feed(message)
        match events.parse_event(message.event):
            case events.TextDelta(item_id=item_id, delta=delta):
                self._text(item_id, delta)
            case events.ArgumentsDone(call_id=call_id):
                self._call(self._call_of(call_id))
            case events.ItemAdded(item=events.FunctionCallOutputItem(call_id=call_id)):
                self._result(self._call_of(call_id))
            case events.TurnRewind(to_seq=to_seq):
                self._rewound(to_seq)
            case events.ApprovalRequested():
                self._question(self.transcript().approval)
            case event if events.is_terminal(event.type):
                self._end(self.transcript().end)

    def transcript(self) -> Transcript:
        """Return what was shown and not taken back."""
        return self._fold.transcript()

    def _text(self, item_id: str, delta: str) -> None:
        if self._open_text != item_id:
            self._close_text()
            self._open_text = item_id
        self._write(delta, end="")

    def _call(self, call: ToolCall) -> None:
        self._close_text()
        self._write(f"→ {call.name}({_short(call.arguments)})", style="cyan")

    def _result(self, call: ToolCall) -> None:
        self._close_text()
        mark, style = ("✗", "red") if call.is_error else ("←", "green")
        self._write(f"{mark} {call.name}: {_short(call.output or '')}", style=style)

    def _rewound(self, to_seq: int) -> None:
        self._close_text()
        transcript = self.transcript()
        kept = "nothing is kept" if not transcript.items else "this is kept:"
        self._write(f"↺ rewind to seq {to_seq}; {kept}", style="bold yellow")
        for item in transcript.items:
            self._again(item)

    def _again(self, item: Text | ToolCall) -> None:
        if isinstance(item, Text):
            self._text(item.item_id, item.text)
            return
        self._call(item)
        if item.output is not None:
            self._result(item)

    def _question(self, approval: Approval | None) -> None:
        if approval is None:
            return
        self._close_text()
        self._write(f"? parked: {_short(_json(approval.payload))}", style="bold magenta")
        question = approval.park_generation
        generation = "" if question is None else f" --generation {question}"
        self._write(f"  turnctl resume {self._turn_id} JSON{generation}")

    def _end(self, end: End | None) -> None:
        self._close_text()
        if end is None or end.outcome is Outcome.COMPLETED:
            self._write("■ completed", style="bold green")
            return
        code = f" ({end.code})" if end.code else ""
        self._write(f"■ failed{code}: {end.message or 'no reason was given'}", style="bold red")

    def _call_of(self, call_id: str) -> ToolCall:
        found = (call for call in self.transcript().tool_calls if call.call_id == call_id)
        return next(found, ToolCall(call_id, "", ""))

    def _close_text(self) -> None:
        if self._open_text is not None:
            self._console.print()
            self._open_text = None

    def _write(self, text: str, style: str | None = None, end: str = "\n") -> None:
        # Half of a surrogate pair is a legal JSON string and no legal output.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        self._console.print(
            clean, style=style, end=end, markup=False, highlight=False, soft_wrap=True
        )


def show_status(console: Console, turn_id: str, answer: TurnStatusResult) -> None:
    """Show where a turn stands, one line a fact, leaving out what is not known."""
    fields: dict[str, str | None] = {
        "turn": turn_id,
        "status": answer.status.value,
        "question": None if answer.interrupt is None else _json(answer.interrupt),
        "generation": _number(answer.park_generation),
        "waiting for": answer.waiting_for,
        "attempts": _number(answer.attempts),
        "last seq": _number(answer.last_seq),
        "thread": answer.thread_id,
        "updated": None if answer.updated_at is None else _moment(answer.updated_at),
        "error": None if answer.error is None else f"{answer.error.code}: {answer.error.message}",
    }
    for name, value in fields.items():
        if value is not None:
            line = f"{name:<12} {value}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def _moment(unix_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(unix_s))


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _OUTPUT_MAX else f"{line[:_OUTPUT_MAX]}… ({len(line)} signs)"

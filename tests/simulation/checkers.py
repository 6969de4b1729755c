"""The rules, checked over what was recorded. Nothing of the service is used here."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

TERMINAL = ("response.completed", "response.failed")
APPROVAL = "vystak.approval.requested"
REWIND = "vystak.turn.rewind"
FIRST = ("response.created", "vystak.turn.keepalive")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a turn's subject, in the order of the log, lost ones included.

    `first` is the index of the first message that the log still held when this one was stored;
    `after_loss`: the subject had been emptied.
    """

    id: str
    seq: int
    token: int
    event: dict[str, Any]
    at_s: float
    first: int
    after_loss: bool


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a task by the agent, or of one step of its nested graph."""

    step: int
    task: int
    nested: int | None
    life: int
    at_s: float
    outcome: str | None
    answers: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Sight:
    """One answer of turnStatus, and what log and agent held at that moment."""

    status: Mapping[str, Any]
    messages: tuple[Message, ...]
    rendered: tuple[dict[str, Any], ...]

    @property
    def word(self) -> str:
        """The wire's word."""
        return str(self.status["status"])

    @property
    def end(self) -> str:
        """The wire's word, with the code of a failure."""
        error = self.status.get("error")
        return f"{self.word} {error['code']}" if error else self.word


@dataclass(frozen=True, slots=True)
class History:
    """All that was recorded of one turn.

    Attributes:
        ends: the permitted ends.
        acknowledged: whether createDetached was answered with a result.
        refused: the turn_id that a refusal named.
        sights: the statuses seen, in order, without repetitions.
        accepted: the acknowledged decisions, by interrupt id.
        perhaps: the decisions that got no reply at all, by interrupt id.
        objections: what the caller itself found wrong.
        messages: of its subject.
        rendered: what the agent's committed history shows of the turn, as events.
        starts: what the agent ran for it.
        inputs: how often its input was applied.
        doubled_runs: starts beside another run of the thread.
        redrives: claims that counted.
        free_thread_s: when the turn before it on its thread had its terminal event.
        orderly: nothing but orderly stops befell anybody.

    """

    ends: tuple[str, ...]
    acknowledged: bool = False
    refused: str | None = None
    sights: tuple[Sight, ...] = ()
    accepted: Mapping[str, list[object]] = field(default_factory=dict)
    perhaps: Mapping[str, set[object]] = field(default_factory=dict)
    objections: tuple[str, ...] = ()
    messages: tuple[Message, ...] = ()
    rendered: tuple[dict[str, Any], ...] = ()
    starts: tuple[Start, ...] = ()
    inputs: int = 0
    doubled_runs: int = 0
    redrives: int = 0
    free_thread_s: float = 0.0
    orderly: bool = False

    @property
    def completed(self) -> bool:
        """Whether the turn ended with a result."""
        return bool(self.messages) and self.messages[-1].event["type"] == TERMINAL[0]


def violations(history: History) -> Iterator[str]:
    """Yield a line for each broken rule."""
    yield from history.objections
    if history.refused is not None:
        if history.messages or history.starts or history.inputs:
            yield "R13 a refused turn did something"
        return
    for rule in (_r1, _r2, _r3, _r4, _r5, _r6, _r7, _r8, _r12, _r13):
        yield from (f"{rule.__name__[1:].upper()} {words}" for words in rule(history))


def fold(messages: Iterable[Message]) -> list[Message]:
    """Return the messages that a reader keeps: a rewind drops what is above its target."""
    kept: list[Message] = []
    last_id = ""
    for message in messages:
        if message.event["type"] == REWIND:
            kept = [m for m in kept if m.seq <= message.event["to_seq"]]
        elif message.id != last_id:
            kept.append(message)
        last_id = message.id
    return kept


def content(events: Iterable[dict[str, Any]]) -> tuple[dict[str, str], Counter[tuple[str, str]]]:
    """Return text by item, and each event of a tool call with how often it is seen."""
    texts: dict[str, str] = {}
    tools: Counter[tuple[str, str]] = Counter()
    for event in events:
        match event["type"]:
            case "response.output_text.delta":
                texts[event["item_id"]] = texts.get(event["item_id"], "") + event["delta"]
            case "response.output_item.added":
                item = event["item"]
                tools[item["type"], f"{item['call_id']}={item.get('output')}"] += 1
            case "response.function_call_arguments.done":
                tools["arguments", f"{event['call_id']}={event['arguments']}"] += 1
            case "response.output_text.done":
                tools["text done", event["item_id"]] += 1
            case "response.created":
                tools["created", ""] += 1
            case _:
                pass
    return texts, tools


def _r1(history: History) -> Iterator[str]:
    ends = [m.seq for m in _known_messages(history) if m.event["type"] in TERMINAL]
    if len(ends) != 1:
        yield f"{len(ends)} terminal events"
    elif history.messages[-1].event["type"] not in TERMINAL:
        yield f"something follows the terminal event {ends[0]}"
    end = history.sights[-1].end if history.sights else "never seen"
    if end not in history.ends:
        yield f"the end is {end!r} instead of {' or '.join(history.ends)}"
    if history.completed != (end == "done"):
        yield f"the status says {end!r}, the log something else"


def _known_messages(history: History) -> Iterator[Message]:
    """Leave out a terminal event that was lost with the log, perhaps before its acknowledgement."""
    for message, following in itertools.zip_longest(history.messages, history.messages[1:]):
        lost = following is not None and following.after_loss
        if not (lost and message.event["type"] in TERMINAL):
            yield message


def _r2(history: History) -> Iterator[str]:
    expected = 0
    for index, message in enumerate(history.messages):
        if message.after_loss:
            expected = _next_after_loss(history.messages[:index], message, expected)
        if message.seq != expected:
            yield f"seq {message.seq} instead of {expected}"
            return
        expected += 1


def _next_after_loss(before: tuple[Message, ...], message: Message, expected: int) -> int:
    """The only permitted gap, and two cases in which nobody can know that a number was used.

    An append may have landed unacknowledged before the log was emptied: it is sent again as the
    same message. And before a turn's first boundary the journal does not know of any append.
    """
    again = message.id == before[-1].id
    unknown = message.seq == 0 and all(m.event["type"] in FIRST for m in before)
    return message.seq if again or unknown else max(expected, message.seq)


def _r3(history: History) -> Iterator[str]:
    for sight in history.sights:
        if sight.word == "parked" and sight.messages:
            yield from _readers_see(sight.messages, sight.rendered, "parked")
    if not history.completed:
        return
    yield from _readers_see(history.messages, history.rendered, "completed")
    response = history.messages[-1].event["response"]
    text = "".join(part["text"] for item in response["output"] for part in item["content"])
    done = "".join(content(history.rendered)[0].values())
    if text != done:
        yield f"the completed text is {text!r}, done was {done!r}"


def _readers_see(
    messages: tuple[Message, ...], rendered: tuple[dict[str, Any], ...], when: str
) -> Iterator[str]:
    """A reader that starts at any moment, from whatever the log held then, sees what was done."""
    texts, tools = content(rendered)
    tools["created", ""] = 1
    last = messages[-1]
    heads = {0, *(m.first for m in messages[:-1])}
    if last.after_loss:
        heads.add(last.first)
    for head in sorted(heads):
        seen = content(m.event for m in fold(messages[head:]))
        if any(m.after_loss for m in messages):
            seen[1]["created", ""] = min(seen[1]["created", ""], 1)  # the first one may be lost
        if seen != (texts, tools):
            yield f"{when}: a reader from message {head} sees {seen}, done was {(texts, tools)}"
            return


def _r4(history: History) -> Iterator[str]:
    before: dict[tuple[int, int, int | None], Start] = {}
    steps: dict[int, int] = {}
    for start in history.starts:
        key = (start.step, start.task, start.nested)
        earlier = before.get(key)
        if earlier is not None and earlier.outcome in {"done", "failed"}:
            yield f"{key} ran again after its result was kept"
        if earlier is not None and earlier.outcome is None and earlier.life == start.life:
            yield f"{key} ran twice in one life of the agent"
        if any(step > start.step for step in steps):
            yield f"step {start.step} ran after a later one"
        before[key] = start
        steps[start.step] = start.life


def _r5(history: History) -> Iterator[str]:
    if history.inputs > 1 or (history.completed and history.inputs != 1):
        yield f"the input was applied {history.inputs} times"
    if history.doubled_runs:
        yield "two runs on one thread at once"
    if not history.acknowledged:
        yield "it was never acknowledged"


def _r6(history: History) -> Iterator[str]:
    for interrupt_id, values in history.accepted.items():
        if len(values) > 1:
            yield f"{len(values)} decisions of {interrupt_id} were accepted"
    delivered: dict[str, object] = {}
    for start in history.starts:
        if start.outcome == "done":
            delivered.update(start.answers)
    for interrupt_id, value in delivered.items():
        permitted = [*history.accepted.get(interrupt_id, [])]
        permitted = permitted or [*history.perhaps.get(interrupt_id, set())]
        if value not in permitted:
            yield f"{interrupt_id} got {value!r}, decided was {permitted}"
    if history.completed:
        for interrupt_id in history.accepted:
            if interrupt_id not in delivered:
                yield f"the decision of {interrupt_id} never reached the graph"


def _r7(history: History) -> Iterator[str]:
    tokens = [m.token for m in history.messages]
    if tokens != sorted(tokens):
        yield f"an older driver wrote after a newer one: {tokens}"


def _r8(history: History) -> Iterator[str]:
    words = [sight.word for sight in history.sights]
    if "unknown" in words:
        yield "an acknowledged turn was unknown"
    ended = [n for n, word in enumerate(words) if word in {"done", "failed"}]
    if ended and ended != [len(words) - 1]:
        yield f"the status moved on after the end: {words}"
    for sight in history.sights:
        last = sight.messages[-1].event if sight.messages else {"type": "nothing"}
        if sight.word in {"done", "failed"} and last["type"] not in TERMINAL:
            yield f"status {sight.word} before its event"
        if sight.word == "parked" and not _asks(last, sight.status):
            yield f"parked on {sight.status['interrupt_id']}, the log ends with {last}"


def _asks(event: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    return (
        event["type"] == APPROVAL
        and event["park_generation"] == status["park_generation"]
        and event["interrupt_id"] == status["interrupt_id"]
        and event["payload"] == status["interrupt"]
    )


def _r12(history: History) -> Iterator[str]:
    if not history.orderly:
        return
    if history.redrives:
        yield f"orderly stops cost {history.redrives} attempts"


def _r13(history: History) -> Iterator[str]:
    if history.starts and history.starts[0].at_s < history.free_thread_s:
        yield "it ran before the turn before it on its thread had ended"

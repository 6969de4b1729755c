"""The rules, checked over what was recorded. Nothing of the service is used here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

TERMINAL = ("response.completed", "response.failed")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a turn's subject."""

    seq: int
    token: int
    event: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StepRun:
    """One start of a step by the agent: in which of the agent's lives, and whether it committed."""

    step: int
    life: int
    committed: bool
    decision: object


@dataclass(frozen=True, slots=True)
class History:
    """All that was recorded of one turn.

    `rendered` is what the agent's committed history shows of the turn, as events; `inputs` counts
    how often its input was applied; `statuses` are all answers of turnStatus in order;
    `decisions` are the acknowledged ones, in order.
    """

    turn_id: str
    messages: tuple[Message, ...]
    rendered: tuple[dict[str, Any], ...]
    runs: tuple[StepRun, ...]
    inputs: int
    doubled_runs: int
    agent_deaths: int
    acknowledged: bool
    statuses: tuple[str, ...]
    decisions: tuple[object, ...]
    expected_status: str


def violations(history: History) -> Iterator[str]:
    """Yield a line for each broken rule."""
    for rule in (_r1, _r2, _r3, _r4, _r5, _r6, _r7, _r8):
        yield from (f"{rule.__name__[1:].upper()} {words}" for words in rule(history))


def fold(messages: Iterable[Message]) -> list[Message]:
    """Return the messages that a reader keeps: a rewind drops what is above its target."""
    kept: list[Message] = []
    for message in messages:
        if message.event["type"] == "vystak.turn.rewind":
            kept = [m for m in kept if m.seq <= message.event["to_seq"]]
        else:
            kept.append(message)
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
            case _:
                pass
    return texts, tools


def _r1(history: History) -> Iterator[str]:
    ends = [m.seq for m in history.messages if m.event["type"] in TERMINAL]
    if len(ends) != 1:
        yield f"{len(ends)} terminal events"
    elif history.messages[-1].event["type"] not in TERMINAL:
        yield f"something follows the terminal event {ends[0]}"
    if history.statuses and history.statuses[-1] != history.expected_status:
        yield f"status {history.statuses[-1]} instead of {history.expected_status}"


def _r2(history: History) -> Iterator[str]:
    seqs = [m.seq for m in history.messages]
    if seqs != list(range(len(seqs))):
        yield f"seqs are {seqs}"


def _r3(history: History) -> Iterator[str]:
    seen = content(m.event for m in fold(history.messages))
    done = content(history.rendered)
    if seen != done:
        yield f"readers see {seen}, done was {done}"


def _r4(history: History) -> Iterator[str]:
    committed: set[int] = set()
    lives: dict[int, set[int]] = {}
    for run in history.runs:
        if run.step in committed:
            yield f"step {run.step} ran again after its checkpoint"
        if run.life in lives.setdefault(run.step, set()) and run.decision is None:
            yield f"step {run.step} ran twice in one life of the agent"
        lives[run.step].add(run.life)
        if run.committed:
            committed.add(run.step)


def _r5(history: History) -> Iterator[str]:
    if history.acknowledged and history.inputs != 1:
        yield f"the input was applied {history.inputs} times"
    if history.doubled_runs:
        yield "two runs on one thread at once"


def _r6(history: History) -> Iterator[str]:
    delivered = [run.decision for run in history.runs if run.committed and run.decision is not None]
    if delivered != list(history.decisions):
        yield f"decisions {history.decisions} were acknowledged, {delivered} reached the graph"


def _r7(history: History) -> Iterator[str]:
    tokens = [m.token for m in history.messages]
    if tokens != sorted(tokens):
        yield f"an older driver wrote after a newer one: {tokens}"


def _r8(history: History) -> Iterator[str]:
    if "unknown" in history.statuses:
        yield "an acknowledged turn was unknown"
    ended = [s for s in history.statuses if s in {"done", "failed"}]
    if ended and history.statuses[-len(ended) :] != tuple(ended):
        yield f"the status moved on after the end: {history.statuses}"

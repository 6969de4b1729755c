"""What the fake agent's graphs do: a turn's input names its script, which is plain data.

A script is a list of steps, a step a list of tasks that run side by side. A task does what its
fields say, in this order: it thinks aloud, speaks, works, asks, and returns its message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tests.simulation.blows import Victim


@dataclass(frozen=True, slots=True)
class Task:
    """One node of a step.

    Attributes:
        says: the text of the model's message, told ahead in two parts.
        calls: the tool calls of that message.
        answers: the call whose tool message it returns.
        asks: interrupts, one after the other in the same node.
        mutters: text that is told ahead and never kept (a router's thoughts, a removed message).
        silent: its message replaces or removes an earlier one: nothing is rendered.
        nested: steps of a nested graph, each with a checkpoint of its own.
        fails: the node's own error.
        kills: who dies whenever the task is at work.
        takes_s: how long it works.
        gate: what it waits for before it begins, where a test stops it (see `FakeAgent.gates`).

    """

    says: str = ""
    calls: tuple[str, ...] = ()
    answers: str | None = None
    asks: tuple[str, ...] = ()
    mutters: str = ""
    silent: bool = False
    nested: int = 0
    fails: str | None = None
    kills: Victim | None = None
    takes_s: float = 0.001
    gate: str = ""


Step: TypeAlias = tuple[Task, ...]
Script: TypeAlias = tuple[Step, ...]


def script_of(text: str) -> Script:
    """Return the script that an input names; any other input is answered in one step."""
    return SCRIPTS.get(text) or ((Task(says=f"you said {text}."),),)


def _tools(*calls: str, takes_s: float = 0.001) -> Script:
    steps: list[Step] = []
    for call in calls:
        steps.append((Task(says=f"now {call}. ", calls=(call,)),))
        steps.append((Task(answers=call, takes_s=takes_s),))
    return (*steps, (Task(says="all done."),))


_BOTH: Final = (Task(says="both. ", calls=("a", "b")),)
_END: Final = (Task(says="that was it."),)

SCRIPTS: Final[dict[str, Script]] = {
    "one tool": _tools("c0"),
    "two tools": _tools("c0", "c1"),
    "slow tools": _tools("c0", "c1", "c2", takes_s=2.0),
    "parallel": (_BOTH, (Task(answers="a"), Task(answers="b", takes_s=0.02)), _END),
    "parallel voices": ((Task(says="one side. "), Task(says="other side. ", takes_s=0.01)), _END),
    "approval": (
        (Task(says="may I? ", calls=("c0",)),),
        (Task(answers="c0", asks=("delete?",)),),
        _END,
    ),
    "words, then a question": ((Task(says="let me ask. ", asks=("which?",)),), _END),
    "two questions at once": (
        _BOTH,
        (Task(answers="a", asks=("a?",)), Task(answers="b", asks=("b?",), takes_s=0.01)),
        _END,
    ),
    "one asks, one works": (_BOTH, (Task(answers="a", asks=("a?",)), Task(answers="b")), _END),
    "two questions of one node": (
        (Task(says="two things. ", calls=("c0",)),),
        (Task(answers="c0", asks=("first?", "second?")),),
        _END,
    ),
    "more questions beside another": (
        _BOTH,
        (Task(answers="a", asks=("a1?", "a2?")), Task(answers="b", asks=("b1?",))),
        _END,
    ),
    "the same tool twice": (
        (Task(says="once. ", calls=("c0",)),),
        (Task(answers="c0", asks=("go?",)),),
        (Task(says="twice. ", calls=("c1",)),),
        (Task(answers="c1", asks=("go?",)),),
        _END,
    ),
    "nested": ((Task(says="inside and out. ", nested=3),), (Task(answers="n", nested=2),), _END),
    "private words": (
        (Task(says="hello. ", mutters="shall I? "),),
        (Task(mutters="secret"),),
        (Task(says="redone. ", silent=True),),
        _END,
    ),
    "graph error": ((Task(says="trying. ", calls=("c0",)),), (Task(fails="no such file"),)),
    "half fails": (_BOTH, (Task(answers="a"), Task(fails="b broke", takes_s=0.01)), _END),
    "kills its agent": (
        (Task(says="look out. ", calls=("c0",)),),
        (Task(answers="c0", kills=Victim.AGENT),),
        _END,
    ),
}


def events_of(task: Task, item_id: str) -> Iterator[dict[str, Any]]:
    """Yield what the committed task shows; the text's parts come first."""
    if task.silent:
        return
    if task.says:
        yield from deltas(task.says, item_id)
        yield {"type": "response.output_text.done", "item_id": item_id, "text": task.says}
    for call in task.calls:
        item = {"type": "function_call", "id": call, "call_id": call, "name": "tool"}
        yield {"type": "response.output_item.added", "item": item}
        done = "response.function_call_arguments.done"
        yield {"type": done, "call_id": call, "arguments": "{}"}
    if task.answers is not None:
        output = f"{task.answers} done"
        item = {"type": "function_call_output", "call_id": task.answers, "output": output}
        yield {"type": "response.output_item.added", "item": item}


def told_ahead(task: Task, item_id: str) -> Iterator[dict[str, Any]]:
    """Yield what is told before anything is kept."""
    if task.mutters:
        yield from deltas(task.mutters, f"{item_id}x")
    if task.says and not task.nested and not task.silent:
        yield from deltas(task.says, item_id)


def deltas(text: str, item_id: str) -> Iterator[dict[str, Any]]:
    """Yield a text in two parts."""
    half = len(text) // 2
    for part in (text[:half], text[half:]):
        yield {"type": "response.output_text.delta", "item_id": item_id, "delta": part}

"""What we know of each thread: whose its checkpoints are, which epoch rules, who runs on it."""

from __future__ import annotations

import ast
import json
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import StateSnapshot

from vystak_turns_agent.builder import Graph
from vystak_turns_agent.checkpointer import SessionsSaver
from vystak_turns_agent.render import History, Step, known_ids, messages_of, results_of
from vystak_turns_agent.work import Run

CALLER_FIELDS_KEY: Final = "vystak_caller_fields"
_NOT_THE_GRAPHS_OWN: Final = ("CancelledError(", "GraphDrained(", "SaverError(")
_UNANSWERED: Final = "Not done: the turn that asked for this ended before the tool answered."


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a thread stands, by its newest root checkpoint.

    `interrupts` are the pending ones, id to value; `finished_results` what finished tasks of the
    uncommitted step returned; `error` the words of the graph's own error.
    """

    checkpoint_id: str | None
    turn_id: str | None
    epoch: int | None
    has_tasks: bool
    interrupts: dict[str, Any]
    error: str | None
    messages: tuple[BaseMessage, ...]
    finished_results: tuple[BaseMessage, ...]
    caller_fields: dict[str, Any]

    @property
    def is_finished(self) -> bool:
        """Nothing is left to do.

        An empty `next` does not say so: it is empty as well when only the commit is missing.
        """
        return self.checkpoint_id is not None and not self.has_tasks


@dataclass(slots=True)
class ThreadRecord:
    """What must be compared before anything runs. `run` is the only one that may run."""

    highest_epoch: int
    turns: dict[str, None]  # a set that keeps its order
    run: Run | None = None

    def note_turn(self, turn_id: str) -> None:
        """Remember that the turn's stamp is on the thread."""
        self.turns[turn_id] = None


@dataclass(slots=True)
class Threads:
    """Reads threads. Stamps are read once and then kept: the lock makes us the only writer."""

    graph: Graph
    saver: SessionsSaver
    limit: int
    _records: OrderedDict[str, ThreadRecord] = field(default_factory=OrderedDict)

    async def record(self, thread_id: str) -> ThreadRecord:
        """Return the one record of a thread, reading its stamps the first time."""
        if thread_id not in self._records:
            stamps = await self.saver.stamps(thread_id)
            highest = max((stamp.epoch for stamp in stamps), default=0)
            loaded = ThreadRecord(highest, dict.fromkeys(stamp.turn_id for stamp in stamps))
            self._records.setdefault(thread_id, loaded)  # somebody may have been faster
            self._forget_oldest(thread_id)
        self._records.move_to_end(thread_id)
        return self._records[thread_id]

    async def standing(self, thread_id: str) -> Standing:
        """Read where a thread stands; raises SaverError."""
        return standing_of(await self.graph.aget_state(config_of(thread_id)))

    async def history(self, thread_id: str, turn_id: str) -> History:
        """Read all of a turn that is the thread's latest; raises SaverError."""
        config = config_of(thread_id)
        found = [
            snapshot
            async for snapshot in self.graph.aget_state_history(config, filter={"turn_id": turn_id})
        ]
        if not found or _source(found[-1]) != "input":
            found += await self._begun_before_stamps(thread_id, found[-1] if found else None)
        if not found:
            standing = await self.standing(thread_id)
            return History(known_ids(standing.messages), (), standing.finished_results)
        known: frozenset[str] = frozenset()
        oldest = found[-1]
        if oldest.parent_config is not None and _source(oldest) != "input":
            before = await self.graph.aget_state(oldest.parent_config)
            known = known_ids(messages_of(before.values))
        steps = tuple(_step_of(snapshot) for snapshot in reversed(found))
        return History(known, steps, standing_of(found[0]).finished_results)

    async def _begun_before_stamps(
        self, thread_id: str, before: StateSnapshot | None
    ) -> list[StateSnapshot]:
        """Read what an agent without stamps did of the thread's latest turn, newest first."""
        found: list[StateSnapshot] = []
        older = None if before is None else before.config
        async for snapshot in self.graph.aget_state_history(config_of(thread_id), before=older):
            if "turn_id" in (snapshot.metadata or {}):
                break
            found.append(snapshot)
            if _source(snapshot) == "input":
                break
        return found

    async def has_checkpoint(self, thread_id: str, checkpoint_id: str) -> bool:
        """Tell whether the thread has this root checkpoint."""
        config = config_of(thread_id)
        config["configurable"]["checkpoint_id"] = checkpoint_id
        return await self.saver.aget_tuple(config) is not None

    def _forget_oldest(self, but: str) -> None:
        for thread_id in list(self._records):
            if len(self._records) <= self.limit:
                return
            if thread_id != but and self._records[thread_id].run is None:
                del self._records[thread_id]


def config_of(thread_id: str) -> RunnableConfig:
    """Name a thread's root graph to LangGraph."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}


def standing_of(snapshot: StateSnapshot) -> Standing:
    """Read a snapshot of the state."""
    metadata: Mapping[str, Any] = snapshot.metadata or {}
    turn_id, epoch = metadata.get("turn_id"), metadata.get("epoch")
    done = [task for task in snapshot.tasks if task.result is not None and not task.interrupts]
    return Standing(
        checkpoint_id=snapshot.config["configurable"].get("checkpoint_id"),
        turn_id=turn_id if isinstance(turn_id, str) else None,
        epoch=epoch if isinstance(epoch, int) else None,
        has_tasks=bool(snapshot.tasks),
        interrupts={
            interrupt.id: interrupt.value
            for task in snapshot.tasks
            for interrupt in task.interrupts
        },
        error=_own_error(snapshot),
        messages=messages_of(snapshot.values),
        finished_results=tuple(message for task in done for message in results_of(task.result)),
        caller_fields=_caller_fields(metadata.get(CALLER_FIELDS_KEY)),
    )


def closers(messages: tuple[BaseMessage, ...]) -> list[ToolMessage]:
    """Answer the tool calls that an ended turn left open, since models refuse them otherwise.

    They go in front of the new message in the same input, so they follow the calls directly.
    """
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            open_calls = [call for call in message.tool_calls if call["id"] not in answered]
            return [_closer(str(call["id"]), call["name"]) for call in open_calls]
    return []


def words_of_error(text: str) -> str:
    """Turn a stored `ValueError('no such file')` into words: `ValueError: no such file`."""
    match = re.fullmatch(r"(\w+)\((.*?),?\)", text, re.DOTALL)
    if match is None:
        return text
    try:
        inside = ast.literal_eval(match[2])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return f"{match[1]}: {inside}"


def _closer(call_id: str, name: str) -> ToolMessage:
    return ToolMessage(
        _UNANSWERED, tool_call_id=call_id, name=name, status="error", id=f"closed-{call_id}"
    )


def _own_error(snapshot: StateSnapshot) -> str | None:
    """Find the graph's own error: LangGraph stores our cancellations and drains as well.

    A stored error stays when its task ran again and succeeded, so a result wins.
    """
    for task in snapshot.tasks:
        if task.error is None or task.result is not None or task.interrupts:
            continue
        text = str(task.error)  # the saver keeps an error as its repr
        if not text.startswith(_NOT_THE_GRAPHS_OWN):
            return words_of_error(text)
    return None


def _caller_fields(text: Any) -> dict[str, Any]:
    fields = json.loads(text) if isinstance(text, str) else {}
    return fields if isinstance(fields, dict) else {}


def _step_of(snapshot: StateSnapshot) -> Step:
    checkpoint_id = str(snapshot.config["configurable"]["checkpoint_id"])
    return Step(checkpoint_id, _source(snapshot), messages_of(snapshot.values))


def _source(snapshot: StateSnapshot) -> str:
    return str((snapshot.metadata or {}).get("source", ""))

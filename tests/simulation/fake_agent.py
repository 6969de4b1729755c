"""The agent in memory: checkpoints outlive it, runs do not. Passes the real agent's suite.

A turn's input names its script: `tools:N` calls N tools one after the other and then answers;
`approval` asks before its tool runs; `ask` speaks before it asks, so its words come twice unless
they are rolled back. Step by step a run commits a checkpoint, then shows it.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.crashes import Crashes, Victim
from vystak_turns.core.facts import Refusal, StreamEnd
from vystak_turns.core.findings import AgentView
from vystak_turns.core.turn import Json, Question
from vystak_turns.ports import (
    AgentEvent,
    AgentSilentError,
    CallRefusedError,
    DispatchCall,
    Ended,
    Marker,
    ResumeCall,
    RolledBack,
    RunCall,
    StreamItem,
)

_LATENCY_S = 0.001


@dataclass(frozen=True, slots=True)
class Say:
    """A model's step: text, perhaps a tool call, perhaps a question asked in the middle."""

    text: str
    call: str | None = None
    question: str | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """A tool's step; with a question, it asks before it runs."""

    call: str
    question: str | None = None


Step = Say | Use


def script_of(text: str) -> tuple[Step, ...]:
    """Return the steps that an input stands for."""
    kind, _, count = text.partition(":")
    match kind:
        case "tools":
            calls = [f"c{n}" for n in range(int(count))]
            steps = [step for call in calls for step in (Say(f"now {call}. ", call), Use(call))]
            return (*steps, Say("all done."))
        case "approval":
            return (Say("may I? ", "c0"), Use("c0", "delete?"), Say("thanks."))
        case "ask":
            return (Say("let me ask. ", question="which?"), Say("all right."))
        case _:
            return (Say(f"you said {text}."),)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A committed step with its stamp."""

    id: str
    source: str
    turn_id: str
    epoch: int
    shown: tuple[dict[str, Any], ...] = ()
    text: str = ""


@dataclass(slots=True)
class Thread:
    """What the agent's checkpointer holds of one thread."""

    checkpoints: list[Checkpoint] = field(default_factory=list)
    script: tuple[Step, ...] = ()
    pending: tuple[Question, ...] = ()

    def of_turn(self, turn_id: str) -> list[Checkpoint]:
        """The turn's `loop` checkpoints, oldest first; the first one only took the input in."""
        return [c for c in self.checkpoints if c.turn_id == turn_id and c.source == "loop"]

    def turn_text(self, turn_id: str) -> str:
        """All text of the turn."""
        return "".join(c.text for c in self.of_turn(turn_id))


@dataclass(slots=True)
class Execution:
    """One start of one step; `decision` is what the graph was told, if it asked."""

    turn_id: str
    step: int
    life: int
    committed: bool = False
    decision: Json = None


@dataclass(slots=True)
class Run:
    """A run in flight, and whoever reads it."""

    turn_id: str
    items: asyncio.Queue[StreamItem] | None
    draining: bool = False


@dataclass(slots=True)
class FakeAgent:
    """`threads` and `executions` are durable; `runs` and `epochs` die with the process."""

    crashes: Crashes
    threads: dict[str, Thread] = field(default_factory=dict)
    executions: list[Execution] = field(default_factory=list)
    doubled_runs: int = 0
    runs: dict[str, Run] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    _context: contextvars.Context = field(default_factory=contextvars.copy_context)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _read_runs: list[Run] = field(default_factory=list)
    _made: int = 0

    def start(self) -> None:
        """Begin a new life on the durable state."""
        self._context = contextvars.copy_context()
        self._context.run(self.crashes.begin_life, Victim.AGENT)

    def die(self) -> None:
        """Lose what is not durable; readers' connections break."""
        for run in self._read_runs:
            if run.items is not None:
                run.items.put_nowait(Ended(StreamEnd.LOST))
        self.runs = {}
        self.epochs = {}

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.crashes.alive[Victim.AGENT]

    async def healthy(self) -> bool:
        """Whether it answers."""
        await asyncio.sleep(_LATENCY_S)
        return self.alive

    async def view(self, thread_id: str, turn_id: str) -> AgentView:
        """Tell where the thread stands."""
        self.crashes.before("agent.view")
        await asyncio.sleep(_LATENCY_S)
        if not self.alive:
            message = "connection refused"
            raise AgentSilentError(message)
        thread = self.threads.get(thread_id, Thread())
        stamped = any(c.turn_id == turn_id for c in thread.checkpoints)
        done = len(thread.of_turn(turn_id)) == len(thread.script) + 1
        return AgentView(
            checkpoint_id=thread.checkpoints[-1].id if thread.checkpoints else None,
            stamped=stamped,
            active=thread_id in self.runs,
            finished=stamped and done,
            error=None,
            questions=thread.pending,
            epoch=self._epoch(thread_id),
        )

    async def drain(self, thread_id: str, _turn_id: str, epoch: int) -> None:
        """Have the run stop after the step in flight."""
        self.crashes.before("agent.drain")
        if not self.alive or (self._epoch(thread_id) or 0) > epoch:
            return
        self.epochs[thread_id] = epoch
        run = self.runs.get(thread_id)
        if run is not None:
            run.draining = True
        self.crashes.after()

    @asynccontextmanager
    async def run(self, call: RunCall) -> AsyncIterator[AsyncIterator[StreamItem]]:
        """Dispatch or resume."""
        self.crashes.before("agent.call")
        await asyncio.sleep(_LATENCY_S)
        if not self.alive:
            raise CallRefusedError(Refusal.UNREACHABLE, "connection refused")
        self._check(call)
        run = Run(call.turn_id, asyncio.Queue())
        self.epochs[call.thread_id] = call.epoch
        self.runs[call.thread_id] = run
        task = self._context.run(asyncio.create_task, self._live(call, run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._read_runs.append(run)
        try:
            self.crashes.after()
            yield _read(run.items)
        finally:
            self._read_runs.remove(run)
            run.items = None

    def _check(self, call: RunCall) -> None:
        thread = self.threads.get(call.thread_id, Thread())
        if call.epoch < (self._epoch(call.thread_id) or 0):
            raise CallRefusedError(Refusal.STALE_EPOCH, "a newer driver was here")
        if call.thread_id in self.runs:
            raise CallRefusedError(Refusal.BUSY, "a run is active")
        if isinstance(call, DispatchCall):
            if any(c.turn_id == call.turn_id for c in thread.checkpoints):
                raise CallRefusedError(Refusal.NOT_PENDING, "the input was applied")
            return
        if not thread.checkpoints:
            raise CallRefusedError(Refusal.UNKNOWN_THREAD, "no such thread")
        ids = {c.id for c in thread.checkpoints}
        if call.after_checkpoint_id is not None and call.after_checkpoint_id not in ids:
            raise CallRefusedError(Refusal.UNKNOWN_CHECKPOINT, "no such checkpoint")
        answered = {d.interrupt_id for d in call.decisions}
        if answered and answered != {q.interrupt_id for q in thread.pending}:
            raise CallRefusedError(Refusal.NOT_PENDING, "not what is asked")

    def _epoch(self, thread_id: str) -> int | None:
        stamps = [c.epoch for c in self.threads.get(thread_id, Thread()).checkpoints]
        known = [*stamps, *([self.epochs[thread_id]] if thread_id in self.epochs else [])]
        return max(known) if known else None

    async def _live(self, call: RunCall, run: Run) -> None:
        await self._emit(run, _event("response.created", response={"id": call.thread_id}))
        thread = self.threads.setdefault(call.thread_id, Thread())
        if isinstance(call, DispatchCall):
            await self._take_input(thread, call, run)
        elif call.catch_up:
            await self._catch_up(thread, call, run)
        parked = bool(thread.pending)
        answers = _answers(call)
        end = None
        if not parked or answers:
            end = await self._go_on(thread, call, run, answers)
        if self.runs.get(call.thread_id) is run:
            del self.runs[call.thread_id]
        if end is not None:
            await self._emit(run, end)
        elif run.items is not None:
            run.items.put_nowait(Ended(StreamEnd.CLEAN))

    async def _take_input(self, thread: Thread, call: DispatchCall, run: Run) -> None:
        await self._commit(thread, call, "input")
        checkpoint = await self._commit(thread, call, "loop")
        await self._emit(run, Marker(checkpoint.id))

    async def _catch_up(self, thread: Thread, call: ResumeCall, run: Run) -> None:
        ids = [c.id for c in thread.checkpoints]
        after = call.after_checkpoint_id
        start = 0 if after is None else ids.index(after) + 1
        if call.turn_id == thread.checkpoints[-1].turn_id and not thread.of_turn(call.turn_id):
            checkpoint = await self._commit(thread, call, "loop")
            await self._emit(run, Marker(checkpoint.id))
            return
        for checkpoint in thread.checkpoints[start:]:
            if checkpoint.turn_id != call.turn_id or checkpoint.source != "loop":
                continue
            for event in checkpoint.shown:
                await self._emit(run, _of(event))
            await self._emit(run, Marker(checkpoint.id))

    async def _go_on(
        self, thread: Thread, call: RunCall, run: Run, answers: dict[str, Json]
    ) -> StreamItem | None:
        while len(thread.of_turn(call.turn_id)) <= len(thread.script):
            if run.draining:
                return Ended(StreamEnd.DRAINED)
            number = len(thread.of_turn(call.turn_id)) - 1
            if number == len(thread.script):
                break
            if not await self._step(thread, call, run, number, answers):
                return None
        text = thread.turn_text(call.turn_id)
        output = [{"type": "message", "content": [{"type": "output_text", "text": text}]}]
        return _event("response.completed", response={"id": call.thread_id, "output": output})

    async def _step(
        self, thread: Thread, call: RunCall, run: Run, number: int, answers: dict[str, Json]
    ) -> bool:
        """Run one step; tell whether it was committed (it parks otherwise)."""
        step = thread.script[number]
        interrupt_id = f"{call.turn_id}-{number}"
        execution = Execution(call.turn_id, number, self.crashes.lives[Victim.AGENT])
        execution.decision = answers.get(interrupt_id)
        self.executions.append(execution)
        self.doubled_runs += self.runs.get(call.thread_id) is not run
        self._made += 1
        item_id = f"msg_{self._made}"
        events = tuple(_events_of(step, item_id))
        ahead = [e for e in events if e["type"] == "response.output_text.delta"]
        for event in ahead:
            await self._emit(run, _of(event))
        if step.question is not None and interrupt_id not in answers:
            await self._park(thread, run, Question(interrupt_id, step.question), ahead)
            return False
        text = step.text if isinstance(step, Say) else ""
        checkpoint = await self._commit(thread, call, "loop", events, text, execution)
        for event in events[len(ahead) :]:
            await self._emit(run, _of(event))
        await self._emit(run, Marker(checkpoint.id))
        return True

    async def _park(
        self, thread: Thread, run: Run, question: Question, ahead: list[dict[str, Any]]
    ) -> None:
        self.crashes.before("agent.park")
        thread.pending = (question,)
        self.crashes.after()
        if ahead:
            await self._emit(run, RolledBack(thread.checkpoints[-1].id))

    async def _commit(
        self,
        thread: Thread,
        call: RunCall,
        source: str,
        shown: tuple[dict[str, Any], ...] = (),
        text: str = "",
        execution: Execution | None = None,
    ) -> Checkpoint:
        await asyncio.sleep(_LATENCY_S)
        self.crashes.before("agent.commit")
        self._made += 1
        checkpoint = Checkpoint(f"ck{self._made:04}", source, call.turn_id, call.epoch, shown, text)
        thread.checkpoints.append(checkpoint)
        if isinstance(call, DispatchCall) and source == "input":
            thread.script, thread.pending = script_of(call.request["input"]), ()
        if execution is not None:
            thread.pending = ()
            execution.committed = True
        self.crashes.after()
        return checkpoint

    async def _emit(self, run: Run, item: StreamItem) -> None:
        self.crashes.before("agent.emit")
        if run.items is not None:
            run.items.put_nowait(item)
        self.crashes.after()
        await asyncio.sleep(_LATENCY_S)


async def _read(items: asyncio.Queue[StreamItem] | None) -> AsyncIterator[StreamItem]:
    assert items is not None
    while True:
        item = await items.get()
        yield item
        if isinstance(item, Ended):
            return
        if isinstance(item, AgentEvent) and item.type == "response.completed":
            return


def _answers(call: RunCall) -> dict[str, Json]:
    if isinstance(call, DispatchCall):
        return {}
    return {d.interrupt_id: d.value for d in call.decisions}


def _events_of(step: Step, item_id: str) -> Iterator[dict[str, Any]]:
    match step:
        case Say(text, call, _):
            half = len(text) // 2
            for part in (text[:half], text[half:]):
                yield {"type": "response.output_text.delta", "item_id": item_id, "delta": part}
            yield {"type": "response.output_text.done", "item_id": item_id, "text": text}
            if call is not None:
                item = {"type": "function_call", "id": call, "call_id": call, "name": "tool"}
                yield {"type": "response.output_item.added", "item": item}
                done = "response.function_call_arguments.done"
                yield {"type": done, "call_id": call, "arguments": "{}"}
        case Use(call, _):
            output = f"{call} done"
            item = {"type": "function_call_output", "call_id": call, "output": output}
            yield {"type": "response.output_item.added", "item": item}


def _event(event_type: str, **fields: object) -> AgentEvent:
    return _of({"type": event_type, **fields})


def _of(event: dict[str, Any]) -> AgentEvent:
    return AgentEvent(event["type"], json.dumps(event).encode())

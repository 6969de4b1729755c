"""One run of the fake agent: catch-up, then step by step. Kept is durable, told may be lost."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.fake_threads import Checkpoint, Execution, Part, Thread
from tests.simulation.scripts import Task, events_of, told_ahead
from vystak_turns.core.facts import StreamEnd
from vystak_turns.core.turn import Question
from vystak_turns.ports import (
    AgentEvent,
    DispatchCall,
    Ended,
    Marker,
    ResumeCall,
    RolledBack,
    RunCall,
    StreamItem,
)

if TYPE_CHECKING:
    from tests.simulation.fake_agent import FakeAgent

LATENCY_S = 0.001


@dataclass(slots=True, eq=False)
class Reader:
    """The connection of whoever called; what comes after it broke is never told."""

    items: asyncio.Queue[StreamItem] = field(default_factory=asyncio.Queue)
    open: bool = True
    mute: bool = False

    def put(self, item: StreamItem) -> None:
        """Bring an item to the reader, if it still reads."""
        if self.open and not self.mute:
            self.items.put_nowait(item)

    def cut(self) -> None:
        """Break the connection."""
        if self.open:
            self.mute = True
            self.items.put_nowait(Ended(StreamEnd.LOST))


class _NodeError(Exception):
    """A node failed."""


@dataclass(slots=True, eq=False)
class GraphRun:
    """The run of one call on one thread; `told` is what readers have of the step in flight."""

    agent: FakeAgent
    thread: Thread
    call: RunCall
    reader: Reader
    life: int
    draining: bool = False
    released: asyncio.Event = field(default_factory=asyncio.Event)
    marker: str | None = None
    told: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    async def live(self) -> None:
        """Run to the next end, free the thread, then tell the end."""
        end = await self._to_its_end()
        self.agent.release(self)
        if end is not None:
            await self._tell(end)

    async def _to_its_end(self) -> StreamItem | None:
        created = {"type": "response.created", "response": {"id": self.call.thread_id}}
        await self._tell(_of(created))
        if isinstance(self.call, DispatchCall):
            await self._take_input(self.call)
            return await self._go_on({})
        return await self._resume(self.call)

    async def _take_input(self, call: DispatchCall) -> None:
        await self._write("agent.commit")
        self.thread.checkpoints.append(self._checkpoint("input"))
        self.thread.script = self.agent.script_of(call.request["input"])
        self.thread.parts = {}
        await self.agent.blows.after()

    async def _resume(self, call: ResumeCall) -> StreamItem | None:
        thread = self.thread
        if call.catch_up:
            end = await self._catch_up(call.after_checkpoint_id)
            if end is not None or not self.reader.open or self.reader.mute:
                return end  # nobody takes what a catch-up offers: nothing is run for nobody
        if thread.error is not None:
            return self._failed(thread.error)
        if thread.finished:
            return self._completed()
        if thread.pending and not call.decisions:
            return Ended(StreamEnd.CLEAN)
        steps = thread.steps_of(call.turn_id)
        self.marker = steps[-1].id if steps else None
        self.told = {i: list(events) for i, events in self._assumed_told().items()}
        return await self._go_on({d.interrupt_id: d.value for d in call.decisions})

    def _assumed_told(self) -> dict[int, tuple[dict[str, Any], ...]]:
        return self.thread.finished_parts()

    async def _catch_up(self, after: str | None) -> StreamItem | None:
        """Render what is kept after a checkpoint; an end when the run was drained meanwhile."""
        own = [c for c in self.thread.checkpoints if c.turn_id == self.call.turn_id]
        ids = [c.id for c in own]
        start = ids.index(after) + 1 if after in ids else 0
        items: list[StreamItem] = []
        for checkpoint in own[start:]:
            items += map(_of, checkpoint.shown)
            if checkpoint.source == "loop":
                items.append(Marker(checkpoint.id))
        for events in self.thread.finished_parts().values():
            items += map(_of, events)
        for item in items:
            if self.draining:
                return Ended(StreamEnd.DRAINED)
            await self._tell(item)
        return None

    async def _go_on(self, answers: dict[str, Any]) -> StreamItem:
        """Take step after step until the script, the agent or a question ends it."""
        while not self.thread.finished:
            if self.draining:
                return Ended(StreamEnd.DRAINED)
            number = len(self.thread.steps_of(self.call.turn_id)) - 1
            end = await self._step(number, answers)
            if end is not None:
                return end
            answers = {}
        return self._completed()

    async def _step(self, number: int, answers: dict[str, Any]) -> StreamItem | None:
        tasks = self.thread.script[number] if number >= 0 else ()
        try:
            await self._work(number, tasks, answers)
        except _NodeError as error:
            return self._failed(str(error))
        if self.thread.pending:
            await self._tell_stopped()
            return Ended(StreamEnd.CLEAN)
        await self._commit_step(tasks)
        return None

    async def _work(self, number: int, tasks: tuple[Task, ...], answers: dict[str, Any]) -> None:
        """Run the tasks that have not finished side by side; the first error ends all."""
        nodes = [
            asyncio.create_task(self._task(number, index, task, answers))
            for index, task in enumerate(tasks)
            if self._part(index).events is None
        ]
        if not nodes:
            return
        done, others = await asyncio.wait(nodes, return_when=asyncio.FIRST_EXCEPTION)
        for other in others:
            other.cancel()
        for node in done:
            node.result()

    def _part(self, index: int) -> Part:
        return self.thread.parts.setdefault(index, Part())

    async def _task(self, number: int, index: int, task: Task, answers: dict[str, Any]) -> None:
        part = self._part(index)
        item_id = self.agent.new_item_id()
        execution = self._execution(number, index, None)
        if task.gate and self.agent.pass_gate is not None:
            await self.agent.pass_gate(task.gate)
        for event in told_ahead(task, item_id):
            self.told.setdefault(index, []).append(event)
            await self._tell(_of(event))
        await asyncio.sleep(task.takes_s)
        if task.kills is not None:
            self.agent.on_poison(task.kills)
            self.agent.blows.check_alive()
        await self._nested(number, index, task, part)
        await self._return(index, task, part, execution, answers, item_id)

    async def _nested(self, number: int, index: int, task: Task, part: Part) -> None:
        while part.nested < task.nested:
            execution = self._execution(number, index, part.nested)
            await asyncio.sleep(LATENCY_S)
            await self._write("agent.nested")
            part.nested += 1
            execution.outcome = "done"
            await self.agent.blows.after()

    async def _return(
        self,
        index: int,
        task: Task,
        part: Part,
        execution: Execution,
        answers: dict[str, Any],
        item_id: str,
    ) -> None:
        """Keep what the node returns: a question, an error, or its result."""
        had = dict(part.answers)
        if part.question is not None and part.question.interrupt_id in answers:
            had[part.question.interrupt_id] = answers[part.question.interrupt_id]
        await self._write("agent.write")
        if len(had) < len(task.asks):
            interrupt_id = f"{self.call.turn_id}-{execution.step}-{index}-{len(had)}"
            part.question = Question(interrupt_id, task.asks[len(had)])
            part.answers, execution.outcome = had, "asked"
        elif task.fails is not None:
            part.error, execution.outcome = task.fails, "failed"
        else:
            part.events, part.text = tuple(events_of(task, item_id)), task.says
            execution.answers, execution.outcome = had, "done"
            if task.silent:
                part.text = ""
        await self.agent.blows.after()
        if part.error is not None:
            raise _NodeError(part.error)
        if part.events is not None and len(self.thread.script[execution.step]) > 1:
            await self._tell_finished(index)

    async def _tell_finished(self, index: int) -> None:
        """Tell the rest of a finished task's result before its step is committed."""
        events = self._part(index).events or ()
        told = self.told.setdefault(index, [])
        if told == list(events[: len(told)]):
            rest = events[len(told) :]
            self.told[index] = list(events)
            for event in rest:
                await self._tell(_of(event))

    async def _tell_stopped(self) -> None:
        """The step parks: only finished results may stay with readers."""
        finished = self.thread.finished_parts()
        await self._roll_back_unless_kept(finished)
        for index in finished:
            await self._tell_finished(index)

    async def _commit_step(self, tasks: tuple[Task, ...]) -> None:
        parts = [self._part(index) for index in range(len(tasks))]
        shown = tuple(event for part in parts for event in part.events or ())
        await self._write("agent.commit")
        text = "".join(part.text for part in parts)
        checkpoint = self._checkpoint("loop", shown, text)
        kept = self.thread.finished_parts()
        self.thread.checkpoints.append(checkpoint)
        self.thread.parts = {}
        await self.agent.blows.after()
        await self._roll_back_unless_kept(kept)
        for index, events in kept.items():
            for event in events[len(self.told.get(index, [])) :]:
                await self._tell(_of(event))
        self.told = {}
        self.marker = checkpoint.id
        await self._tell(Marker(checkpoint.id))

    async def _roll_back_unless_kept(self, kept: dict[int, tuple[dict[str, Any], ...]]) -> None:
        for index, told in self.told.items():
            if told != list(kept.get(index, ())[: len(told)]):
                self.told = {}
                await self._tell(RolledBack(self.marker))
                return

    def _checkpoint(
        self, source: str, shown: tuple[dict[str, Any], ...] = (), text: str = ""
    ) -> Checkpoint:
        call = self.call
        return Checkpoint(
            self.agent.new_checkpoint_id(), source, call.turn_id, call.epoch, shown, text
        )

    def _execution(self, number: int, index: int, nested: int | None) -> Execution:
        call, now_s = self.call, asyncio.get_running_loop().time()
        execution = Execution(call.turn_id, call.thread_id, number, index, nested, self.life, now_s)
        self.agent.note(self, execution)
        return execution

    async def _write(self, name: str) -> None:
        await asyncio.sleep(LATENCY_S)
        await self.agent.blows.before(name)

    async def _tell(self, item: StreamItem) -> None:
        await self.agent.blows.before("agent.tell")
        self.reader.put(item)
        await self.agent.blows.after()
        await asyncio.sleep(LATENCY_S)

    def _completed(self) -> StreamItem:
        text = self.thread.text_of(self.call.turn_id)
        output = [{"type": "message", "content": [{"type": "output_text", "text": text}]}]
        response = {"id": self.call.thread_id, "output": output}
        return _of({"type": "response.completed", "response": response})

    def _failed(self, words: str) -> StreamItem:
        response = {"id": self.call.thread_id, "status": "failed", "error": {"message": words}}
        return _of({"type": "response.failed", "response": response})


def _of(event: dict[str, Any]) -> AgentEvent:
    return AgentEvent(event["type"], json.dumps(event).encode())

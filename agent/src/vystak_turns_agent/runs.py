"""Runs of graphs: who may start one, what it tells its reader, how it ends.

A run is a task of the agent, not of the connection that asked for it: losing the reader changes
nothing. A thread has at most one run (R13), and of two callers the higher epoch rules (R7).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, cast

import structlog
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.types import Command

from vystak_turns_agent.channel import DONE_LINE, Channel, ReaderLostError
from vystak_turns_agent.checkpointer import SaverError, is_saver_trouble
from vystak_turns_agent.orders import (
    UNAVAILABLE,
    Dispatch,
    PlainResume,
    RefusedError,
    Resume,
    refused,
)
from vystak_turns_agent.render import (
    MESSAGES_KEY,
    Event,
    History,
    Ledger,
    known_ids,
    ledger_of,
    render,
    reply_text,
)
from vystak_turns_agent.settings import AgentSettings
from vystak_turns_agent.stream import STREAM_MODES, Live
from vystak_turns_agent.threads import (
    CALLER_FIELDS_KEY,
    Standing,
    ThreadRecord,
    Threads,
    closers,
    config_of,
    words_of_error,
)
from vystak_turns_agent.work import Outcome, Run, ThreadCount
from vystak_turns_rpc import events as wire
from vystak_turns_rpc.vocabulary import RefusalReason

RESULTS_STORED_S: Final = 10.0
"""Seconds for which a finished task's results are held back until they are on disk."""


@dataclass(frozen=True, slots=True)
class _Ending:
    """The last events of a run. Without an outcome its stream must not look complete."""

    events: list[Event]
    outcome: Outcome | None


@dataclass(slots=True)
class Runs:
    """All runs of this agent. `now` gives seconds since 1970, `new_turn_id` names plain turns."""

    name: str
    threads: Threads
    settings: AgentSettings
    group: asyncio.TaskGroup
    now: Callable[[], float]
    new_turn_id: Callable[[], str]
    draining: bool = False
    _active: set[Run] = field(default_factory=set)
    _none_left: asyncio.Event = field(default_factory=asyncio.Event)

    async def dispatch(self, order: Dispatch) -> Run:
        """Start a turn; raises RefusedError."""
        async with self._reserved(order.thread_id, order.turn_id, order.epoch) as (record, run):
            if order.turn_id in record.turns:
                raise refused(
                    RefusalReason.NOT_PENDING, "this turn's input is already on the thread: resume"
                )
            standing = await self.threads.standing(order.thread_id)
            self._spawn(record, run, self._run_new(record, run, order, standing))
        return run

    async def resume(self, order: Resume | PlainResume) -> Run:
        """Go on with a turn; raises RefusedError."""
        epoch, turn_id = (order.epoch, order.turn_id) if isinstance(order, Resume) else (None, "")
        async with self._reserved(order.thread_id, turn_id, epoch) as (record, run):
            standing = await self.threads.standing(order.thread_id)
            if standing.checkpoint_id is None:
                raise refused(RefusalReason.UNKNOWN_THREAD, "no such thread: dispatch the turn")
            if isinstance(order, PlainResume):
                order = self._as_resume(order, standing, record)
                run.turn_id = order.turn_id
            else:
                await self._check_resume(order, standing)
            self._spawn(record, run, self._run_on(record, run, order, standing))
        return run

    async def drain(self, thread_id: str, epoch: int) -> bool:
        """Ask the thread's run, if any, to stop after its step; tell whether there is one."""
        record = await self.threads.record(thread_id)
        _check_epoch(record, epoch)
        record.highest_epoch = epoch
        if record.run is not None:
            record.run.drain()
        return record.run is not None

    def drain_all(self) -> None:
        """Take no more runs and ask all that there are to stop after their steps (R12)."""
        self.draining = True
        for run in self._active:
            run.drain()

    async def none_left(self) -> None:
        """Wait until no run is active."""
        while self._active:
            self._none_left.clear()
            await self._none_left.wait()

    @contextlib.asynccontextmanager
    async def _reserved(
        self, thread_id: str, turn_id: str, epoch: int | None
    ) -> AsyncIterator[tuple[ThreadRecord, Run]]:
        """Take the thread for a run; given back when the order is refused after all."""
        record = await self.threads.record(thread_id)
        # No await from here on: what is compared and what is taken must be one step.
        epoch = record.highest_epoch if epoch is None else epoch
        if self.draining:
            raise RefusedError(UNAVAILABLE, "draining", "the agent is stopping: ask again later")
        _check_epoch(record, epoch)
        record.highest_epoch = epoch
        if record.run is not None:
            raise refused(
                RefusalReason.BUSY, f"turn {record.run.turn_id} is running on this thread: drain it"
            )
        if len(self._active) >= self.settings.runs_max:
            raise RefusedError(UNAVAILABLE, "full", "too many runs at once: ask again later")
        run = Run(
            thread_id=thread_id,
            turn_id=turn_id,
            epoch=epoch,
            created_at=int(self.now()),
            channel=Channel(self.settings.reader_max_events, self.settings.reader_max_bytes),
            threads=ThreadCount(asyncio.get_running_loop()),
        )
        record.run = run
        self._active.add(run)
        try:
            yield record, run
        except BaseException:
            self._release(record, run)
            raise

    def _release(self, record: ThreadRecord, run: Run) -> None:
        record.run = None
        self._active.discard(run)
        self._none_left.set()

    def _spawn(self, record: ThreadRecord, run: Run, body: Coroutine[Any, Any, _Ending]) -> None:
        self.group.create_task(self._own(record, run, body), name=f"run {run.thread_id}")

    async def _own(
        self, record: ThreadRecord, run: Run, body: Coroutine[Any, Any, _Ending]
    ) -> None:
        ending = _Ending([], None)
        try:
            ending = await body
        except ReaderLostError:
            self._log(run).info("reader lost during catch-up")
        except SaverError as error:
            self._log(run).warning("run ended by the checkpointer", error=str(error))
        except Exception:  # noqa: BLE001 - nothing may leave a run but its ending
            self._log(run).exception("run ended by trouble that is not the graph's")
        finally:
            # Free the thread first: whoever reads the last event may call again at once.
            self._release(record, run)
            self._tell_ending(run, ending)

    def _tell_ending(self, run: Run, ending: _Ending) -> None:
        for event in ending.events:
            run.channel.send(event)
            if wire.is_terminal(event["type"]):
                run.channel.send_frame(DONE_LINE)
        if ending.outcome is None:
            run.channel.detach()
        run.channel.close()
        if not run.outcome.done():
            run.outcome.set_result(ending.outcome or Outcome("incomplete"))

    async def _run_new(
        self, record: ThreadRecord, run: Run, order: Dispatch, standing: Standing
    ) -> _Ending:
        run.channel.send(self._created(run))
        live = Live(Ledger(set(known_ids(standing.messages))), reached=standing.checkpoint_id)
        messages = [*closers(standing.messages), *order.messages]
        return await self._drive(record, run, live, {MESSAGES_KEY: messages}, order.caller_fields)

    async def _run_on(
        self, record: ThreadRecord, run: Run, order: Resume, standing: Standing
    ) -> _Ending:
        run.channel.send(self._created(run))
        history = await self.threads.history(run.thread_id, run.turn_id)
        if order.catch_up and not await self._catch_up(run, history, order.after_checkpoint_id):
            return self._drained()
        if standing.error is not None:
            return self._failed(run, standing.error)
        if standing.is_finished:
            return self._completed(run, reply_text(history))
        if standing.interrupts and not order.decisions:
            return _Ending([], Outcome("incomplete", reply_text(history)))
        boundaries = [step.checkpoint_id for step in history.steps if step.is_boundary]
        live = Live(
            ledger_of(history),
            last_marker=boundaries[-1] if boundaries else None,
            reached=standing.checkpoint_id,
            replies=[reply_text(history)],
        )
        live.assume_told(history.finished)
        graph_input: Command[Any] | None = (
            Command(resume=order.decisions) if order.decisions else None
        )
        return await self._drive(record, run, live, graph_input, standing.caller_fields)

    async def _catch_up(self, run: Run, history: History, after: str | None) -> bool:
        """Tell what is committed; False when the run was drained meanwhile."""
        own = {step.checkpoint_id for step in history.steps}
        for event in render(history, after if after in own else None):
            await run.channel.room(self.settings.catch_up_stall_s)
            if run.control.drain_requested:
                return False
            run.channel.send(event)
        return True

    async def _drive(
        self,
        record: ThreadRecord,
        run: Run,
        live: Live,
        graph_input: Any,
        caller_fields: dict[str, Any],
    ) -> _Ending:
        """Run the graph to its next end and say which one it is."""
        run.mark_context()
        trouble: Exception | None = None
        try:
            async for mode, data in self.threads.graph.astream(
                graph_input,
                _run_config(run, caller_fields),
                stream_mode=list(STREAM_MODES),
                durability="sync",
                control=run.control,
            ):
                events = [*live.feed(mode, data)]
                if events and mode == "tasks":
                    task_id = str(cast("dict[str, Any]", data)["id"])
                    await self.threads.saver.results_stored(
                        run.thread_id, task_id, RESULTS_STORED_S
                    )
                for event in events:
                    run.channel.send(event)
                if live.last_marker is not None:
                    record.note_turn(run.turn_id)
        except Exception as error:  # noqa: BLE001 - any error of a graph is an end of its run
            trouble = error
        await run.threads.none_left()
        return await self._ending(record, run, live, trouble)

    async def _ending(
        self, record: ThreadRecord, run: Run, live: Live, trouble: Exception | None
    ) -> _Ending:
        if isinstance(trouble, GraphDrained):
            return self._drained()
        if trouble is not None and is_saver_trouble(trouble):
            raise SaverError(str(trouble)) from trouble
        standing = await self.threads.standing(run.thread_id)
        if standing.turn_id == run.turn_id:
            record.note_turn(run.turn_id)
        if trouble is not None:
            return self._failed(run, standing.error or words_of_error(repr(trouble)))
        if standing.is_finished:
            return self._completed(run, "".join(live.replies))
        if standing.interrupts:
            events = [*live.stopped(standing.finished_results)]
            return _Ending(events, Outcome("incomplete", "".join(live.replies)))
        raise SaverError("the graph stopped in the middle without saying why")

    async def _check_resume(self, order: Resume, standing: Standing) -> None:
        # A thread without a stamp was left by an agent that gives none; the caller knows its turn.
        if standing.turn_id not in {None, order.turn_id}:
            raise refused(
                RefusalReason.NOT_PENDING,
                f"the thread's last turn is {standing.turn_id}, not {order.turn_id}",
            )
        after = order.after_checkpoint_id
        if after is not None and not await self.threads.has_checkpoint(order.thread_id, after):
            raise refused(
                RefusalReason.UNKNOWN_CHECKPOINT, f"the thread has no checkpoint {after}: ask older"
            )
        if order.decisions is not None and set(order.decisions) != set(standing.interrupts):
            raise refused(
                RefusalReason.NOT_PENDING,
                f"pending are the interrupts {sorted(standing.interrupts)}: decide exactly these",
            )

    def _as_resume(self, order: PlainResume, standing: Standing, record: ThreadRecord) -> Resume:
        """Name the question that a bare value answers: it could reach another one (R6)."""
        decisions = None
        if order.value is not None:
            if not standing.interrupts:
                raise refused(RefusalReason.NOT_PENDING, "the thread waits for no decision")
            decisions = {next(iter(standing.interrupts)): order.value}
        turn_id = standing.turn_id or self.new_turn_id()
        return Resume(
            order.thread_id,
            turn_id,
            record.highest_epoch,
            catch_up=False,
            after_checkpoint_id=None,
            decisions=decisions,
        )

    def _created(self, run: Run) -> Event:
        return {"type": wire.RESPONSE_CREATED, "response": run.response("in_progress", self.name)}

    def _completed(self, run: Run, text: str) -> _Ending:
        part = {"type": "output_text", "text": text}
        output = [{"type": "message", "role": "assistant", "content": [part]}]
        response = run.response("completed", self.name, output=output)
        event = {"type": wire.RESPONSE_COMPLETED, "response": response}
        return _Ending([event], Outcome("completed", text))

    def _failed(self, run: Run, words: str) -> _Ending:
        response = {"id": run.thread_id, "status": "failed", "error": {"message": words}}
        event = {"type": wire.RESPONSE_FAILED, "response": response}
        return _Ending([event], Outcome("failed", error=words))

    def _drained(self) -> _Ending:
        return _Ending([{"type": wire.DRAINED}], Outcome("drained"))

    def _log(self, run: Run) -> Any:
        return structlog.get_logger("vystak_turns_agent").bind(
            thread_id=run.thread_id, turn_id=run.turn_id, epoch=run.epoch
        )


def _run_config(run: Run, caller_fields: dict[str, Any]) -> RunnableConfig:
    """Stamp every checkpoint of the run, and keep the caller's fields for later resumes."""
    config = config_of(run.thread_id)
    config["configurable"] |= caller_fields
    config["metadata"] = {"turn_id": run.turn_id, "epoch": run.epoch}
    if caller_fields:
        config["metadata"][CALLER_FIELDS_KEY] = json.dumps(caller_fields)
    return config


def _check_epoch(record: ThreadRecord, epoch: int) -> None:
    if epoch < record.highest_epoch:
        raise refused(
            RefusalReason.STALE_EPOCH,
            f"epoch {epoch} is over: the thread has seen {record.highest_epoch}",
        )

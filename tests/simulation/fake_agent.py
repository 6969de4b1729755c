"""The agent in memory: what is kept outlives it, runs do not. It passes the real agent's suite.

Requests are handled by tasks of the agent's own life, so that a caller that dies or gives up stops
nothing, and a frozen agent carries out later what nobody waits for any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tests.simulation.blows import Blows, Life, Victim
from tests.simulation.fake_run import LATENCY_S, GraphRun, Reader
from tests.simulation.fake_threads import Execution, Thread
from tests.simulation.scripts import Script, script_of
from vystak_turns.core.facts import Refusal, StreamEnd
from vystak_turns.core.findings import AgentView
from vystak_turns.ports import (
    AgentEvent,
    AgentSilentError,
    CallRefusedError,
    DispatchCall,
    Ended,
    RunCall,
    StreamItem,
)

_T = TypeVar("_T")

HEALTH_S: Final = 0.3
ANSWER_S: Final = 2.0
SILENCE_S: Final = 3.0
GRACE_S: Final = 3.0
_LAST_WORDS_S: Final = 0.01
_TERMINAL: Final = frozenset({"response.completed", "response.failed"})
_REFUSALS: Final = (
    Refusal.UNREACHABLE,
    Refusal.BUSY,
    None,  # the call is taken, and the answer lost
    Refusal.NOT_PENDING,
    Refusal.UNKNOWN_CHECKPOINT,
    Refusal.STALE_EPOCH,
)


class _BrokenError(Exception):
    """The connection broke, or no answer came, after the request was sent."""


@dataclass(slots=True, eq=False)
class FakeAgent:
    """`threads` and `executions` are durable; `runs` and `epochs` die with the process.

    `on_poison` kills whom a script says; `poisoned` names turns whose every call kills the caller;
    `pass_gate` is awaited by tasks that have a gate.
    """

    blows: Blows
    victim: Victim = Victim.AGENT
    on_poison: Callable[[Victim], None] = lambda _victim: None
    script_of: Callable[[str], Script] = script_of
    pass_gate: Callable[[str], Awaitable[None]] | None = None
    poisoned: set[str] = field(default_factory=set)
    trouble: int = 0
    threads: dict[str, Thread] = field(default_factory=dict)
    executions: list[Execution] = field(default_factory=list)
    doubled_runs: int = 0
    runs: dict[str, GraphRun] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    draining: bool = False
    life: Life | None = None
    _context: contextvars.Context = field(default_factory=contextvars.copy_context)
    _readers: list[Reader] = field(default_factory=list)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _made: Any = field(default_factory=lambda: itertools.count(1))
    _refusals: Any = field(default_factory=lambda: itertools.cycle(_REFUSALS))

    # --- the process ---------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a new life on the durable state."""
        self._context = contextvars.Context()
        self.life = self._context.run(self.blows.begin_life, self.victim)
        self.runs, self.epochs, self.draining = {}, {}, False

    def die(self) -> None:
        """Lose what is not durable; connections break."""
        if self.life is None or not self.blows.kill(self.life):
            return
        self.cut()
        for run in list(self.runs.values()):
            self.release(run)

    def cut(self) -> None:
        """Break all connections; runs go on."""
        for reader in self._readers:
            reader.cut()

    def go_silent(self, *, only_if_frozen: bool) -> None:
        """Bring readers nothing any more; after some missed heartbeats they give up."""
        life = self.life
        for reader in self._readers:
            reader.mute = reader.mute or not only_if_frozen

        def give_up(reader: Reader) -> None:
            if not only_if_frozen or (life is not None and self.blows.is_frozen(life)):
                reader.mute = True
                reader.items.put_nowait(Ended(StreamEnd.LOST))

        for reader in self._readers:
            asyncio.get_running_loop().call_later(SILENCE_S, give_up, reader)

    async def stop(self) -> None:
        """SIGTERM: take no more runs, finish the steps in flight, then die."""
        life, self.draining = self.life, True
        for run in self.runs.values():
            run.draining = True
        endings = [run.released.wait() for run in self.runs.values()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await asyncio.gather(*endings)
        await asyncio.sleep(_LAST_WORDS_S)
        if self.life == life:
            self.die()

    @property
    def alive(self) -> bool:
        """Whether the process runs, or is frozen."""
        return self.life is not None and self.blows.is_alive(self.life)

    # --- ports.Agent: what the caller's side does ----------------------------------------------

    async def healthy(self) -> bool:
        """Whether it answers."""
        if self.life is not None and self.blows.is_frozen(self.life):
            await asyncio.sleep(HEALTH_S)
            return False
        await asyncio.sleep(LATENCY_S)
        return self.alive and not self.draining

    async def view(self, thread_id: str, turn_id: str) -> AgentView:
        """Tell where the thread stands."""
        await self.blows.before("agent.view")
        if self._takes_trouble():
            message = "503, or an answer that makes no sense"
            raise AgentSilentError(message)
        try:
            return await self._ask(self._view(thread_id, turn_id), ANSWER_S)
        except (_BrokenError, ConnectionRefusedError, CallRefusedError) as error:
            raise AgentSilentError(str(error)) from error

    async def drain(self, thread_id: str, turn_id: str, epoch: int) -> None:
        """Have the run stop after the step in flight."""
        await self.blows.before("agent.drain")
        try:
            await self._ask(self._drain(thread_id, epoch), ANSWER_S)
        except (_BrokenError, ConnectionRefusedError):
            return
        await self.blows.after()

    @asynccontextmanager
    async def run(self, call: RunCall) -> AsyncIterator[AsyncIterator[StreamItem]]:
        """Dispatch or resume."""
        await self.blows.before("agent.call")
        troubled = self._takes_trouble()
        refusal = next(self._refusals) if troubled else None
        if refusal is not None:
            raise CallRefusedError(refusal, "so it says")
        reader = Reader()
        self._readers.append(reader)
        try:
            await self._call(call, reader)
            if troubled:
                reader.cut()
            if call.turn_id in self.poisoned:
                self.on_poison(Victim.SERVICE)
            await self.blows.after()
            yield _read(reader)
        finally:
            reader.open = False
            self._readers.remove(reader)

    async def _call(self, call: RunCall, reader: Reader) -> None:
        try:
            await self._ask(self._run(call, reader), ANSWER_S)
        except ConnectionRefusedError as error:
            raise CallRefusedError(Refusal.UNREACHABLE, str(error)) from error
        except _BrokenError:
            reader.cut()  # something may run by now

    def _takes_trouble(self) -> bool:
        troubled = self.trouble > 0
        self.trouble -= troubled
        return troubled

    async def _ask(self, handler: Coroutine[Any, Any, _T], timeout_s: float) -> _T:
        """Have the agent's life handle a request, and wait for the answer for some time."""
        if not self.alive:
            handler.close()
            raise ConnectionRefusedError("connection refused")
        task = self._context.run(asyncio.create_task, handler)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        await asyncio.wait({task}, timeout=timeout_s)
        if not task.done() or task.cancelled():
            raise _BrokenError("no answer")
        return task.result()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may be waiting for it any more

    # --- what the agent's side does ------------------------------------------------------------

    async def _view(self, thread_id: str, turn_id: str) -> AgentView:
        await self._take_request()
        self._refuse_if_draining()
        thread = self.threads.get(thread_id, Thread())
        return AgentView(
            checkpoint_id=thread.checkpoints[-1].id if thread.checkpoints else None,
            stamped=thread.stamped(turn_id),
            active=thread_id in self.runs,
            finished=thread.finished,
            error=thread.error,
            questions=thread.pending,
            epoch=thread.checkpoints[-1].epoch if thread.checkpoints else None,
        )

    async def _drain(self, thread_id: str, epoch: int) -> None:
        await self._take_request()
        if self.draining or epoch < self._highest_epoch(thread_id):
            return
        self.epochs[thread_id] = epoch
        run = self.runs.get(thread_id)
        if run is not None:
            run.draining = True

    async def _run(self, call: RunCall, reader: Reader) -> None:
        await self._take_request()
        self._refuse_if_draining()
        self._check(call)
        thread = self.threads.setdefault(call.thread_id, Thread())
        assert self.life is not None
        run = GraphRun(self, thread, call, reader, self.life[1])
        self.runs[call.thread_id] = run
        task = asyncio.create_task(run.live())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take_request(self) -> None:
        await self.blows.thawed()
        await asyncio.sleep(LATENCY_S)
        await self.blows.thawed()

    def _refuse_if_draining(self) -> None:
        if self.draining:
            raise CallRefusedError(Refusal.UNREACHABLE, "503: the agent is stopping")

    def _check(self, call: RunCall) -> None:
        """Compare and take the epoch in one step, then look at what the call wants."""
        if call.epoch < self._highest_epoch(call.thread_id):
            raise CallRefusedError(Refusal.STALE_EPOCH, "a newer driver was here")
        self.epochs[call.thread_id] = call.epoch
        if call.thread_id in self.runs:
            raise CallRefusedError(Refusal.BUSY, "a run is active")
        thread = self.threads.get(call.thread_id, Thread())
        if isinstance(call, DispatchCall):
            if thread.stamped(call.turn_id):
                raise CallRefusedError(Refusal.NOT_PENDING, "the input was applied")
            return
        if not thread.checkpoints:
            raise CallRefusedError(Refusal.UNKNOWN_THREAD, "no such thread")
        if thread.turn_id != call.turn_id:
            raise CallRefusedError(Refusal.NOT_PENDING, "another turn came after")
        ids = {c.id for c in thread.checkpoints}
        after = call.after_checkpoint_id if call.catch_up else None
        if after is not None and after not in ids:
            raise CallRefusedError(Refusal.UNKNOWN_CHECKPOINT, "no such checkpoint")
        answered = {d.interrupt_id for d in call.decisions}
        if answered and answered != {q.interrupt_id for q in thread.pending}:
            raise CallRefusedError(Refusal.NOT_PENDING, "not what is asked")

    def _highest_epoch(self, thread_id: str) -> int:
        stamps = [c.epoch for c in self.threads.get(thread_id, Thread()).checkpoints]
        return max([0, *stamps, self.epochs.get(thread_id, 0)])

    # --- what a run needs of its agent ---------------------------------------------------------

    def release(self, run: GraphRun) -> None:
        """Free the run's thread."""
        run.released.set()
        if self.runs.get(run.call.thread_id) is run:
            del self.runs[run.call.thread_id]

    def note(self, run: GraphRun, execution: Execution) -> None:
        """Record that a task starts, and whether it has the thread for itself."""
        self.executions.append(execution)
        self.doubled_runs += self.runs.get(run.call.thread_id) is not run

    def new_item_id(self) -> str:
        """Name a message: a node that runs again says it under another name."""
        return f"msg_{next(self._made)}"

    def new_checkpoint_id(self) -> str:
        """Name a checkpoint."""
        return f"ck{next(self._made):05}"


async def _read(reader: Reader) -> AsyncIterator[StreamItem]:
    while True:
        item = await reader.items.get()
        yield item
        if isinstance(item, Ended):
            return
        if isinstance(item, AgentEvent) and item.type in _TERMINAL:
            return

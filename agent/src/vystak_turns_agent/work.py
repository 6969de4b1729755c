"""One run of a graph: who it is for, how it is stopped, and the threads that work for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from langgraph.runtime import RunControl

from vystak_turns_agent.channel import Channel

P = ParamSpec("P")
T = TypeVar("T")


class ThreadCount:
    """Counts the worker threads of a run.

    Cancelling the task of a sync node returns at once while its thread works on, side effects
    included. A run is over only when its threads are, so that no other runs beside them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._working = 0
        self._none_left = asyncio.Event()
        self._none_left.set()

    def begin(self) -> None:
        """Note that a thread has work of this run; callable from any thread."""
        with self._lock:
            self._working += 1
        self._loop.call_soon_threadsafe(self._look)

    def end(self) -> None:
        """Note that it is through with it; callable from any thread."""
        with self._lock:
            self._working -= 1
        self._loop.call_soon_threadsafe(self._look)

    async def none_left(self) -> None:
        """Wait until no thread works for the run."""
        self._look()
        await self._none_left.wait()

    def _look(self) -> None:
        if self._working:
            self._none_left.clear()
        else:
            self._none_left.set()


# Work is handed to the executor deep inside LangGraph; only the context knows for which run.
_working_for: ContextVar[ThreadCount | None] = ContextVar("vystak_working_for", default=None)


class CountingExecutor(ThreadPoolExecutor):
    """The event loop's thread pool; it notes for which run each thread works."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn` in a thread, counted for the run in whose context we are."""
        count = _working_for.get()
        if count is None:
            return super().submit(fn, *args, **kwargs)
        count.begin()
        try:
            future = super().submit(fn, *args, **kwargs)
        except RuntimeError:
            count.end()
            raise
        future.add_done_callback(lambda _: count.end())
        return future


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, for callers that do not stream; `status` as in a response object."""

    status: str
    text: str = ""
    error: str | None = None


@dataclass(slots=True, eq=False)
class Run:
    """A run and its one reader. `created_at` is in seconds since 1970."""

    thread_id: str
    turn_id: str
    epoch: int
    created_at: int
    channel: Channel
    threads: ThreadCount
    control: RunControl = field(default_factory=RunControl)
    outcome: asyncio.Future[Outcome] = field(default_factory=asyncio.Future)

    def mark_context(self) -> None:
        """Count all threads started from this context as the run's."""
        _working_for.set(self.threads)

    def drain(self) -> None:
        """Ask the run to stop after the step in flight."""
        self.control.request_drain("drained")
        self.channel.wake()

    def response(self, status: str, model: str, **more: Any) -> dict[str, Any]:
        """Build the wire's response object; its id is the thread's."""
        return {
            "id": self.thread_id,
            "object": "response",
            "created_at": self.created_at,
            "model": model,
            "status": status,
            **more,
        }

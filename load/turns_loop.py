"""One asyncio loop in a real thread, for locust, whose users are greenlets.

gevent replaces threads and selectors by its own, under which asyncio cannot run: the loop gets
the thread and the selector of before. What a greenlet asks for is handed to the loop, and its
result comes back through the greenlet's hub, so that other users go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import gevent
from gevent.event import AsyncResult, Event
from gevent.monkey import get_original

T = TypeVar("T")


class LoopThread:
    """The loop; one for all users of a process."""

    def __init__(self) -> None:
        selector = get_original("selectors", "DefaultSelector")()
        self._loop = asyncio.SelectorEventLoop(selector)
        hub, running = gevent.get_hub(), Event()
        self._loop.call_soon(lambda: hub.loop.run_callback_threadsafe(running.set))
        get_original("_thread", "start_new_thread")(self._loop.run_forever, ())
        running.wait()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop; the calling greenlet waits for its result or error."""
        hub, answer = gevent.get_hub(), AsyncResult()
        tasks: list[asyncio.Task[T]] = []

        def finished(task: asyncio.Task[T]) -> None:
            hub.loop.run_callback_threadsafe(answer.set, task)

        def begin() -> None:
            task = self._loop.create_task(work)
            task.add_done_callback(finished)
            tasks.append(task)  # somebody must hold it

        self._loop.call_soon_threadsafe(begin)
        task: asyncio.Task[T] = answer.get()
        return task.result()

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)

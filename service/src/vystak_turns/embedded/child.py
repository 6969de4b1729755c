"""One process of the local stack: started, watched, restarted, ended with all that it started."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from vystak_turns.embedded.places import StackError

OnLine: TypeAlias = Callable[[str, str], None]
"""Takes the name of a part and one line of its output, without its end."""

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 5.0
# A process that ran for so long was healthy: its next restart is quick again.
STEADY_AFTER_S: Final = 30.0
END_TIMEOUT_S: Final = 60.0
LINE_MAX_BYTES: Final = 64 * 1024

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None


class Child:
    """A process in a process group of its own, so that a Ctrl-C reaches only who started it.

    `restart` may be switched at any time: whether the process is started again, after a growing
    pause, when it ends on its own or is killed.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        on_line: OnLine,
        *,
        restart: bool,
    ) -> None:
        self.name = name
        self.command = tuple(command)
        self.environment = dict(environment)
        self.log = log
        self.restart = restart
        self._on_line = on_line
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._stop_asked = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Process id, or `None` when nothing runs."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process.

        Raises:
            RuntimeError: it was started already.
            StackError: there is no such program.

        """
        if self._watch is not None and not self._watch.done():
            raise RuntimeError(f"{self.name} is already started")
        self._stop_asked.clear()
        output, process = await self._spawn()
        self._watch = asyncio.create_task(self._keep_running(output, process))

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal, wait for the end and return the exit code (negative: by that signal).

        SIGKILL goes to the whole process group, any other signal to the process alone.
        Raises RuntimeError when nothing runs, TimeoutError when the process does not end.
        """
        process = self._process
        if process is None:
            raise RuntimeError(f"{self.name} is not running")
        _send(process.pid, number)
        async with asyncio.timeout(END_TIMEOUT_S):
            code = await process.wait()
        if self._watch is not None and not self.restart:
            # So that a `start` right after it finds nothing of the old process.
            await asyncio.wait({self._watch})
        return code

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, after `grace_s` SIGKILL; no restart. Harmless when nothing runs."""
        self._stop_asked.set()
        process, watch = self._process, self._watch
        if process is not None:
            _send(process.pid, signal.SIGTERM)
            try:
                async with asyncio.timeout(grace_s):
                    await process.wait()
            except TimeoutError:
                self._on_line(self.name, f"did not end within {grace_s:g} s: killed")
                _send(process.pid, signal.SIGKILL)
        if watch is not None:
            await watch

    async def _keep_running(
        self, output: asyncio.StreamReader, process: asyncio.subprocess.Process
    ) -> None:
        loop, pause_s = asyncio.get_running_loop(), FIRST_PAUSE_S
        while True:
            started_at = loop.time()
            code = await self._watch_one(output, process)
            if self._stop_asked.is_set() or not self.restart:
                return
            if loop.time() - started_at > STEADY_AFTER_S:
                pause_s = FIRST_PAUSE_S
            self._on_line(self.name, f"ended ({in_words(code)}), starts again in {pause_s:g} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop_asked.wait(), pause_s)
                return
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            output, process = await self._spawn()
            if self._stop_asked.is_set():
                # The stop came too early to see this process.
                _send(process.pid, signal.SIGKILL)

    async def _watch_one(
        self, output: asyncio.StreamReader, process: asyncio.subprocess.Process
    ) -> int:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._copy_lines(output))
            code = await process.wait()
            self._process = None
            # What it started and left behind would also keep its output open.
            _send(process.pid, signal.SIGKILL)
        return code

    async def _spawn(self) -> tuple[asyncio.StreamReader, asyncio.subprocess.Process]:
        # A pipe of our own: with asyncio's, `wait` would also wait for whoever inherited it.
        reading, writing = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                env=self.environment,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        except OSError as error:
            os.close(reading)
            words = f"{self.name}: {self.command[0]} cannot be started: {error}"
            raise StackError(words) from None
        finally:
            os.close(writing)
        output = asyncio.StreamReader(limit=LINE_MAX_BYTES)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(reading, "rb")
        )
        self._process = process
        return output, process

    async def _copy_lines(self, output: asyncio.StreamReader) -> None:
        with self.log.open("a", encoding="utf-8", buffering=1) as log:
            while True:
                try:
                    line = await output.readline()
                except ValueError:
                    # Longer than the limit: readline has dropped it.
                    line = b"(a line that is too long)\n"
                if not line:
                    return
                text = line.decode(errors="replace").rstrip("\r\n")
                log.write(f"{text}\n")
                self._on_line(self.name, text)


def in_words(code: int) -> str:
    """Say how a process ended."""
    if code >= 0:
        return f"exit code {code}"
    return signal.Signals(-code).name


def _end_with_parent() -> None:
    """Where the system can (Linux): have SIGTERM sent to us when the parent is killed."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        if number == signal.SIGKILL:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)

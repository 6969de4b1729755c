"""How a test steers the steps of a graph in another process: files in the folder CONTROL_DIR.

started      one line (label) at the beginning of each run of a step
completed    one line at its end, on disk before the step is reported as done
hold-LABEL   while it exists, the step does not end
die-LABEL    how often the process kills itself in this step, or `always`; `die-input` does it
             while the turn's input is applied, before anything of the turn is stored
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.graph.message import add_messages

POLL_S = 0.005


@tool
async def slow_step(label: str) -> str:
    """Carry out one step."""
    _begin(label)
    while _held(label):  # noqa: ASYNC110 - another process takes the file away
        await asyncio.sleep(POLL_S)
    return _end(label)


@tool("slow_step")
def slow_step_in_a_thread(label: str) -> str:
    """Carry out one step, in a thread that nobody can cancel."""
    _begin(label)
    while _held(label):
        time.sleep(POLL_S)
    return _end(label)


async def pass_gate(label: str) -> None:
    """Wait while a gate is shut that only some tests have."""
    if _held(label):
        _begin(label)
    while _held(label):  # noqa: ASYNC110 - another process takes the file away
        await asyncio.sleep(POLL_S)


def add_input(left: Any, right: Any) -> Any:
    """Add messages to the thread, unless the process is to die as the user's message comes in."""
    news: Sequence[Any] = right if isinstance(right, list) else [right]
    if any(_is_from_user(message) for message in news):
        _begin("input")
    return add_messages(left, right)


def _is_from_user(message: Any) -> bool:
    if isinstance(message, HumanMessage):
        return True
    role = message.get("role") if isinstance(message, dict) else None
    if isinstance(message, tuple):
        role = message[0]
    return role in {"user", "human"}


def _begin(label: str) -> None:
    _note("started", label)
    orders = _folder() / f"die-{label}"
    if not orders.exists():
        return
    times = orders.read_text().strip()
    begun = (_folder() / "started").read_text().splitlines().count(label)
    if times == "always" or begun <= int(times):
        os.kill(os.getpid(), signal.SIGKILL)


def _held(label: str) -> bool:
    return (_folder() / f"hold-{label}").exists()


def _end(label: str) -> str:
    _note("completed", label)
    return f"step {label} is done"


def _note(log: str, label: str) -> None:
    file = os.open(_folder() / log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{label}\n".encode())
        os.fsync(file)
    finally:
        os.close(file)


def _folder() -> Path:
    return Path(os.environ["CONTROL_DIR"])

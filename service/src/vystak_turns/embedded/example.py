"""The example agent and panel of the repository as parts of the local stack."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vystak_turns.embedded.places import StackError, program

FOLDER: Final = Path("examples") / "docker-panel-durable"


@dataclass(frozen=True, slots=True)
class PartCommand:
    """How an agent or a panel is started: its words, and what its environment needs."""

    words: tuple[str, ...]
    environment: Mapping[str, str]


def example_agent(start: Path) -> PartCommand:
    """Return the command of the agent in the checkout around `start`.

    Raises:
        StackError: `start` is not inside a checkout, or the agent's package is missing.

    """
    return PartCommand(_serve("agent:builder"), {"PYTHONPATH": str(_example(start))})


def example_panel(start: Path) -> PartCommand:
    """Return the command of the panel in the checkout around `start`.

    Raises:
        StackError: `start` is not inside a checkout.

    """
    words = (sys.executable, "-m", "panel", "--port", "{port}")
    return PartCommand(words, {"PYTHONPATH": str(_example(start))})


def _example(start: Path) -> Path:
    for folder in (start.resolve(), *start.resolve().parents):
        example = folder / FOLDER
        if (example / "agent.py").is_file():
            return example
    raise StackError(
        f"{FOLDER / 'agent.py'} is not in this folder or above it: run inside a checkout, "
        "or name your own agent with --agent-command"
    )


def _serve(target: str) -> tuple[str, ...]:
    agent = program("vystak-turns-agent", "pip install vystak-turns-agent")
    return (agent, "serve", target, "--name", "{name}", "--host", "{host}", "--port", "{port}")

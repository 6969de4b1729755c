"""The example agent of the repository as a part of the local stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vystak_turns.embedded.places import StackError, program

FOLDER: Final = Path("examples") / "docker-panel-durable"


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """How an agent is started: its words, and what its environment needs."""

    words: tuple[str, ...]
    environment: Mapping[str, str]


def example_agent(start: Path) -> AgentCommand:
    """Return the command of the example in the checkout around `start`.

    Raises:
        StackError: `start` is not inside a checkout, or the agent's package is missing.

    """
    for folder in (start.resolve(), *start.resolve().parents):
        example = folder / FOLDER
        if (example / "agent.py").is_file():
            return AgentCommand(_serve("agent:builder"), {"PYTHONPATH": str(example)})
    raise StackError(
        f"{FOLDER / 'agent.py'} is not in this folder or above it: run inside a checkout, "
        "or name your own agent with --agent-command"
    )


def _serve(target: str) -> tuple[str, ...]:
    agent = program("vystak-turns-agent", "pip install vystak-turns-agent")
    return (agent, "serve", target, "--name", "{name}", "--host", "{host}", "--port", "{port}")

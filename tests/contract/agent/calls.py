"""Calls as turn control makes them, and what their streams hold."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import pytest

from tests.support.waiting import ticks
from vystak_turns.core.facts import Refusal
from vystak_turns.core.findings import AgentView
from vystak_turns.core.turn import Decision
from vystak_turns.ports import (
    Agent,
    AgentEvent,
    CallRefusedError,
    DispatchCall,
    Marker,
    ResumeCall,
    RolledBack,
    RunCall,
    StreamItem,
)

THREAD: Final = "resp_0123456789abcdef01234567"
TURN: Final = "turn-1"
WAIT_S: Final = 30


def dispatch(turn_id: str = TURN, epoch: int = 1) -> DispatchCall:
    return DispatchCall(turn_id, THREAD, epoch, {"input": "do it"})


def resume(
    after: str | None = None,
    *,
    catch_up: bool = True,
    epoch: int = 1,
    turn_id: str = TURN,
    decisions: dict[str, object] | None = None,
) -> ResumeCall:
    given = tuple(Decision(*pair) for pair in (decisions or {}).items())
    return ResumeCall(turn_id, THREAD, epoch, catch_up, after, given)


async def all_of(agent: Agent, call: RunCall) -> list[StreamItem]:
    """Every item of a call's stream."""
    async with asyncio.timeout(WAIT_S), agent.run(call) as items:
        return [item async for item in items]


async def rest_of(items: AsyncIterator[StreamItem]) -> list[StreamItem]:
    """Every item that is left."""
    async with asyncio.timeout(WAIT_S):
        return [item async for item in items]


async def up_to_marker(items: AsyncIterator[StreamItem], count: int) -> list[StreamItem]:
    """The items up to and with the n-th marker."""
    seen: list[StreamItem] = []
    async with asyncio.timeout(WAIT_S):
        async for item in items:
            seen.append(item)
            count -= isinstance(item, Marker)
            if count == 0:
                return seen
    raise AssertionError(f"too few markers in {seen}")


async def refusal_of(agent: Agent, call: RunCall) -> Refusal:
    """Why a call is refused."""
    with pytest.raises(CallRefusedError) as refused:
        await all_of(agent, call)
    return refused.value.refusal


async def idle(agent: Agent, thread_id: str = THREAD, turn_id: str = TURN) -> AgentView:
    """The agent's view once no run is active."""
    async for _ in ticks("the end of the run"):
        view = await agent.view(thread_id, turn_id)
        if not view.active:
            return view
    raise AssertionError


def events(items: Iterable[StreamItem]) -> list[dict[str, Any]]:
    return [json.loads(item.json) for item in items if isinstance(item, AgentEvent)]


def types(items: Iterable[StreamItem]) -> list[str]:
    return [item.type for item in items if isinstance(item, AgentEvent)]


def markers(items: Iterable[StreamItem]) -> list[str]:
    return [item.checkpoint_id for item in items if isinstance(item, Marker)]


def told(items: Iterable[StreamItem]) -> list[StreamItem]:
    """The items without those that were rolled back."""
    kept: list[StreamItem] = []
    for item in items:
        if isinstance(item, RolledBack):
            while kept and kept[-1] != Marker(item.checkpoint_id or ""):
                kept.pop()
        else:
            kept.append(item)
    return kept


def shown(items: Iterable[StreamItem]) -> tuple[dict[str, str], Counter[str]]:
    """What a reader has in the end: texts by item, and calls and results with their number."""
    texts: dict[str, str] = {}
    tools: Counter[str] = Counter()
    for event in events(told(items)):
        match event["type"]:
            case "response.output_text.delta":
                texts[event["item_id"]] = texts.get(event["item_id"], "") + event["delta"]
            case "response.output_item.added":
                tools[f"{event['item']['type']} {event['item']['call_id']}"] += 1
            case "response.function_call_arguments.done":
                tools[f"arguments {event['call_id']}"] += 1
            case _:
                pass
    return texts, tools


def texts(items: Iterable[StreamItem]) -> list[str]:
    return list(shown(items)[0].values())


def results(items: Iterable[StreamItem]) -> dict[str, int]:
    tools = shown(items)[1]
    prefix = "function_call_output "
    return {k.removeprefix(prefix): n for k, n in tools.items() if k.startswith(prefix)}


def completed_text(items: list[StreamItem]) -> str:
    last = events(items)[-1]
    assert last["type"] == "response.completed", last
    output = last["response"]["output"]
    return "".join(part["text"] for item in output for part in item["content"])

"""R3, R4 and R5 for every point at which the file can be when an agent dies.

The agent dies before or after its n-th write to the file, for each n; the next one is driven as
turn control does it, from what its reader has got. Whatever n is, the reader ends with what is
kept, and no committed step is run again.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from tests.integration.agent.graphs import Speaker
from tests.integration.agent.harness import Client, fold, running_agent
from vystak_turns_agent.checkpointer import SaverError, SessionsSaver

MARKER = "vystak.checkpoint"
ENDED = {"response.completed", "response.failed"}


class Death:
    """Lets `lives` writes through; the next one is the last (or just not), then all fail."""

    def __init__(self, lives: int, *, after_the_write: bool) -> None:
        self.lives = lives
        self.after_the_write = after_the_write
        self.happened = False

    async def write(self, write: Callable[[], Awaitable[Any]]) -> Any:
        if not self.happened and self.lives > 0:
            self.lives -= 1
            return await write()
        first, self.happened = not self.happened, True
        if first and self.after_the_write:
            await write()
        raise SaverError("dead")


@contextlib.contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, death: Death) -> Iterator[None]:
    put, put_writes = SessionsSaver.aput, SessionsSaver.aput_writes

    async def mortal_put(self: SessionsSaver, *args: Any) -> Any:
        return await death.write(lambda: put(self, *args))

    async def mortal_put_writes(self: SessionsSaver, *args: Any) -> Any:
        return await death.write(lambda: put_writes(self, *args))

    with monkeypatch.context() as patch:
        patch.setattr(SessionsSaver, "aput", mortal_put)
        patch.setattr(SessionsSaver, "aput_writes", mortal_put_writes)
        yield


def tools_and_question(begun: Counter[str]) -> StateGraph:
    """Speech with two calls, their tools side by side, a question after speech, a nested end."""

    async def think(state: MessagesState) -> dict[str, Any]:
        begun["think"] += 1
        return {"messages": [await Speaker(text="let me see", calls=("a", "b")).ainvoke("")]}

    async def a(state: MessagesState) -> dict[str, Any]:
        begun["a"] += 1
        return {"messages": [ToolMessage("from a", tool_call_id="call-a")]}

    async def b(state: MessagesState) -> dict[str, Any]:
        begun["b"] += 1
        return {"messages": [ToolMessage("from b", tool_call_id="call-b"), AIMessage("b too")]}

    async def ask(state: MessagesState) -> dict[str, Any]:
        begun["ask"] += 1
        spoken = await Speaker(text="may I go on").ainvoke("")
        return {"messages": [spoken, AIMessage(f"you said {interrupt('go on?')}")]}

    async def end(state: MessagesState) -> dict[str, Any]:
        begun["end"] += 1
        return {"messages": [await Speaker(text="the end").ainvoke("")]}

    inner = StateGraph(MessagesState)
    inner.add_node("end", end)
    inner.add_edge(START, "end")
    graph = StateGraph(MessagesState)
    for node in (think, a, b, ask):
        graph.add_node(node.__name__, node)
    graph.add_node("inner", inner.compile())
    graph.add_edge(START, "think")
    graph.add_edge("think", "a")
    graph.add_edge("think", "b")
    graph.add_edge(["a", "b"], "ask")
    graph.add_edge("ask", "inner")
    graph.add_edge("inner", END)
    return graph


class Driver:
    """Turn control's recovery, in small: the log, cut back to its last marker before each call."""

    def __init__(self, turn_id: str) -> None:
        self.turn_id = turn_id
        self.log: list[dict[str, Any]] = []
        self.decisions: dict[str, Any] = {}
        self.asked_at: int | None = None
        self.epoch = 0

    async def drive(self, agent: Client) -> bool:
        """Go on until the turn ends (True) or the agent is lost (False)."""
        while True:
            standing = await agent.checkpoint()
            self.epoch += 1
            ours = {"turn_id": self.turn_id, "epoch": self.epoch}
            if self.turn_id not in standing["turns"]:
                self.log.clear()
                call = agent.dispatch(**ours)
            else:
                call = self._resume(agent, standing, ours)
            if not await self._read(call):
                return False
            if self.log and self.log[-1]["type"] in ENDED:
                return True

    def _resume(self, agent: Client, standing: dict[str, Any], ours: dict[str, Any]) -> Any:
        seen_whole = self.asked_at == len(self.log)
        if standing["interrupt_ids"]:
            self.decisions = dict.fromkeys(standing["interrupt_ids"], "yes")
            ours |= {"decisions": self.decisions}
        if not seen_whole:
            while self.log and self.log[-1]["type"] != MARKER:
                self.log.pop()
        after = self.log[-1]["checkpoint_id"] if self.log and not seen_whole else None
        call = agent.resume(after_checkpoint_id=after, **ours)
        if seen_whole:
            del call.body["after_checkpoint_id"]
        return call

    async def _read(self, call: Any) -> bool:
        try:
            async with call.opened() as events:
                async for event in events:
                    self._take(event)
        except httpx.RemoteProtocolError:
            return False
        self.asked_at = len(self.log)  # a clean end without a terminal event: parked
        return True

    def _take(self, event: dict[str, Any]) -> None:
        if event["type"] == "vystak.rollback":
            while self.log and self.log[-1].get("checkpoint_id") != event["checkpoint_id"]:
                self.log.pop()
        elif event["type"] not in {"response.created", "[DONE]"}:
            self.log.append(event)


async def lived_through(
    death: Death, path: Path, monkeypatch: pytest.MonkeyPatch, *, turns: int
) -> Counter[str]:
    """Run the last of some turns with one death in it; check it, and count what began in it."""
    begun: Counter[str] = Counter()
    graph = tools_and_question(begun)
    if turns > 1:
        async with running_agent(graph, path) as agent:
            assert await Driver("turn-0").drive(agent)
        begun.clear()
    driver = Driver("turn-1")
    driver.epoch = 10
    with dying(monkeypatch, death):
        async with running_agent(graph, path) as agent:
            done = await driver.drive(agent)
    async with running_agent(graph, path) as agent:
        assert done or await driver.drive(agent)
        kept = await agent.resume(turn_id="turn-1", epoch=99).all()
    assert fold(driver.log) == fold(kept)
    assert [event["type"] for event in driver.log if event["type"] in ENDED] == [
        "response.completed"
    ]
    assert sorted(fold(kept)["text"].values()) == sorted(
        ["let me see", "b too", "may I go on", "you said yes", "the end"]
    )
    assert kept[-2]["response"]["output"] == driver.log[-1]["response"]["output"]
    return begun


# A question is asked again from the top of its node, hence `ask` begins twice without a death.
UNDISTURBED = Counter({"think": 1, "a": 1, "b": 1, "ask": 2, "end": 1})
WRITES = 18


@pytest.mark.parametrize("turns", [1, 2])
async def test_without_a_death_the_writes_are_as_many_as_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    death = Death(1_000, after_the_write=False)
    begun = await lived_through(death, tmp_path / "s.db", monkeypatch, turns=turns)
    assert begun == UNDISTURBED
    assert 1_000 - death.lives == WRITES


@pytest.mark.parametrize("after_the_write", [False, True])
@pytest.mark.parametrize("turns", [1, 2])
@pytest.mark.parametrize("lives", range(WRITES))
async def test_a_death_at_any_write_loses_and_doubles_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lives: int,
    turns: int,
    after_the_write: bool,
) -> None:
    death = Death(lives, after_the_write=after_the_write)
    begun = await lived_through(death, tmp_path / "s.db", monkeypatch, turns=turns)
    assert death.happened
    again = begun - UNDISTURBED
    # One step was in flight: each of its nodes may begin once more, no other node may.
    assert set(again) in ({"think"}, {"a"}, {"b"}, {"a", "b"}, {"ask"}, {"end"}, set())
    assert all(count == 1 for count in again.values())

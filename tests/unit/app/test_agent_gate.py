"""Runs of one agent go side by side, except for a turn on its last attempt (R9)."""

from __future__ import annotations

import asyncio

from vystak_turns.app.agent_gate import AgentGate


async def nothing() -> None:
    """A run that has nothing to drain."""


async def test_runs_go_side_by_side() -> None:
    gate = AgentGate(ask_again_s=1)

    async with gate.enter(nothing, alone=False), gate.enter(nothing, alone=False):
        assert gate.is_open(alone=False)
        assert not gate.is_open(alone=True)

    assert gate.is_open(alone=True)


async def test_a_last_attempt_drains_the_others_and_waits_for_them() -> None:
    gate = AgentGate(ask_again_s=1)
    drained = asyncio.Event()
    alone = asyncio.Event()

    async def drain() -> None:
        drained.set()

    async def last_attempt() -> None:
        async with gate.enter(nothing, alone=True):
            alone.set()

    async with gate.enter(drain, alone=False):
        waiting = asyncio.create_task(last_attempt())
        async with asyncio.timeout(5):
            await drained.wait()
        assert not alone.is_set()
        assert not gate.is_open(alone=False), "newcomers wait behind it"
    async with asyncio.timeout(5):
        await waiting
    assert alone.is_set()


async def test_newcomers_wait_until_the_lonely_run_has_made_progress() -> None:
    gate = AgentGate(ask_again_s=1)
    inside = asyncio.Event()

    async def newcomer() -> None:
        async with gate.enter(nothing, alone=False):
            inside.set()

    async with gate.enter(nothing, alone=True) as visit:
        waiting = asyncio.create_task(newcomer())
        await asyncio.sleep(0)
        assert not inside.is_set()
        visit.share()
        async with asyncio.timeout(5):
            await inside.wait()
    await waiting


async def test_a_cancelled_wait_lets_newcomers_in_again() -> None:
    gate = AgentGate(ask_again_s=1)
    asked = asyncio.Event()

    async def drain() -> None:
        asked.set()

    async def last_attempt() -> None:
        async with gate.enter(nothing, alone=True):
            raise AssertionError("the other run is still inside")

    async with gate.enter(drain, alone=False):
        waiting = asyncio.create_task(last_attempt())
        async with asyncio.timeout(5):
            await asked.wait()
        waiting.cancel()
        await asyncio.wait([waiting])

        assert gate.is_open(alone=False)


async def test_a_drain_that_got_lost_is_asked_for_again() -> None:
    gate = AgentGate(ask_again_s=0.01)
    asked = 0
    again = asyncio.Event()

    async def drain() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            again.set()

    async def last_attempt() -> None:
        async with gate.enter(nothing, alone=True):
            pass

    async with gate.enter(drain, alone=False):
        waiting = asyncio.create_task(last_attempt())
        async with asyncio.timeout(5):
            await again.wait()
    await waiting

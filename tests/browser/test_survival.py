"""What a person sees while processes die in step three of the job (R1, R3, R4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.support.panel import PATIENCE_MS, check_agreement

if TYPE_CHECKING:
    from tests.browser.conftest import OpenTab
    from tests.support.panel import PanelStack, Tab

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]

JOB = "Run the four-step job"
LABELS = ("one", "two", "three", "four")
# Marks what is shown, so that one can tell later whether it is still the same.
MARK = "() => document.querySelectorAll('.parts > *').forEach((block) => { block.mark = true; })"
MARKED = "() => [...document.querySelectorAll('.parts > *')].filter((block) => block.mark).length"


async def begun(tab: Tab, panel: PanelStack) -> str:
    """Send the job, hold it in step three, and return the conversation."""
    panel.live.control.hold("three")
    await tab.say(JOB)
    await panel.live.control.wait_started("three")
    await tab.wait_shown(tab.tool("label: three"))
    return await tab.conversation_id()


async def check_done(
    tab: Tab, panel: PanelStack, conversation_id: str, twice: tuple[str, ...] = ()
) -> None:
    """Each step once on the page, with its result, and one reply; no step ran in vain."""
    await tab.wait_status("Done")
    answer = await tab.answer()
    steps = [part for part in answer["parts"] if part["kind"] == "tool"]
    assert [step["output"] for step in steps] == [f"step {label} is done" for label in LABELS]
    assert [step["state"] for step in steps] == ["done"] * len(LABELS)
    assert answer["parts"][-1]["text"] in {None, "All four steps are done."}
    texts = [part["text"] for part in answer["parts"] if part["kind"] == "text"]
    assert texts.count("All four steps are done.") == 1
    await check_agreement(tab, panel, conversation_id)
    started = panel.live.control.started()
    assert sorted(started) == sorted([*LABELS, *twice])


async def test_an_agent_that_is_killed_in_step_three_is_seen_to_go_on(
    tab: Tab, panel: PanelStack
) -> None:
    conversation_id = await begun(tab, panel)
    await tab.wait_status("Running")
    shown = await tab.page.evaluate(MARK)

    await panel.live.kill("agent")
    await tab.wait_status("Waiting for the agent")
    await panel.live.start("agent")
    await tab.wait_status("Re-driven, attempt 1")
    await tab.wait_shown(tab.page.locator(".note"))

    # What is retained was not drawn again: nothing flickered.
    assert await tab.page.evaluate(MARKED) >= 5, shown
    panel.live.control.release("three")
    await check_done(tab, panel, conversation_id, twice=("three",))


async def test_a_page_that_is_reloaded_in_the_outage_shows_the_same(
    tab: Tab, panel: PanelStack
) -> None:
    conversation_id = await begun(tab, panel)
    await panel.live.kill("agent")
    await tab.wait_status("Waiting for the agent")

    await tab.page.reload()
    await tab.wait_status("Waiting for the agent")
    await tab.wait_shown(tab.tool("label: three"))
    await panel.live.start("agent")
    panel.live.control.release("three")

    await check_done(tab, panel, conversation_id, twice=("three",))


async def test_turn_control_that_is_killed_costs_no_step(tab: Tab, panel: PanelStack) -> None:
    conversation_id = await begun(tab, panel)

    await panel.live.kill("turns")
    await tab.wait_status("Waiting for turn control")
    panel.live.control.release("three")
    await panel.live.control.wait_completed("four")
    await panel.live.start("turns")

    await check_done(tab, panel, conversation_id)


async def test_a_panel_that_is_killed_is_found_again_with_all_that_happened(
    tab: Tab, panel: PanelStack
) -> None:
    conversation_id = await begun(tab, panel)

    await panel.live.kill("panel")
    connection = tab.page.locator("#connection")
    await expect(connection).to_have_text("Reconnecting to the panel", timeout=PATIENCE_MS)
    panel.live.control.release("three")
    await panel.live.control.wait_completed("four")
    await panel.live.start("panel")

    await check_done(tab, panel, conversation_id)
    await expect(connection).to_be_hidden(timeout=PATIENCE_MS)


async def test_a_broker_that_is_killed_leaves_no_gap(tab: Tab, panel: PanelStack) -> None:
    conversation_id = await begun(tab, panel)

    await panel.live.kill("nats")
    await tab.wait_status("Waiting for turn control")
    panel.live.control.release("three")
    await panel.live.control.wait_completed("three")
    await panel.live.start("nats")

    await check_done(tab, panel, conversation_id)


async def test_everything_is_killed_at_once(tab: Tab, panel: PanelStack) -> None:
    conversation_id = await begun(tab, panel)

    await panel.live.kill("nats", "agent", "turns", "panel")
    panel.live.control.release("three")
    await panel.live.start("nats", "agent", "turns", "panel")

    await check_done(tab, panel, conversation_id, twice=("three",))


async def test_two_tabs_show_the_same_turn(tab: Tab, open_tab: OpenTab, panel: PanelStack) -> None:
    conversation_id = await begun(tab, panel)
    other = await open_tab(conversation_id)
    await other.wait_shown(other.tool("label: three"))

    await panel.live.kill("agent")
    await panel.live.start("agent")
    panel.live.control.release("three")
    await check_done(tab, panel, conversation_id, twice=("three",))
    await other.wait_status("Done")
    await check_agreement(other, panel, conversation_id)

    # The next turn is begun in one tab and seen in both.
    panel.live.control.forget()
    await other.say(JOB)
    await check_done(other, panel, conversation_id)
    await expect(tab.page.locator(".message.user")).to_have_count(2, timeout=PATIENCE_MS)
    await tab.wait_status("Done")
    await check_agreement(tab, panel, conversation_id)

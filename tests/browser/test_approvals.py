"""Questions on the page: approved, denied, decided elsewhere (R6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.support.panel import PATIENCE_MS, USER, check_agreement

if TYPE_CHECKING:
    from playwright.async_api import Locator

    from tests.browser.conftest import OpenTab
    from tests.support.panel import PanelStack, Tab

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]

WISH = "Delete the old files"
FILES = "report-2019.pdf, report-2020.pdf, draft-old.txt"


async def asked(tab: Tab) -> str:
    """Send the wish, wait for the question and return the conversation."""
    await tab.say(WISH)
    await tab.wait_status("Waiting for your decision")
    await tab.wait_shown(button(tab, "Approve"))
    return await tab.conversation_id()


def button(tab: Tab, name: str) -> Locator:
    return tab.page.get_by_role("button", name=name)


async def check_result(tab: Tab, panel: PanelStack, conversation_id: str, result: str) -> None:
    await tab.wait_status("Done")
    answer = await tab.answer()
    outputs = [part["output"] for part in answer["parts"] if part["kind"] == "tool"]
    assert outputs == [result]
    assert answer["parts"][-1]["text"] == f"This is what came of it: {result}"
    await expect(tab.page.locator(".question")).to_have_count(0)
    await check_agreement(tab, panel, conversation_id)


async def test_an_approval_lets_the_tool_run(tab: Tab, panel: PanelStack) -> None:
    conversation_id = await asked(tab)
    question = tab.page.locator(".question")
    await expect(question).to_contain_text("May the agent use delete_files?")
    await expect(question).to_contain_text(FILES)

    await button(tab, "Approve").click()

    await check_result(tab, panel, conversation_id, f"deleted {FILES}")


async def test_a_denial_tells_who_and_why(tab: Tab, panel: PanelStack) -> None:
    conversation_id = await asked(tab)

    await tab.page.get_by_label("Note (optional)").fill("I still <b>need</b> them")
    await button(tab, "Deny").click()

    result = f"Denied by {USER}: I still <b>need</b> them"
    await check_result(tab, panel, conversation_id, result)


async def test_a_decision_in_one_tab_is_seen_in_the_other(
    tab: Tab, open_tab: OpenTab, panel: PanelStack
) -> None:
    conversation_id = await asked(tab)
    other = await open_tab(conversation_id)
    await other.wait_shown(button(other, "Approve"))

    await button(other, "Approve").click()

    await check_result(tab, panel, conversation_id, f"deleted {FILES}")
    await check_result(other, panel, conversation_id, f"deleted {FILES}")


async def test_a_decided_question_is_closed_everywhere_while_the_agent_is_away(
    tab: Tab, open_tab: OpenTab, panel: PanelStack
) -> None:
    conversation_id = await asked(tab)
    other = await open_tab(conversation_id)
    await other.wait_shown(button(other, "Approve"))
    await panel.live.kill("agent")

    await button(tab, "Approve").click()

    for each in (tab, other):
        await expect(each.page.locator(".question .sent")).to_be_visible(timeout=PATIENCE_MS)
        await expect(button(each, "Approve")).to_be_hidden()
    reloaded = await open_tab(conversation_id)
    await expect(reloaded.page.locator(".question .sent")).to_be_visible(timeout=PATIENCE_MS)
    await panel.live.start("agent")
    for each in (tab, other, reloaded):
        await check_result(each, panel, conversation_id, f"deleted {FILES}")


async def test_a_question_survives_every_restart(tab: Tab, panel: PanelStack) -> None:
    conversation_id = await asked(tab)

    await panel.live.kill("nats", "agent", "turns", "panel")
    await panel.live.start("nats", "agent", "turns", "panel")
    await tab.page.reload()
    await tab.wait_status("Waiting for your decision")
    await button(tab, "Approve").click()

    await check_result(tab, panel, conversation_id, f"deleted {FILES}")


async def test_a_decision_that_comes_too_late_is_told(
    tab: Tab, open_tab: OpenTab, panel: PanelStack
) -> None:
    conversation_id = await asked(tab)
    late = await open_tab(conversation_id)
    await late.wait_shown(button(late, "Deny"))
    # It hears of nothing any more, as a laptop that was asleep.
    await late.page.route("**/api/**/stream*", lambda route: route.abort())
    await late.page.route("**/api/**/status*", lambda route: route.abort())
    await late.page.reload()
    await late.page.unroute_all()
    await late.wait_shown(button(late, "Deny"))
    turn_id = (await tab.answer())["turn"]
    denied = {"turn_id": turn_id, "approved": False}
    path = f"/conversations/{conversation_id}/approval"

    answers = [await panel.api.post(path, json=denied) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 409]
    await check_result(tab, panel, conversation_id, f"Denied by {USER}: no reason given")

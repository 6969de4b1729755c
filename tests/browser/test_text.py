"""What people and tools write is shown as text, whatever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.panel import check_agreement

if TYPE_CHECKING:
    from tests.browser.conftest import OpenTab
    from tests.support.panel import PanelStack, Tab

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]

HOSTILE = {
    "script": "<script>window.hacked = 1</script>",
    "image": '<img src=x onerror="window.hacked = 1">',
    "frames": "</div></li><iframe srcdoc='<script>parent.hacked=1</script>'></iframe>",
    "entities": "&lt;b&gt; &amp; &#x202e; {{7*7}} ${7*7} %3Cscript%3E",
    "long word": "supercalifragilistic" * 60,
    "long line": "word " * 300 + "end",
    "right to left": "مرحبا بالعالم, שלום עולם, then English",
    "override": "abc \u202e gnp.exe \u202c def \u2066x\u2069",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 e\u0301 \u200b z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘",
    "lines": "one\n  two\n\n\tthree",
    "json": '{"__proto__": {"polluted": 1}, "constructor": 2}',
}


async def test_hostile_text_is_text_and_breaks_no_layout(
    open_tab: OpenTab, panel: PanelStack
) -> None:
    tab = await open_tab(width=360)
    for words in HOSTILE.values():
        await tab.say(f"repeat: {words}")
        await tab.wait_shown(tab.page.locator("#status[data-kind=running]"))
        await tab.wait_status("Done")
        check_shown((await tab.transcript())[-2:], words)
        await check_harmless(tab)
    await check_agreement(tab, panel, await tab.conversation_id())

    await tab.page.reload()
    await tab.wait_status("Done")
    shown = await tab.transcript()
    for place, words in enumerate(HOSTILE.values()):
        check_shown(shown[2 * place : 2 * place + 2], words)
    await check_harmless(tab)


def check_shown(messages: list[dict[str, Any]], words: str) -> None:
    """The words stand in message, result and reply."""
    asked, answer = messages
    assert asked["parts"][0]["text"] == f"repeat: {words}"
    (tool,) = (part for part in answer["parts"] if part["kind"] == "tool")
    assert tool["output"] == words
    assert answer["parts"][-1]["text"] == words


async def check_harmless(tab: Tab) -> None:
    """Nothing came of them."""
    page = tab.page
    assert await page.evaluate("window.hacked === undefined && ({}).polluted === undefined")
    elements = "#transcript .words *, #transcript img, #transcript script, #transcript iframe"
    assert await page.locator(elements).count() == 0
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_a_hostile_question_is_text(tab: Tab, panel: PanelStack) -> None:
    """The question's own words come from the agent, its title from the user."""
    await tab.say(f"delete {HOSTILE['image']}")
    await tab.wait_status("Waiting for your decision")

    assert (await tab.page.title()).endswith(f"delete {HOSTILE['image']}")
    assert await tab.page.locator("main img, nav img, header img").count() == 0
    await tab.page.get_by_role("button", name="Deny").click()
    await tab.wait_status("Done")

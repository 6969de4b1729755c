"""The page itself: failures, cancelling, keyboard, contrast, and what the browser is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from playwright.async_api import expect

from tests.support.panel import PATIENCE_MS, check_agreement

if TYPE_CHECKING:
    from tests.browser.conftest import OpenTab
    from tests.support.panel import PanelStack, Tab

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]

# WCAG 2: 4.5 to 1 for text of ordinary size, 3 to 1 for large text.
CONTRAST = """
() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const part = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = rgb(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim());
    if (!own || !node.checkVisibility() || node.disabled) continue;
    const [a, b] = [light(rgb(getComputedStyle(node).color)), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(`${node.className}: ${node.textContent} ${ratio.toFixed(2)}`);
  }
  return low;
}
"""
UNNAMED = """
() => [...document.querySelectorAll('button, input, textarea, [role=region], [tabindex]')]
  .filter((node) => node.checkVisibility())
  .filter((node) => !(node.textContent.trim() || node.ariaLabel || node.labels?.length))
  .map((node) => node.outerHTML)
"""


async def test_a_failed_turn_says_why_also_after_a_reload(tab: Tab, panel: PanelStack) -> None:
    await tab.say("Fail, please")

    for _ in range(2):
        await tab.wait_status("Failed")
        await expect(tab.page.locator(".end")).to_contain_text("as you asked it to")
        await panel.wait_settled(await tab.conversation_id())
        await tab.page.reload()

    await tab.say("Run the four-step job")
    await tab.wait_status("Done")
    await check_agreement(tab, panel, await tab.conversation_id())


async def test_a_message_that_turn_control_does_not_take_is_given_back(
    tab: Tab, panel: PanelStack
) -> None:
    await tab.say("Run the four-step job")
    await tab.wait_status("Done")
    await panel.live.kill("turns")

    await tab.say("Are you there?")

    notice = tab.page.locator("#notice")
    await expect(notice).to_contain_text("turn control does not answer", timeout=PATIENCE_MS)
    await expect(tab.page.get_by_label("Message to the agent")).to_have_value("Are you there?")
    await panel.live.start("turns")
    await tab.page.get_by_role("button", name="Send").click()
    await tab.wait_status("Done")
    await expect(notice).to_be_hidden()


async def test_a_turn_is_cancelled_where_turn_control_can(tab: Tab, panel: PanelStack) -> None:
    panel.live.control.hold("two")
    await tab.say("Run the four-step job")
    await panel.live.control.wait_started("two")

    await tab.page.get_by_role("button", name="Cancel").click()
    await tab.wait_status("Cancelling")
    panel.live.control.release("two")

    await tab.wait_status("Cancelled")
    await expect(tab.page.get_by_role("button", name="Cancel")).to_be_hidden()
    assert "three" not in panel.live.control.started()


async def test_the_keyboard_is_enough(tab: Tab) -> None:
    await tab.page.keyboard.press("Tab")
    await expect(tab.page.locator(".skip")).to_be_focused()
    await tab.page.keyboard.press("Enter")
    field = tab.page.get_by_label("Message to the agent")
    await expect(field).to_be_focused()

    await tab.page.keyboard.type("Delete")
    await tab.page.keyboard.press("Shift+Enter")
    await tab.page.keyboard.type("the old files")
    await tab.page.keyboard.press("Enter")
    await tab.wait_status("Waiting for your decision")
    await expect(field).to_have_value("")
    await tab.page.get_by_role("button", name="Deny").focus()
    await tab.page.keyboard.press("Enter")

    await tab.wait_status("Done")
    await expect(field).to_be_focused()
    await expect(tab.page.locator("#announcer")).to_contain_text("Done")
    assert (await tab.transcript())[0]["parts"][0]["text"] == "Delete\nthe old files"


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_everything_can_be_read_and_has_a_name(tab: Tab, scheme: str) -> None:
    await tab.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    assert await tab.page.evaluate(CONTRAST) == []
    for words, status in (
        ("Fail", "Failed"),
        ("Run the four-step job", "Done"),
        ("Delete the old files", "Waiting for your decision"),
    ):
        await tab.say(words)
        await tab.wait_status(status)
        await expect(tab.page.get_by_role("button", name="Send")).to_be_visible()
        assert await tab.page.evaluate(CONTRAST) == []
        assert await tab.page.evaluate(UNNAMED) == []
        # The panel has to note the end before it takes the next message.
        mark = tab.page.locator(".conversations [aria-current] .live")
        wanted = "active" if "decision" in status else ""
        await expect(mark).to_have_text(wanted, timeout=PATIENCE_MS)


async def test_on_a_phone_the_conversations_are_a_drawer(open_tab: OpenTab) -> None:
    tab = await open_tab(width=390)
    menu, new = (
        tab.page.get_by_role("button", name=name, exact=True)
        for name in ("Conversations", "New conversation")
    )
    await expect(new).to_be_hidden()

    await menu.click()
    await expect(new).to_be_visible()
    await expect(new).to_be_focused()
    await tab.page.keyboard.press("Escape")

    await expect(new).to_be_hidden()
    await expect(menu).to_be_focused()
    assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_the_browser_is_told_to_run_nothing_but_our_own_scripts(panel: PanelStack) -> None:
    async with httpx.AsyncClient(trust_env=False, follow_redirects=True) as http:
        page = await http.get(panel.address)

    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert "<script>" not in page.text
    assert " style=" not in page.text


async def test_only_the_printed_address_lets_one_in(panel: PanelStack) -> None:
    url = panel.live.stack.panel_url
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
        answers = [
            await http.get(path)
            for path in ("/", "/?token=wrong", "/api/bootstrap", "/api/conversations/x/stream")
        ]
        signed_in = await http.get(panel.address)
        page = await http.get("/")
        headers = {"Origin": "http://127.0.0.1:1"}
        foreign = await http.post("/api/projects/default/conversations", headers=headers)

    assert [answer.status_code for answer in answers] == [401] * 4
    cookie = signed_in.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite" in cookie
    assert page.status_code == 200
    assert foreign.status_code == 403

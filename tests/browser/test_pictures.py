"""Pictures of every state, light and dark, on a desk and on a phone, for a person to look at.

They are written to build/screenshots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from tests.support.distributions import ROOT

if TYPE_CHECKING:
    from tests.support.panel import PanelStack, Tab

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="session")]

FOLDER = ROOT / "build" / "screenshots"
SIZES = {"desk": (1180, 820), "phone": (390, 844)}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
JOB = "Run the four-step job"


async def picture(tab: Tab, name: str) -> None:
    """Take the page as it is in each size and scheme; none may be wider than its window."""
    for size, (width, height) in reversed(SIZES.items()):  # the desk stays
        await tab.page.set_viewport_size({"width": width, "height": height})
        assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for scheme in SCHEMES:
            await tab.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            await tab.page.screenshot(path=FOLDER / f"{name}-{size}-{scheme}.png")


async def test_pictures_of_a_job_that_is_interrupted(tab: Tab, panel: PanelStack) -> None:
    await picture(tab, "empty")
    panel.live.control.hold("three")
    await tab.say(JOB)
    await tab.wait_shown(tab.tool("label: three"))
    await tab.wait_status("Running")
    await picture(tab, "running")

    await panel.live.kill("agent")
    await tab.wait_status("Waiting for the agent")
    await picture(tab, "waiting")
    await panel.live.start("agent")
    await tab.wait_status("Re-driven, attempt 1")
    await tab.wait_shown(tab.page.locator(".note"))
    await picture(tab, "redriven")

    panel.live.control.release("three")
    await tab.wait_status("Done")
    await picture(tab, "done")
    assert len(list(FOLDER.glob("done-*.png"))) == len(SIZES) * len(SCHEMES)


async def test_pictures_of_a_question(tab: Tab) -> None:
    await tab.say("Delete the old files")
    await tab.wait_status("Waiting for your decision")
    await tab.wait_shown(tab.page.get_by_role("button", name="Approve"))
    await picture(tab, "parked")

    await tab.page.get_by_role("button", name="Deny").click()
    await tab.wait_status("Done")
    await picture(tab, "denied")


async def test_pictures_of_a_failure_and_of_odd_text(tab: Tab) -> None:
    await tab.say("Fail, please")
    await tab.wait_status("Failed")
    await picture(tab, "failed")

    await tab.page.get_by_role("button", name="New conversation").click()
    words = "<img src=x onerror=alert(1)> " + "unbreakable" * 20 + " مرحبا بالعالم 👩‍👩‍👧 🎉"
    await tab.say(f"repeat: {words}")
    await tab.wait_status("Done")
    await picture(tab, "odd-text")

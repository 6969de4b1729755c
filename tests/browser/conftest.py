"""A real Chromium on the example panel, with real processes behind it.

One stack and one browser serve the whole folder; each test has tabs and conversations of its own.
"""

from __future__ import annotations

import os
import shutil
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Protocol

import pytest
import pytest_asyncio
from playwright.async_api import async_playwright

from tests.support.panel import PATIENCE_MS, PanelStack, Tab, panel_stack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator

    from playwright.async_api import Browser

FAILED = pytest.StashKey[bool]()
PROGRAMS = ("chromium", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class OpenTab(Protocol):
    async def __call__(self, conversation_id: str = "", width: int = 1100) -> Tab: ...


def chromium() -> str:
    """Return the browser's path; skips where there is none, except where it must be there."""
    found = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if found is not None:
        return found
    words = "no Chromium: `apt-get install chromium` (`make browser` does it as root on Debian)"
    if os.environ.get("CI") and os.geteuid() == 0:
        pytest.fail(words)
    pytest.skip(words)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(
            executable_path=chromium(), args=list(ARGUMENTS)
        )
        yield launched
        await launched.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def running_panel(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PanelStack]:
    async with panel_stack(tmp_path_factory.mktemp("panel")) as stack:
        yield stack


@pytest_asyncio.fixture(loop_scope="session")
async def panel(
    running_panel: PanelStack, request: pytest.FixtureRequest
) -> AsyncIterator[PanelStack]:
    """The stack, whole again after each test."""
    yield running_panel
    if request.node.stash.get(FAILED, True):
        running_panel.show_logs()
    await running_panel.mend()


@pytest_asyncio.fixture(loop_scope="session")
async def open_tab(browser: Browser, panel: PanelStack) -> AsyncIterator[OpenTab]:
    """Open tabs of one browser profile; no console of them may have got an error."""
    async with AsyncExitStack() as exits:
        context = await browser.new_context()
        context.set_default_timeout(PATIENCE_MS)
        exits.push_async_callback(context.close)
        tabs: list[Tab] = []

        async def open_one(conversation_id: str = "", width: int = 1100) -> Tab:
            tab = Tab(await context.new_page())
            await tab.page.set_viewport_size({"width": width, "height": 800})
            tab.listen()
            await tab.open(panel.address, conversation_id)
            tabs.append(tab)
            return tab

        yield open_one
        assert [error for tab in tabs for error in tab.errors] == []


@pytest_asyncio.fixture(loop_scope="session")
async def tab(open_tab: OpenTab) -> Tab:
    """One tab on a new conversation."""
    return await open_tab()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report

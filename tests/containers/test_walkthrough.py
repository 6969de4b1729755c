"""The container part of the example's README, followed word by word."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.containers.test_survival import LABELS, begin, settled
from tests.support.boxes import PATIENCE_S, Boxes, volumes
from tests.support.distributions import ROOT
from tests.support.waiting import ticks

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.containers, pytest.mark.asyncio(loop_scope="session")]

README = ROOT / "examples" / "docker-panel-durable" / "README.md"


def commands() -> list[str]:
    """The indented blocks of the section, each a script."""
    section = README.read_text().split("## The same in containers\n")[1].split("\n## ")[0]
    blocks = re.findall(r"(?:^    .+\n)+", section, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in blocks]


async def test_the_readmes_words_do_what_they_say(built: Boxes, tmp_path: Path) -> None:
    start, restart, crash, again, completed, forget = commands()
    await built.compose("down", "--volumes")

    address = (await built.shell(start, tmp_path)).splitlines()[-1]
    assert address.startswith("http://127.0.0.1:8100/?token=p")
    async with built.panel() as api:
        conversation, _ = await begin(api, "Run the four-step job")
        await built.wait_completed("one", "two")
        await built.shell(restart, tmp_path)
        assert len(await settled(api, conversation)) == 1

        conversation, _ = await begin(api, "Run the four-step job")
        await built.shell(crash, tmp_path)
        assert len(await settled(api, conversation)) == 1

        conversation, turn = await begin(api, "Delete the old files")
        async for _ in ticks("the question is kept", PATIENCE_S):
            found = (await api.get(f"/conversations/{conversation}/messages")).json()
            if "approval-requested" in str(found["messages"]):
                break
    await built.shell(again, tmp_path)
    async with built.panel() as api:
        url = f"/conversations/{conversation}/approval"
        decided = await api.post(url, json={"turn_id": turn, "approved": True})
        assert decided.json() == {"ok": True}
        assert len(await settled(api, conversation)) == 1

    assert (await built.shell(completed, tmp_path)).split() == [*LABELS, *LABELS, "delete"]
    await built.shell(forget, tmp_path)
    assert await volumes() == set()

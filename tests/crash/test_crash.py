"""A small storm in every test run; `make crash N=500` makes a large one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.processes import NATS, PARTS, TURNS
from tests.crash.run import Options, run, write_evidence
from tests.crash.storm import Kind, Trouble

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

# Every kind of trouble, and every part killed, while the turns are in their steps.
STORM = (
    Trouble(Kind.KILL, ("steps",)),
    Trouble(Kind.CUT, ("threads",), gap_s=0.2),
    Trouble(Kind.KILL, (TURNS,), gap_s=0.8),
    Trouble(Kind.PAUSE, ("branches",), length_s=1.0, gap_s=0.5),
    Trouble(Kind.STALL, (NATS,), length_s=0.5),
    Trouble(Kind.TERM, (TURNS, "asking"), length_s=0.3),
    Trouble(Kind.REFUSE, ("threads",), length_s=0.5, gap_s=0.5),
    Trouble(Kind.KILL, PARTS, length_s=0.2, gap_s=0.5),
    Trouble(Kind.TERM, (NATS,)),
)
TURNS_IN_ALL = 24


async def test_a_crowd_of_turns_in_a_storm_ends_as_if_there_had_been_none(tmp_path: Path) -> None:
    folder = tmp_path / "stack"
    options = Options(folder, TURNS_IN_ALL, 1, TURNS_IN_ALL, STORM, longest_s=60.0)

    result = await run(options)

    shown = f"see {write_evidence(result, folder)}"
    assert result.violations == [], shown
    assert len(result.cases) == TURNS_IN_ALL
    killed = {part for part, kind in result.storm.counts if kind is Kind.KILL}
    assert killed == set(PARTS)
    assert {kind for _, kind in result.storm.counts} == set(Kind)
    assert sum(case.reruns for case in result.cases) > 0

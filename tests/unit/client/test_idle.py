from __future__ import annotations

import pytest

from vystak_turns_client.idle import Verdict, patience_s, verdict
from vystak_turns_rpc.vocabulary import WireStatus

DEADLINE_S = 900.0


@pytest.mark.parametrize(
    ("status", "before", "after"),
    [
        (WireStatus.RUNNING, Verdict.WAIT, Verdict.OVERDUE),
        (None, Verdict.WAIT, Verdict.OVERDUE),
        (WireStatus.PARKED, Verdict.WAIT, Verdict.REST),
        (WireStatus.DONE, Verdict.CONCLUDE, Verdict.CONCLUDE),
        (WireStatus.FAILED, Verdict.CONCLUDE, Verdict.CONCLUDE),
        (WireStatus.UNKNOWN, Verdict.CONCLUDE, Verdict.CONCLUDE),
    ],
)
def test_the_deadline_bounds_the_wait_in_every_state(
    status: WireStatus | None, before: Verdict, after: Verdict
) -> None:
    assert verdict(status, DEADLINE_S - 0.1, DEADLINE_S) is before
    assert verdict(status, DEADLINE_S, DEADLINE_S) is after
    assert verdict(status, 10 * DEADLINE_S, DEADLINE_S) is after


@pytest.mark.parametrize(
    ("waited_s", "is_silent", "expected_s"),
    [(0, False, 120), (840, True, 60), (840, False, 120), (901, True, 0), (901, False, 120)],
)
def test_silence_is_waited_for_no_longer_than_to_the_deadline(
    waited_s: float, is_silent: bool, expected_s: float
) -> None:
    assert patience_s(120, DEADLINE_S, waited_s, is_silent) == expected_s

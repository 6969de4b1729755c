from __future__ import annotations

import re
import threading
import time

import pytest

from vystak_turns.adapters.system import OneThread, RandomIds, SystemClock


def test_thread_ids_are_of_the_contracts_form_and_ordered_by_time() -> None:
    ids = RandomIds()
    first = ids.thread_id()
    later_ms = time.time_ns() // 1_000_000 + 1
    while time.time_ns() // 1_000_000 < later_ms:
        pass
    second = ids.thread_id()

    assert re.fullmatch(r"resp_[0-9a-f]{24}", first)
    assert first < second
    assert len({ids.thread_id() for _ in range(1000)}) == 1000


def test_jitter_is_between_nothing_and_one() -> None:
    assert all(0 <= RandomIds().jitter() <= 1 for _ in range(100))


async def test_the_clock_tells_seconds_since_the_epoch() -> None:
    clock = SystemClock()
    before_s = time.time()
    await clock.sleep(0)

    assert before_s <= clock.now_s() <= time.time()


async def test_all_work_is_done_on_one_thread_and_its_errors_come_back() -> None:
    run = OneThread("test")

    def fail() -> None:
        raise ValueError("told")

    names = {await run(lambda: threading.current_thread().name) for _ in range(5)}
    with pytest.raises(ValueError, match="told"):
        await run(fail)
    run.close()

    assert len(names) == 1
    assert names != {threading.current_thread().name}

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from vystak_turns_agent.checkpointer import (
    SaverError,
    held_lock,
    is_saver_trouble,
    opened_saver,
    resolve_sessions_path,
)
from vystak_turns_agent.settings import AgentSettings


def resolved(override: str | None, tmp_path: Path) -> Path:
    return resolve_sessions_path(override, tmp_path / "data", tmp_path / "temp")


def test_the_override_wins(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert resolved("/some/where.db", tmp_path) == Path("/some/where.db")


def test_a_writable_data_directory_comes_second(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert resolved(None, tmp_path) == tmp_path / "data" / "sessions.db"


@pytest.mark.parametrize("is_file", [True, False])
def test_without_a_data_directory_the_temp_directory_is_used(tmp_path: Path, is_file: bool) -> None:
    if is_file:
        (tmp_path / "data").touch()
    assert resolved(None, tmp_path) == tmp_path / "temp" / "vystak-sessions.db"


def test_an_empty_override_counts_as_unset(tmp_path: Path) -> None:
    settings = AgentSettings.from_environment({"VYSTAK_SESSIONS_PATH": ""})
    assert settings.sessions_path is None
    (tmp_path / "data").mkdir()
    assert resolved("", tmp_path) == tmp_path / "data" / "sessions.db"


def test_settings_are_read_from_the_environment_by_name() -> None:
    environment = {"VYSTAK_SESSIONS_PATH": "x.db", "VYSTAK_AGENT_HEARTBEAT_S": "3"}
    settings = AgentSettings.from_environment(environment)
    assert (settings.sessions_path, settings.heartbeat_s) == ("x.db", 3.0)


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(ValueError, match="heartbeat_s"):
        AgentSettings.from_environment({"VYSTAK_AGENT_HEARTBEAT_S": "0"})


async def test_a_lock_is_held_by_one_until_it_is_let_go(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    order = []

    async def second() -> None:
        async with held_lock(path, 0.001):
            order.append("second")

    async with held_lock(path, 0.001):
        task = asyncio.create_task(second())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), 0.02)
        order.append("first")
    await asyncio.wait_for(task, 5)
    assert order == ["first", "second"]


async def test_a_saver_error_says_whose_fault_it_is(tmp_path: Path) -> None:
    async with opened_saver(tmp_path / "s.db") as saver:
        await saver.conn.execute("DROP TABLE checkpoints")
        with pytest.raises(SaverError, match="checkpointer failed"):
            await saver.aget_tuple({"configurable": {"thread_id": "t", "checkpoint_ns": ""}})
        with pytest.raises(SaverError):
            await saver.stamps("t")


def test_saver_trouble_is_found_however_deep() -> None:
    deep = ValueError("outer")
    deep.__cause__ = RuntimeError("middle")
    deep.__cause__.__context__ = SaverError("inner")
    assert is_saver_trouble(deep)
    assert is_saver_trouble(ExceptionGroup("some", [deep]))
    assert not is_saver_trouble(ValueError("own"))

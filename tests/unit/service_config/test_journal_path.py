from __future__ import annotations

from pathlib import Path

import pytest

from vystak_turns.config import Settings, SettingsError
from vystak_turns.config_files import journal_path, journal_path_of

AGENTS = {"a": "http://127.0.0.1:8000"}


def test_the_override_wins(tmp_path: Path) -> None:
    assert journal_path("/elsewhere/t.db", tmp_path, tmp_path) == Path("/elsewhere/t.db")


def test_the_data_folder_is_taken_when_there_is_one(tmp_path: Path) -> None:
    assert journal_path(None, tmp_path, Path("/other")) == tmp_path / "turns.db"


def test_without_a_data_folder_the_file_is_a_temporary_one(tmp_path: Path) -> None:
    missing = tmp_path / "data"

    assert journal_path(None, missing, tmp_path) == tmp_path / "vystak-turns.db"


def test_a_file_in_place_of_the_data_folder_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.touch()

    assert journal_path(None, file, tmp_path) == tmp_path / "vystak-turns.db"


def test_a_data_folder_that_may_not_be_written_to_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)

    assert journal_path(None, tmp_path, Path("/other")) == Path("/other/vystak-turns.db")


def test_an_empty_override_is_none(tmp_path: Path) -> None:
    assert journal_path("", tmp_path, Path("/other")) == tmp_path / "turns.db"


@pytest.mark.parametrize(
    ("path", "words"), [("", "is a folder"), ("missing/turns.db", "there is no folder")]
)
def test_a_place_where_no_file_can_be_is_a_wrong_setting(
    tmp_path: Path, path: str, words: str
) -> None:
    settings = Settings(agents=AGENTS, turns_path=str(tmp_path / path))

    with pytest.raises(SettingsError, match=f"VYSTAK_TURNS_PATH.*{words}"):
        journal_path_of(settings)

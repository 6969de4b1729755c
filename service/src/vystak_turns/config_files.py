"""The files that settings name: where the journal is, what a credentials file holds."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from vystak_turns.config import Settings, SettingsError

DATA_FOLDER: Final = Path("/data")
JOURNAL_NAME: Final = "turns.db"
FALLBACK_NAME: Final = "vystak-turns.db"

_JWT_MARK: Final = "BEGIN NATS USER JWT"


def journal_path(override: str | None, data: Path, temporary: Path) -> Path:
    """Choose the journal's file: the override, else in `data`, else in `temporary`.

    `data` counts when it is a folder that can be written to; an empty override is none.
    """
    if override:
        return Path(override)
    if data.is_dir() and os.access(data, os.W_OK | os.X_OK):
        return data / JOURNAL_NAME
    return temporary / FALLBACK_NAME


def journal_path_of(settings: Settings) -> Path:
    """Choose the journal's file on this machine.

    Raises:
        SettingsError: no file can be made there.

    """
    path = journal_path(settings.turns_path, DATA_FOLDER, Path(tempfile.gettempdir()))
    folder = path.parent
    if path.is_dir():
        raise SettingsError(f"VYSTAK_TURNS_PATH: {path} is a folder; name a file in it")
    if not folder.is_dir():
        raise SettingsError(f"VYSTAK_TURNS_PATH: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SettingsError(f"VYSTAK_TURNS_PATH: the folder {folder} may not be written to")
    return path


def broker_credentials(file: Path | None) -> dict[str, str]:
    """Return the credentials of a file as arguments of nats-py's `connect`.

    Raises:
        SettingsError: the file cannot be read or holds something else.

    """
    if file is None:
        return {}
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"VYSTAK_NATS_CREDS: {file} cannot be read: {error}") from None
    if _JWT_MARK in text:
        return {"user_credentials": str(file)}
    user, _, password = text.partition(":")
    if not (user and password) or "\n" in text:
        raise SettingsError(
            f"VYSTAK_NATS_CREDS: {file} must be a NATS .creds file or one line user:password"
        )
    return {"user": user, "password": password}

"""What the panel needs to know, read from its environment."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vystak_turns_rpc.stream import DEFAULT_MAX_AGE_S
from vystak_turns_rpc.subjects import tasks_subject, turn_base

TOKEN_BYTES = 24
PATIENCE_S = 15.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Where broker, agent and data are, and who the one user is.

    Attributes:
        nats_url, nats_creds: the broker and the panel's credentials (VYSTAK_NATS_URL, _CREDS).
        tasks_subject: where turn control answers for the agent (VYSTAK_NATS_SUBJECT_PREFIX,
            VYSTAK_NATS_NAMESPACE, VYSTAK_AGENT_NAME).
        agent: the agent's name.
        db: file of the conversations (PANEL_DB).
        token: lets a browser in (file PANEL_TOKEN_FILE, made if there is none).
        user: who decides (PANEL_USER).
        stream_max_age_s: for a stream that does not exist yet (VYSTAK_STREAM_MAX_AGE_S).
        patience_s: how long a new message waits for turn control, which may just be restarting
            (PANEL_PATIENCE_S).

    """

    nats_url: str
    nats_creds: Path | None
    tasks_subject: str
    agent: str
    db: Path
    token: str
    user: str
    stream_max_age_s: int
    patience_s: float

    @property
    def turn_base(self) -> str:
        """What the subjects of the agent's turns begin with."""
        return turn_base(self.tasks_subject)


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Read the settings; raises ValueError in words for the one that is wrong."""
    creds = environment.get("VYSTAK_NATS_CREDS")
    agent = environment.get("VYSTAK_AGENT_NAME") or "assistant"
    prefix = environment.get("VYSTAK_NATS_SUBJECT_PREFIX") or "vystak"
    namespace = environment.get("VYSTAK_NATS_NAMESPACE") or "default"
    return Settings(
        nats_url=environment.get("VYSTAK_NATS_URL") or "nats://127.0.0.1:4222",
        nats_creds=Path(creds) if creds else None,
        tasks_subject=tasks_subject(prefix, namespace, agent),
        agent=agent,
        db=Path(environment.get("PANEL_DB") or "panel.db"),
        token=_token(Path(environment.get("PANEL_TOKEN_FILE") or "panel.token")),
        user=environment.get("PANEL_USER") or "you@localhost",
        stream_max_age_s=int(environment.get("VYSTAK_STREAM_MAX_AGE_S") or DEFAULT_MAX_AGE_S),
        patience_s=float(environment.get("PANEL_PATIENCE_S") or PATIENCE_S),
    )


def _token(file: Path) -> str:
    """Return the file's token; kept over restarts, so that open pages stay signed in."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        token = file.read_text(encoding="utf-8").strip()
        if not token:
            raise ValueError(f"{file} is empty: remove it, and a new token is made") from None
        return token
    token = secrets.token_urlsafe(TOKEN_BYTES)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(f"{token}\n")
    return token

"""Where the local stack lives: its folder, credentials, ports and programs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"


class StackError(Exception):
    """The stack cannot be started; the words say what to do."""


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports of the parts; 0: any free one."""

    nats: int = 0
    http: int = 0
    agent: int = 0
    panel: int = 0


USUAL_PORTS: Final = Ports(nats=4222, http=8130, agent=8000, panel=8100)


@dataclass(frozen=True, slots=True)
class Places:
    """Names inside the folder of one stack."""

    folder: Path

    @property
    def nats_data(self) -> Path:
        """Folder of the broker's streams."""
        return self.folder / "nats"

    @property
    def turns_db(self) -> Path:
        """File of the journal."""
        return self.folder / "turns.db"

    @property
    def sessions_db(self) -> Path:
        """File of the agent's checkpointer."""
        return self.folder / "sessions.db"

    @property
    def panel_db(self) -> Path:
        """File of the panel's conversations."""
        return self.folder / "panel.db"

    @property
    def panel_token(self) -> Path:
        """File with the word that lets a browser in at the panel; made by the panel."""
        return self.folder / "credentials" / "panel.token"

    @property
    def lock(self) -> Path:
        """File that is locked while a stack runs on this folder."""
        return self.folder / "stack.lock"

    def log(self, part: str) -> Path:
        """Output of a part."""
        return self.folder / "logs" / f"{part}.log"

    def creds(self, role: str) -> Path:
        """File with one line `user:password` of a role of the broker."""
        return self.folder / "credentials" / f"{role}.creds"

    def make(self) -> None:
        """Make the folders, readable by their owner only."""
        for folder in (self.folder, self.folder / "logs", self.folder / "credentials"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)


@contextlib.contextmanager
def locked(places: Places) -> Iterator[None]:
    """Keep a second stack away from the folder; raises StackError when one runs there."""
    with places.lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = "stop it, or name another folder with --dir"
            raise StackError(f"a stack already runs on {places.folder}: {hint}") from None
        yield


def new_password() -> str:
    """Return a password that nats-server's configuration reads as text: it begins with a letter."""
    return f"p{secrets.token_hex(24)}"


def write_creds(file: Path, user: str, password: str) -> None:
    """Write `user:password`, readable by the owner only from the first byte on."""
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(f"{user}:{password}\n")


def free_ports(wanted: Ports) -> Ports:
    """Return the wanted ports, and any free one for each that is taken or 0."""
    with contextlib.ExitStack() as probes:
        # All are held at once, so that no two of them are the same.
        bound = [probes.enter_context(_bound(port)) for port in astuple(wanted)]
        return Ports(*(probe.getsockname()[1] for probe in bound))


def _bound(wanted: int) -> socket.socket:
    for port in (wanted, 0):
        probe = socket.socket()
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            probe.close()
        else:
            return probe
    raise StackError(f"no free port on {LOOPBACK}")


def program(name: str, cure: str) -> str:
    """Return the path of a program beside this Python, else on PATH; raises StackError."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise StackError(f"the program {name} is missing: {cure}")
    return found

#!/usr/bin/env python3
"""Become nats-server, with the passwords of both roles from the files that their users read."""

import os
import sys
from pathlib import Path

SECRETS = Path("/run/secrets")
SERVER = "/app/bin/nats-server"

for role in ("turns", "panel"):
    user, _, password = (SECRETS / f"{role}.creds").read_text().strip().partition(":")
    if user != role or not password[:1].isalpha():
        sys.exit(f"{role}.creds must hold one line {role}:PASSWORD, which begins with a letter")
    os.environ[f"VYSTAK_NATS_{role.upper()}_PASSWORD"] = password
# In our place, so that signals reach it.
os.execv(SERVER, [SERVER, *sys.argv[1:]])  # noqa: S606

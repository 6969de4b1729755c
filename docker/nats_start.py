#!/usr/bin/env python3
"""Become nats-server, with the passwords of both roles from the files that their users read."""

import os
import sys
from pathlib import Path

for role in ("turns", "panel"):
    user, _, password = Path(f"/run/secrets/{role}.creds").read_text().strip().partition(":")
    if user != role or not password[:1].isalpha():
        sys.exit(f"{role}.creds must hold one line {role}:PASSWORD, which begins with a letter")
    os.environ[f"VYSTAK_NATS_{role.upper()}_PASSWORD"] = password
os.execvp("nats-server", ["nats-server", *sys.argv[1:]])

#!/usr/bin/env python3
"""Health check of a container: it is healthy when the address of its first argument answers 200."""

import http.client
import sys
from http import HTTPStatus
from urllib.parse import urlsplit

TIMEOUT_S = 3
WORDS_MAX = 2000

address = urlsplit(sys.argv[1])
connection = http.client.HTTPConnection(address.netloc, timeout=TIMEOUT_S)
try:
    connection.request("GET", address.path)
    answer = connection.getresponse()
except (OSError, http.client.HTTPException) as error:
    sys.exit(f"{address.netloc}: {error}")
if answer.status != HTTPStatus.OK:
    # The body says what is missing; `docker inspect` shows it.
    sys.exit(f"{answer.status}: {answer.read(WORDS_MAX).decode(errors='replace')}")

#!/usr/bin/env python3
"""Health check of a container: does this address answer with 200?"""

import sys
import urllib.error
import urllib.request

try:
    with urllib.request.urlopen(sys.argv[1], timeout=3) as answer:
        sys.exit(answer.status != 200)
except urllib.error.HTTPError as error:
    # The body says what is missing; `docker inspect` shows it.
    sys.exit(f"{error.code}: {error.read(2000).decode(errors='replace')}")
except OSError as error:
    sys.exit(str(error))

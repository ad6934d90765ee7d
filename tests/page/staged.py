"""What the tests of the page stage, and where their pictures go."""

import os
import pathlib

from processes import PROJECT

SETTINGS = {"hotkey": {"rate_min": 10, "ttl": "10s"}}
SCREENSHOTS = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", PROJECT / "target")) / "tests-run/screenshots"
CALLERS = ["search", "crawler", "nightly-job", "mail"]
HOT = "front-page"
MARKUP = "<img src=x onerror=alert(1)>"
BINARY = b"\x00\xff\x01\xfe"
LONG = "k" * 1024

"""What the tests of the page stage, and where their pictures go."""

import os
import pathlib

from processes import PROJECT
from recorded import pass_seconds

SETTINGS = {"hotkey": {"rate_min": 10, "ttl": "10s"}}
SCREENSHOTS = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", PROJECT / "target")) / "tests-run/screenshots"
CALLERS = ["search", "crawler", "nightly-job", "mail"]
HOT = "front-page"
MARKUP = "<img src=x onerror=alert(1)>"
BINARY = b"\x00\xff\x01\xfe"
LONG = "k" * 1024


class Stage:
    """What happens to a server in each second of its clock, which stands still between these seconds."""

    def __init__(self, server, token=None):
        self.server, self.token, self.work = server, token, []
        server.second = self.second
        server.clock.stop()

    def second(self):
        # Requests take their own time.
        self.server.clock.go()
        for work in self.work:
            work()
        self.server.clock.stop()
        pass_seconds(self.server, token=self.token)

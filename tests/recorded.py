"""Seconds of a server's history, which its own clock brings and no test waits for."""

import itertools

from processes import wait_until

# A sampler that has not begun to wait when a second passes records it together with the next one. So often is asked
# before the next one passes; a gap of ten seconds would be one in the history.
ASKED = 200


def pass_seconds(server, count=1, token=None):
    """Lets seconds pass on a clock that stands still, and waits until the history has each of them."""
    admin = server.admin(token=token)

    def recorded():
        answer = admin.get("/admin/v1/history?range=5m&series=memory_bytes")
        assert answer.status == 200, answer
        return answer.json()["start_ms"]

    for _ in range(count):
        before, polls = recorded(), itertools.count(1)
        server.clock.advance(1)
        wait_until(
            lambda: recorded() > before or next(polls) % ASKED == 0 and server.clock.advance(1),
            "the second is in the history",
        )

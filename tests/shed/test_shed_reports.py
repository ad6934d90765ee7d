"""Whatever is shed shows: in `umbo shed status`, in `umbo shed log` and in the server's log."""

import subprocess
import time

import pytest

from crowd import Crowd
from harness import binary, wait_until


def umbo(server, *arguments):
    command = [binary(), "--server", f"http://127.0.0.1:{server.port}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.parametrize("seconds", [0.05, 2])
def test_all_that_was_shed_is_in_the_log_of_overloads(tight, seconds):
    """However short it was: less than the controller needs to find any pressure."""
    shed = 0
    # On a busy machine a short crowd may not come together.
    for _ in range(20):
        with Crowd(tight, ["sheddable"] * 40, seconds) as crowd:
            pass
        shed = len(crowd.of("sheddable", 503))
        if shed > 0:
            break
    assert shed > 0

    def status():
        answer = tight.client().get("/admin/v1/shed").json()
        is_over = not any(one.get("under_way") for one in answer["episodes"])
        return answer if answer["episodes"] and is_over else None

    answer = wait_until(status, "the end of the overload")
    assert answer["episodes_total"] == len(answer["episodes"]) < 64, "older ones are forgotten"
    assert sum(sum(one["shed"].values()) for one in answer["episodes"]) == shed
    assert {one["input"] for one in answer["episodes"]} <= {"queue-delay", "latency-ratio"}
    (tier,) = [tier for one in answer["shards"] for tier in one["tiers"] if tier["shed"]]
    assert sum(tier["shed"].values()) == shed
    table = umbo(tight, "shed", "status")
    assert f"={shed}" in table.replace(",", " "), table
    assert len(umbo(tight, "shed", "log").splitlines()) == 1 + len(answer["episodes"])
    log = tight.log_text()
    assert log.count("a shard is overloaded") == log.count("a shard has recovered") == len(answer["episodes"])
    # What was shed stays where it is shown.
    time.sleep(0.3)
    assert umbo(tight, "shed", "status") == table

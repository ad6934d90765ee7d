"""The client that the contract shows, as it stands: a crowd of it is served, and no call ends in an error."""

import re
import threading

from harness import quote
from processes import PROJECT
from quotas import in_threads, limited, counters

THREADS, CALLS, RATE = 12, 12, 20


def shown_client(server, ns):
    """What the Python example of the contract defines, for this server: what it calls at its end is left out."""
    example = re.search(r"^```python\n(.*?)^```$", (PROJECT / "crates/umbo-api/README.md").read_text(), re.M | re.S)
    definitions = example[1].partition("\ncall(")[0]
    shown = "http://127.0.0.1:8080/v1/ns/demo"
    assert shown in definitions
    names = {}
    exec(definitions.replace(shown, f"http://127.0.0.1:{server.port}{ns.base}"), names)
    return names


def test_twelve_threads_of_the_client_of_the_contract_on_a_small_quota(server, ns):
    client = shown_client(server, ns)
    name = limited(server, ns, rate=RATE)
    begun = threading.Barrier(THREADS)
    server.clock.go()
    try:
        def work(number):
            begun.wait()
            return [client["call"]("PUT", f"/kv/{quote(str(number))}", b"x") for _ in range(CALLS)]

        answers = in_threads(THREADS, work)
    finally:
        server.clock.stop()
    assert answers == [[b""] * CALLS] * THREADS
    # More than the burst: most of them have waited for their turn.
    assert counters(server.client(), name)["rejected"] > 0

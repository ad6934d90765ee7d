"""What the tests of quotas share: the cost model in exact numbers, policies, callers, threads.

Owns no opinion about how the server counts: prices are worked out by hand here, and everything
else is read from answers.
"""

import concurrent.futures
import json
import re
from decimal import Decimal

from harness import PROBLEM

MICROS = 1_000_000
QUOTAS = "/admin/v1/quotas"
# So slow that nothing comes back in the time that a test lets pass.
NEVER = 0.001
QUANTUM_MS = 50

LEFT = re.compile(r'^"([a-z0-9._-]+)";r=(\d{1,15});t=(\d{1,15})$')
QUOTA = re.compile(r'^"([a-z0-9._-]+)";q=(\d{1,15});w=(\d{1,15});qu="([a-z-]+)"$')


def micros(units):
    """Millionths of a request unit; the text must be an exact decimal."""
    exact = Decimal(str(units)) * MICROS
    assert exact == exact.to_integral_value() and exact >= 0, units
    return int(exact)


def charged(answer):
    """What an answer says it was charged, in millionths.

    The head of a page goes out before its end is read: there its end line counts.
    """
    text = answer.headers["umbo-ru"]
    assert re.fullmatch(r"\d+(\.\d{0,5}[1-9])?", text), answer
    head = micros(text)
    if answer.headers.get("content-type") == "application/x-ndjson" and answer.body:
        end = answer.lines()[-1].get("end")
        if end is not None:
            return micros(end["ru"])
    return head


class Prices:
    """The cost model of the design, without its time."""

    def __init__(self, read_base=1, write_base=6, row=0.05, read_bytes=1, write_bytes=1):
        weights = (read_base, write_base, row, read_bytes, write_bytes)
        self.read_base, self.write_base, self.row, self.read_bytes, self.write_bytes = map(
            micros, weights
        )

    def read(self, rows=0, size=0):
        return self.read_base + self.row * rows - -(self.read_bytes * size) // 4096

    def write(self, rows=0, size=0):
        return self.write_base + self.row * rows - -(self.write_bytes * size) // 4096

    def count(self, rows=0, size=0):
        """A dry run of a removal: a write that only reads."""
        return self.write_base + self.row * rows - -(self.read_bytes * size) // 4096


def policy(name, rate=NEVER, unit="requests", only=None, **more):
    """A policy; `match` and its like by keyword. Of bytes there is nothing slower than one.

    `only` admits exactly so many, from 2: a bucket admits while anything is left, so that the last
    of them finds half a one, and after it nothing is left for long.
    """
    if rate == NEVER and unit.endswith("bytes"):
        rate = 1
    if only is not None:
        more["burst"] = only - 0.5
    return {"name": name, "unit": unit, "rate": rate} | more


def put_policy(client, body):
    """Stores a policy, in the place of the stored one of its name if there is one."""
    path = f"{QUOTAS}/{body['name']}"
    tag = client.get(path).headers.get("etag")
    answer = client.put(path, json.dumps(body), **({"If_Match": tag} if tag else {}))
    assert answer.status in (200, 201), answer
    return answer


def names(client):
    """Policies in effect and where they stand."""
    listed = client.get(QUOTAS).json()["policies"]
    return {each["policy"]["name"]: each["source"] for each in listed}


def counters(client, name):
    return client.get(f"{QUOTAS}/{name}").json()["counters"]


def limited(server, ns, name=None, **more):
    """Puts a policy on one namespace only, so that tests do not meet; returns its name."""
    body = policy(name or f"of-{ns.name}", **more)
    body["match"] = {"namespace": ns.name} | body.get("match", {})
    put_policy(server.client(), body)
    return body["name"]


def wait_ms(answer):
    """How long a rejected caller is told to wait; both fields agree."""
    wait = int(answer.headers["umbo-retry-after-ms"])
    assert int(answer.headers["retry-after"]) == max(1, -(-wait // 1000)), answer
    return wait


def check_rejection(answer, name, *, unit, rate, burst, scope, status=429, quantum_ms=QUANTUM_MS):
    """Holds a rejection to all that it has to say; returns the wait."""
    problem = answer.problem(status, "quota-exceeded")
    assert problem["title"].startswith("Rejected"), answer
    assert problem["policy"] == name and problem["scope"] == scope, answer
    assert problem["limit"] == {"rate": rate, "burst": burst, "unit": unit}, answer
    assert isinstance(problem["observed"], (int, float)) and problem["observed"] >= 0, answer
    assert problem["retry"]["safe"] is True, answer
    wait = wait_ms(answer)
    assert problem["retry"]["after_ms"] == wait >= quantum_ms, answer
    assert name in problem["detail"] and str(wait) in problem["detail"], answer
    assert answer.headers["umbo-ru"] == "0" and answer.headers["umbo-retry-ticket"], answer
    left, quota = LEFT.match(answer.headers["ratelimit"]), QUOTA.match(answer.headers["ratelimit-policy"])
    assert left and quota, answer
    assert left.group(1) == quota.group(1) == name and left.group(2) == "0", answer
    assert int(left.group(3)) >= 1, answer
    assert int(quota.group(2)) == int(burst) and quota.group(4) == unit, answer
    assert int(quota.group(3)) == max(1, -(-micros(burst) // micros(rate))), answer
    return wait


def rejected(answer):
    """Whether this is a rejection; anything else must not look like one."""
    is_so = answer.status in (419, 429)
    assert is_so == ("umbo-retry-after-ms" in answer.headers and answer.status < 500), answer
    if is_so and answer.body:
        assert answer.headers["content-type"] == PROBLEM, answer
    return is_so


def until_rejected(ask, most):
    """Asks until the first rejection; returns how many were served before it, and it."""
    for served in range(most):
        answer = ask()
        if rejected(answer):
            return served, answer
        assert answer.status < 500, answer
    raise AssertionError(f"{most} requests and no rejection")


def started(server):
    """Starts a server whose clock stands still from then on; also one that has run before."""
    server.clock.go()
    server.start().clock.stop()
    return server


def in_threads(count, work):
    """Runs `work(number)` in threads; returns what they returned, and raises what they raised."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return [done.result() for done in [pool.submit(work, number) for number in range(count)]]


def make_token(root, name, *grants):
    made = root.post("/admin/v1/tokens", {"name": name, "grants": list(grants)})
    assert made.status == 201, made
    return made.json()["token"]


def usage(client, ns_name, **headers):
    answer = client.get(f"/v1/ns/{ns_name}/usage", **headers)
    assert answer.status == 200, answer
    return answer.json()


def rows_of(report, caller=None, operation=None):
    """Rows of a usage report."""
    return [
        row
        for row in report["rows"]
        if (caller is None or row["caller"] == caller)
        and (operation is None or row["operation"] == operation)
    ]


def total(rows, field):
    return sum(row[field] for row in rows)


def metric_micros(server, name="umbo_request_units_total"):
    """Exact sum of a metric in request units, in millionths."""
    text = server.admin().get("/metrics").body.decode()
    found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.M)
    assert found, text
    return sum(micros(value) for value in found)


def rest(server, milliseconds):
    """Waits as told, not a moment less."""
    server.clock.advance(milliseconds / 1000)

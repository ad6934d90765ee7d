"""The document held against the server. More of it: `UMBO_TESTS_EXAMPLES=500`."""

import os
import re
import subprocess
import sys

import pytest

EXAMPLES = os.environ.get("UMBO_TESTS_EXAMPLES", "10")
HOOKS = os.path.join(os.path.dirname(__file__), "schemathesis_hooks.py")
# What may be answered to a request that follows its schemas: that something is not there or not as was said (a part of
# a value too), or that an earlier request of the same test has blocked the key.
SETTINGS = """
[checks.not_a_server_error]
# What another engine would do is answered 501.
expected-statuses = ["2xx", "3xx", "4xx", "501"]
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "304", "401", "403", "404", "409", "412", "416", "429", "5xx"]
"""
OF_OPERATORS = "^/(admin|healthz|readyz|openapi|v1/errors)"


# The operations of the port of operators are the same ones as on the other port, where values are made up too.
@pytest.mark.parametrize(
    "port, paths, phases",
    [("port", "", "examples,coverage,fuzzing"), ("admin_port", OF_OPERATORS, "examples,coverage")],
    ids=["services", "operators"],
)
def test_the_document_and_the_server_agree(fuzzed, port, paths, phases):
    """Every operation, by schema-made and schema-breaking requests; no undocumented answer."""
    ns = fuzzed.namespace("demo")
    ns.put("a", "b", b"x")
    settings = fuzzed.folder / "schemathesis.toml"
    settings.write_text(SETTINGS)
    command = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings), "run",
        f"http://127.0.0.1:{getattr(fuzzed, port)}/openapi.json", "--phases", phases,
        "--max-examples", EXAMPLES, "--no-color", "--seed", "1", "--suppress-health-check", "all",
        *(["--include-path-regex", paths] if paths else []),
    ]  # fmt: skip
    environment = os.environ | {"SCHEMATHESIS_HOOKS": HOOKS}
    done = subprocess.run(command, env=environment, cwd=fuzzed.folder, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-12_000:] + done.stderr[-2_000:]
    tested = int(re.search(r"Tested: (\d+)", done.stdout).group(1))
    cases = re.search(r"(\d+) generated", done.stdout).group(1)
    print(f"{tested} operations, {cases} requests")
    described = ns.client.get("/openapi.json").json()["paths"]
    # The document itself is tried only where its path is named.
    assert tested == sum(len(item) for path, item in described.items() if re.search(paths or "^(?!/openapi)", path))

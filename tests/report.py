"""Counts what tests/run ran, holds each count to its floor, and prints the closing line.

Reads the notes that tests/run left in a folder: checks.tsv, executables.json, cargo-test.log, pytest.xml and
pytest-clustered.xml, each where it exists. A component that ran fewer tests than its floor has failed, so
that a test that silently stops running is noticed. Tests that are marked as run against a real component of others,
and those of a crate that embeds one, count for `real/<component>` as well.
"""

import collections
import json
import pathlib
import re
import sys
import xml.etree.ElementTree


# What the tests of a crate run against.
EMBEDDED = {"umbo-store-redb": "redb"}


class Count:
    """Tests of one component."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0


def lines(path):
    return path.read_text(errors="replace").splitlines() if path.exists() else []


def packages(folder):
    """Maps the file name of each test executable to its crate."""
    names = {}
    for line in lines(folder / "executables.json"):
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message.get("executable"):
            crate = pathlib.Path(message["manifest_path"])
            name = re.search(r'^name = "(.+)"', crate.read_text(), re.M).group(1)
            names[pathlib.Path(message["executable"]).name] = name
    return names


def count_rust(folder, counts):
    names, component = packages(folder), None
    for line in lines(folder / "cargo-test.log"):
        if running := re.match(r"\s+Running .*\((.+)\)$", line):
            component = names.get(pathlib.Path(running.group(1)).name)
        elif documents := re.match(r"\s+Doc-tests (\S+)", line):
            component = documents.group(1).replace("_", "-")
        elif result := re.match(r"test result: \w+\. (\d+) passed; (\d+) failed", line):
            its_names = [component or "unknown"]
            if component in EMBEDDED:
                its_names.append(f"real/{EMBEDDED[component]}")
            for name in its_names:
                counts[name].passed += int(result.group(1))
                counts[name].failed += int(result.group(2))


def count_python(report, kind, counts):
    if not report.exists():
        return
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        area = case.get("classname", "").removeprefix("tests.").split(".")[0]
        real = [one.get("value") for one in case.iter("property") if one.get("name") == "real"]
        for component in [f"{kind}/{area}", *(f"real/{name}" for name in real)]:
            count = counts[component]
            if case.find("failure") is not None or case.find("error") is not None:
                count.failed += 1
            elif case.find("skipped") is None:
                count.passed += 1
            else:
                count.skipped += 1


def main(folder, floors_file):
    counts = collections.defaultdict(Count)
    for line in lines(folder / "checks.tsv"):
        name, result = line.split("\t")
        setattr(counts["checks"], result, getattr(counts["checks"], result) + 1)
        if result != "passed":
            print(f"FAILED: {name}")
    count_rust(folder, counts)
    count_python(folder / "pytest.xml", "processes", counts)
    count_python(folder / "pytest-clustered.xml", "clustered", counts)

    floors = {}
    for line in lines(floors_file):
        if line.strip() and not line.startswith("#"):
            component, floor = line.split()
            floors[component] = int(floor)

    below = 0
    print(f"{'component':<28}{'passed':>8}{'failed':>8}{'skipped':>9}{'floor':>8}")
    for component in sorted(counts.keys() | floors.keys()):
        count, floor = counts[component], floors.get(component, 0)
        is_below = count.passed < floor
        below += is_below
        remark = "  FEWER THAN ITS FLOOR" if is_below else ""
        print(f"{component:<28}{count.passed:>8}{count.failed:>8}{count.skipped:>9}{floor:>8}{remark}")

    # What counts for a real component has counted for its area.
    once = [count for component, count in counts.items() if not component.startswith("real/")]
    passed = sum(count.passed for count in once)
    failed = sum(count.failed for count in once) + below
    print(f"\n{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))

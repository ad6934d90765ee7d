"""Counts what tests/run ran, holds each count to its floor, and prints the closing line.

Reads the notes that tests/run left in a folder: checks.tsv, check-NAME.log, executables.json, cargo-test.log, and of the process tests
of each kind the reports of the first look (KIND.xml) and of the second one (KIND-again.xml), each where it exists. A
component that ran fewer tests than its floor has failed, so that a test that silently stops running is noticed. Tests
that are marked as run against a real component of others, and those of a crate that embeds one, count for
`real/<component>` as well.

A process test that failed in the first look and passed in the second is flaky: it counts as passed, and is named. Of
flaky tests no more than FLAKY_MAX are borne.
"""

import collections
import datetime
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

# What the tests of a crate run against.
EMBEDDED = {"umbo-store-cassandra": "cassandra", "umbo-store-redb": "redb"}
# Folder of process tests in which a report stands, by the kind of what serves them.
KINDS = {"processes": "pytest", "clustered": "pytest-clustered"}
# More of them are no accident.
FLAKY_MAX = 3
# Lines of a failed check that are printed once more in the report, where they are found.
FAILED_LINES = 40


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


def outcome(case):
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


def cases(report):
    """The tests of a report by name, each with its worst outcome: a test and its fixtures are reported apart."""
    found, order = {}, ("skipped", "passed", "failed")
    if report.exists():
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            name = f"{case.get('classname', '').removeprefix('tests.').replace('.', '/')}.py::{case.get('name')}"
            real = [one.get("value") for one in case.iter("property") if one.get("name") == "real"]
            before = found.get(name, ("skipped", []))
            worst = max(before[0], outcome(case), key=order.index)
            found[name] = (worst, before[1] or real)
    return found


def count_python(folder, kind, counts):
    """Counts the process tests of a kind; returns the names of the flaky ones."""
    first, second = (cases(folder / f"{KINDS[kind]}{look}.xml") for look in ("", "-again"))
    flaky = []
    for name, (result, real) in first.items():
        again, _ = second.get(name, (None, None))
        if result == "failed" and again == "passed":
            result = "passed"
            flaky.append(f"{kind}/{name}")
        # A file that was run again as a whole has to pass as a whole.
        elif again == "failed":
            result = "failed"
        for component in [f"{kind}/{name.split('/')[0]}", *(f"real/{one}" for one in real)]:
            count = counts[component]
            setattr(count, result, getattr(count, result) + 1)
    return flaky


def before(flaky_file, name):
    """In how many reports before this one a flaky test stands."""
    return sum(line.split()[-1] == name for line in lines(flaky_file) if line and not line.startswith("#"))


def note(flaky_file, flaky):
    """Adds the report of this run to the file of flaky tests."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    with flaky_file.open("a") as reports:
        for name in flaky:
            print(datetime.date.today(), commit or "-", name, file=reports)


def main(folder, floors_file, flaky_file):
    counts = collections.defaultdict(Count)
    for line in lines(folder / "checks.tsv"):
        name, result = line.split("\t")
        setattr(counts["checks"], result, getattr(counts["checks"], result) + 1)
        if result != "passed":
            print(f"FAILED: {name}, which ended with")
            for end in lines(folder / f"check-{name}.log")[-FAILED_LINES:]:
                print(f"  {end}")
    count_rust(folder, counts)
    flaky = [name for kind in KINDS for name in count_python(folder, kind, counts)]

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
    print(f"\nflaky: {len(flaky)}")
    for name in flaky:
        times = before(flaky_file, name)
        print(f"  {name}" + (f" (flaky before: a defect to be mended, see {flaky_file})" if times else ""))
    if len(flaky) > FLAKY_MAX:
        print(f"FAILED: more than {FLAKY_MAX} tests are flaky")
        failed += 1
    note(flaky_file, flaky)
    print(f"\n{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(*map(pathlib.Path, sys.argv[1:4])))

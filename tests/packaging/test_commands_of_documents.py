"""The documents, literally: every command and program that they show is run, in their order, and what they print
is compared with what is shown.

Each document has a network of its own (unshare), so that the ports in the text are free, and a folder of its own
with a copy of the sample. Digits, cursors and dates may differ from what is shown; `…` stands for anything.
"""

import os
import re
import shutil
import subprocess

import pytest

from package import CONFIG
from processes import PROJECT, binary

SERVER = """
umbo serve > server.log 2>&1 & server=$!
for _ in $(seq 600); do curl -sf http://127.0.0.1:8080/readyz > ready && break; sleep 0.1; done
"""
# What has been done before the text begins.
CITIES = "umbo kv import --create cities tests/data/cities-sample.ndjson 2> /dev/null\nU=http://127.0.0.1:8080\n"
# Sections that are tested elsewhere: by tests/cluster, tests/quota, tests/packaging and tests/uploads.
README_LEFT_OUT = ("As a cluster",)
CONFIG_LEFT_OUT = ("Tokens", "Umbo's own records", "Quotas", "Hot keys", "Clusters", "Moving shards", "A new home for Umbo's own records")
TAIL = re.compile(r"\s+#\s.*$")
NODE = shutil.which("node")


def sections(text):
    """Headings and what stands under them."""
    parts = re.split(r"^## (.*)$", text, flags=re.M)
    return [("", parts[0]), *zip(parts[1::2], parts[2::2])]


def blocks(document, left_out=()):
    """Language and text of the blocks of code, in order."""
    for heading, text in sections(document.read_text()):
        if heading not in left_out:
            yield from re.findall(r"^```(console|python|js)\n(.*?)^```$", text, re.M | re.S)


def commands(block):
    """The commands of a block, each with the lines that are shown under it."""
    found = []
    lines = iter(block.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            found[-1][1].append(line)
            continue
        command = line[2:]
        while command.endswith(("|", "\\")):
            command += "\n" + next(lines)
        found.append((command, []))
    return found


def runnable(command):
    """How a command is run. Only what cannot be run literally is changed."""
    bare = TAIL.sub("", command)
    if bare.startswith("cargo install"):
        return "true"  # The binary under test stands for it.
    if bare == "./tests/run":
        return "true"  # It runs this test.
    if bare == "cargo run --release":
        return SERVER + "kill -0 $server"
    if bare.startswith("umbo top"):
        # Needs a terminal; ends with Ctrl-C, which is typed once there is something to be seen.
        shown = "for _ in $(seq 600); do grep -qs RU/S screen && break; sleep 0.1; done; printf '\\003'"
        return f"rm -f screen; ({shown}) | script -qfec '{bare}' screen > /dev/null; tr -d '\\0' < screen | head -c 4000"
    if bare.startswith("umbo config show | head"):
        return command.replace("umbo config show", "(umbo config show; true)")
    return command


def normal(line):
    """A line with what differs from run to run taken out."""
    line = re.sub(r'"cursor":"[^"]*"', '"cursor":"_"', line)
    line = re.sub(r"^date: .*$", "date: _", line)
    line = re.sub(r"^umbo-request-id: .*$", "umbo-request-id: _", line)
    return re.sub(r"\d+(\.\d+)?", "0", line).strip()


def script_of(document, left_out, before):
    """One script of all blocks; marks what each command printed."""
    lines = ["set -u", "ip link set lo up", "export LC_ALL=C.UTF-8", before]
    shown, number = [], 0
    for language, block in blocks(document, left_out):
        for command, output in commands(block) if language == "console" else [(block, [])]:
            name = f"block-{number}"
            lines.append(f"echo '=== {number}'")
            if language == "console":
                lines.append(runnable(command))
            elif language == "python":
                lines.append(f"cat > {name}.py <<'END-OF-TEXT'\n{block}END-OF-TEXT\npython3 {name}.py")
            elif NODE:
                lines.append(f"cat > {name}.mjs <<'END-OF-TEXT'\n{block}END-OF-TEXT\nnode {name}.mjs")
            else:
                lines.append("true")
            lines.append('status=$?; echo; echo "=== status $status"')
            shown.append((command, output))
            number += 1
    lines.append("{ kill -9 $server; wait $server; } 2> /dev/null")
    return "\n".join(lines) + "\n", shown


def run(folder, document, left_out=(), before="", allowed=()):
    """Runs a document; returns what each command printed."""
    for tool in ("unshare", "curl", "script"):
        assert shutil.which(tool), f"{tool} is missing"
    if os.geteuid() != 0:
        pytest.skip("only root can make a network")
    (folder / "tests/data").mkdir(parents=True)
    shutil.copy(PROJECT / "tests/data/cities-sample.ndjson", folder / "tests/data")
    (folder / "bin").mkdir()
    os.symlink(binary(), folder / "bin/umbo")
    script, shown = script_of(document, left_out, before)
    (folder / "script").write_text(script)
    environment = {"PATH": f"{folder}/bin:{os.environ['PATH']}:/usr/sbin:/sbin", "HOME": str(folder), "TERM": "xterm"}
    ran = subprocess.run(
        ["unshare", "--net", "bash", "script"], cwd=folder, env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=300,
    )
    parts = re.split(r"^=== (?=\d+$)", ran.stdout, flags=re.M)[1:]
    assert len(parts) == len(shown), ran.stdout[-2000:]
    for (command, output), part in zip(shown, parts):
        printed, status = re.fullmatch(r"\d+\n(.*)\n=== status (\d+)\n", part, re.S).groups()
        assert status == "0" or command.startswith(allowed), (command, printed)
        assert "Traceback" not in printed, (command, printed)
        got = [normal(line) for line in printed.splitlines()]
        for line in (line for line in output if line.strip()):
            start, _, cut = normal(line).partition("…")
            is_there = any(one.startswith(start) if cut or "…" in line else one == start for one in got)
            assert is_there, (command, line, printed)
    return shown


def test_the_readme(tmp_path):
    ran = [command for command, _ in run(tmp_path, PROJECT / "README.md", README_LEFT_OUT)]
    assert len(ran) > 20 and any(command.startswith("umbo doctor") for command in ran)


def test_the_contract(tmp_path):
    ran = run(tmp_path, PROJECT / "crates/umbo-api/README.md", before=SERVER)
    programs = [command for command, _ in ran if "\n" in command]
    assert len(programs) == 2


def test_uploads(tmp_path):
    # Lines that fail, for what is said of them.
    before = SERVER + CITIES + "umbo ns create listings > /dev/null\n" + FAILED_ROWS + PLACES
    # The load has ended, which they say.
    allowed = ("umbo load pause", "umbo load abort")
    run(tmp_path, PROJECT / "crates/umbo-client/README.md", before=before, allowed=allowed)


# A table whose columns are not named as those of a row.
PLACES = "printf '%s\\n' country,city,lat AD,Vila,42.5 > places.csv\n"
# An import whose second row cannot be stored; its key is corrected afterwards by the one who reads the text.
FAILED_ROWS = """
printf '%s\\n' '{"pk":"a","v":"1"}' '{"pk":"b","v":"2","expires_at":5}' > rows.ndjson
umbo kv import listings rows.ndjson > /dev/null 2>&1
sed -i 's/,"expires_at":5//; s/,\\\\"expires_at\\\\":5//' rows.ndjson.failed.ndjson
umbo kv rm listings a --all > /dev/null 2>&1
cp tests/data/cities-sample.ndjson rows.ndjson
"""


def test_the_operators_guide(tmp_path):
    (tmp_path / "broken.toml").write_text('[server]\nlistn = "127.0.0.1:8080"\n')
    # No request of this id runs.
    allowed = ("umbo config check broken.toml", "umbo kill 5f3a9c01000000000007")
    run(tmp_path, CONFIG / "README.md", CONFIG_LEFT_OUT, before=SERVER + CITIES, allowed=allowed)


def test_a_difference_would_be_noticed(tmp_path):
    text = "## A\n\n```console\n$ umbo ns create demo -o json\n{\"nome\":\"demo\",…\n```\n"
    document = tmp_path / "wrong.md"
    document.write_text(text)
    with pytest.raises(AssertionError, match="nome"):
        run(tmp_path / "folder", document, before=SERVER)
    document.write_text(text.replace("ns create", "ns make").replace('{"nome":"demo",…\n', ""))
    with pytest.raises(AssertionError, match="ns make"):
        run(tmp_path / "other", document, before=SERVER)

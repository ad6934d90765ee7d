"""Commands that the documents show: each exists, with each of its flags."""

import functools
import re
import shlex
import tomllib

import pytest

from package import KUBERNETES, manifests, umbo
from processes import PROJECT

DOCUMENTS = [
    PROJECT / "README.md",
    PROJECT / "config/README.md",
    PROJECT / "crates/umbo-client/README.md",
    KUBERNETES / "README.md",
]


def command_lines(document):
    """Every call of `umbo` after a prompt, as a list of words."""
    text = re.sub(r"\\\n\s*", " ", document.read_text())
    for line in re.findall(r"^\$ (.*)$", text, re.M):
        lexer = shlex.shlex(line.replace("…", ""), posix=True, punctuation_chars=";&|")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words = []
        for word in [*lexer, ";"]:
            if set(word) <= set(";&|"):
                while words and re.fullmatch(r"\w+=.*", words[0]):
                    words.pop(0)
                if words and words[0].endswith("umbo"):
                    yield words[1:]
                words = []
            else:
                words.append(word)


def subcommands(said):
    block = said.partition("Commands:\n")[2].partition("\n\n")[0]
    return re.findall(r"^  (\S+)", block, re.M)


@functools.cache
def help_of(*path):
    return umbo(*path, "--help").stdout


def check(words):
    """Walks down the tree of commands, then looks for each flag."""
    path, said = [], help_of()
    for word in words:
        if word.startswith("-"):
            break
        if word not in subcommands(said):
            break
        path.append(word)
        said = help_of(*path)
    usage = re.search(r"^Usage: (.*)$", said, re.M).group(1)
    is_whole = "<COMMAND>" not in usage and (path or not words)
    assert is_whole, f"umbo {' '.join(words)}: {words[len(path) :][:1]} is no command"
    for word in words[len(path) :]:
        if re.match(r"--?[a-z]", word):
            flag = re.escape(word.partition("=")[0])
            assert re.search(rf"(?<![\w-]){flag}(?![\w-])", said), f"umbo {' '.join(words)}: no {word}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_every_command_that_is_shown_exists(document):
    lines = list(command_lines(document))
    assert lines, "it shows some"
    for words in lines:
        check(words)


def test_a_command_that_does_not_exist_would_be_noticed():
    for words in (["kv", "fetch"], ["shards"], ["kv", "get", "--colour"], ["shard", "verify", "--maps", "x"]):
        with pytest.raises(AssertionError):
            check(words)


@pytest.mark.parametrize("document", sorted(DOCUMENTS + [PROJECT / "crates/README.md", PROJECT / "crates/umbo-api/README.md", PROJECT / "loadtest/README.md", PROJECT / "config/recipes/README.md"]), ids=lambda path: str(path.relative_to(PROJECT)))
def test_every_link_leads_somewhere(document):
    for target in re.findall(r"\]\(([^)]+)\)", document.read_text()):
        path, _, anchor = target.partition("#")
        if path.startswith("http"):
            continue
        found = document if not path else document.parent / path
        assert found.exists(), f"{target} is not there"
        if anchor:
            heads = re.findall(r"^#+ (.*)$", found.read_text(), re.M)
            anchors = [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads]
            assert anchor in anchors, f"{target}: there is no such heading"


def test_every_setting_that_is_shown_exists(tmp_path):
    shown = [block for document in DOCUMENTS for block in re.findall(r"^```toml\n(.*?)^```$", document.read_text(), re.M | re.S)]
    assert len(shown) >= 2
    for at, block in enumerate(shown):
        file = tmp_path / f"{at}.toml"
        file.write_text(block)
        # The files that they name are on other machines.
        read = umbo("config", "show", "--config", str(file))
        assert read.returncode == 0, (block, read.stderr)


def test_the_ports_that_are_to_be_open_are_those_of_the_settings():
    table = (PROJECT / "config/README.md").read_text().partition("### Ports\n")[2].partition("\n#")[0]
    ports = {key: int(port) for port, key in re.findall(r"^\| (\d+) of [a-z ]+ \| `([a-z_.]+)` \|", table, re.M)}
    shown = umbo("config", "show").stdout
    for key, port in ports.items():
        section, name = key.split(".")
        if key != "cluster.listen":
            # By default any free port: a firewall needs one to be named.
            assert re.search(rf'^\[{section}\]\n(?:[^\[].*\n)*{name} = "127.0.0.1:{port}"', shown, re.M), key
    (config,) = [one for one in manifests() if one["kind"] == "ConfigMap"]
    listens = tomllib.loads(config["data"]["umbo.toml"])
    assert ports == {
        f"{section}.{name}": int(listens[section][name].rsplit(":", 1)[1])
        for section in listens
        for name in listens[section]
        if name.endswith("listen")
    }


def test_the_readme_is_short():
    assert len((PROJECT / "README.md").read_text().splitlines()) <= 150


# Rows of the table of limits, and the constants whose values they name.
LIMITS = {
    "name of a namespace": ["NAMESPACE_LEN_MAX"],
    "partition key": ["PARTITION_KEY_LEN_MAX"],
    "sort key": ["SORT_KEY_LEN_MAX"],
    "value": ["LARGE_VALUE_LEN_MAX", "VALUE_LEN_MAX"],
    "`Content-Type`, `Content-Encoding`": ["CONTENT_FIELD_LEN_MAX"],
    "keys of a multi-get": ["MULTI_GET_KEYS_MAX", "MULTI_GET_BYTES_MAX"],
    "rows of a batch": ["BATCH_ROWS_MAX", "BATCH_BODY_LEN_MAX"],
    "rows of one partition in an atomic batch": ["ATOMIC_ROWS_MAX"],
    "page of a range or scan": ["PAGE_BYTES_DEFAULT", "PAGE_BYTES_MAX", "JSON_ARRAY_ROWS_MAX"],
    "segments of a scan": ["SCAN_SEGMENTS_MAX"],
    "time to live": ["TTL_SECONDS_MAX"],
    "`Umbo-Timeout-Ms`": ["TIMEOUT_MS_MAX"],
    "`Idempotency-Key`": ["IDEMPOTENCY_KEY_LEN_MAX", "IDEMPOTENCY_SECONDS_DEFAULT", "IDEMPOTENCY_SECONDS_MAX"],
    "idempotency records of a namespace": ["IDEMPOTENCY_BYTES_MAX"],
}
# Slots, and bounds of the store's own steps, which no client meets.
INTERNAL = {"SLOTS", "CHUNK_ROWS_MAX", "CHUNK_BYTES_MAX", "LARGE_CHUNK_LEN"}


def constants(file):
    found = re.findall(r"^pub const (\w+): \w+ = ([\d_ <]+|[A-Z_]+ as u\d+);", (PROJECT / file).read_text(), re.M)
    values = {}
    for name, value in found:
        other = value.split(" ")[0]
        # Numbers and shifts, by the pattern, or another constant.
        values[name] = values[other] if other in values else eval(value.replace("_", ""))  # noqa: S307
    return values


def written(number, name):
    """A number as the table writes it."""
    is_size = "BYTES" in name or "BODY" in name or name.endswith("VALUE_LEN_MAX")
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if is_size and number >= size:
            return f"{number // size} {unit}"
    return f"{number:,}"


def test_the_table_of_limits_is_that_of_the_code():
    limits = constants("crates/umbo-types/src/limits.rs")
    named = {name for names in LIMITS.values() for name in names}
    assert set(limits) - INTERNAL == named - {"TIMEOUT_MS_MAX"}
    limits |= constants("crates/umbo-http/src/fields.rs")
    text = (PROJECT / "crates/umbo-api/README.md").read_text().partition("## Limits")[2]
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", text, re.M))
    for row, names in LIMITS.items():
        for name in names:
            assert written(limits[name], name) in rows[row], (row, name)


def test_the_table_of_permissions_names_them_all():
    text = (PROJECT / "crates/umbo-types/src").glob("*.rs")
    permissions = set()
    for file in text:
        body = re.search(r"pub enum Permission \{(.*?)^\}", file.read_text(), re.S | re.M)
        if body:
            permissions = {permission.lower() for permission in re.findall(r"^    (\w+),$", body.group(1), re.M)}
    guide = (PROJECT / "config/README.md").read_text().partition("| permission | allows |")[2].partition("\n\n")[0]
    assert permissions and set(re.findall(r"^\| `(\w+)` \|", guide, re.M)) == permissions

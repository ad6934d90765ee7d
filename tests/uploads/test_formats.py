"""Imports and exports in NDJSON, CSV and Parquet: the same rows in each."""

import csv
import gzip
import json
import shutil

import pytest

from bulk import read_rows, run, start
from harness import b64u, row_bytes
from processes import PROJECT

CITIES = PROJECT / "tests/data/cities-sample.ndjson"
FILES = ["cities.ndjson.zst", "cities.csv", "cities.csv.gz", "cities.parquet"]


def cities():
    return read_rows(CITIES)[0]


def exported(server, namespace, folder):
    """All rows of a namespace, by key, without what differs between two imports of the same rows."""
    run(server, "kv", "export", namespace, "-f", f"{namespace}.ndjson", "--overwrite", folder=folder)
    rows = {}
    for line in (folder / f"{namespace}.ndjson").read_text(encoding="utf-8").splitlines()[:-1]:
        row = json.loads(line)
        row.pop("version")
        rows[row_bytes(row, "pk"), row_bytes(row, "sk")] = row
    return rows


@pytest.fixture(scope="module")
def stored(server):
    """A namespace with the cities, and rows of every kind."""
    lines = [
        {"pk64": b64u(b"\xff\x00"), "sk64": b64u(b"\xfe"), "v64": b64u(bytes(range(256)))},
        {"pk": "quotes \" , and\nlines\r", "sk": "", "v": "a,b\n\"c\"\r\n", "content_type": "text/csv; x"},
        {"pk": "expires", "sk": "é", "v": "", "expires_at": 4_000_000_000_000},
        {"pk": "number", "sk": "0012", "v": "1.50"},
    ]
    answer = server.namespace("stored").write(lines + CITIES.read_text(encoding="utf-8").splitlines())
    assert answer.status == 200 and answer.lines()[-1]["end"]["failed"] == 0, answer
    return server


@pytest.mark.parametrize("name", FILES)
def test_what_is_exported_imports_as_the_same(stored, folder, name):
    run(stored, "kv", "export", "stored", "-f", name, folder=folder)
    copy = "copy-" + name.replace(".", "-")
    said = run(stored, "kv", "import", "--create", copy, name, folder=folder)
    assert "504 rows written, 0 failed" in said, said
    assert exported(stored, copy, folder) == exported(stored, "stored", folder)


def test_csv_has_a_header_and_a_record_a_row(stored, folder):
    run(stored, "kv", "export", "stored", "-f", "rows.csv", folder=folder)
    with open(folder / "rows.csv", encoding="utf-8", newline="") as lines:
        records = list(csv.DictReader(lines))
    assert len(records) == 504
    found = {(one["pk"], one["sk"]): one["v"] for one in records}
    assert cities().items() <= found.items()


def test_an_empty_namespace_is_a_header(server, folder):
    server.client().put("/admin/v1/namespaces/nothing", b"{}")
    for name in ["none.csv", "none.parquet"]:
        run(server, "kv", "export", "nothing", "-f", name, folder=folder)
        said = run(server, "kv", "import", "--create", "nothing-too", name, folder=folder)
        assert "0 rows written, 0 failed" in said, said


def test_named_columns_are_keys_and_values(server, folder):
    with open(folder / "cities.csv", "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["name", "city", "country", "op"])
        for (country, city), value in cities().items():
            writer.writerow([json.loads(value)["name"], city, country, "none of import's"])
    columns = ["--pk", "country", "--sk", "city"]
    run(server, "kv", "import", "--create", "by-name", "cities.csv", *columns, "--value", "name", folder=folder)
    expected = {key: json.loads(value)["name"] for key, value in cities().items()}
    found = {(row["pk"], row["sk"]): row["v"] for row in exported(server, "by-name", folder).values()}
    assert found == expected
    run(server, "kv", "import", "--create", "by-rest", "cities.csv", *columns, "--value-rest", folder=folder)
    found = {(row["pk"], row["sk"]): json.loads(row["v"]) for row in exported(server, "by-rest", folder).values()}
    assert found == {key: {"name": name, "op": "none of import's"} for key, name in expected.items()}


def test_wrong_rows_are_told_with_line_and_reason_and_the_others_are_written(server, folder):
    (folder / "rows.csv").write_bytes(b"pk,v\na,1\nb\nc,\"x\ny\"\n\xff,2\nd,4\n")
    said = run(server, "kv", "import", "--create", "ragged", "rows.csv", folder=folder, code=7)
    assert "3 rows written, 2 failed" in said, said
    failed = [json.loads(line) for line in (folder / "rows.csv.failed.ndjson").read_text().splitlines()]
    reasons = {one["failed"]["line"]: json.dumps(one) for one in failed}
    assert sorted(reasons) == [3, 6]
    assert "it has 1 cell, but the header has 2 columns" in reasons[3] and "'pk' is not UTF-8" in reasons[6]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", b"", "it is empty"),
        ("a.csv", b"pk,name\na,b\n", "column 'name' is not a field"),
        ("a.csv", b"id,v\na,b\n", "column 'id' is not a field"),
        ("a.parquet", b"pk,v\na,b\nc,d\n", "it does not end as Parquet does"),
        ("a.parquet", b"", "it is too short"),
        ("a.ndjson", b"pk,v\na,b\n", "name its format with --format csv"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_name(server, folder, name, content, says):
    (folder / name).write_bytes(content)
    said = run(server, "kv", "import", "--create", "refused", name, folder=folder, code=2)
    assert says in said, said


def test_formats_that_cannot_be_are_refused(server, folder):
    shutil.copy(CITIES, folder / "rows.ndjson")
    for arguments, says in [
        (["kv", "import", "n", "rows.ndjson", "--pk", "x"], "is NDJSON, which has fields and no columns"),
        (["kv", "export", "n", "-f", "x.parquet", "--resume"], "cannot be continued"),
        (["kv", "export", "n", "-f", "x.parquet", "--compress", "zstd"], "compressed within its columns"),
        (["kv", "import", "n", "-", "--format", "parquet"], "from a file, not from a stream"),
    ]:
        said = run(server, *arguments, folder=folder, code=2)
        assert says in said, (arguments, said)


@pytest.mark.parametrize("sent", [b"", b"\xef\xbb\xbf", gzip.compress(b"")], ids=["nothing", "mark", "gzip"])
def test_a_pipe_without_a_line_is_the_end_of_a_command_that_failed(stored, folder, sent):
    said = run(stored, "kv", "import", "stored", "-", folder=folder, input=sent, code=7)
    assert "stdin is empty" in said, said
    run(stored, "kv", "import", "stored", "-", "--format", "csv", folder=folder, input=b"pk,v\n")
    run(stored, "kv", "import", "stored", "-", folder=folder, input=b"\n")


def test_a_column_file_goes_through_a_pipe(stored, folder):
    with open(folder / "out.csv", "wb") as out:
        command = start(stored, "kv", "export", "stored", "--format", "csv", folder=folder, stdout=out)
        assert command.wait(timeout=300) == 0
    with open(folder / "out.csv", "rb") as rows:
        said = run(stored, "kv", "import", "--create", "piped", "-", "--format", "csv", folder=folder, stdin=rows)
    assert "504 rows written" in said, said


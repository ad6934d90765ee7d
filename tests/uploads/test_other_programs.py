"""Files that pyarrow, DuckDB and polars write: every row and value is what was written."""

import decimal
import itertools
import json
import random
import struct
from datetime import date, datetime, time, timedelta

import duckdb
import polars
import pyarrow
import pytest
from pyarrow import csv, parquet

from bulk import run
from harness import b64u

ROWS = 400
EPOCH = datetime(1970, 1, 1)
NUMBERS = itertools.count(1)
# What each compression is called by each program; none where it has no such compression.
CODECS = {
    "none": ("none", "uncompressed", "uncompressed"),
    "snappy": ("snappy", "snappy", "snappy"),
    "gzip": ("gzip", "gzip", "gzip"),
    "zstd": ("zstd", "zstd", "zstd"),
    "brotli": ("brotli", "brotli", "brotli"),
    "lz4": ("lz4", "lz4_raw", "lz4"),
}
UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def table():
    """A column of each type: random values, their bounds, and nulls."""
    numbers = random.Random(11)

    def column(kind, bounds, make):
        values = [*bounds, None, *(make() if numbers.random() < 0.9 else None for _ in range(ROWS))]
        return pyarrow.array(values[:ROWS], kind)

    def whole(bits, is_signed):
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)
        return [low, high], lambda: numbers.randint(low, high)

    def text():
        return numbers.choice(["", "é\"\n", "a,b;c\td", "null", "0012", "'", "\\", "x" * 300, str(numbers.random())])

    def decimals(digits, scale):
        most = 10**digits - 1
        make = lambda number: decimal.Decimal(number).scaleb(-scale, decimal.Context(digits))
        return [make(most), make(-most), make(0), make(-1)], lambda: make(numbers.randint(-most, most))

    def instant(unit):
        most = 10 ** (9 + UNITS[unit])
        return [0, -1, most, -most], lambda: numbers.randint(-most, most)

    day = date.fromordinal
    columns = {"id": pyarrow.array(range(ROWS), pyarrow.int32())}
    for bits, is_signed in itertools.product([8, 16, 32, 64], [True, False]):
        name = f"{'' if is_signed else 'u'}int{bits}"
        columns[name] = column(getattr(pyarrow, name)(), *whole(bits, is_signed))
    floats = [0.0, -0.0, float("inf"), float("-inf"), float("nan")]
    single = lambda: struct.unpack("f", struct.pack("f", numbers.gauss(0, 1e6)))[0]
    columns["float32"] = column(pyarrow.float32(), [*floats, 2.0**127, 2.0**-149], single)
    columns["float64"] = column(pyarrow.float64(), [*floats, 1.7e308, 5e-324], lambda: numbers.gauss(0, 1e-3))
    columns["bool"] = column(pyarrow.bool_(), [], lambda: numbers.random() < 0.5)
    columns["string"] = column(pyarrow.string(), [""], text)
    columns["binary"] = column(pyarrow.binary(), [b"", b"\xff\x00"], lambda: numbers.randbytes(numbers.randrange(20)))
    columns["dictionary"] = column(pyarrow.string(), [], lambda: numbers.choice("abc")).dictionary_encode()
    for digits, scale in [(4, 2), (9, 0), (18, 6), (38, 10)]:
        columns[f"decimal{digits}"] = column(pyarrow.decimal128(digits, scale), *decimals(digits, scale))
    for unit in UNITS:
        columns[f"time_{unit}"] = column(pyarrow.timestamp(unit), *instant(unit))
        columns[f"utc_{unit}"] = column(pyarrow.timestamp(unit, "UTC"), *instant(unit))
    bounds = [day(1), date(1969, 12, 31), date(2000, 2, 29), date(9999, 12, 31)]
    columns["date"] = column(pyarrow.date32(), bounds, lambda: day(numbers.randint(1, 3_652_059)))
    clock = lambda: time(numbers.randrange(24), 59, numbers.randrange(60), numbers.randrange(10**6))
    columns["clock"] = column(pyarrow.time64("us"), [time(0), time(23, 59, 59, 999_999)], clock)
    columns["nothing"] = pyarrow.nulls(ROWS)
    some = lambda make: [make() if numbers.random() < 0.8 else None for _ in range(numbers.randrange(4))]
    small = lambda: numbers.randint(-9, 9)
    columns["list"] = column(pyarrow.list_(pyarrow.int64()), [[], [None]], lambda: some(small))
    lists = pyarrow.list_(pyarrow.list_(pyarrow.string()))
    columns["lists"] = column(lists, [[], [None], [[]]], lambda: some(lambda: some(text)))
    kind = pyarrow.struct([("a", pyarrow.int32()), ("b", pyarrow.list_(pyarrow.string())), ("c", pyarrow.bool_())])
    pick = lambda make: make() if numbers.random() < 0.8 else None
    group = lambda: {"a": pick(small), "b": pick(lambda: some(text)), "c": pick(lambda: True)}
    columns["struct"] = column(kind, [], group)
    columns["structs"] = column(pyarrow.list_(kind), [[]], lambda: some(group))
    return pyarrow.table(columns)


def shown(value, kind):
    """What a value is in JSON, and numbers as Python reads them from it."""
    if value is None:
        return None
    types = pyarrow.types
    if types.is_timestamp(kind):
        digits = max(UNITS[kind.unit], 3)
        seconds, part = divmod(value, 10 ** UNITS[kind.unit])
        part *= 10 ** (digits - UNITS[kind.unit])
        at = EPOCH + timedelta(seconds=seconds)
        return f"{at.isoformat()}.{part:0{digits}}" + ("Z" if kind.tz else "")
    if types.is_list(kind):
        return [shown(one, kind.value_type) for one in value]
    if types.is_struct(kind):
        return {field.name: shown(value[field.name], field.type) for field in kind}
    if types.is_floating(kind):
        single = lambda: struct.pack("f" if kind.bit_width == 32 else "d", value)
        return {"nan": "NaN", "inf": "inf", "-inf": "-inf"}.get(str(value)) or single()
    if types.is_binary(kind):
        return b64u(value)
    if types.is_date(kind):
        return value.isoformat()
    if types.is_time(kind):
        return value.isoformat("microseconds")
    return decimal.Decimal(value) if types.is_decimal(kind) else value


def read(value, kind):
    """A value of a row that was read, to be compared with what was written."""
    if pyarrow.types.is_floating(kind) and value is not None and not isinstance(value, str):
        return struct.pack("f" if kind.bit_width == 32 else "d", value)
    return value


def expected(rows):
    """The values of a table, by the key of their row."""
    columns = {}
    for name in rows.column_names[1:]:
        column, kind = rows[name], rows.schema.field(name).type
        kind = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
        cells = column.cast(pyarrow.int64()) if pyarrow.types.is_timestamp(kind) else column
        columns[name] = [shown(cell, kind) for cell in cells.to_pylist()]
    return {str(key): {name: columns[name][at] for name in columns} for at, key in enumerate(rows["id"].to_pylist())}


def compare(server, namespace, rows):
    """Compares the rows of a namespace with a table, each value by itself."""
    kinds = {field.name: field.type for field in rows.schema}
    wanted, found = expected(rows), {}
    for row in server.namespace(namespace).scan_all():
        numbers = {"parse_int": lambda text: float(text) if text == "-0" else int(text), "parse_float": decimal.Decimal}
        value = json.loads(row["v"], **numbers)
        found[row["pk"]] = {name: read(cell, kinds[name]) for name, cell in value.items()}
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key] == value, [(name, found[key].get(name), one) for name, one in value.items()]


def load(server, folder, name, rows, *more, way="import"):
    """Loads a file in one of two ways, and compares its rows."""
    namespace, columns = f"others-{next(NUMBERS)}", ["--pk", "id", "--value-rest", *more]
    if way == "import":
        said = run(server, "kv", "import", "--create", namespace, name, *columns, folder=folder)
        assert f"{rows.num_rows} rows written, 0 failed" in said, said
    else:
        run(server, "ns", "create", namespace, folder=folder)
        run(server, "load", "push", namespace, name, *columns, "--wait", folder=folder)
    compare(server, namespace, rows)


@pytest.fixture(scope="module")
def rows():
    return table()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("page", ["1.0", "2.0"])
def test_parquet_of_pyarrow(server, folder, rows, codec, page):
    options = {"compression": CODECS[codec][0], "data_page_version": page, "row_group_size": 150, "data_page_size": 512}
    parquet.write_table(rows, folder / "rows.parquet", use_dictionary=page == "1.0", **options)
    load(server, folder, "rows.parquet", rows, way="push" if codec == "zstd" else "import")


def test_parquet_of_pyarrow_in_other_encodings(server, folder, rows):
    encodings = {
        "int64": "DELTA_BINARY_PACKED",
        "float64": "BYTE_STREAM_SPLIT",
        "string": "DELTA_BYTE_ARRAY",
        "binary": "DELTA_LENGTH_BYTE_ARRAY",
    }
    options = {"use_dictionary": False, "column_encoding": encodings, "write_page_checksum": True}
    parquet.write_table(rows, folder / "rows.parquet", version="2.6", write_page_index=True, **options)
    load(server, folder, "rows.parquet", rows)


@pytest.mark.parametrize("way", ["import", "push"])
def test_parquet_as_spark_writes_it_by_default(server, folder, rows, way):
    options = {"flavor": "spark", "version": "1.0", "data_page_version": "1.0", "compression": "snappy"}
    options |= {"use_deprecated_int96_timestamps": True, "use_compliant_nested_type": False}
    # INT96 counts nanoseconds, and its instants have no zone.
    int96 = pyarrow.timestamp("ns", "UTC")
    names = [name for name in rows.column_names if pyarrow.types.is_timestamp(rows.schema.field(name).type)]
    parquet.write_table(rows, folder / "part-0.snappy.parquet", **options)
    for name in names:
        kind = rows.schema.field(name).type
        cells = rows[name].cast(pyarrow.timestamp("ns", kind.tz))
        cells = cells.cast(int96) if kind.tz else cells.cast(pyarrow.int64()).cast(int96)
        rows = rows.set_column(rows.column_names.index(name), name, cells)
    load(server, folder, "part-0.snappy.parquet", rows, way=way)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", ["V1", "V2"])
def test_parquet_of_duckdb(server, folder, rows, codec, version):
    name = CODECS[codec][1]
    options = f"FORMAT parquet, COMPRESSION {name}, PARQUET_VERSION {version}, ROW_GROUP_SIZE 2048"
    # DuckDB has no time stamps in seconds or milliseconds with a zone.
    rows = rows.drop_columns(["utc_s", "utc_ms", "utc_ns"])
    if version == "V2":
        # It writes differences that are longer than 32 bits, which pyarrow does not read either.
        rows = rows.drop_columns(["int32", "uint32"])
    database = duckdb.connect()
    database.register("written", rows)
    database.execute("SET TimeZone = 'UTC'")
    database.execute(f"COPY (SELECT * FROM written) TO '{folder}/rows.parquet' ({options})")
    # What is written is microseconds where the column had seconds.
    at = rows.column_names.index("time_s")
    rows = rows.set_column(at, "time_s", rows["time_s"].cast(pyarrow.timestamp("us")))
    load(server, folder, "rows.parquet", rows, way="push" if codec == "snappy" else "import")


@pytest.mark.parametrize("codec", CODECS)
def test_parquet_of_polars(server, folder, rows, codec):
    # Polars has no seconds.
    for name in ["time_s", "utc_s"]:
        at, kind = rows.column_names.index(name), rows.schema.field(name).type
        rows = rows.set_column(at, name, rows[name].cast(pyarrow.timestamp("ms", kind.tz)))
    frame = polars.from_arrow(rows)
    # Its time of day counts nanoseconds.
    frame = frame.drop("clock")
    frame.write_parquet(folder / "rows.parquet", compression=CODECS[codec][2], row_group_size=170, data_page_size=512)
    rows = rows.drop_columns(["clock"])
    load(server, folder, "rows.parquet", rows, way="push" if codec == "zstd" else "import")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ("(INTERVAL 1 DAY)", "column 'x' has the type INTERVAL"),
        ("(42::VARIANT)", "column 'x' has the type Variant"),
        # A difference of more than 32 bits.
        ("('-2147483648'::INT), (2147483647), (1)", "it cannot be read as Parquet: Invalid delta bit width"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(server, folder, values, says):
    rows, options = f"SELECT 1 AS id, x FROM (VALUES {values}) AS t(x)", "FORMAT parquet, PARQUET_VERSION V2"
    duckdb.connect().execute(f"COPY ({rows}) TO '{folder}/refused.parquet' ({options})")
    columns = ["--pk", "id", "--value-rest"]
    said = run(server, "kv", "import", "--create", "refused", "refused.parquet", *columns, folder=folder, code=2)
    assert says in said, said


def plain_rows(rows):
    """The columns that CSV can tell: text, and whole numbers as text."""
    names = ["id", "int8", "uint64", "int64", "bool", "string", "dictionary", "date"]
    rows = rows.select(names)
    for at, name in enumerate(names):
        rows = rows.set_column(at, name, rows[name].cast(pyarrow.string()))
    return rows


@pytest.mark.parametrize("way", ["import", "push"])
@pytest.mark.parametrize("program", ["pyarrow", "duckdb", "duckdb with semicolons", "polars", "polars of Excel"])
def test_csv(server, folder, rows, program, way):
    selected = rows.select(plain_rows(rows).column_names)
    options = ["--null", ""]
    if program == "pyarrow":
        csv.write_csv(selected, folder / "rows.csv")
    elif program == "duckdb":
        duckdb.from_arrow(selected).write_csv(f"{folder}/rows.csv")
    elif program == "duckdb with semicolons":
        options = ["--null", "NULL", "--delimiter", ";"]
        duckdb.from_arrow(selected).write_csv(f"{folder}/rows.csv", sep=";", na_rep="NULL")
    else:
        more = {"include_bom": True, "line_terminator": "\r\n"} if "Excel" in program else {}
        polars.from_arrow(selected).write_csv(folder / "rows.csv", **more)
    load(server, folder, "rows.csv", plain_rows(rows), *options, way=way)


def test_compressed_csv(server, folder, rows):
    selected = rows.select(plain_rows(rows).column_names)
    with pyarrow.CompressedOutputStream(folder / "rows.csv.gz", "gzip") as out:
        csv.write_csv(selected, out)
    load(server, folder, "rows.csv.gz", plain_rows(rows), "--null", "")
    database = duckdb.connect()
    database.register("written", selected)
    database.execute(f"COPY written TO '{folder}/rows.csv.zst' (FORMAT csv, HEADER, COMPRESSION zstd)")
    load(server, folder, "rows.csv.zst", plain_rows(rows), "--null", "")

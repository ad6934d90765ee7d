"""A table of Spark as the next version of a namespace:

    spark-submit --py-files umbo_load.py spark_load.py NAMESPACE TABLE FOLDER PARTS

The workers write PARTS files of Parquet to FOLDER, which the driver can read, and the driver uploads them. They are in
the order of their keys as a whole, so that the server applies each while the next is sent, and sorts nothing. A part has
256 MiB at most."""

import glob
import hashlib
import sys
import time

from umbo_load import Loads


def write(spark, table, folder, parts):
    """Writes the rows of a table: the key in two columns, the others as one JSON object."""
    rows = spark.table(table).selectExpr("country AS pk", "city AS sk", "to_json(struct(*)) AS v")
    rows.repartitionByRange(parts, "pk", "sk").sortWithinPartitions("pk", "sk").write.mode("overwrite").parquet(folder)


def load(loads, folder, poll_seconds=5):
    """Uploads the files of a folder and waits until their rows are live. Run again, it goes on with the same files."""
    files = sorted(glob.glob(f"{folder}/part-*.parquet"))
    # Spark gives the files of each write names of their own.
    key = hashlib.sha256("\n".join(files).encode()).hexdigest()
    load = loads.create(key)
    if loads.look(load)["state"] in ("created", "uploading"):
        for number, file in enumerate(files):
            loads.upload(load, number, file)
        loads.seal(load, len(files))
    while not loads.is_live(load):
        time.sleep(poll_seconds)
    return load


def main(namespace, table, folder, parts):
    from pyspark.sql import SparkSession

    # Data that is read after the load was created misses no write; a table that only this job loads needs no such care.
    write(SparkSession.builder.getOrCreate(), table, folder, int(parts))
    print(load(Loads(namespace), folder), "is live")


if __name__ == "__main__":
    main(*sys.argv[1:])

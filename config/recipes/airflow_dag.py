"""A nightly load in Airflow 2.5 or newer: the next version of a namespace from the files of a folder, live at once or not
at all. umbo_load.py stands beside this file in the folder of the DAGs."""

import glob
import os
from datetime import datetime, timedelta

from airflow.exceptions import AirflowFailException
from umbo_load import Failed, Loads

try:
    from airflow.sdk import dag, task
except ImportError:
    from airflow.decorators import dag, task

NAMESPACE = os.environ.get("UMBO_NAMESPACE", "listings")
FILES = os.environ.get("UMBO_FILES", "/data/listings/{day}/part-*.parquet")


@dag(
    schedule="15 2 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 5, "retry_delay": timedelta(minutes=2)},
)
def nightly_listings():
    @task
    def create(run_id=None):
        # A run that is started by hand for the same day is another load, and so is one that is cleared once it has failed.
        return Loads(NAMESPACE).create(f"airflow-{NAMESPACE}-{run_id}")

    @task
    def files(ds=None):
        found = sorted(glob.glob(FILES.format(day=ds)))
        if not found:
            raise FileNotFoundError(FILES.format(day=ds))
        return list(enumerate(found))

    @task(max_active_tis_per_dag=4)
    def upload(load, part):
        Loads(NAMESPACE).upload(load, *part)

    @task
    def seal(load, parts):
        Loads(NAMESPACE).seal(load, len(parts))

    @task.sensor(poke_interval=30, timeout=6 * 3600, mode="reschedule")
    def wait(load):
        try:
            return Loads(NAMESPACE).is_live(load)
        except Failed as failure:
            raise AirflowFailException(str(failure)) from None

    @task(trigger_rule="one_failed")
    def abandon(load):
        Loads(NAMESPACE).abandon(load)

    load, parts = create(), files()
    uploaded = upload.partial(load=load).expand(part=parts)
    sealed, live = seal(load, parts), wait(load)
    uploaded >> sealed >> live >> abandon(load)


nightly_listings()

"""The current tables as views of a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from shadowaudit.spark.tables import store, tasks
from shadowaudit.spark.tables.schemas import TABLES
from shadowaudit.spark.tables.store import Current

RECIPIENTS = "recipients"
_RECIPIENTS = """
    SELECT one.*, network_message_id, message_id, subject, sender, owner, accepted_at, day
    FROM (SELECT *, explode(recipients) AS one FROM messages)
"""


def create(spark: SparkSession, uri: str, version: int | None = None) -> Current:
    """Temporary views with the names of the tables, and ``recipients``. Returns what they show.

    ``version``: as the tables were then, and not as they are now.

    Raises NoTablesError, TablesError, OSError.
    """
    found = store.current(uri, version)
    for name in TABLES:
        rows = tasks.frame(spark, found.place, name, found.files(name))
        rows.createOrReplaceTempView(name)
    spark.sql(_RECIPIENTS).createOrReplaceTempView(RECIPIENTS)
    return found

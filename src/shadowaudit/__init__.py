"""The audit: by the tracking logs of all nodes, was an acknowledged message lost, doubled, or held once only?

It shares nothing with the relay but the log's format (docs/reference/tracking-log.md), and reads Exchange's
own logs too. Data flows one way:

    files ─▶ logs: facts of each file, partial states ─▶ engine: merge, suspects ─▶ core: verdict ─▶ report

``core`` decides, ``logs`` reads, ``engine`` merges and judges on this machine, ``report`` shows. ``spark``
does the same on Spark, and gives the rows themselves to queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def session(conf: Mapping[str, str] | None = None) -> Any:
    """A session of Spark on this machine that can read tracking logs, on a Java that is found.

    If one is open, it is that one. ``conf``: settings of Spark.
    """
    from shadowaudit.spark.session import open_session

    opened = open_session(conf or {})
    register(opened)
    return opened


def register(spark: Any) -> None:
    """Let that session of Spark read tracking logs: ``spark.read.format("message_tracking").load(places)``.

    A repeated call does no harm.
    """
    from shadowaudit.spark.source import register as registered

    registered(spark)


def views(events: Any) -> None:
    """Make temporary views of these events in their session: ``events``, ``traffic`` and others.

    ``events`` is a DataFrame with all columns. A repeated call replaces the views.
    """
    from shadowaudit.spark.views import create

    create(events)


def tables(spark: Any, uri: str, version: int | None = None) -> Any:
    """Make temporary views of the tables that ``shadowaudit ingest --tables`` keeps there, as they are now or
    were in that ``version``.

    Each has the name of its table (docs/reference/tables.md); ``recipients`` has a row for each recipient of
    each message. A repeated call replaces the views. Returns what they show, with its ``version``. Raises
    ``spark.tables.store.TablesError`` if there are none, and OSError.
    """
    from shadowaudit.spark.tables.reading import create

    return create(spark, uri, version)

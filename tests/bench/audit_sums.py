"""The least that an audit has to do, by others' readers: parse the text, and sum by message.

``python -m tests.bench.audit_sums duckdb|spark DIR`` prints how many messages lost recipients.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from shadowlab.generate.writing import FIELDS

NAMES = [name.replace("-", "_") for name in FIELDS.split(",")]
SUMS = """
SELECT count(*) AS messages, count_if(owed > 0 AND held = 0) AS lost FROM (
  SELECT network_message_id,
         sum(CASE WHEN event_id IN ('RECEIVE', 'DSN') THEN n ELSE 0 END)
           - sum(CASE WHEN event_id IN ('DELIVER', 'SEND', 'SENDEXTERNAL', 'FAIL') THEN n ELSE 0 END) AS owed,
         sum(CASE WHEN event_id IN ('HADISCARD') THEN n ELSE 0 END) AS let_go,
         sum(CASE WHEN event_id = 'HAREDIRECT' THEN 1 ELSE 0 END) AS redirects,
         sum(CASE WHEN event_id = 'HARECEIVE' THEN 1 ELSE 0 END) AS holds,
         sum(CASE WHEN event_id = 'LOAD' THEN 1 ELSE 0 END) AS held,
         min(CASE WHEN event_id = 'RECEIVE' THEN date_time END) AS received,
         max(CASE WHEN event_id IN ('DELIVER', 'SEND', 'SENDEXTERNAL', 'FAIL') THEN date_time END) AS ended
  FROM (SELECT date_time, event_id, network_message_id, CAST(recipient_count AS BIGINT) AS n FROM rows
        WHERE coalesce(network_message_id, '') <> '')
  GROUP BY network_message_id)
"""


def by_duckdb(logs: Path) -> tuple[int, float]:
    import duckdb

    began = time.monotonic()
    columns = ", ".join(f"'{name}': 'VARCHAR'" for name in NAMES)
    source = (
        f"read_csv('{logs}/*/*.LOG', header=false, delim=',', quote='\"', escape='\"', comment='#', "
        f"auto_detect=false, columns={{{columns}}})"
    )
    row = duckdb.connect().execute(f"WITH rows AS (SELECT * FROM {source}) {SUMS}").fetchone()
    assert row is not None
    return int(row[1]), time.monotonic() - began


def by_spark(logs: Path) -> tuple[int, float]:
    import shadowaudit

    opened = shadowaudit.session()
    try:
        began = time.monotonic()
        shape = ", ".join(f"{name} string" for name in NAMES)
        options = {"comment": "#", "escape": '"', "header": "false"}
        opened.read.csv([str(logs / "*" / "*.LOG")], schema=shape, **options).createOrReplaceTempView("rows")
        row = opened.sql(SUMS).collect()[0]
        return int(row["lost"]), time.monotonic() - began
    finally:
        opened.stop()


if __name__ == "__main__":
    lost, seconds = {"duckdb": by_duckdb, "spark": by_spark}[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps({"lost": lost, "timings": {"job": seconds}}))

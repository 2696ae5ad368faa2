"""The format where only ``pip install`` was run: sessions that nobody prepared, no word of shadowaudit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from resealing import logs as files_of
from typed import read

from shadowaudit.spark.java import find_java, shim
from shadowlab.generate.cluster import generate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # half a minute each, where nothing else runs

PLAIN = """
import json, sys
from pyspark.sql import SparkSession

(logs,) = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "false"
events = spark.read.format("message_tracking").load(logs)
spark.sql(f"CREATE TEMPORARY VIEW shown USING message_tracking OPTIONS (path '{logs}', columns 'node, line')")
spark.sql(f"CREATE TABLE kept USING message_tracking OPTIONS (path '{logs}/*1', columns 'line, node')")
spark.sql(f"CREATE TABLE there USING message_tracking LOCATION '{logs}'")
spark.sql("CREATE TABLE named (node string) USING message_tracking")
told = {
    "load": events.where("node <> 'mx1.example.net'").count(),
    "view": [spark.table("shown").columns, spark.table("shown").count()],
    "table": [spark.table("kept").columns, spark.table("kept").count()],
    "location": spark.table("there").count(),
    "with": spark.sql(f"SELECT * FROM named WITH (path = '{logs}')").count(),
}
bad = f"CREATE TABLE bad USING message_tracking OPTIONS (path '{logs}', mode 'x')"
for wrong in ("SELECT * FROM named", bad):
    try:
        spark.sql(wrong).count()
    except Exception as problem:
        told[wrong.split()[0]] = str(problem)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("logs") / "tracking"
    generate(target, messages=60, faults={}, seed=4)
    return target


def counts(logs: Path) -> Counter[str]:
    """Rows by node."""
    return Counter(row["node"] for path in files_of(logs) for row in read(path, "node"))


def run(directory: Path, *command: str | Path) -> str:
    """In a directory of its own, where nothing of Spark was set up but Java and which Python."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    own = {"JAVA_HOME": str(shim(find_java().home)), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        command, cwd=directory, env=kept | own | {"SPARK_LOCAL_IP": "127.0.0.1"}, capture_output=True,
        text=True, check=False, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_session_that_nobody_prepared_knows_the_format_its_views_and_its_tables(
    logs: Path, tmp_path: Path
) -> None:
    told = json.loads(run(tmp_path, sys.executable, "-c", PLAIN, logs).splitlines()[-1])
    rows = counts(logs)
    assert told["load"] == rows.total() - rows["mx1.example.net"]
    assert told["view"] == [["node", "line"], rows.total()]
    assert told["table"] == [["line", "node"], rows["mx1.example.net"]]
    assert told["location"] == told["with"] == rows.total()
    assert "say where the logs are" in told["SELECT"]
    assert "mode is one of" in told["CREATE"]


def test_spark_sql_reads_a_table_that_it_made_in_another_run(logs: Path, tmp_path: Path) -> None:
    def ask(*statements: str) -> Sequence[str]:
        (tmp_path / "asked.sql").write_text(";\n".join(statements) + ";\n")
        command = Path(sys.executable).with_name("spark-sql")
        said = run(tmp_path, command, "--conf", "spark.ui.enabled=false", "-f", "asked.sql")
        return [line for line in said.splitlines() if line.startswith("mx")]

    ask(f"CREATE TABLE kept USING message_tracking OPTIONS (path '{logs}')")
    found = ask("SELECT node, count(*) FROM kept GROUP BY node ORDER BY node")
    assert found == [f"{node}\t{count}" for node, count in sorted(counts(logs).items())]

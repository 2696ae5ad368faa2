"""The verdict on a cluster and on a Connect server, which share the logs with the driver, and no more."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from resealing import logs as files_of
from test_audit_settling import rows_of
from test_spark_verdict import TABLES
from typed import read

from shadowaudit.spark.java import find_java, shim
from shadowlab.generate.cluster import generate

pytestmark = pytest.mark.slow

DEADLINE = 300
HIDING = 'while [ "$1" != -- ]; do mount -t tmpfs none "$1"; shift; done; shift; exec "$@"'
"""Directories, --, a command: it sees nothing in them, and nobody sees what it writes there."""


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """A directory for each process: its working directory, its temporary files, all that it may write."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("to hide directories takes root, and unshare")
    generate(tmp_path / "logs", messages=200, faults={"lost": 2, "promotion": 3}, seed=9, file_size=60_000)
    found = {name: tmp_path / name for name in ("driver", "master", "one", "two")}
    for place in found.values():
        place.mkdir()
    return found


def address(place: Path) -> str:
    """Each has its own: Spark's processes of one host read each other's files."""
    return {"one": "127.0.0.2", "two": "127.0.0.3"}.get(place.name, "127.0.0.1")


def environ(place: Path) -> dict[str, str]:
    told = {name: text for name, text in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return told | {
        "JAVA_HOME": str(shim(find_java().home)), "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable, "TMPDIR": str(place),
        "SPARK_LOCAL_DIRS": str(place / "local"), "SPARK_LOCAL_IP": address(place),
    }  # fmt: skip


@contextmanager
def launched(name: str, places: Mapping[str, Path], ready: str, arguments: Sequence[str]) -> Iterator[str]:
    """One of Spark's servers, which sees no other's directory; what its log says of ``ready``."""
    hidden = [str(place) for other, place in places.items() if other != name]
    spark = Path(sys.executable).with_name("spark-class")
    process = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", HIDING, "sh", *hidden, "--", str(spark), *arguments],
        cwd=places[name], env=environ(places[name]), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
        text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    late = threading.Timer(DEADLINE, process.kill)
    late.start()
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(ready, line):
                break
        else:
            pytest.fail("".join(lines))
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield found[found.lastindex or 0]
    finally:
        late.cancel()
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(DEADLINE)


def verify(places: Mapping[str, Path], *engine: str) -> Path:
    """Where the tables are. The driver runs in a directory of its own."""
    out = places["driver"] / f"out-{engine[1].partition(':')[0]}"
    logs = places["driver"].parent / "logs"
    done = subprocess.run(
        [sys.executable, "-m", "shadowaudit", "verify", *engine, "--out", out, logs],
        cwd=places["driver"], env=environ(places["driver"]), capture_output=True, text=True, check=False,
        timeout=DEADLINE,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr + done.stdout
    return out


def same(out: Path, other: Path) -> None:
    for name in TABLES:
        assert rows_of(out / f"{name}.parquet") == rows_of(other / f"{name}.parquet"), name


def test_a_cluster_whose_workers_share_no_directory_has_the_same_verdict(places: Mapping[str, Path]) -> None:
    with ExitStack() as stack:
        told = "org.apache.spark.deploy.master.Master --host 127.0.0.1 --port 0 --webui-port 0"
        master = stack.enter_context(
            launched("master", places, r"Starting Spark master at (spark://\S+)", told.split())
        )
        for name in ("one", "two"):
            told = "org.apache.spark.deploy.worker.Worker --webui-port 0 --cores 1 --memory 1g --host"
            own = ["--work-dir", str(places[name] / "work"), master]
            arguments = [*told.split(), address(places[name]), *own]
            stack.enter_context(launched(name, places, "Successfully registered with master", arguments))
        found = verify(places, "--engine", "spark", "--master", master)
        for name in ("one", "two"):
            assert list((places[name] / "work").glob("app-*")), "it had an executor"
    same(found, verify(places, "--engine", "here"))


ASKED = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).create()
events = spark.read.format("message_tracking").load(sys.argv[2])
print(events.where("node = 'mx1.example.net'").count())
spark.stop()
"""


def count(places: Mapping[str, Path], address: str, logs: Path) -> int:
    """Rows of a node, by a session that nobody prepared."""
    done = subprocess.run(
        [sys.executable, "-c", ASKED, address, logs], cwd=places["driver"], env=environ(places["driver"]),
        capture_output=True, text=True, check=False, timeout=DEADLINE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_connect_server_has_the_same_verdict_and_knows_the_format(places: Mapping[str, Path]) -> None:
    told = (
        "org.apache.spark.deploy.SparkSubmit --class org.apache.spark.sql.connect.service.SparkConnectServer "
        "--master local[2] --conf spark.connect.grpc.binding.address=127.0.0.1 "
        "--conf spark.connect.grpc.binding.port=0 --conf spark.ui.enabled=false spark-internal"
    )
    with launched("one", places, r"Spark Connect server started at: \S*?:(\d+)", told.split()) as port:
        found = verify(places, "--engine", f"sc://127.0.0.1:{port}")
        logs = places["driver"].parent / "logs"
        rows = sum(len(read(path, "line")) for path in files_of(logs / "mx1"))
        assert count(places, f"sc://127.0.0.1:{port}", logs) == rows
    same(found, verify(places, "--engine", "here"))

"""A real Prometheus that scrapes a lab, configured as deploy/prometheus says."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shadowlab.ports import free_ports

HERE = Path(__file__).parents[2] / "deploy" / "prometheus"
MISSING = "" if shutil.which("prometheus") else "prometheus (Debian package prometheus) is missing"
CONTAINERS = "[node-a:8025, node-b:8025, node-c:8025]"


class Prometheus:
    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer. Raises AssertionError with Prometheus's own words, OSError."""
        try:
            url = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refusal:
            raise AssertionError(f"{parameters}: {refusal.read().decode()}") from refusal

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Samples of an instant query."""
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.address}/-/ready", timeout=5).close()
        except OSError:
            return False
        return True


@contextmanager
def scraping(directory: Path, targets: list[str]) -> Iterator[Prometheus]:
    """As deploy/prometheus, but for the targets, and every second."""
    text = (HERE / "prometheus.yml").read_text("utf-8")
    assert CONTAINERS in text
    text = text.replace(CONTAINERS, json.dumps(targets)).replace("_interval: 5s", "_interval: 1s")
    directory.mkdir()
    (directory / "prometheus.yml").write_text(text, "utf-8")
    shutil.copy(HERE / "alerts.yml", directory)
    (port,) = free_ports(1)
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={directory}/prometheus.yml",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            made = Prometheus(port)
            end = time.monotonic() + 30
            while not made.answers():
                assert process.poll() is None, (directory / "log").read_text()
                assert time.monotonic() < end, (directory / "log").read_text()
                time.sleep(0.1)
            yield made
        finally:
            process.terminate()
            process.wait(30)

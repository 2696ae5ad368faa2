"""The lab's own Prometheus service, with Debian's Prometheus in the image's place."""

from __future__ import annotations

import json
import shutil
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.containers.labs import docker

PROGRAM = shutil.which("prometheus")
IMAGE = "shadowrelay-prometheus:test"
DOCKERFILE = """\
FROM {base}
USER 0
COPY prometheus /bin/prometheus
RUN install -d -o 65534 -g 65534 /prometheus
USER 65534
ENTRYPOINT ["/bin/prometheus"]
"""


def build_image(base: str, context: Path) -> None:
    """As its maker's: the program at that place, nobody as user, a directory of nobody's for the data."""
    assert PROGRAM is not None
    shutil.copy(PROGRAM, context)
    (context / "Dockerfile").write_text(DOCKERFILE.format(base=base))
    docker("build", "--tag", IMAGE, str(context))


class Observed:
    """What the service tells at the port that it has on this machine."""

    def __init__(self, project: str) -> None:
        (self.container,) = docker(
            "ps",
            "--all",
            "--quiet",
            "--filter",
            f"label=com.docker.compose.project={project}",
            "--filter",
            "label=com.docker.compose.service=prometheus",
        ).split()

    def get(self, path: str, **parameters: str) -> Any:
        address = docker("port", self.container, "9090/tcp").strip()
        url = f"http://{address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def await_nodes(self, number: int) -> set[str]:
        """Names of the nodes that were scraped, as soon as there are so many."""
        end = time.monotonic() + 60
        while True:
            try:
                found = {each["metric"]["instance"] for each in self.get("query", query="up == 1")["result"]}
            except OSError:
                found = set()
            running = docker("inspect", "--format", "{{.State.Running}}", self.container).strip()
            assert running == "true", docker("logs", self.container)
            if len(found) >= number or time.monotonic() > end:
                return found
            time.sleep(0.5)

"""The lab in containers: its images, and the tutorial as a reader follows it. Skipped without an engine."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers import observed
from tests.containers.labs import ROOT, compose_1_29, compose_v2, docker, lab_of_its_own, left_of, missing
from tests.pages.commands import commands
from tests.pages.shell import Shell

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(1200)]

TUTORIAL = ROOT / "docs" / "tutorial.md"
AUDIT = ROOT / "src" / "shadowaudit"
FILTER = "docker compose --profile mx up --detach"
OBSERVE = "docker compose --profile observe up --detach"
LARGEST = 130 * 2**20  # octets that the relay may add to its base


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A reader's: with compose v2 if it is to be had, else with 1.29 under its name."""
    if why := missing():
        pytest.skip(why)
    plugin = compose_v2()
    if plugin is None:
        assert compose_1_29() is not None
        plugin = {"PATH": f"{Path(__file__).parent / 'stand-ins'}{os.pathsep}{os.environ['PATH']}"}
    with lab_of_its_own("tutorial", tmp_path_factory.mktemp("out")) as given:
        yield given | plugin | {"PROMETHEUS_IMAGE": observed.IMAGE}


@pytest.fixture(scope="module", autouse=True)
def built(environment: dict[str, str]) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """What takes long to install (minutes, for Spark) is built beside everything else: by the command of the
    tutorial that needs it.
    """
    wanted = {FILTER: "rspamd"} | ({"scripts/lab audit": "audit"} if AUDIT.is_dir() else {})
    building = {
        command: subprocess.Popen(
            ["docker", "compose", "build", service],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for command, service in wanted.items()
    }
    try:
        yield building
    finally:
        for each in building.values():
            each.terminate()
            each.wait()


@pytest.fixture(scope="module")
def image(environment: dict[str, str]) -> str:
    with Shell(ROOT, environment) as shell:
        status, printed = shell.run(
            "docker compose build --quiet node-a || docker compose build node-a", within=900
        )
        assert status == 0, printed
    return environment["LAB_IMAGE"]


def test_the_image_runs_as_nobody_in_particular_and_says_how_it_is(image: str) -> None:
    (seen,) = json.loads(docker("inspect", image))
    config = seen["Config"]
    assert config["User"] == "10001:10001"
    assert list(config["Volumes"]) == ["/data"]
    assert config["StopSignal"] == "SIGTERM"
    assert config["Healthcheck"]["Test"] == ["CMD", "ready"]
    assert {"title", "version", "licenses"} <= {label.rpartition(".")[2] for label in config["Labels"]}


def test_the_image_has_no_compilers_and_no_caches_and_is_small(
    image: str, environment: dict[str, str]
) -> None:
    look = "command -v gcc cc make; ls -A /root/.cache /tmp; find /opt/shadowrelay -name 'pip*' -maxdepth 5"
    found = docker("run", "--rm", "--entrypoint", "sh", image, "-c", f"{{ {look}; }} 2>/dev/null; true")
    assert found.replace("/tmp:", "").split() == []
    sizes = [
        int(docker("inspect", "--format", "{{.Size}}", name)) for name in (image, environment["BASE_IMAGE"])
    ]
    assert sizes[0] - sizes[1] < LARGEST


def test_a_node_without_a_volume_of_its_own_warns_loudly(image: str) -> None:
    settings = {
        "SHADOWRELAY_RECEIVE": '{"default": {"listen": "127.0.0.1:2525"}}',
        "SHADOWRELAY_NAME": "mx.lab.test",
    }
    settings["SHADOWRELAY_DATA_DIR"] = "/data"
    options = [word for name, value in settings.items() for word in ("--env", f"{name}={value}")]
    options += ["--network", "none", "--volume", "/dev/null:/etc/settings.toml:ro"]

    def said(*more: str) -> str:
        node = docker("run", "--detach", *options, *more, image, "run", "/etc/settings.toml").strip()
        try:
            for _ in range(600):
                logged = subprocess.run(["docker", "logs", node], capture_output=True, text=True, check=True)
                if "node_started" in logged.stderr:
                    return logged.stderr
                time.sleep(0.1)
        finally:
            docker("rm", "--force", "--volumes", node)
        raise AssertionError(logged.stderr)

    assert "data_directory_is_ephemeral" in said()
    assert "a volume without a name" in said()
    assert "memory" in said("--tmpfs", "/data:uid=10001")
    volume = f"tutorial-{os.getpid()}-kept"
    try:
        assert "data_directory_is_ephemeral" not in said("--volume", f"{volume}:/data")
    finally:
        docker("volume", "rm", volume)


def test_a_reader_of_the_tutorial_sees_what_it_shows(
    environment: dict[str, str],
    image: str,
    built: dict[str, subprocess.Popen[bytes]],
    tmp_path: Path,
) -> None:
    followed = 0
    with Shell(ROOT, environment) as shell:
        for command in commands(TUTORIAL):
            if command.text == OBSERVE and observed.PROGRAM:
                observed.build_image(image, tmp_path)
                status, printed = shell.run(f"{OBSERVE} prometheus")
                assert status == 0, printed
                prometheus_sees_the_nodes(environment["COMPOSE_PROJECT_NAME"])
            if command.not_run:
                continue
            if command.text == "scripts/lab audit" and not AUDIT.is_dir():
                continue
            if command.text in built:
                assert built[command.text].wait(900) == 0, "the image could not be built"
            shell.follow(command, within=900)
            followed += 1
    assert followed >= 40
    assert left_of(environment) == ""


def prometheus_sees_the_nodes(project: str) -> None:
    """The service as compose.yaml has it, its settings and rules from where they are mounted."""
    prometheus = observed.Observed(project)
    nodes = {"node-a:8025", "node-b:8025", "node-c:8025"}
    assert prometheus.await_nodes(4) == nodes | {"mailbox:8026"}
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert len(rules) >= 10
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}  # unknown: not yet evaluated
    (kept,) = prometheus.get("query", query="sum(shadowrelay_safety_net_messages)")["result"]
    assert float(kept["value"][1]) > 0

"""The lab in containers: its images, and the tutorial as a reader follows it. Skipped without an engine."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.commands import commands
from tests.pages.shell import Shell

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
AUDIT = ROOT / "src" / "shadowaudit"
LOCAL_BASE = "shadowrelay-base:bookworm"
LARGEST = 130 * 2**20  # octets that the relay may add to its base


def docker(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"docker {arguments}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Variables for a lab beside any other one: names and ports of its own. What it made is removed."""
    try:
        running = subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        running = False
    if not running:
        pytest.skip("no engine runs here: scripts/docker-base starts one")
    project = f"tutorial-{os.getpid()}"
    ports = [f"NODE_{node}_{kind}" for node in "ABC" for kind in ("SMTP", "ADMIN")]
    given = {
        "COMPOSE_PROJECT_NAME": project,
        "LAB_OUT": str(tmp_path_factory.mktemp("out")),
        "LAB_IMAGE": "shadowrelay:test",
        "LAB_SWAKS_IMAGE": "shadowrelay-swaks:test",
        "LAB_AUDIT_IMAGE": "shadowrelay-audit:test",
        "PATH": f"{Path(__file__).parent / 'stand-ins'}{os.pathsep}{os.environ['PATH']}",
        **dict.fromkeys(ports, "0"),
    }
    if docker("images", "--quiet", LOCAL_BASE).strip():
        given |= {"BASE_IMAGE": LOCAL_BASE, "SWAKS_BASE_IMAGE": LOCAL_BASE}
    try:
        yield given | {
            name: os.environ[name] for name in ("BASE_IMAGE", "SWAKS_BASE_IMAGE") if name in os.environ
        }
    finally:
        label = f"label=com.docker.compose.project={project}"
        for container in docker("ps", "--all", "--quiet", "--filter", label).split():
            docker("rm", "--force", "--volumes", container, check=False)
        for kind in ("volume", "network"):
            for each in docker(kind, "ls", "--quiet", "--filter", label).split():
                docker(kind, "rm", each, check=False)


@pytest.fixture(scope="module", autouse=True)
def audit_image(environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes] | None]:
    """Spark takes minutes to install: it is built beside everything else. None where there is no audit."""
    if not AUDIT.is_dir():
        yield None
        return
    building = subprocess.Popen(
        ["docker", "compose", "--profile", "audit", "build", "audit"],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield building
    finally:
        building.terminate()
        building.wait()


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
    options = [word for name, value in settings.items() for word in ("--env", f"{name}={value}")]
    options += ["--network", "none", "--entrypoint", "timeout"]
    run = ["--preserve-status", "--signal", "TERM", "3", "shadowrelay", "run", "/etc/settings.toml"]
    empty = ["--volume", "/dev/null:/etc/settings.toml:ro"]

    def said(*more: str) -> str:
        done = subprocess.run(
            [
                "docker",
                "run",
                "--rm",
                *options,
                *empty,
                "--env",
                "SHADOWRELAY_DATA_DIR=/data",
                *more,
                image,
                *run,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "node_started" in done.stderr, done.stderr
        return done.stderr

    assert "data_directory_is_ephemeral" in said()
    assert "a volume without a name" in said()
    assert "memory" in said("--tmpfs", "/data:uid=10001")
    volume = f"tutorial-{os.getpid()}-kept"
    try:
        assert "data_directory_is_ephemeral" not in said("--volume", f"{volume}:/data")
    finally:
        docker("volume", "rm", volume)


def test_a_reader_of_the_tutorial_sees_what_it_shows(
    environment: dict[str, str], image: str, audit_image: subprocess.Popen[bytes] | None
) -> None:
    followed = 0
    with Shell(ROOT, environment) as shell:
        for command in commands(TUTORIAL):
            if command.not_run:
                continue
            if command.text == "scripts/lab audit":
                if audit_image is None:
                    continue
                assert audit_image.wait(900) == 0, "the image of the audit could not be built"
            shell.follow(command, within=900)
            followed += 1
    assert followed >= 40
    label = f"label=com.docker.compose.project={environment['COMPOSE_PROJECT_NAME']}"
    for kind in (("ps", "--all"), ("volume", "ls"), ("network", "ls")):
        assert docker(*kind, "--quiet", "--filter", label) == ""

"""Labs in containers beside any other one, and what they are made with."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMPOSE_V2 = ROOT / "build" / "compose-v2"  # scripts/docker-base --compose-v2 puts it there
LOCAL_BASE = "shadowrelay-base:bookworm"
PROFILES = ("swaks", "mx", "audit", "notebook", "observe")
VARIABLES = (
    *(f"NODE_{node}_{kind}" for node in "ABC" for kind in ("SMTP", "ADMIN")),
    "PROMETHEUS_PORT",
    "GRAFANA_PORT",
)


def docker(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"docker {arguments}\n{done.stdout}{done.stderr}"
    return done.stdout


def missing() -> str:
    """Why there can be no lab here; empty when there can."""
    try:
        running = subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        running = False
    return "" if running else "no engine runs here: scripts/docker-base starts one"


def compose_v2() -> dict[str, str] | None:
    """Variables with which ``docker compose`` is v2; None where it is not to be had."""
    configured = {"DOCKER_CONFIG": str(COMPOSE_V2)} if (COMPOSE_V2 / "cli-plugins").is_dir() else {}
    for given in ({}, configured):
        done = subprocess.run(
            ["docker", "compose", "version", "--short"],
            env={**os.environ, **given},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0 and not done.stdout.startswith("1."):
            return given
    return None


def compose_1_29() -> str | None:
    """The command, where it is installed."""
    found = shutil.which("docker-compose")
    if found is None:
        return None
    done = subprocess.run([found, "version", "--short"], capture_output=True, text=True, check=False)
    return found if done.stdout.startswith("1.29.") else None


@contextmanager
def lab_of_its_own(name: str, out: Path) -> Iterator[dict[str, str]]:
    """Variables for a lab with names and ports of its own. What it made is removed."""
    project = f"{name}-{os.getpid()}"
    given = {
        "COMPOSE_PROJECT_NAME": project,
        "LAB_OUT": str(out),
        "LAB_IMAGE": "shadowrelay:test",
        "LAB_SWAKS_IMAGE": "shadowrelay-swaks:test",
        "LAB_RSPAMD_IMAGE": "shadowrelay-rspamd:test",
        "LAB_AUDIT_IMAGE": "shadowrelay-audit:test",
        "LAB_NOTEBOOK_IMAGE": "shadowrelay-notebook:test",
        **dict.fromkeys(VARIABLES, "0"),
    }
    if docker("images", "--quiet", LOCAL_BASE).strip():
        given |= {"BASE_IMAGE": LOCAL_BASE, "SWAKS_BASE_IMAGE": LOCAL_BASE}
    given |= {name: os.environ[name] for name in ("BASE_IMAGE", "SWAKS_BASE_IMAGE") if name in os.environ}
    label = f"label=com.docker.compose.project={project}"
    try:
        yield given
    finally:
        for container in docker("ps", "--all", "--quiet", "--filter", label).split():
            docker("rm", "--force", "--volumes", container, check=False)
        for kind in ("volume", "network"):
            for each in docker(kind, "ls", "--quiet", "--filter", label).split():
                docker(kind, "rm", each, check=False)


def left_of(environment: dict[str, str]) -> str:
    """Containers, volumes and networks of a lab."""
    label = f"label=com.docker.compose.project={environment['COMPOSE_PROJECT_NAME']}"
    kinds = (("ps", "--all"), ("volume", "ls"), ("network", "ls"))
    return "".join(docker(*kind, "--quiet", "--filter", label) for kind in kinds)

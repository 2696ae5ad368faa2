"""docker and docker compose, v2 or 1.29: the only module that starts processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NODES = ("node-a", "node-b", "node-c")
_LONG = 1800  # seconds: images are built the first time


class EngineError(Exception):
    """The engine refused; the text is for the reader of the tour."""


_OTHER_PORTS = "each has a variable in compose.yaml, to be exported: export NODE_A_SMTP=2621"
_LAST_LINES = 15  # of what a command said: the reason is at the end, after much progress
_ADVICE = {  # what it says, and what its reader can do about it
    "permission denied while trying to connect": (
        "This user may not use Docker: sudo usermod -aG docker $USER and log in again, or use sudo."
    ),
    "connect to the docker": "Docker's engine does not run: start it (sudo systemctl start docker).",
    "address already in use": f"A port is taken on this machine; {_OTHER_PORTS}",
    "port is already allocated": f"A port is taken by another container; {_OTHER_PORTS}",
    "exited with code": "What it said: docker compose logs certs",
    "didn't complete successfully": "What it said: docker compose logs certs",
    "docker.io": "Where images cannot be pulled: scripts/docker-base --help",
}


def check() -> None:
    """Raises EngineError where there is no engine that this user may use."""
    if shutil.which("docker") is None:
        raise EngineError("docker is not installed; the lab needs it, and compose (plugin or docker-compose)")
    docker("version", "--format", "{{.Server.Version}}")


@cache
def _compose() -> tuple[str, ...]:
    plugin = subprocess.run(("docker", "compose", "version"), capture_output=True, check=False)
    if plugin.returncode == 0:
        return ("docker", "compose")
    if shutil.which("docker-compose"):
        return ("docker-compose",)
    raise EngineError("neither the compose plugin of docker nor docker-compose is installed")


def compose(*arguments: str, quiet: bool = True) -> str:
    """Run docker compose in this repository; what it says is shown only if it fails, or not ``quiet``."""
    return _run((*_compose(), *arguments), quiet=quiet)


def docker(*arguments: str, allowed: tuple[int, ...] = (0,)) -> str:
    """Run docker; ``allowed`` exit statuses are no failure."""
    return _run(("docker", *arguments), quiet=True, allowed=allowed)


def _run(command: tuple[str, ...], *, quiet: bool, allowed: tuple[int, ...] = (0,)) -> str:
    environment = {**os.environ, "COMPOSE_PROJECT_NAME": project()}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, text=True, timeout=_LONG, check=False,
        stdout=subprocess.PIPE if quiet else None, stderr=subprocess.PIPE if quiet else None,
    )  # fmt: skip
    if done.returncode not in allowed:
        said = "\n".join(filter(None, [(done.stdout or "").strip(), (done.stderr or "").strip()]))
        last = "\n".join(said.splitlines()[-_LAST_LINES:])
        advice = next((text for word, text in _ADVICE.items() if word in last.lower()), "")
        told = f"{' '.join(command)}: exit status {done.returncode}\n{last}\n{advice}"
        raise EngineError(told.rstrip())
    return done.stdout or ""


def project() -> str:
    """What the names of the lab's containers, volumes and network begin with: as compose makes it."""
    if given := os.environ.get("COMPOSE_PROJECT_NAME"):
        return given
    return "".join(c for c in ROOT.name.lower() if c.isalnum() or c in "-_").lstrip("-_") or "lab"


def _containers(service: str, *options: str) -> list[str]:
    return docker(
        "ps", *options, "--quiet", "--no-trunc",
        "--filter", f"label=com.docker.compose.project={project()}",
        "--filter", f"label=com.docker.compose.service={service}",
        "--filter", "label=com.docker.compose.oneoff=False",
    ).split()  # fmt: skip


def filters() -> tuple[str, ...]:
    """The filters that run: services that the nodes ask about mail."""
    return ("rspamd",) if _containers("rspamd") else ()


def container(service: str) -> str:
    """The id of a service's container, running or not. Raises EngineError when there is none."""
    found = _containers(service, "--all")
    if not found:
        raise EngineError(f"there is no {service}: scripts/lab up makes the lab")
    return found[0]


def state(service: str) -> dict[str, Any]:
    """What the engine knows of a service's container: ``running``, ``healthy``, ``connected``."""
    (seen,) = json.loads(docker("inspect", container(service)))
    health = seen["State"].get("Health", {}).get("Status", "")
    return {
        "running": seen["State"]["Running"],
        "healthy": seen["State"]["Running"] and health in {"", "healthy"},
        "connected": network() in seen["NetworkSettings"]["Networks"],
    }


def network() -> str:
    return f"{project()}_default"


def execute(service: str, *command: str, allowed: tuple[int, ...] = (0,)) -> str:
    """Run a command in a service's container. Raises EngineError."""
    return docker("exec", container(service), *command, allowed=allowed)


def logs(service: str) -> list[str]:
    """What the service's container wrote on both outputs."""
    done = subprocess.run(
        ("docker", "logs", container(service)),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_LONG, check=False,
    )  # fmt: skip
    return done.stdout.splitlines()


def volume(service: str, path: str) -> str:
    """The name of the volume that is mounted there."""
    (seen,) = json.loads(docker("inspect", container(service)))
    return str(next(mount["Name"] for mount in seen["Mounts"] if mount["Destination"] == path))


def published(service: str, port: int) -> tuple[str, int] | None:
    """Where that port of a service answers on this machine; None while it does not."""
    (seen,) = json.loads(docker("inspect", container(service)))
    bound = (seen["NetworkSettings"].get("Ports") or {}).get(f"{port}/tcp")
    return (bound[0]["HostIp"], int(bound[0]["HostPort"])) if bound else None

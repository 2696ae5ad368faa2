"""compose.yaml, read by compose v2 and by docker-compose 1.29; and a lab that 1.29 made."""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path

import pytest

from tests.containers.labs import (
    PROFILES,
    ROOT,
    compose_1_29,
    compose_v2,
    docker,
    lab_of_its_own,
    left_of,
    missing,
)
from tests.pages.shell import Shell

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(600)]

NO_V2 = "docker compose v2 is not installed: scripts/docker-base --compose-v2 build/compose-v2"
NO_1_29 = "docker-compose 1.29 (Debian package docker-compose) is missing"
CHOICES = [
    choice for number in (0, 1, 2, len(PROFILES)) for choice in itertools.combinations(PROFILES, number)
]
ALWAYS = {"node-a", "node-b", "node-c", "mailbox", "outside", "certs"}
BEHIND = {
    "swaks": {"swaks"},
    "mx": {"rspamd"},
    "audit": {"audit"},
    "notebook": {"notebook"},
    "observe": {"prometheus", "grafana"},
}


def services(choice: tuple[str, ...], *compose: str, **environment: str) -> tuple[str, set[str]]:
    """What is complained about, and which services there are."""
    profiles = [word for profile in choice for word in ("--profile", profile)]
    done = subprocess.run(
        [*compose, *profiles, "config", "--services"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr, set(done.stdout.split())


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: "+".join(choice) or "none")
def test_compose_v2_reads_the_file_without_a_complaint_whatever_the_profiles(choice: tuple[str, ...]):
    plugin = compose_v2()
    if plugin is None:
        pytest.skip(NO_V2)
    expected = ALWAYS.union(*(BEHIND[profile] for profile in choice))
    assert services(choice, "docker", "compose", **plugin) == ("", expected)


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: "+".join(choice) or "none")
def test_compose_1_29_reads_the_file_without_a_complaint_whatever_the_profiles(choice: tuple[str, ...]):
    compose = compose_1_29()
    if compose is None:
        pytest.skip(NO_1_29)
    complaint, found = services(choice, compose)
    assert complaint == ""
    # It lists what is behind profiles too, and starts what was asked for.
    assert found == ALWAYS.union(*BEHIND.values())


def test_a_lab_made_by_compose_1_29_loses_a_disk_and_no_mail(tmp_path: Path):
    compose = compose_1_29()
    if compose is None or missing():
        pytest.skip(missing() or NO_1_29)
    with lab_of_its_own("older", tmp_path) as environment, Shell(ROOT, environment) as shell:

        def run(text: str) -> str:
            status, printed = shell.run(text, within=900)
            assert status == 0, f"{text}\n{printed}"
            return printed

        if not docker("images", "--quiet", environment["LAB_IMAGE"]).strip():
            run(f"{compose} build node-a")
        run(f"{compose} up --detach")
        assert "All nodes see each other" in run("scripts/lab heal")
        run("scripts/lab hold")
        assert "6 of 6 messages were answered 250" in run("scripts/lab send 6")
        run("scripts/lab lose-disk node-a")
        run("scripts/lab release")
        assert "acknowledged 8, delivered 8, not there 0" in run("scripts/lab count")
        run(f"{compose} down --volumes")
        assert left_of(environment) == ""

"""``shadowrelay member add`` makes the settings of a node of several workers."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from shadowrelay import authority
from shadowrelay.cli.member import member
from shadowrelay.settings import to_toml

LIKE: dict[str, Any] = {
    "name": "mx1.example.net",
    "host": "rack1",
    "workers": 2,
    "receive": {"default": {"listen": "0.0.0.0:25"}},
    "peer": {"listen": "0.0.0.0:2526"},
}


def add(directory: Path, *typed: str, name: str = "mx2.example.net", **changes: Any) -> Result:
    if not (directory / "ca").exists():
        authority.init(directory / "ca", name="test", now=datetime.now(UTC))
    like = directory / "like.toml"
    like.write_text(to_toml(LIKE | changes))
    arguments = ["add", name, "--address", f"{name}:2526", "--dir", str(directory / "ca")]
    arguments += ["--like", str(like), "--like-address", "mx1.example.net:2526"]
    return CliRunner().invoke(member, [*arguments, "--out", str(directory / "out"), *typed])


@pytest.mark.parametrize(
    ("typed", "workers"), [((), 2), (("--workers", "4"), 4), (("--workers", "auto"), "auto")]
)
def test_a_new_node_has_the_workers_that_are_asked_for_and_knows_those_of_the_other(
    tmp_path: Path, typed: tuple[str, ...], workers: object
) -> None:
    done = add(tmp_path, *typed)
    assert done.exit_code == 0, done.output
    made = tomllib.loads((tmp_path / "out" / "settings.toml").read_text())
    assert made["workers"] == workers
    (other,) = made["members"]
    assert (other["name"], other["workers"]) == ("mx1.example.net", 2)


@pytest.mark.parametrize("number", ["0", "65", "many"])
def test_a_number_of_workers_that_no_node_can_have_is_refused(tmp_path: Path, number: str) -> None:
    done = add(tmp_path, "--workers", number)
    assert done.exit_code == 1
    assert not (tmp_path / "out").exists()


def test_a_worker_cannot_be_added_as_a_node(tmp_path: Path) -> None:
    done = add(tmp_path, name="w2.mx2.example.net")
    assert done.exit_code == 1
    assert "is a worker of mx2.example.net" in done.output

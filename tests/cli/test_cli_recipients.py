"""``shadowrelay recipients``: checks a file, and shows what becomes of an address."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shadowrelay.cli import main

FILE = """
[aliases]
"sales@example.net" = "team@example.net"

[lists."team@example.net"]
members = ["bob@example.net", "gone@example.net", "team@example.net"]
owner = "bob@example.net"

[domains."example.net"]
known = true
recipients = ["bob@example.net"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "r.toml"
    path.write_text(FILE)
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["recipients", *map(str, arguments)])


def test_a_good_file_is_counted_and_its_oddities_are_told(file: Path) -> None:
    told = run("check", file)
    assert told.exit_code == 0
    assert told.stdout == "OK: 1 alias, 1 list, 1 known domain\n"
    assert "gone@example.net, which nobody has" in told.stderr
    found = json.loads(run("check", "--json", file).stdout)
    assert (found["ok"], found["aliases"], len(found["warnings"])) == (True, 1, 2)


def test_a_bad_file_is_refused_with_its_line(file: Path) -> None:
    file.write_text('[aliases]\n"a@x.example" = "b"\n')
    told = run("check", file)
    assert (told.exit_code, told.stdout) == (2, "")
    assert 'line 2: "b" is no address' in told.stderr
    as_json = run("check", "--json", file)
    assert (as_json.exit_code, json.loads(as_json.stdout)["ok"]) == (2, False)
    assert run("check", file.parent / "none").exit_code == 2
    assert run("resolve", "a@x.example", "--file", file).exit_code == 2


def test_an_address_is_followed_to_the_members_of_a_list(file: Path) -> None:
    told = run("resolve", "sales@example.net", "--file", file)
    assert told.exit_code == 0
    assert told.stdout.splitlines() == [
        "alias of team@example.net",
        "team@example.net: is a list",
        "  bob@example.net",
        "  gone@example.net (nobody has this address: each message bounces)",
        "  team@example.net is met again inside itself, and expanded once",
        "  reports on members go to bob@example.net",
    ]
    found = json.loads(run("resolve", "sales@example.net", "--file", file, "--json").stdout)
    assert found["steps"] == ["sales@example.net", "team@example.net"]
    assert found["members"][1] == {"address": "gone@example.net", "unknown": True}
    assert found["loops"] == ["team@example.net"]


def test_an_address_that_nobody_has(file: Path) -> None:
    told = run("resolve", "nobody@example.net", "--file", file)
    assert (told.exit_code, "550 5.1.1" in told.stdout) == (1, True)
    assert run("resolve", "bob+x@example.net", "--file", file).exit_code == 1
    assert run("resolve", "bob+x@example.net", "--file", file, "--delimiter", "+").exit_code == 0
    assert run("resolve", "nobody", "--file", file).exit_code == 2

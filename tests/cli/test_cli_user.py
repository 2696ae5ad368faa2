"""``shadowrelay user``: who may log in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shadowrelay.cli.user import user
from shadowrelay.core.reception.users import matches, parse_users


def run(*arguments: object, typed: str = "") -> Result:
    return CliRunner().invoke(user, [str(argument) for argument in arguments], input=typed)


def test_users_are_added_listed_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "users"
    assert run("add", "alice", "--file", file, typed="Sesame\n").output == "alice may log in\n"
    assert run("add", "bob@example.org", "--file", file, typed="pä ss").exit_code == 0
    found = parse_users(file.read_text("utf-8"))
    assert matches(b"Sesame", found["alice"])
    assert matches("pä ss".encode(), found["bob@example.org"])
    assert run("list", "--file", file).output == "alice\nbob@example.org\n"
    assert run("add", "alice", "--file", file, typed="another\n").exit_code == 0
    assert matches(b"another", parse_users(file.read_text("utf-8"))["alice"])
    assert run("remove", "alice", "--file", file).output == "alice may no longer log in\n"
    assert run("list", "--file", file).output == "bob@example.org\n"


def test_a_hash_may_be_kept_instead_of_a_verifier(tmp_path: Path) -> None:
    file = tmp_path / "users"
    assert run("add", "alice", "--keep", "scrypt", "--file", file, typed="Sesame\n").exit_code == 0
    assert file.read_text().startswith("alice:$scrypt$")
    assert matches(b"Sesame", parse_users(file.read_text("utf-8"))["alice"])


def test_no_password_is_kept_or_shown(tmp_path: Path) -> None:
    made = run("add", "alice", "--file", tmp_path / "users", typed="Sesame\n")
    assert "Sesame" not in made.output + (tmp_path / "users").read_text()
    salts = set()
    for _ in range(2):
        run("add", "alice", "--file", tmp_path / "users", typed="Sesame\n")
        salts.add((tmp_path / "users").read_text())
    assert len(salts) == 2


def test_the_file_is_for_its_owner_and_keeps_what_it_was_given(tmp_path: Path) -> None:
    file = tmp_path / "users"
    run("add", "alice", "--file", file, typed="Sesame\n")
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    if os.getuid() == 0:
        os.chown(file, 4711, 4712)
    run("add", "bob", "--file", file, typed="0pen\n")
    found = file.stat()
    assert found.st_mode & 0o777 == 0o640
    if os.getuid() == 0:
        assert (found.st_uid, found.st_gid) == (4711, 4712)
    assert os.listdir(tmp_path) == ["users"]


@pytest.mark.parametrize("name", ["a b", "a:b", "#a", "é", ""])
def test_a_name_that_nobody_can_have_is_refused(tmp_path: Path, name: str) -> None:
    refused = run("add", name, "--file", tmp_path / "users", typed="Sesame\n")
    assert (refused.exit_code, refused.output.count("\n")) == (1, 1)
    assert not (tmp_path / "users").exists()


@pytest.mark.parametrize("typed", ["", "\n", "a\0b\n", "x" * 1025 + "\n"])
def test_what_is_no_password_is_refused(tmp_path: Path, typed: str) -> None:
    refused = run("add", "alice", "--file", tmp_path / "users", typed=typed)
    assert refused.exit_code == 1
    assert "a password has" in refused.output


def test_without_standard_input_there_is_no_password(tmp_path: Path) -> None:
    command = f'exec "{sys.executable}" -m shadowrelay user add alice --file "{tmp_path}/users" <&-'
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "Error: no password: standard input is closed\n"
    assert os.listdir(tmp_path) == []


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("alice:{PLAIN}Sesame\n")
    refused = run("add", "bob", "--file", file, typed="0pen\n")
    assert refused.exit_code == 1
    assert "line 1 has no verifier of SCRAM-SHA-256 and no hash of scrypt" in refused.output
    assert file.read_text() == "alice:{PLAIN}Sesame\n"


def test_many_at_once_lose_nobody(tmp_path: Path) -> None:
    file, names = tmp_path / "users", [f"user{number}" for number in range(6)]
    command = [sys.executable, "-m", "shadowrelay", "user", "add", "--file", str(file)]
    adding = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in names
    ]
    said = [process.communicate("Sesame\n", timeout=60)[0] for process in adding]
    assert said == [f"{name} may log in\n" for name in names]
    assert sorted(parse_users(file.read_text("utf-8"))) == names
    assert os.listdir(tmp_path) == ["users"]


def test_remarks_stay_and_so_does_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "users", tmp_path / "link"
    file.write_text("# the office\n\n")
    link.symlink_to(file)
    assert run("add", "alice", "--file", link, typed="Sesame\n").exit_code == 0
    assert file.read_text().startswith("# the office\n\nalice:SCRAM-SHA-256$")
    assert run("remove", "alice", "--file", link).exit_code == 0
    assert file.read_text() == "# the office\n\n"
    assert link.is_symlink()


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "users"
    os.mkfifo(pipe)
    refused = run("add", "alice", "--file", pipe, typed="Sesame\n")
    assert (refused.exit_code, refused.output) == (1, f"Error: {pipe} is not a file\n")
    assert pipe.is_fifo()


def test_who_is_not_there_cannot_be_removed(tmp_path: Path) -> None:
    refused = run("remove", "alice", "--file", tmp_path / "users")
    assert (refused.exit_code, refused.output) == (1, f"Error: {tmp_path}/users has no user alice\n")

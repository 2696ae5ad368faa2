"""Settings files and a unit that the program prints; what ``config check`` says of a data directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shadowrelay.cli import main
from shadowrelay.settings.data_directory import findings

SYSTEMD = Path(__file__).parents[2] / "deploy" / "systemd"
MIB = 2**20


def run(*words: str | Path) -> Result:
    return CliRunner(env={}).invoke(main, list(map(str, words)))


def example(tmp_path: Path, *kind: str, data: Path | None = None) -> Path:
    printed = run("config", "example", *kind)
    assert printed.exit_code == 0
    file = tmp_path / "settings.toml"
    file.write_text(printed.stdout.replace("/var/lib/shadowrelay", str(data or tmp_path)))
    return file


@pytest.mark.parametrize("kind", [(), ("--mx",), ("--outbound",), ("--behind",)])
def test_an_example_has_comments_and_is_accepted(tmp_path: Path, kind: tuple[str, ...]):
    file = example(tmp_path, *kind)
    done = run("config", "check", file)
    assert (done.exit_code, done.stdout) == (0, "OK\n"), done.output
    assert "nothing is accepted" not in done.stderr
    assert "open relay" not in done.stderr
    assert file.read_text().count("\n# ") > 5


@pytest.mark.parametrize("kind", [(), ("--mx",), ("--outbound",), ("--behind",)])
def test_the_members_of_an_example_are_settings_too(tmp_path: Path, kind: tuple[str, ...]):
    for words in ("init", "--dir", tmp_path / "ca"), ("issue", "mx1.example.net", "--dir", tmp_path / "ca"):
        assert run("ca", *words).exit_code == 0
    text = example(tmp_path, *kind).read_text()
    head, begin, rest = text.partition("# [peer]")
    members, blank, tail = rest.partition("\n\n")
    lines = (begin + members).splitlines()
    whole = head + "\n".join(line.removeprefix("# ") for line in lines) + blank + tail
    paths = {"member.pem": "ca/mx1.example.net.pem", "member.key": "ca/mx1.example.net.key",
             "members-ca.pem": "ca/ca.pem"}  # fmt: skip
    for name, place in paths.items():
        whole = whole.replace(f"/etc/shadowrelay/{name}", str(tmp_path / place))
    (tmp_path / "whole.toml").write_text(whole)
    done = run("config", "check", tmp_path / "whole.toml")
    assert (done.exit_code, done.stdout) == (0, "OK\n"), done.output + whole


def test_the_unit_runs_this_program_with_that_file(tmp_path: Path):
    printed = run("config", "unit", tmp_path / "mine.toml").stdout
    assert f"ExecStart={sys.prefix}/bin/shadowrelay run {tmp_path}/mine.toml" in printed
    assert "/opt/" not in printed
    assert str(Path(sys.prefix).parent) in printed.split("\nExecPaths=")[1].splitlines()[0]


def test_the_unit_quotes_a_path_with_a_space_or_a_percent_sign(tmp_path: Path):
    printed = run("config", "unit", tmp_path / "my mail" / "s 100%.toml").stdout
    assert f'run "{tmp_path}/my mail/s 100%%.toml"\n' in printed


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze (systemd) is missing")
@pytest.mark.parametrize("name", ["s.toml", "my mail/s 100%.toml"])
def test_systemd_finds_nothing_odd_in_the_unit_that_is_printed(tmp_path: Path, name: str):
    unit = tmp_path / "shadowrelay.service"
    unit.write_text(run("config", "unit", tmp_path / name).stdout)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", "--man=no", unit],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])


def test_the_unit_of_the_repository_is_the_one_that_is_printed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "prefix", "/opt/shadowrelay/venv")
    assert run("config", "unit").stdout == (SYSTEMD / "shadowrelay.service").read_text()


def test_check_refuses_a_data_directory_that_is_a_file(tmp_path: Path):
    (tmp_path / "file").write_text("")
    done = run("config", "check", example(tmp_path, data=tmp_path / "file"))
    assert done.exit_code == 2
    assert "data_dir" in done.stderr
    assert "is no directory" in done.stderr
    assert run("config", "check", example(tmp_path, data=tmp_path / "file" / "below")).exit_code == 2


def test_check_refuses_a_disk_without_room_unless_mail_is_there_already(tmp_path: Path):
    file = example(tmp_path)
    file.write_text(file.read_text().replace("256MiB", "1000TiB"))
    done = run("config", "check", file)
    assert done.exit_code == 2
    assert "minimum_free_disk" in done.stderr
    (tmp_path / "transport.db").write_text("")
    done = run("config", "check", file)
    assert (done.exit_code, "are free there" in done.stderr) == (0, True)


def test_a_network_file_system_is_known_by_its_mount(tmp_path: Path):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
        f"41 40 8:2 / {tmp_path}/far/near rw - xfs /dev/sdb1 rw\n"
        f"40 22 0:35 / {tmp_path}/far rw,relatime shared:2 - nfs4 server:/mail rw\n"
    )
    for name, wrong in ("far", True), ("far/near", False), ("", False), ("far/new/data", True):
        (tmp_path / "far" / "near").mkdir(parents=True, exist_ok=True)
        found = findings(tmp_path / name, MIB, mounts)
        assert ("network file system (nfs4)" in found.wrong) is wrong, (name, found)


def test_a_directory_that_its_owner_may_not_write_is_refused_and_another_users_is_told(tmp_path: Path):
    """As a user without rights: root may write everywhere."""
    (tmp_path / "data").mkdir(mode=0o500)
    load = "import os, sys; from pathlib import Path; "
    load += "from shadowrelay.settings.data_directory import findings; findings(Path('/'), 1); "
    ask = "print(findings(Path(sys.argv[1]), 1))"
    if os.geteuid() == 0:
        for one in (tmp_path, *tmp_path.parents[:3]):
            one.chmod(0o755)
        os.chown(tmp_path / "data", 65534, 65534)
        drop = "os.setgid(65534); os.setuid(65534); "
    else:
        drop = ""
    for mode, told in (0o500, "wrong='its owner may not write"), (0o700, "wrong='', odd=''"):
        (tmp_path / "data").chmod(mode)
        words = [sys.executable, "-c", load + drop + ask, str(tmp_path / "data")]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert told in done.stdout, done.stderr


def test_check_warns_of_a_node_that_accepts_nothing(tmp_path: Path):
    file = example(tmp_path, "--mx")
    file.write_text(file.read_text().replace('accepted_domains = ["example.net"]', ""))
    done = run("config", "check", file)
    assert "nothing is accepted" in done.stderr

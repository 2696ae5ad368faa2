from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from shadowrelay.cli.ca import ca


def run(*arguments: object) -> Result:
    return CliRunner().invoke(ca, [str(argument) for argument in arguments])


def test_init_and_issue_say_what_they_wrote_and_what_the_settings_need(tmp_path: Path) -> None:
    made = run("init", "--dir", tmp_path / "ca")
    assert made.exit_code == 0
    assert f"wrote {tmp_path}/ca/ca.pem" in made.output
    issued = run("issue", "mx1.example.net", "--dir", tmp_path / "ca", "--out", tmp_path / "mx1")
    assert issued.exit_code == 0
    assert issued.output.splitlines()[-3:] == [
        f'peer.certificate = "{tmp_path}/mx1/mx1.example.net.pem"',
        f'peer.key = "{tmp_path}/mx1/mx1.example.net.key"',
        f'peer.ca = "{tmp_path}/ca/ca.pem"',
    ]
    assert (tmp_path / "mx1" / "mx1.example.net.key").exists()


def test_a_second_init_is_refused_without_force(tmp_path: Path) -> None:
    assert run("init", "--dir", tmp_path).exit_code == 0
    refused = run("init", "--dir", tmp_path)
    assert refused.exit_code == 1
    assert "exists already" in refused.output
    assert run("init", "--dir", tmp_path, "--force").exit_code == 0


def test_an_error_is_one_line_without_a_traceback(tmp_path: Path) -> None:
    failed = run("issue", "mx1.example.net", "--dir", tmp_path)
    assert (failed.exit_code, failed.output.count("\n")) == (1, 1)
    assert failed.output.startswith("Error: no authority in")

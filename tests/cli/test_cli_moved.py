"""Commands that became programs of their own say so."""

from __future__ import annotations

from click.testing import CliRunner

from shadowrelay.cli import main


def test_the_lab_is_a_program_of_its_own():
    done = CliRunner().invoke(main, ["lab", "up", "--nodes", "2", "--set", "log.level=debug me"])
    assert done.exit_code == 2
    assert done.output == "shadowrelay lab is now: shadowlab up --nodes 2 --set 'log.level=debug me'\n"


def test_even_its_help_says_so():
    assert CliRunner().invoke(main, ["lab", "--help"]).output == "shadowrelay lab is now: shadowlab --help\n"

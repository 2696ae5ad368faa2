"""What is read from a page, and what counts as agreement with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages.agreement import disagreement
from tests.pages.commands import BadPage, commands
from tests.pages.shell import Shell


def page(directory: Path, text: str) -> Path:
    path = directory / "page.md"
    path.write_text(text, "utf-8")
    return path


def test_a_console_block_holds_commands_and_what_they_print(tmp_path: Path) -> None:
    found = commands(page(tmp_path, "# A\n\n```console\n$ one \\\n> two\nprinted\n$ three\n```\n"))
    assert [(c.line, c.text, c.shown) for c in found] == [(4, "one \\\ntwo", ("printed",)), (7, "three", ())]


def test_an_sh_block_is_one_script_and_other_blocks_are_none(tmp_path: Path) -> None:
    found = commands(page(tmp_path, "```sh\nset -e\ntrue   # a comment\n```\n```toml\nname = 1\n```\n"))
    assert [c.text for c in found] == ["set -e\ntrue   # a comment"]


def test_a_block_is_exempt_with_a_reason(tmp_path: Path) -> None:
    text = "<!-- not run here: needs a Kubernetes cluster -->\n\n```console\n$ kubectl get pods\n```\n"
    (found,) = commands(page(tmp_path, text))
    assert found.not_run == "needs a Kubernetes cluster"


@pytest.mark.parametrize(
    "text",
    [
        "<!-- not run here -->\n```sh\ntrue\n```\n",
        "<!-- not run here: it has no block -->\ntext\n",
        "<!-- not run here: it has no block -->\n",
        "<!-- not run here: no command -->\n```toml\na = 1\n```\n",
        "```console\nno command\n```\n",
        "```sh\ntrue\n",
    ],
)
def test_a_page_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadPage):
        commands(page(tmp_path, text))


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["a   b"], ["a b"]),
        (["first", "…", "last"], ["first", "x", "y", "last"]),
        (["id 01a1fe56-0b00-728d-a5ef-54ee8ff46ee6 …"], ["id 01a1ff7b-3b6d-72c8-b1ba-473c481f0cee kept"]),
        (["127.0.0.1:2521 after 3.1 s"], ["127.0.0.1:40123 after 12 s"]),
        ([], ["anything"]),
    ],
)
def test_what_differs_from_run_to_run_agrees(shown: list[str], printed: list[str]) -> None:
    assert disagreement(shown, printed) == ""


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["queued 2"], ["queued 3"]),
        (["first", "last"], ["first", "x", "last"]),
        (["first"], ["first", "more"]),
        (["first", "…", "last"], ["first", "x"]),
        (["at 01a1fe56-0b00-728d-a5ef-54ee8ff46ee6"], ["at nothing"]),
        (["RCPT TO:<a@inside.test>"], ["RCPT TO:<b@inside.test>"]),
    ],
)
def test_what_the_page_shows_has_to_be_printed(shown: list[str], printed: list[str]) -> None:
    assert disagreement(shown, printed)


def test_a_shell_keeps_variables_and_directory_and_tells_the_status(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell:
        assert shell.run("name=value; mkdir below; cd below") == (0, "")
        assert shell.run('echo "$name"; pwd; false') == (1, f"value\n{tmp_path}/below\n")


def test_a_command_of_a_page_has_to_do_what_the_page_says(tmp_path: Path) -> None:
    shown, fails = commands(
        page(tmp_path, "```console\n$ echo one\ntwo\n$ exit_with_this() { return 3; }; exit_with_this\n```\n")
    )
    with Shell(tmp_path) as shell:
        with pytest.raises(AssertionError, match="shown is 'two'; printed is 'one'"):
            shell.follow(shown)
        with pytest.raises(AssertionError, match="exit status 3"):
            shell.follow(fails)
        shell.follow(fails, status=3)

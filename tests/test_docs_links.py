"""README and docs/: links lead somewhere, commands exist, settings are right."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from shadowlab.cli import main as lab
from shadowmailbox.cli import mailbox
from shadowmailbox.settings import load_mailbox_settings
from shadowrelay import authority
from shadowrelay.cli import main
from shadowrelay.settings import settings_from_tree
from shadowrelay.settings.shaping_patterns import patterns

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
SCRIPT = re.compile(r"^\s*(?:\$ )?((?:scripts|\.ci)/\w+)", re.MULTILINE)
INDENTED = re.compile(r"^    (?=\S)", re.MULTILINE)


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """As code hosts make them: lower case, punctuation dropped, blanks as hyphens."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in HEADING.findall(prose(page))
    }


def examples(page: Path) -> Iterator[str]:
    """Lines of code blocks, fenced or indented, without prompt and comment."""
    text = page.read_text("utf-8")
    blocks = [body for _, body in FENCE.findall(text)]
    blocks.append("\n".join(line[4:] for line in prose(page).splitlines() if INDENTED.match(line)))
    for line in "\n".join(blocks).splitlines():
        yield line.removeprefix("$ ").partition(" #")[0].rstrip()


def tables() -> list[tuple[str, str]]:
    return [
        (named(page), body)
        for page in PAGES
        for kind, body in FENCE.findall(page.read_text("utf-8"))
        if kind == "toml"
    ]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_relative_link_leads_somewhere(page: Path):
    for target in LINK.findall(prose(page)):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{target} is not there"
        assert found.is_relative_to(ROOT), f"{target} leads out of the repository"
        assert not anchor or anchor in anchors(found), f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_and_option_of_an_example_exists(page: Path):
    for line in examples(page):
        if not re.match(r"(shadowrelay|shadowlab|shadowmailbox) [a-z-]", line):
            continue
        program, *rest = shlex.split(line)
        words = iter(rest)
        alone = rest[0].startswith(("-", "["))  # a group that does something by itself
        command: click.Command = PROGRAMS[program]
        context = click.Context(command)
        while isinstance(command, click.Group):
            if alone and command.invoke_without_command:
                break
            name = next(words, None)
            found = command.get_command(context, name) if name else None
            assert found is not None, f"{line}: there is no command {name}"
            command = found
        known = {option for parameter in command.params for option in parameter.opts} | {"--help", "-h"}
        for word in words:
            assert not word.startswith("-") or word.partition("=")[0] in known, f"{line}: no option {word}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_script_of_an_example_exists(page: Path):
    for script in SCRIPT.findall("\n".join(examples(page))):
        assert (ROOT / script).is_file(), f"{script} is not there"


PROGRAMS = {"shadowrelay": main, "shadowlab": lab, "shadowmailbox": mailbox}

KINDS = {".key": "ca.key", ".password": "password", ".toml": "recipients.toml"}
"""Which file of the test stands for one of a page; a certificate for all others."""


@pytest.mark.parametrize(("page", "text"), tables(), ids=[page for page, _ in tables()])
def test_settings_of_an_example_are_settings(page: str, text: str, tmp_path: Path):
    """A whole file has to be right; of a part, what it sets."""
    certificates = tmp_path / "certificates"
    authority.init(certificates, name="members", now=datetime.now(UTC))
    (certificates / "password").write_text("Pa55-word\n")
    (certificates / "recipients.toml").write_text("[aliases]\n")
    (certificates / "patterns.toml").write_text("[patterns]\n")
    for written in set(re.findall(r'"(/etc/[^"]+)"', text)):
        there = Path(written).name
        if there != "patterns.toml":
            there = KINDS.get(Path(written).suffix, "ca.pem")
        text = text.replace(f'"{written}"', f'"{certificates / there}"')
    tree = tomllib.loads(text)
    if "patterns" in tree:  # of a file of patterns
        (tmp_path / "patterns.toml").write_text(text)
        assert patterns(tmp_path / "patterns.toml")
        return
    if "deliver" in tree:  # of a mailbox service
        (tmp_path / "mailbox.toml").write_text(text)
        load_mailbox_settings(tmp_path / "mailbox.toml", {})
        return
    if "name" not in tree:
        tree |= {"name": "mx1.example.net", "receive": {"default": {"listen": "127.0.0.1:0"}}}
    settings_from_tree(tree, source=page)

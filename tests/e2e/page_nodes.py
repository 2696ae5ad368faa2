"""Both nodes of a how-to page, as processes with the settings that the page prints."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from neighbourhood import port
from running_lab import wait_until

from shadowrelay import authority

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def blocks(page: str, kind: str) -> list[str]:
    """The blocks of a page in that language, those in lists too."""
    text = (HOW_TO / f"{page}.md").read_text("utf-8")
    found = re.findall(rf"^( *)```{kind}\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


def moved(text: str, places: Mapping[str, str]) -> str:
    """The text with what it names moved to this machine. Each name has to be there."""
    for there, here in places.items():
        assert there in text, there
        text = text.replace(there, here)
    return text


def certificates(directory: Path, name: str) -> None:
    """Those of the pages, in a node's directory: ``member`` and ``smtp``, and the authority."""
    now, there = datetime.now(UTC), directory.parent / "ca"
    if not there.exists():
        authority.init(there, name="members", now=now)
    pair = authority.issue(there, name, out=directory, now=now)
    for kind in ("member", "smtp"):
        shutil.copy(pair.certificate, directory / f"{kind}.pem")
        shutil.copy(pair.key, directory / f"{kind}.key")
    shutil.copy(authority.authority_pair(there).certificate, directory / "members-ca.pem")


@contextmanager
def run(directory: Path, settings: str) -> Iterator[None]:
    """A node with these settings and those of a test, its output in ``said``; SIGTERM at the end."""
    (directory / "settings.toml").write_text(
        f'minimum_free_disk = 0\n{settings}\n[admin]\nlisten = "127.0.0.1:{port()}"\n'
    )
    with (directory / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "shadowrelay", "run", str(directory / "settings.toml")],
            stdout=said,
            stderr=said,
        )
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.wait()


def connects(at: tuple[str, int]) -> bool:
    try:
        socket.create_connection(at, 10).close()
    except OSError:
        return False
    return True


def takes_mail(directory: Path, at: tuple[str, int]) -> None:
    """Wait until a client can connect: that is at the end of its start."""
    wait_until(
        lambda: connects(at),
        f"{directory.name} takes mail",
        explain=lambda: (directory / "said").read_text()[-3000:],
    )


@contextmanager
def pair(
    directory: Path, settings: str, listens: str, places: Mapping[str, str]
) -> Iterator[tuple[str, int]]:
    """Both nodes of a page whose settings are those of the first one; where that one ``listens``.

    Names end in a digit, and members meet at port 2526. ``places``: what is elsewhere for both of them.
    """
    found = re.match(r'name = "([a-z]+)1\.(\S+)"', settings)
    assert found is not None
    stem, domain = found.groups()
    members, senders = {n: port() for n in (1, 2)}, {n: port() for n in (1, 2)}
    with ExitStack() as stack:
        for n, other in ((1, 2), (2, 1)):
            etc = directory / f"{stem}{n}"
            etc.mkdir()
            certificates(etc, f"{stem}{n}.{domain}")
            text = moved(
                settings,
                {
                    f"{stem}2.{domain}:2526": f"127.0.0.1:{members[other]}",
                    "0.0.0.0:2526": f"127.0.0.1:{members[n]}",
                    listens: f"127.0.0.1:{senders[n]}",
                    "/etc/shadowrelay": str(etc),
                    "/var/lib/shadowrelay": str(etc / "data"),
                    **places,
                },
            )
            names = {"1": n, "2": other}
            text = re.sub(rf'name = "{stem}(\d)', lambda name, of=names: f'name = "{stem}{of[name[1]]}', text)  # type: ignore[misc]
            stack.enter_context(run(etc, text))
        for n in (1, 2):
            takes_mail(directory / f"{stem}{n}", ("127.0.0.1", senders[n]))
        yield "127.0.0.1", senders[1]

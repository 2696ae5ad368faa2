"""``shadowmailbox`` as a process."""

from __future__ import annotations

import asyncio
import json
import signal
import smtplib
import sys
from pathlib import Path

from click.testing import CliRunner

from shadowmailbox.cli import mailbox
from shadowmailbox.maildir import messages

COMMAND = (sys.executable, "-c", "from shadowmailbox.cli import mailbox; mailbox()")


async def test_the_server_says_when_it_is_ready_and_stops_on_sigterm(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    arguments = ["--dir", tmp_path / "mail", "--inside", "127.0.0.1:0", "--outside", "127.0.0.1:0"]
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *map(str, arguments), "--ready-file", str(ready), stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(30):
        while not ready.exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.02)
    addresses = json.loads(ready.read_text())

    def deliver() -> None:
        for port, client in (("inside", smtplib.LMTP), ("outside", smtplib.SMTP)):
            host, _, number = addresses[port].rpartition(":")
            with client(host, int(number)) as session:
                session.sendmail(
                    "a@example.org", ["b@example.net"], f"Message-ID: <{port}@x>\r\n\r\nhello\r\n"
                )

    await asyncio.to_thread(deliver)
    process.send_signal(signal.SIGTERM)
    _, log = await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode == 0, log.decode()
    assert b"mailbox_server_ready" in log
    assert [recipient for recipient, _ in messages(tmp_path / "mail")] == ["b@example.net"] * 2


def refused(*arguments: str, tmp_path: Path) -> str:
    base = {"--dir": str(tmp_path), "--inside": "127.0.0.1:0", "--outside": "127.0.0.1:0"}
    base |= dict(zip(arguments[::2], arguments[1::2], strict=True))
    result = CliRunner().invoke(mailbox, [word for pair in base.items() for word in pair])
    assert result.exit_code == (1 if "cannot listen" in result.output else 2)
    return result.output


def test_bad_options_are_explained(tmp_path: Path) -> None:
    assert "(--track-duplicates): duplicates are tracked for at most 49 days" in refused(
        "--track-duplicates", "50d", tmp_path=tmp_path
    )
    assert 'track_duplicates = "5" (--track-duplicates): not a duration' in refused(
        "--track-duplicates", "5", tmp_path=tmp_path
    )
    assert 'inside = "25" (--inside): not a host name' in refused("--inside", "25", tmp_path=tmp_path)
    assert "cannot listen on 192.0.2.1:0 (outside)" in refused("--outside", "192.0.2.1:0", tmp_path=tmp_path)
    assert "outside (--outside): with deliver" in refused("--deliver", "lmtp://[::1]:24", tmp_path=tmp_path)

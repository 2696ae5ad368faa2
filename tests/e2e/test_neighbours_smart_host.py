"""A lab sends through Debian's Postfix as a smart host, set as docs/neighbours.md and the how-to page say."""

from __future__ import annotations

import os
import re
import tomllib
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from neighbourhood import NOBODY, PATIENCE, arrived, certificate, port, room
from running_lab import OUTSIDE, RunningLab, wait_until

from shadowrelay.cli import main
from tests.neighbours import dovecot, postfix
from tests.neighbours.documented import postfix_settings

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(postfix.missing() is not None, reason=str(postfix.missing())),
    pytest.mark.skipif(dovecot.missing() is not None, reason=str(dovecot.missing())),
]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "smart-host.md"
RIGHT, WRONG = "right-Pa55-wört", "wrong-Pa55-wört"


def documented_route() -> dict[str, object]:
    """What the page says to set."""
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (route,) = tomllib.loads(block)["routes"].values()
    return dict(route)


@contextmanager
def behind(lab: RunningLab, password: Path, *options: str) -> Iterator[postfix.Postfix]:
    """Two nodes, and Postfix as their smart host, which knows one name, and has a mailbox for otto."""
    route = documented_route()
    username = str(route["username"])
    with room() as directory:
        ports = port(), port()
        mailboxes = directory / "mail"
        mailboxes.mkdir()
        os.chown(mailboxes, NOBODY, NOBODY)
        lab.mailboxes = mailboxes
        changed = {"domains", "host", "port", "password_file"}
        as_documented = [
            f"routes.outside.{key}={value}" for key, value in route.items() if key not in changed
        ]
        lab.up(
            *as_documented,
            "routes.outside.host=localhost",
            f"routes.outside.port={ports[0]}",
            f"routes.outside.password_file={password}",
            "routes.outside.tls=required",  # the default, but in a lab
            f"routes.outside.ca={lab.directory / 'ca' / 'ca.pem'}",
            "queue_glitch_retry_interval=1s",
            "queue_glitch_retry_count=15",
            *options,
            nodes=2,
        )
        chain, key, _ = certificate(lab, directory, "localhost")
        ours = {
            "smtpd_sasl_path": f"inet:127.0.0.1:{ports[1]}",
            "smtpd_tls_cert_file": chain,
            "smtpd_tls_key_file": key,
            "virtual_mailbox_domains": "outside.test",
            "virtual_mailbox_base": mailboxes,
            "virtual_mailbox_limit": 0,
            "virtual_mailbox_maps": "static:outside.test/otto/",
            "virtual_uid_maps": f"static:{NOBODY}",
            "virtual_gid_maps": f"static:{NOBODY}",
        }
        main_cf = {**postfix_settings("Postfix as a smart host, with names and passwords"), **ours}
        passwords = dovecot.Passwords(directory / "dovecot", ports[1], {username: RIGHT})
        with (
            dovecot.started(passwords),
            postfix.running(directory / "postfix", ports[0], main_cf) as instance,
        ):
            yield instance


@pytest.mark.parametrize("mechanism", ["plain", "login", "cram-md5"])
def test_mail_leaves_through_a_smart_host_that_wants_a_name_and_a_password(
    lab: RunningLab, tmp_path: Path, mechanism: str
):
    password = tmp_path / "password"
    password.write_text(RIGHT + "\n")
    with behind(lab, password, f"routes.outside.mechanism={mechanism}") as smart_host:
        lab.send(3, recipients=(OUTSIDE,))
        wait_until(lambda: lab.queued("mx1") == 0, "everything is handed over", PATIENCE)
        wait_until(smart_host.queue_is_empty, "everything is in a mailbox", PATIENCE)
        assert len(arrived(lab.mailboxes or tmp_path)[OUTSIDE]) == 3
        logins = re.findall(r"sasl_method=(\S+), sasl_username=(\S+)", smart_host.said())
    assert set(logins) == {(mechanism.upper(), documented_route()["username"])}
    assert lab.events("mx1", "DEFER") == []


def test_with_a_wrong_password_mail_waits_the_reason_is_shown_and_nothing_is_bounced(
    lab: RunningLab, tmp_path: Path
):
    password = tmp_path / "password"
    password.write_text(WRONG)
    with behind(lab, password) as smart_host:
        lab.send(2, recipients=(OUTSIDE,))
        wait_until(lambda: len(lab.events("mx1", "DEFER")) >= 4, "it was tried again", PATIENCE)
        told = {row["source-context"] for row in lab.events("mx1", "DEFER")}
        assert all("auth: 535 5.7.8 Error: authentication failed" in text for text in told), told
        shown = seen(lab, "queue", "list") + seen(lab, "message", "show", lab.ids("mx1")[0])
        assert shown.count("auth: 535 5.7.8 Error: authentication failed") >= 2
        shown += CliRunner().invoke(main, ["config", "show", str(lab.cluster.node("mx1").config)]).stdout
        assert lab.said("mx1", "next_hop_failed")[0]["step"] == "auth"
        assert lab.queued("mx1") == 2
        failed_logins = smart_host.said().count("authentication failed")

        changed = tmp_path / "new"
        changed.write_text(RIGHT)
        changed.rename(password)
        wait_until(lambda: lab.queued("mx1") == 0, "the node takes the new password by itself", PATIENCE)
        wait_until(smart_host.queue_is_empty, "everything is in a mailbox", PATIENCE)
        assert arrived(lab.mailboxes or tmp_path).keys() == {OUTSIDE}
    lab.cluster.down()
    assert lab.events("mx1", "FAIL") == lab.events("mx1", "DSN") == []
    assert failed_logins <= len(lab.said("mx1", "next_hop_failed")) + 1, "one login for each attempt"
    kept = shown.encode() + b"".join(path.read_bytes() for path in lab.directory.rglob("*") if path.is_file())
    for secret in (WRONG, RIGHT):
        assert secret.encode() not in kept
        assert b64encode(secret.encode()) not in kept


def seen(lab: RunningLab, *words: str) -> str:
    done = CliRunner().invoke(main, [*words, "--admin", lab.cluster.node("mx1").admin])
    assert done.exit_code == 0, done.output
    return done.stdout

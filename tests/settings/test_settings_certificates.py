"""Certificates that end soon: which are looked at, and what is told of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from shadowrelay.authority import init, issue
from shadowrelay.cli import main
from shadowrelay.settings.certificates import ending, valid_until

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (timedelta(days=15), ""),
        (timedelta(days=14), ""),
        (timedelta(days=13, hours=23), "the certificate peer.certificate ends in 13 d 23 h, at "),
        (DAY, "the certificate peer.certificate ends in 1 d, at 2026-11-30T12:00:00.000Z: put a new one"),
        (
            timedelta(),
            "the certificate peer.certificate has ended at 2026-11-29T12:00:00.000Z, and is refused",
        ),
        (-DAY, "the certificate peer.certificate has ended at 2026-11-28T12:00:00.000Z, and is refused"),
    ],
)
def test_a_certificate_is_told_of_from_fourteen_days_before_its_end(left: timedelta, told: str):
    found = ending({"peer.certificate": NOW + left, "receive.a.tls_certificate": NOW + 365 * DAY}, NOW)
    assert [one[: len(told)] for one in found] == ([told] if told else [])


def test_config_check_tells_of_all_certificates_of_a_node_that_end_soon(tmp_path: Path):
    now = datetime.now(UTC)
    for name, days in ("peer", 10), ("smtp", 5), ("hop", 3):
        init(tmp_path / name, name=name, now=now - 300 * DAY)
        issue(tmp_path / name, "mx1.test", now=now, lifetime=days * DAY)
    file = tmp_path / "mx1.toml"
    file.write_text(f"""
name = "mx1.test"
data_dir = "{tmp_path}"
accepted_domains = ["inside.test"]
[receive.default]
listen = "127.0.0.1:2525"
tls_certificate = "{tmp_path}/smtp/mx1.test.pem"
tls_key = "{tmp_path}/smtp/mx1.test.key"
[peer]
listen = "127.0.0.1:2526"
certificate = "{tmp_path}/peer/mx1.test.pem"
key = "{tmp_path}/peer/mx1.test.key"
ca = "{tmp_path}/peer/ca.pem"
[routes.inside]
domains = ["inside.test"]
host = "127.0.0.1"
tls = "required"
xshadow_certificate = "{tmp_path}/hop/mx1.test.pem"
xshadow_key = "{tmp_path}/hop/mx1.test.key"
[[routes.inside.send_xshadow]]
name = "mailbox.test"
certificate = "{tmp_path}/hop/mx1.test.pem"
""")
    done = CliRunner(env={}).invoke(main, ["config", "check", str(file)])
    assert done.exit_code == 0, done.output
    told = [line.split()[3] for line in done.stderr.splitlines() if "warning: the certificate" in line]
    assert sorted(told) == [
        "peer.certificate",
        "receive.default.tls_certificate",
        "routes.inside.send_xshadow[0].certificate",
        "routes.inside.xshadow_certificate",
    ]


def test_a_chain_ends_with_the_first_of_its_certificates_and_authorities_with_the_last(tmp_path: Path):
    now = datetime.now(UTC).replace(microsecond=0)
    for name, days in ("a", 5), ("b", 9):
        init(tmp_path / name, name=name, now=now)
        issue(tmp_path / name, "mx1.test", now=now, lifetime=days * DAY)
    both = b"".join((tmp_path / name / "mx1.test.pem").read_bytes() for name in "ab")
    assert valid_until("peer.certificate", both) == now + 5 * DAY
    assert valid_until("peer.ca", both) == now + 9 * DAY
    assert valid_until("peer.certificate", b"none") is None

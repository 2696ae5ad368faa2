"""A node that sends by TLS that can be checked, set as docs/how-to/outbound.md says, and an attacker."""

from __future__ import annotations

import asyncio
import json
import re
import smtplib
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from loopback_dns import SERVFAIL, LoopbackDns
from neighbourhood import port, room
from policy_host import PolicyHost, answer, policy
from programs import process
from tls_hop import TlsHop, certificate_for

from shadowlab.probing import greeting

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "outbound.md"
DOMAIN, HOST = "example.com", "mail.example.com"
BIN = Path(sys.executable).parent
PATIENCE = 60.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (BIN / "tlsrpt-collectd").exists(), reason="there is no tlsrpt-reporter (PyPI, extra 'dev')"
    ),
]


def blocks(kind: str) -> list[str]:
    found = re.findall(rf"^   ```{kind}\n(.*?)^   ```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [re.sub(r"^   ", "", text, flags=re.MULTILINE) for text in found]


def moved(text: str, places: dict[str, str]) -> str:
    """The text of the page, with other places: each is there."""
    for there, here in places.items():
        assert there in text, there
        text = text.replace(there, here)
    return text


async def until(condition: Callable[[], object], what: str) -> None:
    """Look until it holds. ``condition`` runs in a thread: it may ask a server of this loop."""
    end = asyncio.get_running_loop().time() + PATIENCE
    while not await asyncio.to_thread(condition):
        assert asyncio.get_running_loop().time() < end, f"not within {PATIENCE:.0f} s: {what}"
        await asyncio.sleep(0.05)


def sent(at: tuple[str, int]) -> None:
    with smtplib.SMTP(*at, local_hostname="client.example.org", timeout=60) as client:
        client.sendmail("you@example.org", [f"anna@{DOMAIN}"], b"Subject: x\r\n\r\nhello\r\n")


def said(admin: str, *command: str) -> str:
    run = (sys.executable, "-m", "shadowrelay", *command, "--admin", admin)
    return subprocess.run(run, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout


async def test_the_page_makes_a_node_that_an_attacker_cannot_downgrade(tmp_path: Path) -> None:
    zone: dict[tuple[str, str], Any] = {
        (DOMAIN, "MX"): [f"10 {HOST}."],
        (HOST, "A"): ["127.0.0.1"],
        (f"mta-sts.{DOMAIN}", "A"): ["127.0.0.1"],
        (f"_mta-sts.{DOMAIN}", "TXT"): ['"v=STSv1; id=1;"'],
        (f"_smtp._tls.{DOMAIN}", "TXT"): ['"v=TLSRPTv1; rua=mailto:tls@example.com"'],
    }
    (tmp_path / "ca").mkdir()
    shown = certificate_for(tmp_path / "ca", HOST)
    host = PolicyHost(tmp_path / "policies", f"mta-sts.{DOMAIN}", says=answer(policy(HOST)))
    with room() as directory:
        async with LoopbackDns(zone, ttl=0) as dns, host as policies, TlsHop(shown) as hop:
            senders, admin = port(), port()
            settings, _ = blocks("toml")
            collector, _ = blocks("ini")
            places = {
                "0.0.0.0:25": f"127.0.0.1:{senders}",
                "127.0.0.1:53": f"127.0.0.1:{dns.port}",
                "/var/lib/shadowrelay": str(tmp_path / "data"),
                "/run/tlsrpt/socket": str(directory / "socket"),
                "mta_sts = true\n": f'mta_sts = true\nport = {hop.port}\nca = "{tmp_path}/ca/ca.pem"\n',
            }
            more = f'[mta_sts]\nport = {policies.port}\nca = "{policies.authority}"\n'
            more += f'[admin]\nlisten = "127.0.0.1:{admin}"\n'
            (tmp_path / "settings.toml").write_text(f"minimum_free_disk = 0\n{moved(settings, places)}{more}")
            (tmp_path / "collectd.cfg").write_text(
                moved(
                    collector,
                    {
                        "/run/tlsrpt/socket": str(directory / "socket"),
                        "/var/lib/tlsrpt": str(directory),
                        "0220": "0222",
                    },
                )
            )
            at = ("127.0.0.1", senders)
            run = (sys.executable, "-m", "shadowrelay", "run", str(tmp_path / "settings.toml"))
            collect = (str(BIN / "tlsrpt-collectd"), "--config_file", str(tmp_path / "collectd.cfg"))
            async with process(*collect):
                await until((directory / "socket").exists, "the collector listens")
                async with process(*run):
                    await until(lambda: greeting(at).startswith("220"), "the node takes mail")
                    await asyncio.to_thread(sent, at)
                    await until(lambda: hop.taken == [True], "the mail has come by TLS")
                zone[f"_mta-sts.{DOMAIN}", "TXT"] = SERVFAIL
                hop.tls = None
                await policies.stop()
                async with process(*run):
                    await until(lambda: greeting(at).startswith("220"), "the node takes mail again")
                    await asyncio.to_thread(sent, at)
                    url = f"http://127.0.0.1:{admin}"
                    shows = lambda: "starttls-not-supported" in said(url, "status", "tls")  # noqa: E731
                    await until(shows, "status tls shows what was wrong")
                    told = json.loads(await asyncio.to_thread(said, url, "status", "tls", "--json"))
                    assert hop.taken == [True], "it went in clear text"
        (result,) = told["nodes"][0]["results"]
        assert (result["domain"], result["host"]) == (DOMAIN, HOST)
        assert (result["policy"], result["source"], result["testing"]) == ("pkix", "mta-sts", False)
        with closing(sqlite3.connect(directory / "collectd.sqlite")) as collected:
            totals = "SELECT domain, sum(cntrtotal - cntrfailure), sum(cntrfailure) > 0 FROM finalresults"
            assert collected.execute(totals).fetchall() == [(DOMAIN, 1, 1)]


async def test_with_the_settings_for_dane_a_host_that_matches_no_record_gets_nothing(tmp_path: Path) -> None:
    (tmp_path / "ca").mkdir()
    context = certificate_for(tmp_path / "ca", HOST)
    zone: dict[tuple[str, str], Any] = {
        (DOMAIN, "MX"): [f"10 {HOST}."],
        (HOST, "A"): ["127.0.0.1"],
        ("", "SOA"): ["a.root. nstld.root. 1 60 60 60 60"],
    }
    async with LoopbackDns(zone, ttl=0) as dns, TlsHop(context) as hop:
        dns.signed = ("", DOMAIN)
        zone[f"_{hop.port}._tcp.{HOST}", "TLSA"] = ["3 1 1 " + "ab" * 32]
        senders, admin = port(), port()
        at = ("127.0.0.1", senders)
        _, settings = blocks("toml")
        places = {
            "127.0.0.1:53": f"127.0.0.1:{dns.port}",
            "dane = true\n": f"dane = true\nport = {hop.port}\n",
        }
        before = (
            f'name = "mx1.example.org"\ndata_dir = "{tmp_path}/data"\nrelay_networks = ["127.0.0.0/8"]\n'
            f'minimum_free_disk = 0\n[receive.default]\nlisten = "127.0.0.1:{senders}"\n'
        )
        after = f'[admin]\nlisten = "127.0.0.1:{admin}"\n'
        (tmp_path / "settings.toml").write_text(before + moved(settings, places) + after)
        async with process(sys.executable, "-m", "shadowrelay", "run", str(tmp_path / "settings.toml")):
            await until(lambda: greeting(at).startswith("220"), "the node takes mail")
            await asyncio.to_thread(sent, at)
            url = f"http://127.0.0.1:{admin}"
            shows = lambda: "certificate-not-trusted" in said(url, "status", "tls")  # noqa: E731
            await until(shows, "status tls shows what was wrong")
            assert not hop.taken

"""Runs beside the unit in its namespaces: what a client, and systemd, see of it. ``watch_unit.py RESULT``."""

from __future__ import annotations

import smtplib
import sys
from pathlib import Path

from watching import Found, mode, show, watched

UNIT = "shadowrelay.service"


def look(found: Found) -> None:
    found["reply"] = sent("x" * 200_000)
    shown = show(UNIT)
    found["started"] = shown
    status = Path(f"/proc/{shown['MainPID']}/status").read_text()
    found["process"] = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    environment = Path(f"/proc/{shown['MainPID']}/environ").read_text().split("\0")
    found["told"] = dict(line.split("=", 1) for line in environment if line)
    found["boot"] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    found["modes"] = {place: mode(Path(place)) for place in ("/var/lib/shadowrelay", "/var/log/shadowrelay")}


def sent(content: str) -> str:
    with smtplib.SMTP("127.0.0.1", 25, local_hostname="client.example.org") as client:
        client.starttls()
        client.ehlo()
        client.mail("someone@example.org")
        client.rcpt("anna@example.net")
        body = "\r\n".join(content[at : at + 70] for at in range(0, len(content), 70))
        code, text = client.data(f"Subject: hello\r\n\r\n{body}\r\n")
        return f"{code} {text.decode()}"


if __name__ == "__main__":
    watched(UNIT, 8025, Path(sys.argv[1]), look)

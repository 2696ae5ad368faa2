"""Runs beside the unit in its namespaces: what a client, and systemd, see of it. ``watch_unit.py RESULT``."""

from __future__ import annotations

import json
import smtplib
import subprocess
import sys
import time
import urllib.request
from pathlib import Path


def main(result: Path) -> None:
    found: dict[str, object] = {}
    try:
        ready()
        found["reply"] = sent("x" * 200_000)
        shown = show()
        found["started"] = shown
        status = Path(f"/proc/{shown['MainPID']}/status").read_text()
        found["process"] = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        found["modes"] = {
            place: f"{Path(place).stat().st_mode & 0o777:o} {Path(place).owner()}"
            for place in ("/var/lib/shadowrelay", "/var/log/shadowrelay")
        }
        subprocess.run(["systemctl", "stop", "shadowrelay.service"], check=True)
        found["stopped"] = show()
    except Exception:
        subprocess.run(["systemctl", "status", "--no-pager", "--full", "shadowrelay.service"], check=False)
        raise
    finally:
        fresh = result.with_suffix(".new")
        fresh.write_text(json.dumps(found))
        fresh.rename(result)


def ready() -> None:
    end = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen("http://127.0.0.1:8025/healthz/ready").close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def sent(content: str) -> str:
    with smtplib.SMTP("127.0.0.1", 25, local_hostname="client.example.org") as client:
        client.starttls()
        client.ehlo()
        client.mail("someone@example.org")
        client.rcpt("anna@example.net")
        body = "\r\n".join(content[at : at + 70] for at in range(0, len(content), 70))
        code, text = client.data(f"Subject: hello\r\n\r\n{body}\r\n")
        return f"{code} {text.decode()}"


def show() -> dict[str, str]:
    wanted = "MainPID,ActiveState,SubState,Result,ExecMainStatus,NRestarts"
    done = subprocess.run(
        ["systemctl", "show", "shadowrelay.service", "-p", wanted], check=True, capture_output=True, text=True
    )
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


if __name__ == "__main__":
    main(Path(sys.argv[1]))

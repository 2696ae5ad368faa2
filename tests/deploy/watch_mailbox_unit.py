"""Runs beside the unit of the mailbox service in its namespaces. ``watch_mailbox_unit.py RESULT``."""

from __future__ import annotations

import json
import smtplib
import socketserver
import subprocess
import sys
import threading
from pathlib import Path

from watching import Found, mode, watched

UNIT = "shadowrelay-mailbox.service"
PROGRAM = "/opt/shadowrelay/venv/bin/shadowmailbox"
CONFIG = "/etc/shadowrelay/mailbox.toml"
TABLE = Path("/var/lib/shadowrelay-mailbox/delivered-to.sqlite")


class Store(socketserver.StreamRequestHandler):
    """Takes all that comes by LMTP."""

    def handle(self) -> None:
        self.wfile.write(b"220 store\r\n")
        content = False
        for line in self.rfile:
            if content and line != b".\r\n":
                continue
            verb = line[:4].upper()
            content = verb == b"DATA"
            self.wfile.write(b"354 go\r\n" if content else b"250 2.0.0 ok\r\n")


def look(found: Found) -> None:
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 24), Store)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found["replies"] = [sent(), sent()]
    found["forgotten"] = json.loads(
        subprocess.run(
            [PROGRAM, "forget", "--config", CONFIG, "--all", "--yes", "--json"],
            check=True,
            capture_output=True,
        ).stdout
    )
    found["replies_after"] = sent()
    places = (TABLE.parent, TABLE, TABLE.with_name(TABLE.name + ".control"))
    found["modes"] = {str(place): mode(place) for place in places}


def sent() -> str:
    """The reply to a message that is larger than what is kept in memory."""
    with smtplib.LMTP("127.0.0.1", 2424, local_hostname="mx1.example.net") as client:
        client.ehlo()
        client.mail("someone@example.org")
        client.rcpt("anna@example.net")
        code, text = client.data("Message-ID: <1@example.org>\r\n\r\n" + ("x" * 70 + "\r\n") * 3000)
        return f"{code} {text.decode()}"


if __name__ == "__main__":
    watched(UNIT, 8026, Path(sys.argv[1]), look)

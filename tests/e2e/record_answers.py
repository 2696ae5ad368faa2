"""Records what a node answers to the commands of its own release, for ``tests/cli/test_cli_releases.py``.

Run it in a tree of the release that is to be recorded, with its own tests::

    PYTHONPATH=src:tests:tests/e2e python …/record_answers.py NAME INTO.json

A lab is brought to the state of the golden files. A proxy before one node of two workers keeps the last
answer to each request.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from running_lab import RunningLab
from test_golden import COMMANDS, prepared

LEFT_OUT = ("/api/v1/openapi.json", "/api/v1/events")
LONG = "_seconds_bucket"
"""Most of a page of metrics; commands read one family of them."""

KEPT = "shadowrelay_acknowledgement_seconds_bucket"

MORE = (
    "message drop {queued} --yes",
    "redirect --stop",
    "queue retry outside --reason r --yes --no-wait",
    "queue retry outside --reason r --dry-run",
    "message retry {queued} --reason r --yes --no-wait",
    "message find nobody",
    "queue resume outside --reason r",
    "queue suspend outside --reason r",
    "resubmit add --since 1h --until 1m --all --reason r --yes",
    "resubmit pause {request}",
    "resubmit resume {request}",
    "resubmit now {request} mx3",
    "resubmit remove {request}",
    "job stop {job}",
    "redundancy off --reason r",
    "redundancy on --reason r",
    "time confirm --reason r",
    "scrub",
    "reload",
    "reload --cluster --dry-run",
    "peer retire mx3.lab.test --yes",
    "drain --within 1s",
    "drain --end",
)


def recorder(node: str, kept: dict[str, list[Any]]) -> ThreadingHTTPServer:
    """A proxy before a node that notes its answers."""

    class Noting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = self.rfile.read(length) if length else None
            headers = {"content-type": "application/json"} if body is not None else {}
            asked = urllib.request.Request(node + self.path, body, headers, method=self.command)
            if self.path.partition("?")[0] in LEFT_OUT:
                self.send_error(404)
                return
            try:
                with urllib.request.urlopen(asked, timeout=60) as answer:
                    status, said = answer.status, answer.read()
            except urllib.error.HTTPError as error:
                status, said = error.code, error.read()
            kept[place(self.command, self.path, body)] = [status, as_kept(said.decode())]
            self.send_response(status)
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_POST = do_DELETE = do_GET

        def log_message(self, *words: object) -> None: ...

    return ThreadingHTTPServer(("127.0.0.1", 0), Noting)


def place(method: str, path: str, body: bytes | None) -> str:
    """What a request is called in the recording."""
    all_nodes = bool(body) and json.loads(body or b"{}").get("cluster") is True
    return f"{method} {path.partition('?')[0]}{' of all nodes' if all_nodes else ''}"


def as_kept(said: str) -> Any:
    try:
        return json.loads(said)
    except ValueError:
        lines = said.splitlines(keepends=True)
        return "".join(one for one in lines if LONG not in one or one.startswith(KEPT))


def main(release: str, into: Path) -> None:
    kept: dict[str, list[Any]] = {}
    with tempfile.TemporaryDirectory() as directory:
        lab = RunningLab(Path(directory) / "lab")
        try:
            named = prepared(lab)
            server = recorder(lab.cluster.node("mx1").admin, kept)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_address[1]}"
            for command in (*COMMANDS, *MORE):
                words = command.format(**named).split()
                done = subprocess.run(
                    [sys.executable, "-m", "shadowrelay", *words, "--admin", url],
                    capture_output=True, text=True, check=False, timeout=120, env=os.environ,
                )  # fmt: skip
                print(done.returncode, command, done.stderr.strip()[:200], file=sys.stderr)
            server.shutdown()
        finally:
            lab.cluster.down()
    told = {"release": release, "named": named, "answers": dict(sorted(kept.items()))}
    into.write_text(json.dumps(told, separators=(",", ":"), ensure_ascii=True) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

"""S3 on loopback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyarrow import fs

_SERVER = """
import sys
from moto.server import ThreadedMotoServer
running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
running.start()
print(*running.get_host_and_port(), flush=True)
sys.stdin.read()
running.stop()
"""
"""A process of its own: some calls of deltalake keep Python's lock while they wait for an answer."""


@contextmanager
def bucket(name: str) -> Iterator[str]:
    """A bucket in an S3 server, and the query of URIs that reach it. This process has its keys."""
    pytest.importorskip("moto.server", reason="moto is not installed: pip install -e '.[dev]'")
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=-1, stdout=-1, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        host, port = server.stdout.readline().split()
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("AWS_ACCESS_KEY_ID", "audit")
                patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
                patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
                query = (
                    f"scheme=http&endpoint_override={host}:{port}&region=us-east-1&allow_bucket_creation=true"
                )
                system, _ = fs.FileSystem.from_uri(f"s3://{name}?{query}")
                system.create_dir(name)
                yield query
        finally:
            server.stdin.close()

"""Until when a node's certificates are valid: of those in use, not of what a file has by now."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from shadowrelay.authority import issue
from shadowrelay.service.reloading import Reloading
from tests.stations import authority, boundary


class NoWriter:
    def limit(self, limits: object) -> None:
        """Of a tracking log that nobody writes."""


async def test_the_certificate_in_use_counts_until_another_one_is_taken(tmp_path: Path) -> None:
    tls = authority(tmp_path / "ca", "mx1", "mx2")
    async with boundary(tmp_path, "mx1", "mx2", tls=tls) as (one, _):
        node = one.node
        assert node.services.certificates() == {}
        named: dict[str, Any] = {"peer": one.connectors[0], "receive.default": one.connectors[1]}
        node.reloading = Reloading(node, lambda: node.settings, named, NoWriter(), asyncio.Event())  # type: ignore[arg-type]
        before = node.services.certificates()
        assert list(before) == ["peer.certificate", "peer.ca"]
        assert "certificate" not in node.warning()
        assert node.settings.peer
        file = node.settings.peer.certificate
        assert file
        whole = file.read_bytes()
        file.write_bytes(b"half")
        await node.reloading.look_at_certificates()
        assert node.services.certificates() == before
        file.write_bytes(whole)
        later = datetime.now(UTC).replace(microsecond=0) + timedelta(days=7)
        issue(file.parent, node.name, now=later - timedelta(days=9), lifetime=timedelta(days=9), force=True)
        os.utime(file, (1, 1))
        await node.reloading.look_at_certificates()
        assert node.services.certificates() == before | {"peer.certificate": later}
        assert node.warning().startswith("the certificate peer.certificate ends in ")
        assert f"{later:%Y-%m-%dT%H:%M:%S}" in node.warning()
        assert node.live()

"""Promotion: what cannot wait for its next hop goes to a transport server that tracks it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripted_hop import ScriptedHop
from sending import MESSAGE, sent
from tracked_hops import certificates, hop, sending, telling

TO = "b@inside.test"


async def test_a_promoted_message_is_tracked_by_the_server_that_takes_it(tmp_path: Path) -> None:
    """From its 250 on our copy is the shadow copy of that server, until the server has delivered it."""
    async with ScriptedHop() as gone:
        dead = gone.port
    inside = {"domains": ["inside.test"], "host": "127.0.0.1", "port": dead, "tls": "none"}
    async with hop(tmp_path) as server:
        changes: dict[str, Any] = {
            "shadow_redundancy_promotion_enabled": True,
            "receive": {"max_acknowledgement_delay": "20s"},
            "routes": {
                "inside": inside,
                "edge": telling(certificates(tmp_path), server.port, "mx2"),
            },
        }
        async with sending(tmp_path, **changes) as node:
            node.run_queue()
            counts = node.node.acknowledgements.counts
            await sent(node, MESSAGE, TO)
            assert counts["retry"] == 1
            assert (await sent(node, MESSAGE, TO)).startswith("250 ")
            assert (counts["promoted"], counts["settled"]) == (1, 1)
            assert await node.rows("hop_shadow") == await server.rows("handed") == 1

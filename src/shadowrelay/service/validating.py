"""Whether the name servers prove what they say, as DANE needs it: asked before a node takes its settings."""

from __future__ import annotations

import structlog

from shadowrelay.core.delivery.mx import DnsTrouble
from shadowrelay.errors import NodeFailed
from shadowrelay.service.adapters import resolver
from shadowrelay.settings import Settings

log = structlog.get_logger(__name__)


async def validated(settings: Settings) -> None:
    """Raises NodeFailed if a route has ``dane`` and the name servers do not validate.

    Name servers that cannot be asked may come back: delivery asks them again, and mail of these routes waits.
    """
    routes = [name for name, route in settings.routes.items() if route.dane]
    if not routes:
        return
    asked = resolver(settings)
    try:
        why = await asked.not_validating(settings.dns.signed_zone)
    except DnsTrouble as trouble:
        log.error("dane_without_validation", error=str(trouble), consequence="mail of these routes waits")
        return
    finally:
        asked.close()
    if why:
        raise NodeFailed(
            f"routes.{routes[0]}.dane: {why}. Name a resolver of this machine in dns.servers that validates, "
            "such as unbound (docs/how-to/outbound.md), or set dane = false"
        )

"""Makes the stage of OpenTelemetry traces, if the settings ask for it. Only then its library is loaded."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from shadowrelay.database.transport import TransportDatabase
from shadowrelay.in_hand import InHand
from shadowrelay.settings import Settings

if TYPE_CHECKING:
    from shadowrelay.tracking.traces import Traces


def in_hand(settings: Settings) -> type[InHand]:
    """What notes the messages in hand: for traces, with the time."""
    if settings.traces.endpoint is None:
        return InHand
    from shadowrelay.tracking.traces import Began

    return Began


def traces(settings: Settings, database: TransportDatabase) -> Traces | None:
    """The stage; None without an endpoint."""
    if settings.traces.endpoint is None:
        return None
    from shadowrelay.tracking.traces import Began, Traces

    began = database.in_hand if isinstance(database.in_hand, Began) else Began()
    return Traces.to(
        settings.traces.endpoint,
        settings.name,
        version("shadowrelay"),
        began,
        addresses=settings.traces.addresses,
    )

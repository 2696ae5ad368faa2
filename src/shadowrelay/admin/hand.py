"""Defines what the admin API and the console read of what an operator can see and do from any node."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from shadowrelay.admin.rates import Rates
from shadowrelay.operator.announcing import Announces
from shadowrelay.operator.cluster_reload import ClusterReload
from shadowrelay.operator.jobs import Jobs
from shadowrelay.operator.suspending import Suspending
from shadowrelay.operator.view import View
from shadowrelay.tracking.events import TrackingEvents


class OperatorsHand(Protocol):
    """What an operator can see and do from any node."""

    @property
    def view(self) -> View: ...

    @property
    def events(self) -> TrackingEvents: ...

    @property
    def rates(self) -> Rates: ...

    @property
    def reloading(self) -> ClusterReload: ...

    @property
    def jobs(self) -> Jobs: ...

    @property
    def suspensions(self) -> Suspending: ...

    @property
    def announcing(self) -> Announces: ...

    def certificates(self) -> Mapping[str, datetime]:
        """Until when each certificate of this node that is in use is valid, by its setting."""
        ...

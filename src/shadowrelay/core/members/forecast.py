"""The forecast: what the silence of a member will lead to, told in the log and to the operator."""

from __future__ import annotations

from datetime import timedelta

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.time_text import spell
from shadowrelay.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """A member cannot be reached: its copies stop counting, and the messages held for it are promoted.

    ``losing_in``: failed heartbeats until its copies of our messages no longer count. ``promoting_in``: time
    until the ``held_for_it`` messages are promoted; zero or less when that is due. They
    are not promoted by time while another member has contact with it (``seen_by``), or while this node may be
    the one that is ``cut_off``.
    """

    losing_in: int
    promoting_in: timedelta
    held_for_it: int
    seen_by: ServerName | None
    cut_off: bool

    def __str__(self) -> str:
        return f"{self._loss()}; {self._promotion()}"

    def _loss(self) -> str:
        if not self.losing_in:
            return "its copies of our messages do not count: they are made again elsewhere"
        failures = "failure" if self.losing_in == 1 else "failures"
        return f"its copies for us no longer count after {self.losing_in} more {failures}"

    def _promotion(self) -> str:
        if not self.held_for_it:
            return "nothing is held for it"
        messages = "its messages are"  # how many differs from worker to worker, and stands beside it
        if self.seen_by:
            return f"{messages} not promoted by time: {self.seen_by} is in contact with it"
        if self.cut_off:
            return f"{messages} not promoted by time: this node reaches no other machine, and may be cut off"
        when = f"in {spell(self.promoting_in)}" if self.promoting_in > timedelta(0) else "now"
        return f"{messages} promoted {when}"

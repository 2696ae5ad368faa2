"""All targets by name."""

from __future__ import annotations

from .registry import Target
from .targets_files import TARGETS as FILES
from .targets_sessions import TARGETS as SESSIONS
from .targets_wire import TARGETS as WIRE

TARGETS: dict[str, Target] = {target.name: target for target in (*WIRE, *SESSIONS, *FILES)}

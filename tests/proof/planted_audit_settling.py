"""Faults in what is kept, settled and judged again, and how the command ends."""

from __future__ import annotations

SETTLING = ()

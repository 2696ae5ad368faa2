"""What a lab command may fail with."""

from __future__ import annotations


class LabError(Exception):
    """The request cannot be met; the text says why and what to do, for a person."""


class NoSuchNode(LabError):
    """The lab has no node of that name."""

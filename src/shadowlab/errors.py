"""Defines the errors of lab commands."""

from __future__ import annotations


class LabError(Exception):
    """The request cannot be met; the text tells a person why and what to do."""


class NoSuchNode(LabError):
    """The lab has no node of that name."""

"""From hop to hop: two boundaries of one node each, beside the exploration of members."""

from .cli import run

__all__ = ["run"]

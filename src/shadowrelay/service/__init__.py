"""Composes a node: the only place that constructs adapters, and runs the stages."""

from shadowrelay.service.node import Node, NodeFailed, mint, utcnow
from shadowrelay.service.running import run_node

__all__ = ["Node", "NodeFailed", "mint", "run_node", "utcnow"]

"""The operator's hand of a node: what its admin API and its console act through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from shadowrelay.admin.access import Access, FixedToken, Token, TokenFile
from shadowrelay.core.operating import Scope
from shadowrelay.settings import Settings

if TYPE_CHECKING:
    from shadowrelay.service.node import Node


class Hand:
    """One node's, made once by it as ``node.hand``."""

    def __init__(self, node: Node) -> None:
        self.access = Access(tuple(tokens_of(node.settings)))


def tokens_of(settings: Settings) -> Iterator[Token]:
    """The tokens that the settings name."""
    if settings.admin.token is not None:
        yield FixedToken(settings.admin.token.get_secret_value())
    for token in settings.admin.tokens:
        yield TokenFile(token.name, Scope(token.scope.value), token.file)

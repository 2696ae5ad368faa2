"""The golden dialogues of tests/wire/golden: how they are read.

``C:`` is a command, ``B:`` octets of content with ``\\r`` and ``\\n`` written so, ``S:`` a reply line, all of
them exact. ``%`` says what the member that is called knows beforehand; ``#`` explains.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"
FILES = sorted(FOLDER.glob("*.txt"))


@dataclass
class Exchange:
    """What is sent in one go, and the whole reply to it."""

    command: str
    content: bytes = b""
    reply: list[str] = field(default_factory=list)

    @property
    def octets(self) -> bytes:
        return self.command.encode() + b"\r\n" + self.content

    @property
    def arguments(self) -> str:
        return self.command.partition(" ")[2]

    def lines(self, *, marked: bool) -> list[str]:
        """The text of the reply lines: without codes and, if they are ``marked``, without the mark."""
        texts = [line[4:].partition(" ")[2] for line in self.reply]
        return [*texts[:-1], texts[-1].rpartition(" ")[0]] if marked else texts


def read(text: str) -> tuple[list[str], list[Exchange]]:
    """What has to be there beforehand, and the exchanges."""
    given: list[str] = []
    exchanges: list[Exchange] = []
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        match kind:
            case "%":
                given.append(rest)
            case "C:":
                exchanges.append(Exchange(rest))
            case "B:":
                exchanges[-1].content += rest.replace("\\r", "\r").replace("\\n", "\n").encode()
            case "S:":
                exchanges[-1].reply.append(rest)
            case _:
                assert not line or line.startswith("#"), line
    return given, exchanges

"""SCRAM-SHA-256 (RFC 5802, RFC 7677), as scramp speaks it: the only module that knows the library.

Channel binding is not offered: under TLS 1.3 it takes what Python's ssl module does not tell.
"""

from __future__ import annotations

from collections.abc import Callable

from scramp import ScramException, ScramMechanism

from shadowrelay.core.reception.users import Verifier

MECHANISM = ScramMechanism("SCRAM-SHA-256")


class ProofRefused(Exception):
    """The client's message is none, or proves nothing. The text may quote what the client said."""


class Exchange:
    """One login: ``begin`` answers the client's first message, ``end`` its proof.

    ``verifier`` gives what is kept of a user's password; of an unknown name too. ``name`` is who the client
    says it is.
    """

    def __init__(self, verifier: Callable[[str], Verifier]) -> None:
        self.name = ""
        self._verifier = verifier
        self._server = MECHANISM.make_server(self._kept)

    def _kept(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        self.name = name
        kept = self._verifier(name)
        return kept.salt, kept.stored_key, kept.server_key, kept.iterations

    def begin(self, message: bytes) -> bytes:
        """Raises ProofRefused."""
        try:
            self._server.set_client_first(message.decode())
            answer: str = self._server.get_server_first()
        except (ScramException, UnicodeDecodeError) as error:
            raise ProofRefused(str(error)) from None
        return answer.encode()

    def end(self, message: bytes) -> bytes:
        """What proves to the client that the verifier is here. Raises ProofRefused, if nothing is proven."""
        try:
            self._server.set_client_final(message.decode())
            answer: str = self._server.get_server_final()
        except (ScramException, UnicodeDecodeError) as error:
            raise ProofRefused(str(error)) from None
        return answer.encode()

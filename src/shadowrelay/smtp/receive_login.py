"""AUTH PLAIN and LOGIN (RFC 4954, RFC 4616): aiosmtpd's exchanges, with a check that is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from aiosmtpd.smtp import AuthResult, LoginPassword

from shadowrelay.core.values import replace
from shadowrelay.smtp.duplex import Interrupted, Why
from shadowrelay.smtp.receive_connection import syntax
from shadowrelay.smtp.receive_lifecycle import SessionLifecycle
from shadowrelay.wire.replies import Refused


class LoginSession(SessionLifecycle):
    """A session in which one may log in. Passwords are kept nowhere, and are in no log."""

    _checking: asyncio.Task[bool] | None = None

    @syntax("AUTH <mechanism>")
    async def smtp_AUTH(self, arg: str | None) -> None:
        if self.transaction is not None:
            raise Refused(503, "5.5.1", "A transaction is under way")
        mechanism, _, response = (arg or "").partition(" ")
        await super().smtp_AUTH(f"{mechanism.upper()} {response}".rstrip())

    async def auth_PLAIN(self, _: object, args: list[str]) -> AuthResult:
        return await self._checked(await super().auth_PLAIN(_, args))

    async def auth_LOGIN(self, _: object, args: list[str]) -> AuthResult:
        return await self._checked(await super().auth_LOGIN(_, args))

    async def _checked(self, result: AuthResult) -> AuthResult:
        """The claim that the exchange led to, if it did; without the password."""
        claim, logins = result.auth_data, self.options.logins
        if not isinstance(claim, LoginPassword) or logins is None:
            return result
        name = claim.login.decode("utf-8", "replace")
        right = await self._awaited(logins.check(self.peer, name, claim.password))
        if right:
            self.peer = replace(self.peer, login=name)
        return AuthResult(success=right, handled=False)

    def drain(self) -> None:
        super().drain()
        # An exchange, whose next line may be long in coming, is no transaction.
        if self.verb == "AUTH" and self.transaction is None:
            self.duplex.interrupt(Why.STOPPING)

    # A check may wait for many others: whoever has gone, or is to go, does not.

    async def _awaited(self, check: Coroutine[None, None, bool]) -> bool:
        self._checking = asyncio.ensure_future(check)
        try:
            return await self._checking
        except asyncio.CancelledError:
            raise Interrupted(Why.GONE if self._lost.is_set() else Why.STOPPING) from None
        finally:
            self._checking = None

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._give_up()

    def expire(self) -> None:
        super().expire()
        self._give_up()

    def _give_up(self) -> None:
        if self._checking is not None:
            self._checking.cancel()

"""Faults in who may log in, and in who is believed to be behind a proxy."""

from __future__ import annotations

from .planting import Fault

_LOGIN = "nobody logs in without TLS, and nobody learns who could"
_PROXY = "who is behind a proxy is the client, and only a proxy says so"

ADMITTING = (
    Fault(
        name="AUTH is offered in the clear",
        rule=_LOGIN,
        file="smtp/receiving/session.py",
        edits=(
            ('        if self.client.tls and self.offers("AUTH"):\n', '        if self.offers("AUTH"):\n'),
        ),
        test="smtp/test_receive_login.py::test_without_tls_auth_is_not_offered_and_no_password_is_looked_at",
    ),
    Fault(
        name="a name that nobody has is refused at once",
        rule=_LOGIN,
        file="reception/logins.py",
        edits=(
            (
                "            right = await self._matches(session, password, kept or self._decoy(name))\n",
                "            right = kept is not None and await self._matches(session, password, kept)\n",
            ),
        ),
        test="reception/test_logins.py::test_an_unknown_user_and_a_wrong_password_take_the_same_time",
    ),
    Fault(
        name="a password that was right stays so when the file has another",
        rule="a user who was removed, or has another password, does not log in with the old one",
        file="reception/logins.py",
        edits=(
            (
                "        right = kept is not None and self._right.get(secret) == kept\n",
                "        right = kept is not None and secret in self._right\n",
            ),
        ),
        test="reception/test_logins.py::test_the_file_may_change_at_any_time",
    ),
    Fault(
        name="anybody says who is behind him",
        rule=_PROXY,
        file="smtp/receiving/library.py",
        edits=(
            ("        if self._proxy_timeout is not None and not self._is_proxy():\n", "        if False:\n"),
        ),
        test="smtp/test_receive_proxy.py::test_a_stranger_who_sends_a_header_is_no_proxy[v1]",
    ),
    Fault(
        name="clients behind a proxy have no limit of their own",
        rule=_PROXY,
        file="smtp/receiving/session.py",
        edits=(
            (
                "        refusal = self._register.identify(self, self.client.address)\n",
                "        refusal = None\n",
            ),
        ),
        test="smtp/test_receive_proxy.py::test_the_limit_per_source_is_one_of_the_clients_behind_the_proxy",
    ),
    Fault(
        name="a reset of our own connection ends the client's session",
        rule="an error of our own is answered 451, and the session goes on",
        file="smtp/receiving/transaction.py",
        edits=(
            (
                "            reply = await server.receiver.mail(server.client, mail) or SENDER_OK\n"
                "        except ConnectionResetError as error:\n"
                "            raise _ours(error) from error\n",
                "            reply = await server.receiver.mail(server.client, mail) or SENDER_OK\n"
                "        except ConnectionResetError:\n"
                "            raise\n",
            ),
        ),
        test="smtp/test_aiosmtpd.py::test_a_reset_of_our_own_connections_is_answered",
    ),
)

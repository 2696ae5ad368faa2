"""MAIL and RCPT with their parameters, parsed and formatted (RFC 5321, 1870, 3461, 4954, 6152, 6531).

Parameter keywords are case-insensitive. Values keep their case, because ENVID and ORCPT go back to the sender
as they were given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from shadowrelay.core.messages import Envelope, TlsWish
from shadowrelay.core.values import dataclass
from shadowrelay.wire import addresses
from shadowrelay.wire.replies import Refused, Reply
from shadowrelay.wire.xtext import is_xtext

MAIL_KEYWORDS = frozenset({"SIZE", "BODY", "SMTPUTF8", "RET", "ENVID", "AUTH"})
WITH_REQUIRETLS = MAIL_KEYWORDS | {"REQUIRETLS"}
RCPT_KEYWORDS = frozenset({"NOTIFY", "ORCPT"})

COMMAND_LINE = 512
"""RFC 5321 section 4.5.3.1.4: the octets of a command line, CRLF included."""

LINE_EXTENSIONS: Mapping[str, int] = MappingProxyType(
    {
        "MAIL": 26 + 17 + 10 + 124 + 500 + 11,  # SIZE, BODY, SMTPUTF8, RET with ENVID, AUTH, REQUIRETLS
        "RCPT": 527,  # NOTIFY with ORCPT
    }
)
"""How many octets the extensions add to the limit of a command line."""

_PARAMETER = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*)(?:=([!-<>-~\u00a0-\U0010ffff]+))?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SIZE = re.compile(r"[0-9]{1,20}")
_ADDRESS_TYPE = re.compile(r"[A-Za-z0-9-]+")
_UTF8_ADDRESS = re.compile(r"(?:[!-*,-<>-~\u00a0-\U0010ffff]|\+[0-9A-F]{2})+")
_LONGEST_SAID = 40  # characters of a keyword that a reply repeats
_NOTHING: Mapping[str, str] = MappingProxyType({})


def _nothing() -> Mapping[str, str]:
    return _NOTHING


@dataclass(frozen=True, slots=True)
class MailFrom:
    """A MAIL command. ``sender`` is '' for the null path; ``envid`` and ``auth`` are xtext as received."""

    sender: str
    size: int | None = None  # octets, as declared
    body: str = "7BIT"  # or 8BITMIME
    smtputf8: bool = False
    ret: str | None = None  # FULL or HDRS
    envid: str | None = None
    auth: str | None = None
    requiretls: bool = False  # RFC 8689
    extra: Mapping[str, str] = field(default_factory=_nothing)  # parameters only of this connector, raw

    def envelope(
        self, size: int = 0, *, message_id: str = "", subject: str = "", tls: TlsWish | None = None
    ) -> Envelope:
        """The envelope that it begins, with what is known of the content so far: ``tls``, what the header
        section says of TLS.
        """
        return Envelope(
            sender=self.sender,
            size=size,
            body=self.body,
            smtputf8=self.smtputf8,
            ret=self.ret,
            envid=self.envid,
            message_id=message_id,
            subject=subject,
            tls=TlsWish.REQUIRED if self.requiretls else tls,
        )


@dataclass(frozen=True, slots=True)
class RcptTo:
    """An RCPT command. ``notify`` is upper case, empty when not given; ``orcpt`` is as received."""

    address: str
    notify: tuple[str, ...] = ()
    orcpt: str | None = None
    extra: Mapping[str, str] = field(default_factory=_nothing)


def parse_mail(
    argument: str, *, keywords: Collection[str] = MAIL_KEYWORDS, any_dots: bool = False
) -> MailFrom:
    """Read what follows ``MAIL``. ``keywords``: the parameters that were offered (none after HELO).

    A source route in the reverse-path is dropped, as RFC 5321 appendix C asks. Raises Refused.
    """
    try:
        _, sender, rest = addresses.read_path(after("FROM:", argument), any_dots=any_dots)
    except addresses.AddressError as error:
        raise Refused(501, "5.1.7", str(error)) from None
    if sender and "@" not in sender:
        raise Refused(501, "5.1.7", "Address needs a domain")
    given = _parameters(rest, keywords)
    smtputf8 = "SMTPUTF8" in given
    if smtputf8 and given["SMTPUTF8"]:
        raise _bad("SMTPUTF8 takes no value")
    if not (smtputf8 or argument.isascii()):
        _refuse_non_ascii(sender, given)
    return MailFrom(sender, **_read(given, _OF_MAIL))


def parse_rcpt(
    argument: str, *, smtputf8: bool, keywords: Collection[str] = RCPT_KEYWORDS, any_dots: bool = False
) -> RcptTo:
    """Read what follows ``RCPT``. ``smtputf8``: the MAIL command gave that parameter.

    A source route is refused; ``refuse_routing`` refuses its other spellings. Raises Refused.
    """
    try:
        route, address, rest = addresses.read_path(after("TO:", argument), any_dots=any_dots)
    except addresses.AddressError as error:
        raise Refused(501, "5.1.3", str(error)) from None
    if not address:
        raise Refused(501, "5.1.3", "Null recipient")
    if route:
        raise Refused(550, "5.7.1", "Routing by the sender is refused")
    given = _parameters(rest, keywords)
    if not (smtputf8 or argument.isascii()):
        _refuse_non_ascii(address, given)
    return RcptTo(address, **_read(given, _OF_RCPT))


def refuse_routing(rcpt: RcptTo) -> None:
    """Refuse a recipient that routes by its local part (``%``, ``!``, a quoted ``@``): only people that look
    for an open relay use it.

    This is policy, not grammar: a report goes to any sender that was accepted, and a holder takes every
    envelope that its owner accepted. Raises Refused.
    """
    if addresses.is_routed(rcpt.address):
        raise Refused(550, "5.7.1", "Routing by the sender is refused")


def format_mail(mail: MailFrom, offered: Collection[str]) -> bytes:
    """The MAIL command, CRLF included, with the parameters whose extension the server ``offered``.

    ``extra`` is sent as it is. Raises ValueError if a value could break the line.
    """
    parameters: list[tuple[str, str | None]] = []
    if mail.size is not None and "SIZE" in offered:
        parameters.append(("SIZE", str(mail.size)))
    if mail.body != "7BIT" and "8BITMIME" in offered:
        parameters.append(("BODY", mail.body))
    if mail.smtputf8 and "SMTPUTF8" in offered:
        parameters.append(("SMTPUTF8", None))
    if mail.ret and "DSN" in offered:
        parameters.append(("RET", mail.ret))
    if mail.envid and "DSN" in offered:
        parameters.append(("ENVID", mail.envid))
    if mail.auth and "AUTH" in offered:
        parameters.append(("AUTH", mail.auth))
    if mail.requiretls and "REQUIRETLS" in offered:
        parameters.append(("REQUIRETLS", None))
    return _command(f"MAIL FROM:<{mail.sender}>", [*parameters, *mail.extra.items()])


def format_rcpt(rcpt: RcptTo, offered: Collection[str]) -> bytes:
    """The RCPT command; see ``format_mail``."""
    parameters: list[tuple[str, str | None]] = []
    if "DSN" in offered:
        if rcpt.notify:
            parameters.append(("NOTIFY", ",".join(rcpt.notify)))
        if rcpt.orcpt:
            parameters.append(("ORCPT", rcpt.orcpt))
    return _command(f"RCPT TO:<{rcpt.address}>", [*parameters, *rcpt.extra.items()])


def extensions(reply: Reply) -> dict[str, str]:
    """The extensions in a positive answer to EHLO or LHLO: keyword in upper case to its arguments."""
    offered: dict[str, str] = {}
    for line in reply.lines[1:]:
        keyword, _, arguments = line.strip().partition(" ")
        offered.setdefault(keyword.upper(), arguments.strip())
    return offered


def _command(line: str, parameters: Iterable[tuple[str, str | None]]) -> bytes:
    for key, value in parameters:
        word = f"{key}={value}" if value else key
        if " " in word:
            raise ValueError("space in a parameter")
        line = f"{line} {word}"
    if _CONTROL.search(line):
        raise ValueError("control character in a command")
    return f"{line}\r\n".encode()


def _bad(text: str) -> Refused:
    return Refused(501, "5.5.4", text)


def after(keyword: str, argument: str) -> str:
    """What follows FROM: or TO:. Raises Refused."""
    word, colon, path = argument.partition(":")
    if word + colon != keyword and word.upper() + colon != keyword:
        raise _bad(f"Syntax: {'MAIL' if keyword == 'FROM:' else 'RCPT'} {keyword}<address>")
    return path


def _parameters(text: str, keywords: Collection[str]) -> dict[str, str]:
    """The parameters: keyword in upper case to value, '' for none."""
    if text[:1] not in ("", " "):
        raise _bad("Only a space may follow the closing bracket")
    given: dict[str, str] = {}
    if not text:
        return given
    for word in filter(None, text.split(" ")):
        found = _PARAMETER.fullmatch(word)
        if found is None:
            raise _bad(_no_parameter(word))
        key = found[1].upper()
        if key not in keywords:
            unknown = (
                f"Parameter {key[:_LONGEST_SAID]} not recognised" if keywords else "Parameters need EHLO"
            )
            raise Refused(555, "5.5.4", unknown)
        if key in given:
            raise _bad(f"Parameter {key} given twice")
        given[key] = found[2] or ""
    return given


def _no_parameter(word: str) -> str:
    key = word.partition("=")[0]
    if _PARAMETER.fullmatch(key) is None:
        return "Parameter must be a keyword, or a keyword with = and a value"
    return f"Value of {key.upper()[:_LONGEST_SAID]} is missing, or has a character that it cannot have"


def _refuse_non_ascii(address: str, given: Mapping[str, str]) -> None:
    if not address.isascii():
        raise Refused(553, "5.6.7", "SMTPUTF8 is needed for this address")
    for key, value in given.items():
        if not value.isascii():
            raise Refused(553, "5.6.7", f"SMTPUTF8 is needed for this {key}")


def _read(given: dict[str, str], known: Mapping[str, tuple[str, Callable[[str], object]]]) -> dict[str, Any]:
    """The parameters as the fields of a command: those that are known, the rest as ``extra``."""
    if not given:
        return {"extra": _NOTHING}
    fields = {name: read(given.pop(key)) for key, (name, read) in known.items() if key in given}
    return fields | {"extra": MappingProxyType(given) if given else _NOTHING}


def _body(value: str) -> str:
    if value.upper() not in {"7BIT", "8BITMIME"}:
        raise _bad("BODY is 7BIT or 8BITMIME")
    return value.upper()


def _size(value: str) -> int:
    if not _SIZE.fullmatch(value):
        raise _bad("SIZE is a number of octets, of at most 20 digits")
    return int(value)


def _ret(value: str) -> str:
    if value.upper() not in {"FULL", "HDRS"}:
        raise _bad("RET is FULL or HDRS")
    return value.upper()


def _envid(value: str) -> str:
    if not (0 < len(value) <= 100 and is_xtext(value)):
        raise _bad("ENVID is xtext, of at most 100 characters")
    return value


def _auth(value: str) -> str:
    if value != "<>" and not (0 < len(value) <= 500 and is_xtext(value)):
        raise _bad("AUTH is <>, or xtext of at most 500 characters")
    return value


def _requiretls(value: str) -> bool:
    if value:
        raise _bad("REQUIRETLS takes no value")
    return True


def _notify(value: str) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(value.upper().split(",")))
    if words != ("NEVER",) and not set(words) <= {"SUCCESS", "FAILURE", "DELAY"}:
        raise _bad("NOTIFY is NEVER, or a list of SUCCESS, FAILURE, DELAY")
    return words


def _orcpt(value: str) -> str:
    """ORCPT (RFC 3461 section 4.2); the address type utf-8 has its own spelling (RFC 6533 section 3)."""
    if len(value) > 500:
        raise _bad("ORCPT has more than 500 characters")
    kind, separator, address = value.partition(";")
    if not separator or not address or not _ADDRESS_TYPE.fullmatch(kind):
        raise _bad("ORCPT is an address type, a semicolon and xtext")
    fits = _UTF8_ADDRESS.fullmatch(address) if kind.lower() == "utf-8" else is_xtext(address)
    if not fits:
        raise _bad("ORCPT is an address type, a semicolon and xtext")
    return value


_OF_MAIL: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "SMTPUTF8": ("smtputf8", lambda _: True),
    "BODY": ("body", _body),
    "SIZE": ("size", _size),
    "RET": ("ret", _ret),
    "ENVID": ("envid", _envid),
    "AUTH": ("auth", _auth),
    "REQUIRETLS": ("requiretls", _requiretls),
}
_OF_RCPT: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "NOTIFY": ("notify", _notify),
    "ORCPT": ("orcpt", _orcpt),
}
"""Keyword to the field that it fills, and what reads its value. In this order they are judged."""

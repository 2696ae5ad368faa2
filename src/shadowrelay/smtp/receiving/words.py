"""aiosmtpd's replies in our words: with enhanced codes, and with the code that the RFC has for them."""

from __future__ import annotations

from functools import lru_cache

from shadowrelay.wire.replies import Reply

OK = Reply(250, "2.0.0", "OK")
GREETING_NEEDED = Reply(503, "5.5.1", "Say hello first")
MAIL_NEEDED = Reply(503, "5.5.1", "MAIL needed first")

_OURS = {
    "250 OK": OK,
    "221 Bye": Reply(221, "2.0.0", "Bye"),
    "503 Error: send HELO first": GREETING_NEEDED,
    "503 Error: send EHLO first": GREETING_NEEDED,
    "503 Error: need MAIL command": MAIL_NEEDED,
    **dict.fromkeys(
        ("501 Syntax: MAIL FROM: <address>", "501 Syntax: MAIL FROM: <address> [SP <mail-parameters>]"),
        Reply(501, "5.5.4", "Syntax: MAIL FROM:<address>"),
    ),
    **dict.fromkeys(
        ("501 Syntax: RCPT TO: <address>", "501 Syntax: RCPT TO: <address> [SP <mail-parameters>]"),
        Reply(501, "5.5.4", "Syntax: RCPT TO:<address>"),
    ),
}

_ENHANCED = {
    214: "2.0.0", 235: "2.7.0", 252: "2.0.0", 500: "5.5.2", 501: "5.5.4", 502: "5.5.1", 503: "5.5.1",
    504: "5.5.4", 530: "5.7.0", 535: "5.7.8", 538: "5.7.11", 552: "5.3.4", 553: "5.1.3", 554: "5.7.0",
    555: "5.5.4", 421: "4.7.0", 454: "4.7.0",
}  # fmt: skip


@lru_cache(maxsize=256)
def in_our_words(status: str) -> Reply:
    """What the library would push."""
    if status in _OURS:
        return _OURS[status]
    code, text = int(status[:3]), status[4:]
    if code == 250:  # HELP, for which RFC 5321 has a code of its own
        code, text = 214, text.removeprefix("Supported commands: ")
    enhanced = _ENHANCED.get(code)
    if enhanced and text.startswith(f"{enhanced[0]}."):
        enhanced, _, text = text.partition(" ")
    return Reply(code, enhanced, text)

"""Reports, read back by Python's own parser."""

from __future__ import annotations

import base64
import email
import email.policy
import quopri
import re
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage, Message
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shadowrelay.core.events.reports import ReportKind
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.messages import Envelope, Recipient
from shadowrelay.wire.report import MOST_HEADER, MOST_RETURNED, build_report, with_the_header_alone
from shadowrelay.wire.report_fields import field, mta, status

RECEIVED = datetime(2026, 11, 21, 10, 0, 5, tzinfo=UTC)
ORIGINAL = b"Subject: hello\r\nMessage-ID: <m1@example.org>\r\n\r\nText.\r\n"
ID = MessageId("0a1b2c3d-0000-8000-8000-000000000001")


def report(**changes: Any) -> bytes:
    envelope = {"sender": "sender@example.org", "size": len(ORIGINAL), "message_id": "<m1@example.org>"}
    recipient = {"number": 1, "address": "a@example.net", "next_hop": NextHop("hop")}
    envelope |= changes.pop("envelope", {})
    recipient |= changes.pop("recipient", {})
    given: dict[str, Any] = {
        "report_id": ID,
        "reporting_mta": "mx1.example.org",
        "received_at": RECEIVED,
        "kind": ReportKind.FAILED,
        "reply": "550 5.1.1 no such user",
        "remote_mta": "hop.example.net",
        "now": RECEIVED + timedelta(hours=1),
        "will_retry_until": None,
        "original": ORIGINAL,
        "original_is_complete": True,
    }
    return build_report(envelope=Envelope(**envelope), recipient=Recipient(**recipient), **given | changes)


def parse(text: bytes) -> EmailMessage:
    message = email.message_from_bytes(text, policy=email.policy.SMTP)
    assert not message.defects
    assert isinstance(message, EmailMessage)
    return message


def parts(text: bytes) -> list[EmailMessage]:
    found = list(parse(text).iter_parts())
    assert len(found) == 3
    assert not any(part.defects for part in found)
    return found  # type: ignore[return-value]


def blocks(text: bytes) -> tuple[Message, Message]:
    """The fields about the message, and those about the recipient."""
    first, second = parts(text)[1].get_payload()  # type: ignore[misc]
    return first, second


def test_the_report_is_addressed_to_the_sender_and_answers_nothing() -> None:
    text = report()
    message = parse(text)
    assert message["To"].addresses[0].addr_spec == "sender@example.org"
    assert message["From"].addresses[0].addr_spec == "MAILER-DAEMON@mx1.example.org"
    assert message["Auto-Submitted"] == "auto-replied"
    assert message["Message-ID"] == f"<{ID}@mx1.example.org>"
    assert message["In-Reply-To"] == "<m1@example.org>"
    assert parsedate_to_datetime(message["Date"]) == RECEIVED + timedelta(hours=1)
    assert message.get_content_type() == "multipart/report"
    assert message.get_param("report-type") == "delivery-status"
    assert [part.get_content_type() for part in parts(text)] == [
        "text/plain",
        "message/delivery-status",
        "text/rfc822-headers",
    ]


def test_the_fields_are_those_of_rfc_3464() -> None:
    about, recipient = blocks(
        report(
            envelope={"envid": "q+2Bx"},
            recipient={"orcpt": "rfc822;A+2Bb@example.net"},
        )
    )
    assert dict(about) == {
        "Original-Envelope-Id": "q+x",
        "Reporting-MTA": "dns; mx1.example.org",
        "Arrival-Date": "Sat, 21 Nov 2026 10:00:05 +0000",
    }
    assert dict(recipient) == {
        "Original-Recipient": "rfc822; A+b@example.net",
        "Final-Recipient": "rfc822; a@example.net",
        "Action": "failed",
        "Status": "5.1.1",
        "Remote-MTA": "dns; hop.example.net",
        "Diagnostic-Code": "smtp; 550 5.1.1 no such user",
        "Last-Attempt-Date": "Sat, 21 Nov 2026 11:00:05 +0000",
    }


def test_a_delay_says_until_when_it_will_be_tried() -> None:
    until = RECEIVED + timedelta(days=2)
    text = report(kind=ReportKind.DELAYED, reply="451 4.3.0 later", will_retry_until=until)
    _, recipient = blocks(text)
    assert (recipient["Action"], recipient["Status"]) == ("delayed", "4.3.0")
    assert parsedate_to_datetime(recipient["Will-Retry-Until"]) == until
    assert "Mon, 23 Nov 2026" in parts(text)[0].get_content()


@pytest.mark.parametrize("kind", [ReportKind.RELAYED, ReportKind.DELIVERED])
def test_a_success_has_a_status_of_class_2(kind: ReportKind) -> None:
    _, recipient = blocks(report(kind=kind, reply="250 2.1.5 ok"))
    assert (recipient["Action"], recipient["Status"]) == (kind, "2.1.5")


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("hop.example.net:25", "hop.example.net"),
        ("192.0.2.1:2525", "[192.0.2.1]"),
        ("2001:db8::1:25", "[IPv6:2001:db8::1]"),
    ],
)
def test_a_next_hop_is_named_as_the_dns_does_without_a_port(server: str, expected: str) -> None:
    assert mta(server) == expected


def test_our_own_reply_is_not_passed_off_as_the_next_hops() -> None:
    _, recipient = blocks(report(reply="552 5.3.4 too big", remote_mta=None))
    assert "Remote-MTA" not in recipient
    assert recipient["Diagnostic-Code"] == "x-shadowrelay; 552 5.3.4 too big"


@pytest.mark.parametrize(
    ("kind", "reply", "expected"),
    [
        (ReportKind.FAILED, "550 5.7.1 no", "5.7.1"),
        (ReportKind.FAILED, "550 5.7.1", "5.7.1"),
        (ReportKind.FAILED, "550 no", "5.2.0"),
        (ReportKind.FAILED, "554", "5.0.0"),
        (ReportKind.FAILED, "550 4.7.1 classes differ", "5.2.0"),
        (ReportKind.FAILED, "550 5.1.1.1 not a code", "5.2.0"),
        (ReportKind.FAILED, "550 5.\u0661.1 not a code", "5.2.0"),
        (ReportKind.FAILED, "451 4.4.1 expired", "4.4.1"),
        (ReportKind.FAILED, "", "4.4.7"),
        (ReportKind.FAILED, "250 2.0.0 ok", "5.0.0"),
        (ReportKind.FAILED, "nonsense", "5.0.0"),
        (ReportKind.DELAYED, "421 bye", "4.3.2"),
        (ReportKind.DELAYED, "", "4.0.0"),
        (ReportKind.DELAYED, "550 5.1.1 no", "4.0.0"),
        (ReportKind.RELAYED, "250 ok", "2.0.0"),
        (ReportKind.DELIVERED, "", "2.0.0"),
    ],
)
def test_the_status_is_the_replys_or_what_its_code_stands_for(
    kind: ReportKind, reply: str, expected: str
) -> None:
    assert status(kind, reply) == expected


def test_only_the_header_is_returned_by_default() -> None:
    assert parts(report())[2].get_payload(decode=True) == ORIGINAL.partition(b"\r\n\r\n")[0] + b"\r\n"


def returned(text: bytes) -> tuple[str, bytes]:
    """The type of the third part, and its octets before they were encoded."""
    raw = text.split(b"\r\n--" + str(parse(text).get_boundary()).encode())[3]
    head, _, body = raw.removeprefix(b"\r\n").partition(b"\r\n\r\n")
    fields = email.message_from_bytes(head)
    decode = {"7bit": bytes, "base64": base64.decodebytes, "quoted-printable": unquoted}
    return fields.get_content_type(), decode[fields["Content-Transfer-Encoding"]](body)


def unquoted(body: bytes) -> bytes:
    lines = body.split(b"\r\n")
    assert max(map(len, lines)) <= 76
    assert not any(line.endswith((b" ", b"\t")) for line in lines)
    whole = body.replace(b"=\r\n", b"")
    assert not re.search(rb"=(?![0-9A-F]{2})", whole)
    return re.sub(rb"=([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), whole)


@pytest.mark.parametrize(
    ("original", "expected"),
    [
        (b"Subject: a\r\n\r\n.\r\nBody\r\nno end", "message/rfc822"),
        (b"Subject: \xff\r\n\r\n.\r\nB\xc3\xb6dy\r\nno end", "message/global"),
        (b"Subject: a\r\n\r\nB\xe4dy" + b"\xff" * 900 + b"\r\n", "message/global"),
    ],
)
def test_a_failure_with_ret_full_returns_the_message_octet_for_octet(original: bytes, expected: str) -> None:
    text = report(envelope={"ret": "FULL", "body": "8BITMIME"}, original=original)
    assert returned(text) == (expected, original)
    assert text.isascii()
    assert parts(text)[2].get_content_type() == expected


WORDS = [
    *(b"Subject: ", b"X: ", b"hello", b" ", b"\t", b"=", b"=3D", b".", b"From ", b"--", b"\0", b"\r", b"\n"),
    *("ä".encode(), "例え".encode(), b"\xe4", b"\xff\xfe", b"y" * 75, b"z" * 1200, b"\r\n", b"\r\n "),
]
LONGEST = f"{'+' * 62}ä@{'ü' * 45}.{'ü' * 20}.{'ü' * 20}.example"
ADDRESSES = [
    LONGEST,
    "a@example.net",
    "ä@example.net",
    "a@bücher.example",
    "用户@例え.テスト",
    '"ä \\" +="@example.net',
]


@given(
    st.lists(st.sampled_from(WORDS), max_size=30).map(b"".join),
    st.sampled_from(ADDRESSES),
    st.sampled_from(ADDRESSES),
    st.sampled_from(
        [
            None,
            f"utf-8;{'ü' * 400}",
            f"rfc822;{'x' * 490}",
            "rfc822;a+2Bb@example.net",
            "rfc822;+C3+A4@x",
            "utf-8;ä@x",
            r"utf-8;\x{E4}@x",
        ]
    ),
    st.booleans(),
    st.sampled_from(["FULL", "HDRS"]),
)
@settings(max_examples=400, deadline=None)
@pytest.mark.slow
def test_a_report_is_7_bit_in_short_lines_and_returns_what_was_sent_whatever_that_is(
    original: bytes, sender: str, recipient: str, orcpt: str | None, smtputf8: bool, ret: str
) -> None:
    text = report(
        envelope={"sender": sender, "smtputf8": smtputf8, "ret": ret},
        recipient={"address": recipient, "orcpt": orcpt},
        original=original,
    )
    assert text.isascii()
    assert max(map(len, text.split(b"\r\n"))) <= 998
    assert not re.search(rb"(?<!\r)\n|\r(?!\n)|\0", text)
    kind, found = returned(text)
    if kind in {"message/rfc822", "message/global"}:
        assert (ret, found) == ("FULL", original)
    else:
        assert kind == (
            "message/global-headers" if smtputf8 and not found.isascii() else "text/rfc822-headers"
        )
        head, end, _ = original.partition(b"\r\n\r\n")
        lines = (head + b"\r\n" if end else head[: head.rfind(b"\r\n") + 2]) if b"\r\n" in original else b""
        assert found == (b"" if original.startswith(b"\r\n") else lines)
    (about, told), found_parts = blocks(text), parts(text)
    assert found_parts[1].get_content_type() == "message/delivery-status"
    assert about["Reporting-MTA"]
    address = told["Final-Recipient"].partition("; ")[2]
    shown = re.sub(r"\\x\{([0-9A-F]+)\}", lambda one: chr(int(one[1], 16)), address)
    assert shown.rpartition("@")[0] == recipient.rpartition("@")[0]
    assert shown.isascii() or not recipient.isascii()
    assert shown.rpartition("@")[2].isascii()
    assert recipient in found_parts[0].get_content()


def test_a_report_that_returns_a_header_has_64_kib_at_most() -> None:
    for line in (
        b"X: " + b"y" * 70 + b"\r\n",
        b"X: " + b"\xff" * 700 + b"\r\n",
        b"X: \xe4" + b"y" * 5000 + b"\r\n",
    ):
        text = report(original=line * 3000)
        assert 30_000 < len(text) <= 64 * 1024
        _, found = returned(text)
        assert found == line * (len(found) // len(line))


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": ReportKind.RELAYED, "reply": "250 ok"},
        {"original_is_complete": False},
        {"original": ORIGINAL + b"x\r\n" * (MOST_RETURNED // 3)},
        {"original": ORIGINAL + b"x" * 999 + b"\r\n"},
        {"original": ORIGINAL + b"\0\r\n"},
    ],
)
def test_the_message_is_not_returned_whole_unless_it_may_and_can_be(changes: dict[str, Any]) -> None:
    text = report(envelope={"ret": "FULL"}, **changes)
    assert parts(text)[2].get_content_type() == "text/rfc822-headers"
    assert len(text) < 10_000


def test_a_header_cut_off_in_a_line_is_returned_up_to_its_last_whole_line() -> None:
    returned = parts(report(original=b"A: 1\r\nB: 2\r\nC: unfin", original_is_complete=False))[2]
    assert returned.get_payload(decode=True) == b"A: 1\r\nB: 2\r\n"
    huge = b"".join(b"X-%d: %s\r\n" % (n, b"y" * 80) for n in range(2000))
    assert len(parts(report(original=huge))[2].get_payload(decode=True)) <= MOST_HEADER  # type: ignore[arg-type]


def test_a_message_without_header_returns_nothing_of_its_body() -> None:
    assert b"secret" not in report(original=b"\r\nsecret\r\n\r\nmore\r\n")


def test_addresses_in_utf_8_are_escaped_in_the_status_and_shown_in_the_text() -> None:
    text = report(
        envelope={"sender": "sändér@example.org", "smtputf8": True},
        recipient={"address": "ä@example.net", "orcpt": r"utf-8;o+2B\x{E4}@example.net"},
        original="Subject: ä\r\n\r\nText.\r\n".encode(),
    )
    found = parts(text)
    assert found[1].get_content_type() == "message/delivery-status"
    assert returned(text) == ("message/global-headers", "Subject: ä\r\n".encode())
    assert b"Final-Recipient: utf-8; \\x{E4}@example.net\r\n" in text
    assert b"Original-Recipient: utf-8; o\\x{2B}\\x{E4}@example.net\r\n" in text
    assert parse(text)["To"].groups[0].display_name == "sändér@example.org"
    assert "    ä@example.net" in found[0].get_content()


def test_a_domain_in_unicode_is_an_a_label_in_a_report() -> None:
    text = report(
        envelope={"sender": "s@bücher.example", "smtputf8": True}, recipient={"address": "a@straße.example"}
    )
    assert parse(text)["To"].addresses[0].addr_spec == "s@xn--bcher-kva.example"
    assert blocks(text)[1]["Final-Recipient"] == "rfc822; a@xn--strae-oqa.example"


@pytest.mark.parametrize(
    "evil",
    ["x\r\nBcc: victim@example.com", "x\n\nBody", "x\r\n\r\n--=_", "x\x00\x1b[31m", "x\x85y\u2028z\udc80"],
)
def test_nothing_that_is_quoted_can_begin_a_field(evil: str) -> None:
    text = report(
        reporting_mta="mx1.example.org",
        remote_mta=f"hop{evil}",
        reply=f"550 5.1.1 {evil}",
        envelope={"sender": f"s@{evil}", "envid": evil, "message_id": f"<a@{evil}>"},
        recipient={"address": f"a@{evil}", "orcpt": f"rfc822;{evil}"},
    )
    assert "Bcc" not in parse(text)
    assert "In-Reply-To" not in parse(text)
    about, recipient = blocks(text)
    assert set(about.keys()) == {"Original-Envelope-Id", "Reporting-MTA", "Arrival-Date"}
    assert len(recipient.keys()) == 7
    assert not re.search(rb"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?!\n)", text)


def test_encoded_line_ends_in_xtext_stay_harmless() -> None:
    about, recipient = blocks(
        report(envelope={"envid": "a+0D+0AX-Evil:+20b"}, recipient={"orcpt": "rfc822;a+0D+0AX-Evil:b"})
    )
    assert "X-Evil" not in about
    assert "X-Evil" not in recipient


def test_the_boundary_does_not_occur_in_what_it_separates() -> None:
    original = ORIGINAL + f"--=_{ID}--\r\n".encode()
    text = report(envelope={"ret": "FULL"}, original=original)
    assert str(parse(text).get_boundary()).encode() not in original
    assert original in text


def test_the_same_inputs_make_the_same_octets() -> None:
    assert report() == report()


def test_every_line_ends_in_crlf_and_none_is_too_long() -> None:
    text = report(reply="550 5.1.1 " + "word " * 500, recipient={"address": "a" * 300 + "@example.net"})
    assert text.endswith(b"\r\n")
    assert text.count(b"\n") == text.count(b"\r\n")
    assert max(map(len, text.split(b"\r\n"))) <= 998
    assert len(parts(text)) == 3


@pytest.mark.parametrize("value", ["", " ", "a" * 300, "a  " * 60, "b " * 60 + "  ", "a" * 72 + "  "])
def test_folding_never_leaves_a_line_of_white_space(value: str) -> None:
    lines = field("Name", value).split("\r\n")
    assert all(line.startswith(" ") and line.strip() for line in lines[1:-1])


def test_nothing_is_built_for_the_null_reverse_path() -> None:
    with pytest.raises(ValueError, match="null"):
        report(envelope={"sender": ""})


def test_naive_datetimes_are_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        report(received_at=datetime(2026, 11, 21))  # noqa: DTZ001


FULL = {"envelope": {"ret": "FULL"}}


@pytest.mark.parametrize(
    "original",
    [
        b"Subject: hello\r\n\r\nText.\r\n" * 50,
        "Subject: Grüße\r\nX: y\r\n\r\nText ä.\r\n".encode(),
        b"Subject: x\r\n\r\n--=_" + ID.encode() + b"\r\n",
        b"\r\nno header\r\n",
    ],
    ids=["ascii", "utf-8", "which looks like the boundary", "without a header"],
)
def test_a_report_that_is_too_long_returns_the_header_and_all_else_as_before(original: bytes) -> None:
    whole = report(original=original, **FULL)
    shorter = with_the_header_alone(whole, ID)
    assert shorter is not None
    assert shorter.isascii()
    text, status, returned = parts(shorter)
    assert [text.as_bytes(), status.as_bytes()] == [one.as_bytes() for one in parts(whole)[:2]]
    assert parse(shorter).items() == parse(whole).items()
    assert returned.get_content_type() in {"text/rfc822-headers", "message/global-headers"}
    head = b"" if original.startswith(b"\r\n") else original.partition(b"\r\n\r\n")[0] + b"\r\n"
    form, _, got = (
        shorter.rpartition(b"\r\nContent-Type: ")[2].rpartition(b"\r\n--")[0].partition(b"\r\n\r\n")
    )
    assert (quopri.decodestring(got) if form.endswith(b"quoted-printable") else got) == head


@pytest.mark.parametrize("of", ["another relay", "a header", "a sender"])
def test_what_is_no_report_of_ours_with_a_whole_message_is_not_made_shorter(of: str) -> None:
    other = MessageId("0a1b2c3d-0000-8000-8000-000000000002")
    whole = report(**FULL)
    given = {"another relay": whole, "a header": report(), "a sender": b"Subject: x\r\n\r\n" + whole}
    assert with_the_header_alone(given[of], other if of == "another relay" else ID) is None

from __future__ import annotations

from dataclasses import replace

import pytest

from shadowrelay.wire.esmtp import (
    MAIL_KEYWORDS,
    RCPT_KEYWORDS,
    MailFrom,
    RcptTo,
    extensions,
    format_mail,
    format_rcpt,
    parse_mail,
    parse_rcpt,
    refuse_routing,
)
from shadowrelay.wire.replies import Refused, Reply

ALL = {"SIZE", "8BITMIME", "SMTPUTF8", "DSN", "AUTH"}


def refusal(argument: str, *, rcpt: bool = False, smtputf8: bool = False) -> str:
    with pytest.raises(Refused) as caught:
        parse_rcpt(argument, smtputf8=smtputf8) if rcpt else parse_mail(argument)
    return str(caught.value.reply)[:9]


def test_values_keep_their_case_and_keywords_need_none() -> None:
    mail = parse_mail("from:<A@b> size=10 Body=8bitmime ret=hdrs EnvID=aB+2Bc auth=x+40y")
    assert mail == MailFrom("A@b", size=10, body="8BITMIME", ret="HDRS", envid="aB+2Bc", auth="x+40y")
    rcpt = parse_rcpt("to:<B@c> notify=failure,Delay orcpt=RFC822;User+2Bx@c", smtputf8=False)
    assert rcpt == RcptTo("B@c", notify=("FAILURE", "DELAY"), orcpt="RFC822;User+2Bx@c")


def test_the_null_path_is_an_empty_sender() -> None:
    assert parse_mail("FROM:<>") == MailFrom("")


def test_a_source_route_of_the_sender_is_dropped() -> None:
    assert parse_mail("FROM:<@x,@y:a@b>").sender == "a@b"


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        ("", "501 5.5.4"),
        ("<a@b>", "501 5.5.4"),
        ("FROM:a@b", "501 5.1.7"),
        ("FROM:<a>", "501 5.1.7"),
        ("FROM:<a\x00@b>", "501 5.1.7"),
        ("FROM:<a@b>SIZE=1", "501 5.5.4"),
        ("FROM:<a@b> =1", "501 5.5.4"),
        ("FROM:<a@b> SIZE=", "501 5.5.4"),
        ("FROM:<a@b> SIZE", "501 5.5.4"),
        ("FROM:<a@b> SIZE=-1", "501 5.5.4"),
        ("FROM:<a@b> SIZE=1 SIZE=1", "501 5.5.4"),
        ("FROM:<a@b> BODY=BINARYMIME", "501 5.5.4"),
        ("FROM:<a@b> SMTPUTF8=1", "501 5.5.4"),
        ("FROM:<a@b> RET=ALL", "501 5.5.4"),
        ("FROM:<a@b> ENVID=a+b", "501 5.5.4"),
        (f"FROM:<a@b> ENVID={'x' * 101}", "501 5.5.4"),
        ("FROM:<a@b> AUTH=a+", "501 5.5.4"),
        ("FROM:<a@b> FOO=1", "555 5.5.4"),
        ("FROM:<a@b> XSHADOW=1", "555 5.5.4"),
        ("FROM:<ü@b>", "553 5.6.7"),
        ("FROM:<a@ü.example>", "553 5.6.7"),
    ],
)
def test_a_bad_mail_command_is_refused(argument: str, code: str) -> None:
    assert refusal(argument) == code


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        ("", "501 5.5.4"),
        ("TO:<>", "501 5.1.3"),
        ("TO:<a>", "501 5.1.3"),
        ("TO:<@x:a@b>", "550 5.7.1"),
        ("TO:<a@b> NOTIFY=NEVER,SUCCESS", "501 5.5.4"),
        ("TO:<a@b> NOTIFY=", "501 5.5.4"),
        ("TO:<a@b> NOTIFY=ALWAYS", "501 5.5.4"),
        ("TO:<a@b> ORCPT=a@b", "501 5.5.4"),
        ("TO:<a@b> ORCPT=rfc822;", "501 5.5.4"),
        ("TO:<a@b> ORCPT=rfc822;a+b", "501 5.5.4"),
        (f"TO:<a@b> ORCPT=rfc822;{'x' * 500}", "501 5.5.4"),
        ("TO:<a@b> SIZE=1", "555 5.5.4"),
        ("TO:<ü@b>", "553 5.6.7"),
        ("TO:<a@b> ORCPT=utf-8;ü@b", "553 5.6.7"),
    ],
)
def test_a_bad_rcpt_command_is_refused(argument: str, code: str) -> None:
    assert refusal(argument, rcpt=True) == code


@pytest.mark.parametrize("address", ["a%b@c", "b!a@c", '"a@b"@c'])
def test_routing_by_the_local_part_is_grammar_but_may_be_refused(address: str) -> None:
    rcpt = parse_rcpt(f"TO:<{address}>", smtputf8=False)
    assert rcpt.address == address
    with pytest.raises(Refused) as refused:
        refuse_routing(rcpt)
    assert str(refused.value.reply).startswith("550 5.7.1 ")


def test_postmaster_needs_no_domain_even_in_an_internationalised_transaction() -> None:
    assert parse_rcpt("TO:<postmaster>", smtputf8=True).address == "postmaster"


def test_non_ascii_is_taken_where_smtputf8_was_given() -> None:
    assert parse_mail("FROM:<ü@b> SMTPUTF8") == MailFrom("ü@b", smtputf8=True)
    rcpt = parse_rcpt("TO:<ü@b> ORCPT=utf-8;ü+3D\\x{1F600}@b", smtputf8=True)
    assert rcpt.orcpt == "utf-8;ü+3D\\x{1F600}@b"


def test_parameters_of_one_connector_stay_raw() -> None:
    mail = parse_mail("FROM:<a@b> xshadow=Id;1;2;0a:3", keywords=MAIL_KEYWORDS | {"XSHADOW"})
    assert mail.extra == {"XSHADOW": "Id;1;2;0a:3"}
    rcpt = parse_rcpt("TO:<a@b> XFORK=1;x+20y", smtputf8=False, keywords=RCPT_KEYWORDS | {"XFORK"})
    assert rcpt.extra == {"XFORK": "1;x+20y"}


def test_a_command_is_read_back_as_it_was_written() -> None:
    mail = MailFrom(
        "ü@b", 10, "8BITMIME", True, ret="FULL", envid="Ab", auth="<>", extra={"XSHADOW": "a;1;1;b:2"}
    )
    line = format_mail(mail, ALL).decode()
    assert line.endswith("\r\n")
    assert parse_mail(line[5:-2], keywords=MAIL_KEYWORDS | {"XSHADOW"}) == mail
    rcpt = RcptTo("b@c", ("NEVER",), "rfc822;B@c")
    assert format_rcpt(rcpt, ALL) == b"RCPT TO:<b@c> NOTIFY=NEVER ORCPT=rfc822;B@c\r\n"


def test_only_what_the_server_offers_is_written() -> None:
    mail = MailFrom("a@b", 10, "8BITMIME", True, "FULL", "x", "<>")
    assert format_mail(mail, ()) == b"MAIL FROM:<a@b>\r\n"
    assert format_rcpt(RcptTo("b@c", ("NEVER",), "rfc822;b@c"), {"SIZE"}) == b"RCPT TO:<b@c>\r\n"


@pytest.mark.parametrize("bad", ["a@b>\r\nRSET\r\n<", "a\x00@b"])
def test_no_value_can_break_a_command_line(bad: str) -> None:
    with pytest.raises(ValueError, match="control"):
        format_mail(MailFrom(bad), ALL)
    with pytest.raises(ValueError, match="space"):
        format_mail(replace(MailFrom("a@b"), envid="x SIZE=1"), ALL)


def test_extensions_are_read_from_the_answer_to_ehlo() -> None:
    reply = Reply(250, None, ("mx.example.net", "size 1000", "PIPELINING", "XSHADOW 1"))
    assert extensions(reply) == {"SIZE": "1000", "PIPELINING": "", "XSHADOW": "1"}

"""Settings of shaping, and files of patterns: what is wrong in one is said before a node takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shadowrelay.core.delivery.shaping import at_first, named_by
from shadowrelay.settings import settings_from_tree
from shadowrelay.settings.errors import SettingsInvalid
from shadowrelay.settings.shaping import shapes
from shadowrelay.settings.shaping_patterns import patterns


def made(**changes: Any) -> Any:
    return settings_from_tree(
        {
            "name": "mx1.example.net",
            "receive": {"default": {"listen": "127.0.0.1:2525"}},
            "routes": {"world": {"domains": ["*"], "mx": True}},
            **changes,
        }
    )


def test_there_is_no_shaping_without_a_table() -> None:
    assert made().shaping == {}


def test_it_begins_with_two_connections_or_with_all_of_fewer() -> None:
    tables = {"a": {"match": ["*"]}, "b": {"match": ["b.test"], "connections": 1}}
    found = shapes(made(shaping=tables).shaping)
    assert [(one.name, one.connections, at_first(one).connections) for one in found] == [
        ("a", 20, 2),
        ("b", 1, 1),
    ]


def test_a_table_without_names_is_refused() -> None:
    with pytest.raises(SettingsInvalid, match=r"shaping\.a\.match"):
        made(shaping={"a": {"connections": 3}})


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        (
            {"a": {"match": ["a.test"], "connections": 3, "first_connections": 4}},
            r'shaping\.a\.first_connections = "4": above connections; allowed: 3 at most',
        ),
        (
            {"a": {"match": ["*.a.test"]}, "b": {"match": ["b.test", "*.A.test."]}},
            r"shaping\.b\.match .*shaping\.a has that name too",
        ),
        ({"a": {"match": ["*"]}, "b": {"match": ["*"]}}, r"shaping\.b\.match .*shaping\.a has that name too"),
    ],
    ids=["more-at-first", "same-name", "same-star"],
)
def test_tables_that_say_two_things_are_refused(tables: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsInvalid, match=told):
        made(shaping=tables)


def test_a_domain_and_those_below_it_are_two_names() -> None:
    made(shaping={"a": {"match": ["a.test", "a.test"]}, "b": {"match": ["*.a.test"]}, "c": {"match": ["*"]}})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[patterns.a]\ncode = 250\ntext = ['x']\npause = '1m'", r"patterns\.a\.code = 250: out of range"),
        ("[patterns.a]\ncode = 421\npause = '1m'", r"patterns\.a: names every reply with that code"),
        (
            "[patterns.a]\ncode = 421\ntext = ['']\npause = '1m'",
            r"patterns\.a\.text\[0\] .*is found in every reply",
        ),
        (
            "[patterns.a]\ncode = 421\ntext = ['x', '* *']\npause = '1m'",
            r"patterns\.a\.text\[1\] .*is found in every reply",
        ),
        (
            "[patterns.a]\ncode = 421\ntext = ['too fast|busy']\npause = '1m'",
            r"patterns\.a\.text\[0\] .*is no regular expression",
        ),
        (
            "[patterns.a]\ncode = 421\ntext = '(a+)+b'\npause = '1m'",
            r"patterns\.a\.text .*list",
        ),
        ("[patterns.a]\ncode = 421\ntext = ['x']", r"patterns\.a\.pause: has to be set"),
        ("[patterns.a]\ncode = 421\ntext = ['x']\npause = 'long'", r"patterns\.a\.pause"),
        ("[patterns.a]\ncode = 421\nenhanced = '5.7.1'\npause = '1m'", r"patterns\.a\.enhanced"),
        (
            "[patterns.a]\ncode = 421\ntexts = ['x']\npause = '1m'",
            r'texts: unknown setting – did you mean "text"',
        ),
        ("[patterns.a]\nmatch = ['a b']\ncode = 421\ntext = ['x']\npause = '1m'", r"patterns\.a\.match\[0\]"),
        ("[pattern.a]", r"patterns: has to be set"),
        ("patterns", r"is not TOML"),
        (None, r"there is no such file"),
    ],
)
def test_what_is_wrong_in_a_file_of_patterns_is_said_with_its_place(
    tmp_path: Path, text: str | None, told: str
) -> None:
    file = tmp_path / "patterns.toml"
    if text is not None:
        file.write_text(text, "utf-8")
    with pytest.raises(SettingsInvalid, match=told) as raised:
        made(shaping_patterns=str(file))
    assert str(file) in str(raised.value)


GOOGLE, YAHOO, OUTLOOK = (
    "aspmx.l.google.com",
    "mta7.am0.yahoodns.net",
    "outlook-com.olc.protection.outlook.com",
)
OFFICE = "firm-example.mail.protection.outlook.com"


@pytest.mark.parametrize(
    ("host", "reply", "name"),
    [
        (GOOGLE, "421 4.7.28 Gmail has detected an unusual rate of unsolicited mail.", "google-rate"),
        (GOOGLE, "421 4.7.0 Our system has detected an unusual rate of mail", "google-unusual-rate"),
        (GOOGLE, "421 4.7.0 Try again later, closing connection. a1 - gsmtp", "google-later"),
        (OUTLOOK, "451 4.7.650 The mail server [192.0.2.1] has been temporarily rate limited due to IP "
                  "reputation. (S775)", "outlook-reputation"),
        (OUTLOOK, "451 4.7.652 The mail server [192.0.2.1] has exceeded the maximum number of connections. "
                  "(S844)", "outlook-connections"),
        (OUTLOOK, "421 RP-001 (BAY004) Unfortunately, some messages from 192.0.2.1 weren't sent.",
         "outlook-rate-of-address"),
        (OFFICE, "451 4.7.500 Server busy. Please try again later from [192.0.2.1]. (S77719)",
         "microsoft-busy"),
        ("firm-example.a-v1.mx.microsoft", "451 4.7.550 Access denied, please try again later",
         "microsoft-busy"),
        (YAHOO, "421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to unexpected volume "
                "or user complaints - 4.16.55.1", "yahoo-complaints"),
        (YAHOO, "421 4.16.55 [TS01] Messages from 192.0.2.1 temporarily deferred", "yahoo-complaints"),
        ("mx01.mail.icloud.com", "421 4.7.1 Service unavailable - try again later", "apple-deferred"),
        ("mx1.comcast.net", "421 4.1.0 192.0.2.1 Throttled - try again later. RL000001", "comcast-throttled"),
        ("mx00.emig.gmx.net", "421 gmx.net (mxgmx101) Nemesis ESMTP Service not available", "gmx-not-now"),
        ("mx-ha02.web.de", "421 web.de (mxweb001) Too many connections", "gmx-not-now"),
        ("smtp-in.orange.fr", "421 mwinf5c18 ME Trop de connexions, veuillez verifier votre configuration. "
                              "Too many connections, slow down. OFR004_104 [104]", "orange-connections"),
        ("mail.example.net", "421 4.7.0 mail.example.net Error: too many connections from 192.0.2.1",
         "too-many-connections"),
        ("mail.example.net", "450 4.7.1 Error: too much mail from 192.0.2.1", "too-much-mail"),
        ("mail.example.net", "421 4.3.2 Connection rate limit exceeded.", "too-many-connections"),
        ("mail.example.net", "421 Too many concurrent SMTP connections from this IP address; please try "
                             "again later.", "too-many-connections"),
        ("mail.example.net", "421 4.3.2 The maximum number of concurrent connections has exceeded a limit, "
                             "closing transmission channel", "concurrent-connections"),
        ("mail.example.net", "421 4.4.2 Message submission rate for this client has exceeded the configured "
                             "limit", "rate-limited"),
        ("mx2.example.org", "421 4.7.0 Too many connections in a minute, try again later",
         "too-many-connections"),
        ("mx2.example.org", "450 4.7.1 Too many messages in a minute, try again later", "too-much-mail"),
        # What is about one mailbox or one message holds no other mail back.
        (GOOGLE, "450 4.2.1 The user you are trying to contact is receiving mail too quickly.", None),
        (GOOGLE, "421 4.7.26 Your email has been rate limited because it is unauthenticated", None),
        (GOOGLE, "452 4.2.2 The recipient's inbox is out of storage space", None),
        ("mail.example.net", "450 4.2.0 Greylisted, come back", None),
        ("mail.example.net", "451 4.3.0 Temporary lookup failure", None),
        ("mail.example.net", "421 4.7.28 unusual rate", None),  # of Google alone
        ("mail.example.net", "452 4.5.3 Error: too many recipients", None),
    ],
)  # fmt: skip
def test_the_patterns_of_the_package_name_what_providers_answer_and_nothing_else(
    host: str, reply: str, name: str | None
) -> None:
    found = named_by(reply, ("example.com", host), patterns(None))
    assert (found and found.name) == name

"""What a session with a host has to show, and which TLSA records count."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from shadowrelay.core.delivery.tls_policy import (
    ANYTHING,
    DaneAnswer,
    HostRefused,
    Tlsa,
    WantedTls,
    stricter,
    usable,
    wanted,
)

HOST, DOMAIN = "mx.example.net", "example.net"
SHORT, LONG = b"s" * 32, b"l" * 64
GOOD = Tlsa(3, 1, 1, SHORT)


@dataclass
class Sts:
    mode: str
    host: str = HOST

    def matches(self, host: str) -> bool:
        return host == self.host


ENFORCE, ELSEWHERE = Sts("enforce"), Sts("enforce", "mx.other.example")


def decided(dane: DaneAnswer | None, sts: Sts | None = None) -> WantedTls | HostRefused:
    return wanted(HOST, DOMAIN, dane=dane, sts=sts)


def test_without_any_word_of_the_world_tls_is_opportunistic() -> None:
    assert decided(None) is ANYTHING
    assert decided(DaneAnswer(HOST)) is ANYTHING
    assert decided(None, Sts("none", "mx.other.example")) is ANYTHING


@pytest.mark.parametrize("sts", [None, ENFORCE, ELSEWHERE, Sts("testing", "mx.other.example")])
def test_dane_counts_before_mta_sts(sts: Sts | None) -> None:
    found = decided(DaneAnswer("real.example.net", (GOOD,)), sts)
    assert found == WantedTls("dane", "dane", tlsa=(GOOD,), names=("real.example.net", HOST, DOMAIN))


@pytest.mark.parametrize("sts", [None, ENFORCE, Sts("testing")])
def test_no_answer_about_tlsa_is_not_the_answer_that_there_is_none(sts: Sts | None) -> None:
    assert decided(DaneAnswer(HOST, trouble="TLSA of x: no answer in time"), sts) == HostRefused(
        "dane", "dnssec-invalid", "TLSA of x: no answer in time"
    )


@pytest.mark.parametrize("sts", [None, ENFORCE])
def test_records_that_are_all_unusable_still_want_tls(sts: Sts | None) -> None:
    found = decided(DaneAnswer(HOST, (Tlsa(1, 1, 1, SHORT), Tlsa(3, 1, 1, b"short"))), sts)
    assert found == WantedTls("encrypted", "dane", names=(HOST,), told="tlsa-invalid")
    assert isinstance(found, WantedTls)
    assert found.never_clear


@pytest.mark.parametrize("dane", [None, DaneAnswer(HOST)])
def test_where_there_is_no_record_mta_sts_counts(dane: DaneAnswer | None) -> None:
    assert decided(dane, ENFORCE) == WantedTls("pkix", "mta-sts", names=(HOST,))
    assert decided(dane, Sts("testing")) == WantedTls("pkix", "mta-sts", names=(HOST,), testing=True)


def test_a_host_that_the_policy_does_not_name_gets_nothing_or_is_told() -> None:
    found = decided(None, ELSEWHERE)
    assert isinstance(found, HostRefused)
    assert (found.source, found.result) == ("mta-sts", "validation-failure")
    tested = decided(None, Sts("testing", "mx.other.example"))
    assert tested == WantedTls(source="mta-sts", testing=True, told="validation-failure")


@pytest.mark.parametrize(
    "record",
    [
        Tlsa(0, 1, 1, SHORT),
        Tlsa(1, 1, 1, SHORT),
        Tlsa(4, 1, 1, SHORT),
        Tlsa(255, 1, 1, SHORT),
        Tlsa(3, 2, 1, SHORT),
        Tlsa(3, 1, 3, SHORT),
        Tlsa(3, 1, 1, LONG),
        Tlsa(3, 1, 2, SHORT),
        Tlsa(3, 1, 0, b""),
    ],
)
def test_what_a_record_says_may_be_unusable_and_counts_for_nothing_beside_others(record: Tlsa) -> None:
    assert usable((record,)) == ()
    assert usable((record, GOOD, Tlsa(2, 0, 1, SHORT))) == (GOOD, Tlsa(2, 0, 1, SHORT))


def test_the_order_in_which_the_dns_says_records_makes_no_other_wish() -> None:
    records = (GOOD, Tlsa(2, 0, 1, SHORT), Tlsa(3, 0, 2, LONG))
    assert decided(DaneAnswer(HOST, records)) == decided(DaneAnswer(HOST, records[::-1]))


def test_the_strong_digest_counts_alone_for_the_same_usage_and_selector() -> None:
    strong, other, whole = Tlsa(3, 1, 2, LONG), Tlsa(3, 0, 1, SHORT), Tlsa(3, 1, 0, b"key")
    assert set(usable((GOOD, strong, other, whole))) == {strong, other, whole}
    assert usable((GOOD, Tlsa(3, 1, 2, SHORT))) == (GOOD,)  # that one is malformed


def test_an_interpreter_that_sees_no_chain_does_not_know_usage_2() -> None:
    anchor = Tlsa(2, 1, 1, SHORT)
    assert usable((anchor, GOOD), chains=False) == (GOOD,)
    assert wanted(HOST, DOMAIN, dane=DaneAnswer(HOST, (anchor,)), sts=None, chains=False) == WantedTls(
        "encrypted", "dane", names=(HOST,), told="tlsa-invalid"
    )


def test_requiretls_wants_to_know_who_answers_also_where_a_policy_is_only_tested() -> None:
    """RFC 8689 2: DNSSEC or MTA-STS vouch for the name of the host, and the host shows that it has it."""
    for kept in (decided(DaneAnswer(HOST, (GOOD,))), decided(None, ENFORCE)):
        assert isinstance(kept, WantedTls)
        assert stricter(kept) is kept
    tested = decided(None, Sts("testing"))
    assert isinstance(tested, WantedTls)
    assert stricter(tested) == decided(None, ENFORCE)
    unusable = decided(DaneAnswer(HOST, (Tlsa(0, 1, 1, SHORT),)))
    assert isinstance(unusable, WantedTls)
    assert stricter(unusable) == WantedTls("pkix", "requiretls", names=(HOST,))
    for nobody in (ANYTHING, decided(None, Sts("testing", "mx.other.example"))):
        assert isinstance(nobody, WantedTls)
        assert stricter(nobody) is None

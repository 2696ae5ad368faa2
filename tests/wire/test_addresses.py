from __future__ import annotations

import pytest

from shadowrelay.wire.addresses import AddressError, is_domain, is_literal, is_routed, read_path, split


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<>", ("", "", "")),
        ("<a@b>", ("", "a@b", "")),
        ("  <a@b> X=1", ("", "a@b", " X=1")),
        ("\t \t<a@b>", ("", "a@b", "")),
        ("<@x,@y.z:a@b>", ("@x,@y.z:", "a@b", "")),
        ("<Postmaster>", ("", "Postmaster", "")),
        ('<"a>b \\" c"@b.c>', ("", '"a>b \\" c"@b.c', "")),
        ('<""@b.c>', ("", '""@b.c', "")),
        ("<a@[192.0.2.1]>", ("", "a@[192.0.2.1]", "")),
        ("<a@[IPv6:2001:db8::1]>", ("", "a@[IPv6:2001:db8::1]", "")),
        ("<o'neil+tag!x%y=z@my_host.example>", ("", "o'neil+tag!x%y=z@my_host.example", "")),
        ("<δοκιμή@παράδειγμα.δοκιμή>", ("", "δοκιμή@παράδειγμα.δοκιμή", "")),
        (f"<{'l' * 64}@b>", ("", f"{'l' * 64}@b", "")),
    ],
)
def test_a_path_is_split_from_what_follows(text: str, expected: tuple[str, str, str]) -> None:
    assert read_path(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a@b",
        "<a@b",
        "<a>",
        "<@b>",
        "<a@>",
        "<a@b@c>",
        "<a b@c>",
        "<.a@b>",
        "<a..b@c>",
        "<a@b.>",
        "<a@-b>",
        "<a@b-.c>",
        "<a@[1.2.3.4>",
        "<a@[1.2.3.4.5]>",
        "<a@[IPv6:fe80::1%eth0]>",
        "<a@[tag:anything]>",
        '<"a@b>',
        '<"a"b@c>',
        "<a\x00@b>",
        "<a@b\r>",
        "<a\n@b>",
        "<a\x7f@b>",
        '<"a\tb"@c>',
        "<a\x85@b>",
        "<a\u2028@b>",
        f"<{'l' * 65}@b>",
        f"<{'ü' * 33}@b>",
        f"<a@{'d' * 64}>",
        f"<a@{'.'.join(['d' * 50] * 6)}>",
    ],
)
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(AddressError):
        read_path(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<user..name@b>", "two dots in a row"),
        ("<.user@b>", "at its beginning or end"),
        ("<user.@b>", "at its beginning or end"),
        ("<user name@b>", "Local part has a character that needs quotes"),
        ("<user>", "needs a domain"),
        ("<user@b", "no closing bracket"),
        ("a@b", "angle brackets"),
    ],
)
def test_the_reason_is_true(text: str, why: str) -> None:
    with pytest.raises(AddressError, match=why):
        read_path(text)


@pytest.mark.parametrize("local", ["user..name", ".user", "user.", "..", "ü..ü"])
def test_where_dots_may_be_anywhere_such_a_local_part_is_quoted_and_stays_the_same(local: str) -> None:
    _, address, rest = read_path(f"<{local}@b> X=1", any_dots=True)
    assert (address, rest) == (f'"{local}"@b', " X=1")
    assert split(address) == (local, "b")
    assert read_path(f"<{address}>") == ("", address, ""), "everybody takes it so"
    assert read_path("<a.b@c>", any_dots=True) == ("", "a.b@c", "")
    assert read_path('<"a..b"@c>', any_dots=True) == ("", '"a..b"@c', "")


@pytest.mark.parametrize("text", ["<user..name>", "<a..b@c@d>", f"<{'.' * 65}@b>", "<a.. b@c>", "<a..%b@c"])
def test_but_for_their_dots_they_are_addresses(text: str) -> None:
    with pytest.raises(AddressError):
        read_path(text, any_dots=True)


def test_the_limits_are_octets() -> None:
    domain = ".".join(["d" * 50] * 5)  # 254 octets
    assert is_domain(domain + "d")
    assert not is_domain(domain + "dd")
    with pytest.raises(AddressError, match="Path too long"):
        read_path(f"<a@{domain}>")


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("Alice@Example.NET", ("Alice", "example.net")),
        ('"a@b"@c', ("a@b", "c")),
        ('"a\\"b"@c', ('a"b', "c")),
        ('"john"@c', ("john", "c")),
        ("Postmaster", ("Postmaster", "")),
    ],
)
def test_an_address_is_split_without_its_quoting(address: str, parts: tuple[str, str]) -> None:
    assert split(address) == parts


@pytest.mark.parametrize("address", ["a%b@c", "a!b@c", '"a@b"@c', '"a\\@b"@c', '"a%b"@c'])
def test_a_local_part_that_routes_is_seen(address: str) -> None:
    assert is_routed(address)
    assert not is_routed("a.b+c=d@e")


def test_only_addresses_stand_in_literals() -> None:
    assert is_literal("[127.0.0.1]")
    assert is_literal("[IPv6:::1]")
    assert is_literal("[IPv6:::]")
    assert not is_literal("127.0.0.1")
    assert not is_literal("[::1]")


def test_two_colons_stand_for_two_groups_or_more() -> None:
    assert is_literal("[IPv6:1111:2222:3333:4444:5555::8888]")
    assert is_literal("[IPv6:1111:2222:3333::4444:192.0.2.1]")
    assert is_literal("[IPv6:1111:2222:3333:4444:5555:6666:7777:8888]")
    assert not is_literal("[IPv6:1111:2222:3333:4444:5555:6666::8888]")
    assert not is_literal("[IPv6:1111:2222:3333:4444::5555:192.0.2.1]")
    assert not is_literal("[IPv6:::1111:2222:3333:4444:5555:6666:7777]")

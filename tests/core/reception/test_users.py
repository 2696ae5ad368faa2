"""The file of users: what is kept of a password, and what is no line of one."""

from __future__ import annotations

import hashlib
from base64 import b64decode

import pytest

from shadowrelay.core.reception.users import (
    COST,
    ITERATIONS,
    Cost,
    Hashed,
    UsersInvalid,
    format_users,
    hashed,
    is_name,
    matches,
    parse_users,
    verifier,
)

QUICK = Cost(ln=4, r=8, p=1)
SALT = bytes(range(16))


def test_what_is_written_is_read_back() -> None:
    users = {
        "alice": hashed(b"Sesame", SALT, QUICK),
        "bob@example.org": hashed("pä ß".encode(), SALT[::-1], QUICK),
        "carol": verifier(b"Sesame", SALT, 4096),
    }
    assert parse_users(format_users(users)) == users
    assert "Sesame" not in format_users(users)


def test_a_password_matches_itself_alone() -> None:
    kept = hashed(b"Sesame", SALT, QUICK)
    assert matches(b"Sesame", kept)
    assert not any(matches(other, kept) for other in (b"", b"sesame", b"Sesame "))


def test_the_hash_is_scrypt_as_others_write_it() -> None:
    """RFC 7914, in the string format of passlib and of the password hashing competition."""
    digest = hashlib.scrypt(b"Sesame", salt=SALT, n=16, r=8, p=1, dklen=32)
    line = format_users({"alice": hashed(b"Sesame", SALT, QUICK)})
    assert line.startswith("alice:$scrypt$ln=4,r=8,p=1$AAECAwQFBgcICQoLDA0ODw$")
    assert parse_users(line)["alice"].digest == digest
    assert "=" not in line.rpartition("p=1")[2]


def test_the_verifier_is_that_of_the_rfc() -> None:
    """RFC 7677 section 3: its user, its password, and what its proof comes to; in PostgreSQL's spelling."""
    kept = verifier(b"pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    assert format_users({"user": kept}) == (
        "user:SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:"
        "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=\n"
    )
    assert ITERATIONS == 600_000


@pytest.mark.parametrize(("kept_as", "typed"), [("pä ß", "pa\u0308 ß"), ("I\u00adX", "IX"), ("Ⅸ", "IX")])
def test_a_password_is_what_its_characters_mean(kept_as: str, typed: str) -> None:
    """SASLprep (RFC 4013), as clients apply it before they prove anything."""
    kept = verifier(kept_as.encode(), SALT, 4096)
    assert matches(typed.encode(), kept)
    assert not matches(b"other", kept)


def test_octets_that_are_no_text_are_a_password_too() -> None:
    assert matches(b"\xff\xfe", verifier(b"\xff\xfe", SALT, 4096))


def test_a_new_hash_costs_what_owasp_asks_for_at_least() -> None:
    assert (COST.ln, COST.r, COST.p) == (14, 8, 5)
    assert 16 * 2**20 <= COST.memory < 17 * 2**20


def test_empty_lines_and_remarks_count_for_nothing() -> None:
    kept = format_users({"alice": hashed(b"x", SALT, QUICK)})
    assert list(parse_users(f"# users\n\n{kept}   \n")) == ["alice"]
    assert parse_users("") == {}


PROOF = format_users({"a": verifier(b"Sesame", SALT, 4096)}).strip().partition(":")[2]
GOOD = format_users({"a": Hashed(QUICK, SALT, SALT * 2)}).strip().partition(":")[2]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("alice", "no verifier of SCRAM-SHA-256 and no hash"),
        ("alice:", "no verifier of SCRAM-SHA-256 and no hash"),
        ("alice:Sesame", "no verifier of SCRAM-SHA-256 and no hash"),
        ("alice:{PLAIN}Sesame", "no verifier of SCRAM-SHA-256 and no hash"),
        ("alice:$2b$12$abcdefghijklmnopqrstuv", "no verifier of SCRAM-SHA-256 and no hash"),
        (f":{GOOD}", "no name"),
        (f"al ice:{GOOD}", "no name"),
        (f"älice:{GOOD}", "no name"),
        (f"a(b):{GOOD}", "no name"),
        (f"alice:{GOOD.replace('ln=4', 'ln=0')}", "guess"),
        (f"alice:{GOOD.replace('ln=4', 'ln=21')}", "takes more than"),
        (f"alice:{GOOD.replace('r=8', 'r=99').replace('ln=4', 'ln=20')}", "takes more than"),
        ("alice:$scrypt$ln=4,r=8,p=1$AAAA$AAAA", "guess"),
        ("alice:$scrypt$ln=4,r=8,p=1$A$AAAA", "no hash of scrypt"),
        (f"alice:{PROOF.replace('$4096', '$4095')}", "guess"),
        (f"alice:{PROOF.replace('$4096', '$5000001')}", "more than 5000000 iterations"),
        (f"alice:{PROOF.replace('AAECAwQFBgcICQoLDA0ODw==', 'AAEC')}", "guess"),
        (f"alice:{PROOF.replace('AAECAwQFBgcICQoLDA0ODw==', 'A')}", "no verifier"),
        (f"alice:{PROOF.replace('256', '1')}", "no verifier of SCRAM-SHA-256 and no hash"),
        (f"alice:{GOOD}\nalice:{GOOD}", "line 2 has the name of a line before"),
    ],
)
def test_what_is_no_line_is_told_without_quoting_it(line: str, why: str) -> None:
    with pytest.raises(UsersInvalid, match=why) as caught:
        parse_users(line)
    assert "Sesame" not in str(caught.value)


@pytest.mark.parametrize("name", ["alice", "alice@example.org", "a", "0", "A.b_c+d=e~f/g-h", "x" * 128])
def test_names(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name", ["", " ", "#a", "a:b", "a b", "a\n", "a(b)", "a\\b", "é", "x" * 129, "-a", "\ufffd"]
)
def test_what_is_no_name(name: str) -> None:
    assert not is_name(name)

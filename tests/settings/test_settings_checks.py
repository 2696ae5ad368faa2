"""Settings that do not go together, and those that are hardly meant."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from shadowrelay import authority
from shadowrelay.core.reception.users import format_users, hashed
from shadowrelay.settings import SettingsInvalid, effective, settings_from_tree, settings_warnings
from shadowrelay.settings.routing import journals

PEER = {"listen": "127.0.0.1:2526", "externally_secured": ["127.0.0.0/8"]}
MX2 = {"name": "mx2.example.net", "address": "mx2.example.net:2526"}


def tree(**changes: Any) -> dict[str, Any]:
    return {"name": "mx1.example.net", "receive": {"default": {"listen": "127.0.0.1:2525"}}, **changes}


def errors_of(**changes: Any) -> dict[str, str]:
    with pytest.raises(SettingsInvalid) as refused:
        settings_from_tree(tree(**changes))
    return {error.key: str(error) for error in refused.value.errors}


def warnings_of(**changes: Any) -> str:
    return "\n".join(settings_warnings(settings_from_tree(tree(**changes))))


def test_a_node_without_a_receive_connector_is_refused():
    assert set(errors_of(receive={})) == {"receive"}


def test_an_inactivity_timeout_has_to_be_below_the_connection_timeout():
    connector = {"listen": "127.0.0.1:25", "connection_timeout": "5m"}
    assert set(errors_of(receive={"a": connector})) == {"receive.a.connection_inactivity_timeout"}


def test_a_session_has_to_be_allowed_longer_than_its_acknowledgement_may_be_delayed():
    connector = {
        "listen": "127.0.0.1:25",
        "connection_timeout": "20s",
        "connection_inactivity_timeout": "10s",
    }
    settings_from_tree(tree(receive={"a": connector}))  # by default the wait ends with the session
    late = connector | {"max_acknowledgement_delay": "20s"}
    assert set(errors_of(receive={"a": late})) == {"receive.a.max_acknowledgement_delay"}
    settings_from_tree(tree(receive={"a": connector | {"max_acknowledgement_delay": "19s"}}))


def test_certificate_and_key_come_together_and_have_to_be_there(tmp_path: Path):
    connector = {"listen": "127.0.0.1:25", "tls_certificate": str(tmp_path / "nowhere.pem")}
    errors = errors_of(receive={"a": connector})
    assert "no such file" in errors["receive.a.tls_certificate"]
    assert "has to be set" in errors["receive.a.tls_key"]


def test_a_peer_connector_needs_tls_or_externally_secured_networks(tmp_path: Path):
    assert set(errors_of(peer={"listen": "127.0.0.1:2526"})) == {"peer.certificate"}
    assert "peer.key" in errors_of(peer={**PEER, "certificate": str(tmp_path)})
    settings = settings_from_tree(tree(peer={"listen": "127.0.0.1:2526", **issued(tmp_path)}))
    assert settings.peer is not None
    assert settings.peer.tls


def issued(directory: Path, name: str = "mx1.example.net") -> dict[str, str]:
    """Certificate, key and authority of a member."""
    made = directory / name
    authority.init(made, name="an authority", now=datetime.now(UTC))
    authority.issue(made, name, now=datetime.now(UTC), out=made)
    files = {"certificate": f"{name}.pem", "key": f"{name}.key", "ca": "ca.pem"}
    return {key: str(made / file) for key, file in files.items()}


def test_a_file_that_is_no_certificate_or_no_key_is_told_before_the_start(tmp_path: Path):
    files, others = issued(tmp_path), issued(tmp_path, "mx2.example.net")
    text = tmp_path / "text.pem"
    text.write_text("PEM")

    def told(**changes: str) -> dict[str, str]:
        return errors_of(peer={"listen": "127.0.0.1:2526", **files, **changes})

    for key in ("certificate", "ca"):
        assert told(**{key: str(text)}) == {
            f"peer.{key}": f'peer.{key} = "{text}": holds no certificate in PEM'
        }
    for wrong in (str(text), others["key"]):
        assert told(key=wrong) == {
            "peer.key": f'peer.key = "{wrong}": is not the private key of peer.certificate; '
            "allowed: a file in PEM, without a passphrase"
        }
    sender = {"listen": "127.0.0.1:25", "tls_certificate": files["certificate"], "tls_key": others["key"]}
    assert set(errors_of(receive={"a": sender})) == {"receive.a.tls_key"}
    route = {"domains": ["*"], "host": "mail.example.net", "ca": str(text)}
    assert set(errors_of(routes={"world": route})) == {"routes.world.ca"}


def test_users_log_in_over_tls_alone_from_a_file_of_users(tmp_path: Path):
    files, file = issued(tmp_path), tmp_path / "users"
    listen = {"listen": "127.0.0.1:587"}
    tls = listen | {"tls_certificate": files["certificate"], "tls_key": files["key"]}

    def told(connector: dict[str, str]) -> dict[str, str]:
        return errors_of(receive={"a": connector | {"users_file": str(file)}})

    assert "there is no such file" in told(tls)["receive.a.users_file"]
    file.write_text("alice:{PLAIN}Sesame\n")
    assert (
        "line 1 has no verifier of SCRAM-SHA-256 and no hash of scrypt" in told(tls)["receive.a.users_file"]
    )
    assert "Sesame" not in str(told(tls))
    file.write_bytes(b"\xff\n")
    assert "is not UTF-8" in told(tls)["receive.a.users_file"]
    file.write_text(format_users({"alice": hashed(b"Sesame", b"salt" * 4)}))
    assert (
        "submission"
        in settings_from_tree(tree(receive={"submission": tls | {"users_file": str(file)}})).receive
    )
    assert set(told(listen)) == {"receive.a.tls_certificate"}


@pytest.mark.parametrize("mode", [0o644, 0o602])
def test_users_for_everybody_and_a_file_without_any_are_warnings(tmp_path: Path, mode: int):
    files, file = issued(tmp_path), tmp_path / "users"
    file.write_text("")
    file.chmod(mode)
    connector = {"listen": "127.0.0.1:587", "users_file": str(file)}
    connector |= {"tls_certificate": files["certificate"], "tls_key": files["key"]}
    found = warnings_of(receive={"a": connector})
    assert f"receive.a.users_file, {file}, has mode {mode:04o}: any user of this machine" in found
    assert "receive.a.users_file has no user: AUTH is not offered" in found


def test_tls_from_the_first_octet_needs_a_certificate_and_nothing_before_it(tmp_path: Path):
    files = issued(tmp_path)
    bare = {"listen": "127.0.0.1:465", "implicit_tls": True}
    whole = bare | {"tls_certificate": files["certificate"], "tls_key": files["key"]}
    assert set(errors_of(receive={"a": bare})) == {"receive.a.tls_certificate"}
    assert settings_from_tree(tree(receive={"a": whole})).receive["a"].implicit_tls
    assert "not beside proxy_networks" in str(errors_of(receive={"a": whole | {"proxy_networks": ["::1"]}}))
    peers = [{"name": "hub.example.net", "externally_secured": ["10.0.0.0/8"]}]
    assert "not beside accept_xshadow" in str(errors_of(receive={"a": whole | {"accept_xshadow": peers}}))
    introduced = {"listen": "127.0.0.1:25", "accept_xshadow": peers, "xclient_networks": ["::1"]}
    assert set(errors_of(receive={"a": introduced})) == {"receive.a.xclient_networks"}


@pytest.mark.parametrize("believed", ["proxy_networks", "xclient_networks"])
def test_believing_every_address_is_a_warning(believed: str):
    def told(*networks: str) -> str:
        return warnings_of(receive={"a": {"listen": "127.0.0.1:25", believed: list(networks)}})

    assert "any client may claim to be another" in told("0.0.0.0/0")
    assert "any client may claim to be another" in told("::/1", "8000::/1")
    assert "any client may claim" not in told("10.0.0.0/8", "::1")


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(tmp_path: Path):
    files = issued(tmp_path)
    key = load_pem_private_key(Path(files["key"]).read_bytes(), password=None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"sesame"))
    Path(files["key"]).write_bytes(locked)
    assert set(errors_of(peer={"listen": "127.0.0.1:2526", **files})) == {"peer.key"}


def test_members_need_a_peer_connector():
    assert set(errors_of(members=[MX2])) == {"peer"}


def test_two_members_never_share_a_name_or_an_address():
    same_name = [MX2, {**MX2, "name": "MX2.example.net", "address": "mx3.example.net:2526"}]
    assert set(errors_of(peer=PEER, members=same_name)) == {"members[1].name"}
    same_address = [MX2, {**MX2, "name": "mx3.example.net"}]
    assert set(errors_of(peer=PEER, members=same_address)) == {"members[0].address", "members[1].address"}


def test_the_list_of_members_may_not_say_something_else_about_this_node():
    ours = {"name": "mx1.example.net", "address": "mx1:2526", "site": "north", "host": "rack1"}
    assert set(errors_of(peer=PEER, members=[ours])) == {"members[0].site", "members[0].host"}
    settings_from_tree(tree(peer=PEER, members=[ours], site="north", host="rack1"))


def test_two_listeners_never_share_an_address_but_may_all_ask_for_a_free_port():
    connectors = {"a": {"listen": "127.0.0.1:25"}, "b": {"listen": "127.0.0.1:25"}}
    assert set(errors_of(receive=connectors)) == {"receive.b.listen"}
    every = {"a": {"listen": "0.0.0.0:25"}, "b": {"listen": "[::]:25"}, "c": {"listen": "127.0.0.1:25"}}
    errors = errors_of(receive=every)
    assert set(errors) == {"receive.c.listen"}
    assert "taken by receive.a.listen, which is 0.0.0.0:25" in errors["receive.c.listen"]
    free = {"listen": "127.0.0.1:0"}
    settings_from_tree(tree(receive={"a": free, "b": free}, admin=free))


def test_a_domain_has_one_route():
    route = {"domains": ["inside.test"], "host": "127.0.0.1"}
    assert set(errors_of(routes={"a": route, "b": route})) == {"routes.b.domains"}


def route(**changes: Any) -> dict[str, Any]:
    return {"routes": {"world": {"domains": ["*"], "host": "smarthost.example.org", "port": 587, **changes}}}


def to(**changes: Any) -> dict[str, Any]:
    return {"host": "inside.test", "tls": "none"} | changes


def test_a_journal_needs_a_route_and_what_a_route_says_wins():
    routes = {"out": to(domains=["*.example"]), "own": to(domains=["inside.test"], journal="")}
    found = settings_from_tree(tree(routes=routes, journal="j@archive.example"))
    assert journals(found) == {"out": ("j@archive.example", "out")}
    routes["own"]["journal"] = "own@inside.test"
    found = settings_from_tree(tree(routes=routes, journal="j@archive.example"))
    assert journals(found) == {"out": ("j@archive.example", "out"), "own": ("own@inside.test", "own")}
    assert journals(settings_from_tree(tree(routes={"out": to(domains=["*"])}))) == {}
    routes["own"]["journal"] = "j@nowhere.test"
    told = errors_of(routes=routes, journal="j@nowhere.test")
    assert set(told) == {"journal", "routes.own.journal"}
    assert all("no route leads there" in text and "j@nowhere.test" in text for text in told.values())


@pytest.mark.parametrize(
    "text",
    [
        "j",
        "j@",
        "@b.example",
        "<j@b.example>",
        "j@b.example x",
        "j@b..example",
        "a..b@c.example",
        "j\u00fc@b.example",
        "j@b\u00fc.example",
        "j@b.example,k@b.example",
        "@a:j@b.example",
        "j@b.example\r\nX",
        1,
    ],
)
def test_a_journal_is_one_address(text: object):
    told = errors_of(routes={"out": to(domains=["*"])}, journal=text)
    assert set(told) == {"journal"}
    assert "an address such as journal@archive.example" in told["journal"]


def password_file(directory: Path, content: bytes = b"Pa55-word\n", mode: int = 0o600) -> str:
    file = directory / "password"
    file.write_bytes(content)
    file.chmod(mode)
    return str(file)


def test_a_name_and_a_password_file_come_together(tmp_path: Path):
    assert set(errors_of(**route(username="relay"))) == {"routes.world.password_file"}
    assert set(errors_of(**route(password_file=password_file(tmp_path)))) == {"routes.world.username"}
    for name in ("", "a\nb", "x" * 256):
        assert set(errors_of(**route(username=name))) == {"routes.world.username"}


@pytest.mark.parametrize("tls", ["none", "opportunistic"])
def test_a_password_goes_over_verified_tls_unless_it_is_said_otherwise(tmp_path: Path, tls: str):
    login = {"username": "relay", "password_file": password_file(tmp_path)}
    assert settings_from_tree(tree(**route(**login))).routes["world"].tls == "required"
    assert settings_from_tree(tree(**route())).routes["world"].tls == "opportunistic"
    refused = errors_of(**route(**login, tls=tls))
    assert set(refused) == {"routes.world.tls"}
    assert "login_without_tls" in refused["routes.world.tls"]
    settings_from_tree(tree(**route(**login, tls=tls, login_without_tls=True)))


@pytest.mark.parametrize(
    ("content", "why"), [(b"\n", "is empty"), (b"one\ntwo\n", "more than one line"), (None, "No such file")]
)
def test_a_password_file_without_a_password_is_told_before_the_start(
    tmp_path: Path, content: bytes | None, why: str
):
    file = str(tmp_path / "nowhere") if content is None else password_file(tmp_path, content)
    errors = errors_of(**route(username="relay", password_file=file))
    assert set(errors) == {"routes.world.password_file"}
    assert why in errors["routes.world.password_file"]
    assert "two" not in errors["routes.world.password_file"]


def test_accepting_every_domain_from_everyone_is_refused_as_an_open_relay():
    assert "open relay" in errors_of(accepted_domains=["*"])["accepted_domains"]


@pytest.mark.parametrize(
    ("preference", "counts", "accepted"),
    [
        ("local_only", (2, 4), True),
        ("local_only", (2, 0), True),
        ("local_only", (0, 4), False),
        ("remote_only", (0, 4), True),
        ("remote_only", (2, 0), False),
        ("prefer_remote", (0, 4), True),
        ("prefer_remote", (2, 0), True),
        ("prefer_remote", (0, 0), False),
    ],
)
def test_attempts_must_be_left_for_the_preferred_sites_and_only_for_those(preference, counts, accepted):
    changes = {
        "shadow_message_preference_setting": preference,
        "max_retries_for_local_site_shadow": counts[0],
        "max_retries_for_remote_site_shadow": counts[1],
    }
    if accepted:
        settings_from_tree(tree(**changes))
    else:
        assert len(errors_of(**changes)) == 1
        settings_from_tree(tree(**changes, shadow_redundancy_enabled=False))


@pytest.mark.parametrize("preference", ["local_only", "remote_only", "prefer_remote"])
def test_where_all_members_are_in_one_site_the_local_count_applies_whatever_the_preference(preference):
    changes = {
        "peer": PEER,
        "shadow_message_preference_setting": preference,
        "max_retries_for_local_site_shadow": 0,
    }
    here, elsewhere = {**MX2, "site": "north"}, {**MX2, "site": "south"}
    errors = errors_of(**changes, site="north", members=[here])
    assert "at least 1 where all members are in one site" in errors["max_retries_for_local_site_shadow"]
    without_sites = {key: value for key, value in MX2.items() if key != "site"}
    assert set(errors_of(**changes, members=[without_sites])) == {"max_retries_for_local_site_shadow"}
    one_site = changes | {"max_retries_for_local_site_shadow": 1, "max_retries_for_remote_site_shadow": 0}
    settings_from_tree(tree(**one_site, site="north", members=[here]))
    if preference != "local_only":
        settings_from_tree(tree(**changes, site="north", members=[elsewhere]))


def test_rejecting_without_members_is_a_warning_and_not_an_error():
    assert "every message will be answered 451 4.4.0" in warnings_of(reject_message_on_shadow_failure=True)


def test_rejecting_means_something_with_redundancy_enabled_only():
    off = warnings_of(reject_message_on_shadow_failure=True, shadow_redundancy_enabled=False)
    assert "reject_message_on_shadow_failure has no effect: shadow_redundancy_enabled is false" in off
    assert "every message" not in off
    assert "has no effect" not in warnings_of(reject_message_on_shadow_failure=True)


def test_a_member_on_our_own_host_cannot_hold_a_shadow():
    member = {**MX2, "host": "rack1"}
    assert "no member can hold" in warnings_of(peer=PEER, members=[member], host="rack1")
    assert "no member can hold" not in warnings_of(peer=PEER, members=[member])


def test_an_api_that_everyone_reaches_without_a_token_is_a_warning():
    assert "admin.token" in warnings_of(admin={"listen": "0.0.0.0:8025"})
    assert "admin.token" not in warnings_of(admin={"listen": "[::1]:8025"})


def test_relaying_for_every_address_is_a_warning():
    assert "open relay" in warnings_of(relay_networks=["::/0"])
    assert "open relay" in warnings_of(relay_networks=["128.0.0.0/1", "::1", "0.0.0.0/1"])
    assert "open relay" not in warnings_of(relay_networks=["10.0.0.0/8", "127.0.0.0/8", "::1"])


def test_mail_to_postmaster_that_no_route_covers_is_a_warning():
    assert "postmaster@mx1.example.net, which no route covers" in warnings_of()
    route = {"a": {"domains": ["example.org"], "host": "127.0.0.1"}}
    assert "postmaster@mx1" in warnings_of(accepted_domains=["*.example.org"], routes=route)
    assert "postmaster@" not in warnings_of(accepted_domains=["example.org"], routes=route)


def test_mail_accepted_for_a_domain_without_a_route_is_a_warning():
    routes = {"inside": {"domains": ["example.net", "*.example.net"], "host": "127.0.0.1"}}
    accepted = ["example.net", "*.example.net", "example.org"]
    assert warnings_of(accepted_domains=accepted, routes=routes).count("no route covers") == 1
    assert "accepted_domains has example.org" in warnings_of(accepted_domains=accepted, routes=routes)


@pytest.mark.parametrize(
    ("listen", "host", "port", "back"),
    [
        ("127.0.0.1:2525", "127.0.0.1", 2525, True),
        ("0.0.0.0:2525", "localhost", 2525, True),
        ("0.0.0.0:2525", "MX1.example.net", 2525, True),
        ("127.0.0.1:2525", "127.0.0.1", 25, False),
        ("127.0.0.1:25", "mail.example.org", 25, False),
    ],
)
def test_a_route_to_this_node_itself_is_a_warning(listen: str, host: str, port: int, *, back: bool):
    route = {"domains": ["example.org"], "host": host, "port": port}
    told = warnings_of(receive={"default": {"listen": listen}}, routes={"inside": route})
    assert ("routes.inside leads to receive.default of this node" in told) == back


def test_members_without_shadow_redundancy_are_a_warning():
    assert "no message has a second copy" in warnings_of(
        peer=PEER, members=[MX2], shadow_redundancy_enabled=False
    )
    assert "no message has a second copy" not in warnings_of(shadow_redundancy_enabled=False)


def test_taking_over_sooner_than_asking_is_a_warning():
    spans = {"shadow_resubmit_time_span": "10s", "shadow_heartbeat_frequency": "1h"}
    assert "copies are promoted though nobody asked" in warnings_of(**spans)
    assert "nobody asked" not in warnings_of()


def test_a_certificate_of_another_server_is_a_warning(tmp_path: Path):
    peer = {"listen": "127.0.0.1:2526", **issued(tmp_path)}
    assert "is not for mx9.example.net" in warnings_of(peer=peer, name="mx9.example.net")
    assert "is not for" not in warnings_of(peer=peer)


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True), (0o602, True)])
def test_a_password_file_that_everybody_may_read_is_a_warning(tmp_path: Path, mode: int, *, warned: bool):
    file = password_file(tmp_path, mode=mode)
    told = f"routes.world.password_file, {file}, has mode {mode:04o}"
    assert (told in warnings_of(**route(username="relay", password_file=file))) == warned


def test_what_is_in_force_names_the_password_file_and_not_the_password(tmp_path: Path):
    settings = settings_from_tree(tree(**route(username="relay", password_file=password_file(tmp_path))))
    shown = {entry.key: entry.value for entry in effective(settings)}
    assert shown["routes.world.password_file"] == str(tmp_path / "password")
    assert "Pa55-word" not in repr(shown) + repr(settings)


def test_only_a_next_hop_inside_the_boundary_can_stand_on_a_members_machine():
    own = {"domains": ["inside.test"], "machine": "rack1", "inside": True} | to()
    assert settings_from_tree(tree(routes={"own": own})).routes["own"].machine == "rack1"
    told = errors_of(routes={"own": own | {"inside": False}})
    assert "inside the boundary" in told["routes.own.machine"]

"""Settings of a node with workers: names, ports, and what each worker is given of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shadowrelay import authority
from shadowrelay.core.workers import node_of, number_of, worker_name
from shadowrelay.settings import settings_from_tree, settings_warnings
from shadowrelay.settings.when_changed import reloaded
from shadowrelay.settings.workers import SHARED, for_worker
from tests.settings.test_settings_checks import MX2, PEER, errors_of, tree, warnings_of


@pytest.mark.parametrize("name", ["w2.example.net", "W17.mx1.example.net", "w64.mx1"])
def test_no_node_has_the_name_of_a_worker(name: str) -> None:
    told = errors_of(name=name)
    assert "is the name of a worker of" in told["name"]
    told = errors_of(peer=PEER, members=[{**MX2, "name": name}])
    assert "is the name of a worker of" in told["members[0].name"]


@pytest.mark.parametrize("name", ["w1.example.net", "w.example.net", "w02.example.net", "web2.example.net"])
def test_other_names_are_names_of_nodes(name: str) -> None:
    assert settings_from_tree(tree(name=name)).name == name
    assert node_of(worker_name(node_of(name), 3)) == name  # type: ignore[arg-type]
    assert number_of(worker_name(node_of(name), 3)) == 3  # type: ignore[arg-type]


def test_a_name_too_long_for_its_workers_is_refused() -> None:
    name = ".".join(["a" * 62] * 4)
    given = {"name": name, "host": "rack1", "peer": PEER}
    assert settings_from_tree(tree(**given)).name == name
    assert set(errors_of(workers=10, **given)) == {"name"}


def test_workers_need_a_connector_for_members() -> None:
    assert "has to be set" in errors_of(workers=2)["peer"]
    assert settings_from_tree(tree(workers=2, peer=PEER)).workers == 2


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("peer.listen", {"peer": {**PEER, "listen": "127.0.0.1:0"}}),
        ("receive.default.listen", {"receive": {"default": {"listen": "127.0.0.1:0"}}}),
        ("admin.listen", {"admin": {"listen": "127.0.0.1:0"}}),
    ],
)
def test_with_workers_every_port_has_to_be_known(key: str, changes: dict[str, Any]) -> None:
    known = {"peer": PEER, **changes}
    settings_from_tree(tree(**known))
    assert set(errors_of(workers=2, **known)) == {key}


def test_ports_of_workers_may_not_be_taken_by_other_listeners() -> None:
    receive = {"default": {"listen": "127.0.0.1:2528"}}
    settings_from_tree(tree(workers=2, peer=PEER, receive=receive))
    told = errors_of(workers=3, peer=PEER, receive=receive)
    assert "the ports 2526 to 2528" in told["receive.default.listen"]
    told = errors_of(workers=3, peer=PEER, admin={"listen": "127.0.0.1:2527"})
    assert set(told) == {"admin.listen"}
    last = {**PEER, "listen": "127.0.0.1:65534"}
    assert "no ports above it" in errors_of(workers=3, peer=last)["peer.listen"]


def test_ports_of_the_workers_of_members_may_not_meet() -> None:
    third = {"name": "mx3.example.net", "address": "mx2.example.net:2528"}
    settings_from_tree(tree(peer=PEER, members=[{**MX2, "workers": 2}, third]))
    told = errors_of(peer=PEER, members=[{**MX2, "workers": 3}, third])
    assert "a worker of mx2.example.net has the port 2528" in told["members[1].address"]
    last = {**MX2, "address": "mx2.example.net:65535", "workers": 2}
    assert "no ports above it" in errors_of(peer=PEER, members=[last])["members[0].address"]


def test_without_tls_the_workers_have_to_believe_each_other() -> None:
    peer = {"listen": "127.0.0.1:2526", "externally_secured": ["192.0.2.0/24"]}
    settings_from_tree(tree(peer=peer))
    assert "127.0.0.1" in errors_of(workers=2, peer=peer)["peer.externally_secured"]
    everywhere = {"listen": "0.0.0.0:2526", "externally_secured": ["192.0.2.0/24"]}
    assert "127.0.0.1" in errors_of(workers=2, peer=everywhere)["peer.externally_secured"]


def test_a_worker_has_a_place_of_its_own_and_knows_all_others(tmp_path: Path) -> None:
    node = settings_from_tree(
        tree(workers=2, host="rack1", data_dir=str(tmp_path), peer=PEER, members=[{**MX2, "workers": 2}])
    )
    first, second = (for_worker(node, number) for number in (1, 2))
    assert (first.name, second.name) == ("mx1.example.net", "w2.mx1.example.net")
    assert (first.data_dir, second.data_dir) == (tmp_path, tmp_path / "worker-2")
    assert second.tracking.directory == tmp_path / "tracking" / "worker-2"
    assert first.peer
    assert second.peer
    assert (first.peer.listen.port, second.peer.listen.port) == (2526, 2527)
    others = {"mx2.example.net": "mx2.example.net:2526", "w2.mx2.example.net": "mx2.example.net:2527"}
    to_second, to_first = {"w2.mx1.example.net": "127.0.0.1:2527"}, {"mx1.example.net": "127.0.0.1:2526"}
    for one, sibling in ((first, to_second), (second, to_first)):
        assert {member.name: str(member.address) for member in one.members} == others | sibling
        assert {member.host for member in one.members if member.name in sibling} == {"rack1"}


def test_rates_and_room_of_a_node_are_divided_among_its_workers(tmp_path: Path) -> None:
    given = {
        "resubmit_rate": 10,
        "max_outbound_connections": 1001,
        "max_per_domain_outbound_connections": 2,
        "tracking": {"max_directory_size": 4_000_000},
    }
    node = settings_from_tree(tree(workers=4, data_dir=str(tmp_path), peer=PEER, **given))
    workers = [for_worker(node, number) for number in (1, 2, 3, 4)]
    assert [one.resubmit_rate for one in workers] == [3, 3, 2, 2]
    assert [one.max_outbound_connections for one in workers] == [251, 250, 250, 250]
    assert [one.max_per_domain_outbound_connections for one in workers] == [1, 1, 1, 1], "at least one each"
    assert [one.tracking.max_directory_size for one in workers] == [1_000_000] * 4
    alone = for_worker(settings_from_tree(tree(data_dir=str(tmp_path), **given)), 1)
    assert (alone.resubmit_rate, alone.tracking.max_directory_size) == (10, 4_000_000)


@pytest.mark.parametrize(("workers", "given", "choices"), [(4, 16, 1), (4, 0, 0), (1, 16, 16)])
def test_a_worker_chooses_among_one_holder_of_each_other_node(
    tmp_path: Path, workers: int, given: int, choices: int
) -> None:
    node = settings_from_tree(
        tree(
            workers=workers,
            data_dir=str(tmp_path),
            peer=PEER,
            holder_choices=given,
            members=[{**MX2, "workers": 4}],
        )
    )
    assert for_worker(node, 1).holder_choices == choices


def test_a_worker_takes_a_changed_file(tmp_path: Path) -> None:
    """Its own settings have names that no file may have."""
    given = {"data_dir": str(tmp_path), "peer": PEER, "members": [MX2]}
    running = for_worker(settings_from_tree(tree(workers=2, **given)), 2)
    file = for_worker(settings_from_tree(tree(workers=3, relay_networks=["192.0.2.0/24"], **given)), 2)
    found = reloaded(running, file)
    assert not found.wrong
    assert not found.restart
    shared = {*SHARED, "tracking.max_directory_size"}
    expected = {"workers", "relay_networks", "members[w3.mx1.example.net]"}
    assert {one.key for one in found.now} - shared == expected


def test_the_certificate_of_the_node_is_that_of_its_workers(tmp_path: Path) -> None:
    authority.init(tmp_path, name="Test", now=datetime.now(UTC))
    pair = authority.issue(tmp_path, "mx1.example.net", now=datetime.now(UTC))
    peer = {
        "listen": "127.0.0.1:2526",
        "certificate": str(pair.certificate),
        "key": str(pair.key),
        "ca": str(authority.authority_pair(tmp_path).certificate),
    }
    found = settings_from_tree(tree(workers=2, peer=peer, members=[MX2]))
    assert not [one for one in settings_warnings(for_worker(found, 2)) if "certificate" in one]
    assert "peer.certificate is not for mx9.example.net" in warnings_of(
        name="mx9.example.net", peer=peer, members=[MX2]
    )

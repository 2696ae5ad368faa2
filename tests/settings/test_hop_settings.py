"""The settings of a route that may tell its hops to track messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stations import authority, full
from test_settings_checks import errors_of, tree, warnings_of

from shadowrelay.core.identifiers import NextHop
from shadowrelay.service.adapters import servers
from shadowrelay.settings import settings_from_tree
from shadowrelay.settings.routing import promotion

KEY = "routes.edge"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authority(tmp_path_factory.mktemp("made") / "ca", "mx1", "mx2", "mx3")


def pin(made: Path, name: str, shown: str = "", **more: str) -> dict[str, str]:
    return {"name": full(name), "certificate": str(made / f"{full(shown or name)}.pem"), **more}


def route(made: Path, *pins: dict[str, str], **changes: Any) -> dict[str, Any]:
    given = {
        "domains": ["*"],
        "host": "edge.example.org",
        "send_xshadow": list(pins) or [pin(made, "mx2")],
        "xshadow_certificate": str(made / f"{full('mx1')}.pem"),
        "xshadow_key": str(made / f"{full('mx1')}.key"),
    } | changes
    return {"edge": {key: value for key, value in given.items() if value is not None}}


def test_each_hop_is_known_by_its_certificate(made: Path) -> None:
    found = settings_from_tree(tree(routes=route(made, pin(made, "mx2"), pin(made, "mx3"))))
    (server,) = servers(found).values()
    assert server.pinned
    assert sorted(server.pinned.peers.values()) == [full("mx2"), full("mx3")]


def test_a_hop_may_be_one_host_of_the_route_alone(made: Path) -> None:
    found = settings_from_tree(tree(routes=route(made, pin(made, "mx2", host="edge.example.org"))))
    (server,) = servers(found).values()
    assert server.pinned
    assert server.pinned.at("edge.example.org")
    assert server.pinned.at("other.example.org") is None


def test_without_shadow_redundancy_hops_are_known_for_it_may_be_switched_on(made: Path) -> None:
    found = settings_from_tree(tree(routes=route(made), shadow_redundancy_enabled=False))
    assert all(server.pinned for server in servers(found).values())


def test_only_a_server_with_the_same_journal_takes_a_message_in_place_of_a_slow_one(made: Path) -> None:
    def servers_for(journal: str | None, *targets: str) -> list[str]:
        own = {"domains": ["inside.test"], "host": "inside.test"}
        changes = {} if journal is None else {"journal": journal}
        found = settings_from_tree(tree(routes=route(made) | {"inside": own | changes}))
        return list(promotion(found)([NextHop(target) for target in targets]))

    assert servers_for(None, "inside") == ["edge"]
    assert servers_for("j@inside.test", "inside") == []
    assert servers_for("j@inside.test", "edge", "inside") == []
    everywhere = tree(routes=route(made), journal="j@inside.test")
    assert promotion(settings_from_tree(everywhere))([NextHop("edge")]) == ["edge"]


def test_promotion_without_a_server_that_tracks_is_warned_of(made: Path) -> None:
    on = {"shadow_redundancy_promotion_enabled": True}
    assert "no route has send_xshadow" not in warnings_of(routes=route(made), **on)
    assert "promotion" not in warnings_of(routes={"edge": {"domains": ["*"], "host": "a.test"}})
    told = warnings_of(routes={"edge": {"domains": ["*"], "host": "a.test"}}, **on)
    assert "no route has send_xshadow" in told


@pytest.mark.parametrize(
    ("changes", "key", "says"),
    [
        ({"xshadow_certificate": None}, "xshadow_certificate", "has to be set"),
        ({"xshadow_key": None}, "xshadow_key", "has to be set"),
        ({"tls": "none"}, "tls", "known by its certificate"),
        ({"inside": True}, "send_xshadow", "inside the boundary"),
        ({"protocol": "lmtp"}, "send_xshadow", "an LMTP server"),
    ],
)
def test_what_does_not_go_with_it_is_refused(
    made: Path, changes: dict[str, Any], key: str, says: str
) -> None:
    errors = errors_of(routes=route(made, **changes))
    assert set(errors) == {f"{KEY}.{key}"}
    assert says in errors[f"{KEY}.{key}"]


def test_certificates_have_to_be_there_and_of_one_hop_each(made: Path) -> None:
    missing = {"name": full("mx3"), "certificate": str(made / "nowhere.pem")}
    errors = errors_of(routes=route(made, pin(made, "mx2"), pin(made, "mx3", "mx2"), missing))
    assert "has the same certificate" in errors[f"{KEY}.send_xshadow[1].certificate"]
    assert "no such file" in errors[f"{KEY}.send_xshadow[2].certificate"]
    wrong = errors_of(routes=route(made, xshadow_key=str(made / f"{full('mx2')}.key")))
    assert "is not the private key of" in wrong[f"{KEY}.xshadow_key"]

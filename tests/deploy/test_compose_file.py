"""compose.yaml and what it mounts, as far as reading shows. Both composes read it in tests/containers."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from shadowmailbox.settings import load_mailbox_settings
from shadowrelay.settings import load_settings, parse_duration

EXTRA = "comes with the extra 'deploy': pip install -e '.[deploy]' -c constraints.txt"
yaml = pytest.importorskip("yaml", reason=f"PyYAML {EXTRA}")

ROOT = Path(__file__).parents[2]
PROVISIONING = ROOT / "deploy" / "grafana" / "provisioning"
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "shadowrelay.json"
VARIABLE = re.compile(r"\$\{\w+:-([^}]*)\}")
REFUSED_BY_1_29 = ("start_interval", "required", "content")


@cache
def lab() -> dict[str, Any]:
    """The file with the defaults of its variables."""
    text = VARIABLE.sub(r"\1", (ROOT / "compose.yaml").read_text("utf-8"))
    tree: dict[str, Any] = yaml.safe_load(text)
    return tree


def mailbox() -> Any:
    """The settings of the lab's mailbox service."""
    return load_mailbox_settings(ROOT / "docker" / "lab" / "mailbox.toml", {})


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = lab()["services"]
    return found


def keys(tree: object) -> Iterator[str]:
    """Of every mapping, however deep; services and volumes, whose names are free, apart."""
    match tree:
        case dict():
            for key, value in tree.items():
                yield key
                yield from keys(value)
        case list():
            for value in tree:
                yield from keys(value)


def mounts(service: str) -> list[tuple[str, str]]:
    """What is mounted where."""
    split = (volume.split(":") for volume in services()[service].get("volumes", ()))
    return [(words[0], words[1]) for words in split]


def document(path: Path) -> dict[str, Any]:
    tree: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return tree


def test_nothing_stands_there_that_compose_1_29_refuses():
    assert set(lab()) == {"x-hardened", "x-node", "services", "volumes"}
    used = {key for service in services().values() for key in keys(service)}
    assert not used & set(REFUSED_BY_1_29)


def test_ports_are_published_on_loopback_alone_and_each_once():
    published = [port for service in services().values() for port in service.get("ports", ())]
    assert len(published) == len({port.split(":")[1] for port in published}) == 9
    assert all(port.startswith("127.0.0.1:") for port in published)


@pytest.mark.parametrize("service", services())
def test_what_is_mounted_is_a_volume_of_the_lab_or_in_the_repository(service: str):
    for source, _ in mounts(service):
        if not source.startswith("."):
            assert source in lab()["volumes"]
        elif source != "./out":  # made by scripts/lab
            assert (ROOT / source).exists()


def test_every_volume_is_used_and_every_node_has_its_own():
    used = [source for service in services() for source, _ in mounts(service) if not source.startswith(".")]
    assert set(used) == set(lab()["volumes"])
    for kind in ("data", "certs", "tracking"):
        nodes = [mount[0] for node in "abc" for mount in mounts(f"node-{node}") if mount[1] == f"/{kind}"]
        assert nodes == [f"node-{node}-{kind}" for node in "abc"]


def test_a_node_that_is_stopped_has_time_to_drain():
    settings = tomllib.loads((ROOT / "docker" / "lab" / "node.toml").read_text("utf-8"))
    for node in ("node-a", "node-b", "node-c"):
        patience = parse_duration(services()[node]["stop_grace_period"])
        assert patience > parse_duration(settings["drain_timeout"])


def test_what_runs_mail_is_read_only_without_capabilities_and_nothing_is_privileged():
    for name, service in services().items():
        assert "privileged" not in service
        if name not in {"prometheus", "grafana"}:  # as their makers ship them
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]


def test_the_nodes_ask_the_filter_of_the_profile_when_a_variable_says_so_and_nobody_otherwise():
    variable = "SHADOWRELAY_RECEIVE__DEFAULT__FILTERS"
    page = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    (said,) = re.findall(r"export LAB_FILTERS='(.*)'", page)
    for node in ("node-a", "node-b", "node-c"):
        environ = {name: value or "" for name, value in services()[node]["environment"].items()}
        assert environ[variable] == ""
        # The certificates are in volumes of the lab.
        for name in ("PEER", "RECEIVE__DEFAULT__TLS_CERTIFICATE", "RECEIVE__DEFAULT__TLS_KEY"):
            environ[f"SHADOWRELAY_{name}"] = ""
        environ["SHADOWRELAY_MEMBERS"] = "[]"
        file = ROOT / "docker" / "lab" / "node.toml"
        assert load_settings(file, environ).receive["default"].filters == {}
        asked = load_settings(file, environ | {variable: said}).receive["default"].filters
        assert [str(one.address) for one in asked.values()] == ["inet:rspamd:11332"]
    listens = (ROOT / "docker" / "lab" / "rspamd" / "worker-proxy.inc").read_text("utf-8")
    assert 'bind_socket = "*:11332";' in listens


def test_prometheus_scrapes_the_nodes_of_the_lab_at_their_admin_port():
    settings = tomllib.loads((ROOT / "docker" / "lab" / "node.toml").read_text("utf-8"))
    port = settings["admin"]["listen"].rpartition(":")[2]
    job, other = document(ROOT / "deploy" / "prometheus" / "prometheus.yml")["scrape_configs"]
    assert other["static_configs"] == [{"targets": [f"mailbox:{mailbox().admin.listen.port}"]}]
    (static,) = job["static_configs"]
    assert static["targets"] == [f"{name}:{port}" for name in services() if name.startswith("node-")]
    given = dict(mounts("prometheus"))
    config = next(word for word in services()["prometheus"]["command"] if word.startswith("--config.file="))
    assert config == f"--config.file={given['./deploy/prometheus']}/prometheus.yml"


def test_the_mailbox_service_is_healthy_when_its_admin_interface_says_so():
    """The settings of its file are right, and the nodes deliver to its port."""
    nodes = tomllib.loads((ROOT / "docker" / "lab" / "node.toml").read_text("utf-8"))
    assert services()["mailbox"]["healthcheck"]["test"] == ["CMD", "ready", str(mailbox().admin.listen.port)]
    assert nodes["routes"]["inside"]["port"] == mailbox().inside.port
    assert dict(mounts("mailbox")) == {
        "./docker/lab/mailbox.toml": services()["mailbox"]["command"][-1],
        "mailbox-data": str(mailbox().directory),
    }


def test_grafana_finds_its_data_source_and_its_dashboards():
    (source,) = document(PROVISIONING / "datasources" / "prometheus.yml")["datasources"]
    (port,) = (each.split(":")[2] for each in services()["prometheus"]["ports"])
    assert source["url"] == f"http://prometheus:{port}"
    assert source["isDefault"] is True
    (provider,) = document(PROVISIONING / "dashboards" / "shadowrelay.yml")["providers"]
    given = dict(mounts("grafana"))
    assert provider["options"]["path"] == given["./deploy/grafana/dashboards"]
    assert given["./deploy/grafana/provisioning"] == "/etc/grafana/provisioning"
    assert DASHBOARD.is_relative_to(ROOT / "deploy" / "grafana" / "dashboards")


def test_every_panel_asks_the_data_source_that_is_chosen_and_that_is_a_prometheus():
    """The dashboard names no data source of its own: it can be imported anywhere."""
    tree = json.loads(DASHBOARD.read_text("utf-8"))
    (source,) = document(PROVISIONING / "datasources" / "prometheus.yml")["datasources"]
    (chosen,) = (each for each in tree["templating"]["list"] if each["type"] == "datasource")
    assert chosen["query"] == source["type"]
    asked = {"type": source["type"], "uid": f"${{{chosen['name']}}}"}
    for each in tree["templating"]["list"]:
        assert each is chosen or each["datasource"] == asked
    for panel in tree["panels"]:
        if panel["type"] != "row":
            assert panel["datasource"] == asked
            assert panel["targets"]
            assert all(target["datasource"] == asked for target in panel["targets"])

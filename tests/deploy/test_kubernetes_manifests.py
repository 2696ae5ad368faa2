"""deploy/kubernetes: right by the schemas, and one with another, with the settings and with the image."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from shadowrelay import authority
from shadowrelay.cli import COMMANDS
from shadowrelay.settings import load_settings, parse_duration, settings_warnings

EXTRA = "comes with the extra 'deploy': pip install -e '.[deploy]' -c constraints.txt"
yaml = pytest.importorskip("yaml", reason=f"PyYAML {EXTRA}")
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason=f"kubernetes-validate {EXTRA}")

HERE = Path(__file__).parents[2] / "deploy" / "kubernetes"
FILES = sorted(path.name for path in HERE.glob("*.yaml") if path.name != "kustomization.yaml")
VERSIONS = ("1.32", "1.37")
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is missing")


def documents(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


@cache
def resources() -> dict[str, dict[str, Any]]:
    """By kind and name."""
    found = [each for name in FILES for each in documents((HERE / name).read_text("utf-8"))]
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}


def stateful_set() -> dict[str, Any]:
    return resources()["StatefulSet/shadowrelay"]["spec"]


def pod() -> dict[str, Any]:
    return stateful_set()["template"]["spec"]


def container() -> dict[str, Any]:
    (only,) = pod()["containers"]
    return only


def tables() -> dict[str, Any]:
    return tomllib.loads((HERE / "settings.toml").read_text("utf-8"))


def names() -> list[str]:
    """Of the nodes, as the StatefulSet makes them."""
    domain = f"{stateful_set()['serviceName']}.{kustomization()['namespace']}.svc.cluster.local"
    return [f"shadowrelay-{number}.{domain}" for number in range(stateful_set()["replicas"])]


def kustomization() -> dict[str, Any]:
    return yaml.safe_load((HERE / "kustomization.yaml").read_text("utf-8"))


def environment(name: str) -> dict[str, str]:
    """What the container is given, for the pod of that name; secrets are made up."""
    found = {}
    for variable in container()["env"]:
        text = variable.get("value", name if variable["name"] == "POD_NAME" else "x" * 32)
        found[variable["name"]] = text.replace("$(POD_NAME)", name)
    return found


def ports() -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container()["ports"]}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", FILES)
def test_every_resource_is_right_by_the_schema(file: str, version: str):
    for each in documents((HERE / file).read_text("utf-8")):
        kubernetes_validate.validate(each, version, strict=True)


@needs_kubectl
def test_what_kustomize_makes_of_them_is_right_by_the_schema():
    done = subprocess.run(["kubectl", "kustomize", HERE], check=True, capture_output=True, text=True)
    made = documents(done.stdout)
    assert len(made) == len(resources()) + 1  # the ConfigMap
    for each in made:
        kubernetes_validate.validate(each, VERSIONS[-1], strict=True)
        assert each["metadata"]["namespace"] == kustomization()["namespace"]


def test_kustomize_takes_every_file_and_a_misspelt_field_would_be_noticed():
    assert sorted(kustomization()["resources"]) == FILES
    wrong = {**resources()["StatefulSet/shadowrelay"], "specs": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("number", range(3))
def test_the_settings_of_every_node_are_right_and_raise_no_warning(number: int, tmp_path: Path):
    """With the environment that its container has, and files where its volumes are mounted."""
    now = datetime.now(UTC)
    ca = authority.init(tmp_path / "ca", name="members", now=now)
    pair = authority.issue(tmp_path / "ca", names()[number], out=tmp_path, now=now)
    certificates = {"ca.crt": ca.certificate, "tls.crt": pair.certificate, "tls.key": pair.key}
    text = (HERE / "settings.toml").read_text("utf-8")
    for mount in ("smtp", "member"):
        (tmp_path / mount).mkdir()
        for name, path in certificates.items():
            shutil.copy(path, tmp_path / mount / name)
        text = text.replace(f"/etc/shadowrelay/{mount}/", f"{tmp_path}/{mount}/")
    file = tmp_path / "settings.toml"
    file.write_text(text, "utf-8")
    given = environment(f"shadowrelay-{number}")
    settings = load_settings(file, {k: v for k, v in given.items() if k.startswith("SHADOWRELAY_")})
    assert settings.name == names()[number]
    assert settings_warnings(settings) == []
    assert [member.name for member in settings.members] == [name for name in names() if name != settings.name]


def test_the_members_are_the_pods():
    assert [member["name"] for member in tables()["members"]] == names()


def test_paths_of_the_settings_are_mounted_and_each_node_sees_its_own_key_only():
    mounts = {mount["mountPath"]: mount for mount in container()["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod()["volumes"]}
    assert tables()["data_dir"] in mounts
    for table in (tables()["peer"], tables()["receive"]["default"]):
        for value in table.values():
            if str(value).startswith("/"):
                assert str(Path(value).parent) in mounts
    member = mounts["/etc/shadowrelay/member"]
    assert member["subPathExpr"] == "$(POD_NAME)"
    sources = volumes[member["name"]]["projected"]["sources"]
    assert len(sources) == stateful_set()["replicas"]
    for number, source in enumerate(sources):
        assert source["secret"]["name"] == f"shadowrelay-{number}-member"
        made = {item["path"]: item["key"] for item in source["secret"]["items"]}
        assert made == {f"shadowrelay-{number}/{name}": name for name in ("tls.crt", "tls.key", "ca.crt")}


def test_the_ports_are_those_that_the_node_listens_on():
    listens = {
        "smtp": tables()["receive"]["default"]["listen"],
        "peer": tables()["peer"]["listen"],
        "admin": tables()["admin"]["listen"],
    }
    assert ports() == {name: int(address.rpartition(":")[2]) for name, address in listens.items()}
    for each in resources().values():
        for port in each["spec"].get("ports", ()):
            assert port["targetPort"] in ports()
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container()[probe]["httpGet"]["port"] in ports()


def test_every_selector_finds_the_pods():
    labels = stateful_set()["template"]["metadata"]["labels"].items()
    affinity = pod()["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found = [stateful_set()["selector"]["matchLabels"], affinity[0]["labelSelector"]["matchLabels"]]
    for each in resources().values():
        selector = each["spec"].get("podSelector") or each["spec"].get("selector")
        found.append(selector.get("matchLabels", selector))
    for selector in found:
        assert selector
        assert selector.items() <= labels


def test_no_two_nodes_share_a_machine():
    (rule,) = pod()["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["topologyKey"] == "kubernetes.io/hostname"


def test_only_members_reach_the_peer_port():
    policy = resources()["NetworkPolicy/shadowrelay"]["spec"]
    allowed = {port["port"]: rule.get("from") for rule in policy["ingress"] for port in rule["ports"]}
    assert set(allowed) == {"smtp", "peer", "admin"}
    assert allowed["smtp"] is None  # everybody
    (source,) = allowed["peer"]
    assert source["podSelector"] == policy["podSelector"]
    (source,) = allowed["admin"]
    assert source["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "monitoring"}


def test_a_pod_is_given_longer_to_end_than_it_takes():
    program, command, option, within = container()["lifecycle"]["preStop"]["exec"]["command"]
    assert (program, command, option) == ("shadowrelay", "drain", "--within")
    assert command in COMMANDS
    takes = parse_duration(within) + parse_duration(tables()["drain_timeout"]) + timedelta(seconds=10)
    assert timedelta(seconds=pod()["terminationGracePeriodSeconds"]) >= takes


def test_one_node_may_be_away_and_no_volume_goes_with_its_node():
    assert resources()["PodDisruptionBudget/shadowrelay"]["spec"]["maxUnavailable"] == 1
    assert set(stateful_set()["persistentVolumeClaimRetentionPolicy"].values()) == {"Retain"}


def test_the_container_has_no_more_rights_than_it_needs():
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod()["securityContext"]["runAsNonRoot"]
    assert not pod()["automountServiceAccountToken"]
    assert pod()["enableServiceLinks"] is False  # they would be settings that nobody knows

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from shadowlab import layout
from shadowlab.errors import LabError
from shadowlab.layout import Layout
from shadowlab.ports import free_ports


def planned(directory: Path, nodes: int = 3) -> Layout:
    return layout.plan(directory, nodes=nodes, ports=range(20_000, 20_000 + 3 * nodes + 2))


def test_the_last_node_is_alone_in_the_second_site_and_no_two_share_a_host(tmp_path: Path):
    lab = planned(tmp_path)
    assert [node.name for node in lab.nodes] == ["mx1.lab.test", "mx2.lab.test", "mx3.lab.test"]
    assert [node.site for node in lab.nodes] == ["site-a", "site-a", "site-b"]
    assert [node.host for node in lab.nodes] == ["host-1", "host-2", "host-3"]
    assert [node.site for node in planned(tmp_path, nodes=1).nodes] == ["site-a"]


def test_what_survives_a_lost_disk_lies_outside_the_data(tmp_path: Path):
    for node in planned(tmp_path).nodes:
        assert not node.tracking_dir.is_relative_to(node.data_dir)
        assert not node.config.is_relative_to(node.data_dir)


def test_lab_json_has_the_documented_keys_and_reads_back(tmp_path: Path):
    lab = planned(tmp_path).with_pid("mx2", 17).with_pid("mailbox", 18)
    layout.save(lab)
    tree = json.loads((tmp_path / "lab.json").read_text())
    assert set(tree) == {"nodes", "mailbox", "links"}
    assert tree["links"] is None
    assert set(tree["mailbox"]) == {"pid", "inside", "outside", "dir"}
    assert list(tree["nodes"][1]) == [
        "name",
        "site",
        "host",
        "pid",
        "smtp",
        "peer",
        "admin",
        "data_dir",
        "tracking_dir",
        "config",
        "workers",
    ]
    assert (tree["nodes"][0]["pid"], tree["nodes"][1]["pid"], tree["mailbox"]["pid"]) == (None, 17, 18)
    assert tree["nodes"][0]["smtp"] == ["127.0.0.1", 20_002]
    assert tree["nodes"][0]["admin"] == "http://127.0.0.1:20004"
    assert tree["nodes"][0]["config"] == str(tmp_path / "nodes" / "mx1" / "shadowrelay.toml")
    assert layout.load(tmp_path) == lab


def test_in_a_breakable_lab_every_node_reaches_every_other_one_at_an_address_of_its_own(tmp_path: Path):
    count = layout.ports_needed(3, breakable=True)
    lab = layout.plan(tmp_path, nodes=3, ports=range(20_000, 20_000 + count), breakable=True)
    lab = lab.with_pid("links", 19)
    reached = {lab.reached(one, other) for one in lab.nodes for other in lab.nodes if one != other}
    assert len(reached) == 6
    assert not reached & {node.peer for node in lab.nodes}
    assert lab.processes == ("mailbox", "links", "mx1", "mx2", "mx3")
    layout.save(lab)
    assert layout.load(tmp_path) == lab
    assert json.loads((tmp_path / "lab.json").read_text())["links"]["pid"] == 19
    plain = planned(tmp_path)
    assert plain.reached(plain.node("1"), plain.node("2")) == plain.node("2").peer


@pytest.mark.parametrize("name", ["mx2.lab.test", "MX2", "mx2", "2"])
def test_a_node_is_called_by_name_label_or_number(tmp_path: Path, name: str):
    assert planned(tmp_path).node(name).name == "mx2.lab.test"


@pytest.mark.parametrize("name", ["mx4", "4", "0", "", "lab.test"])
def test_an_unknown_node_is_refused_with_those_that_there_are(tmp_path: Path, name: str):
    with pytest.raises(LabError, match="mx1, mx2, mx3"):
        planned(tmp_path).node(name)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nodes": [{}], "mailbox": {}}'])
def test_a_damaged_lab_json_is_named(tmp_path: Path, text: str):
    (tmp_path / "lab.json").write_text(text)
    with pytest.raises(LabError, match=r"lab\.json cannot be read"):
        layout.load(tmp_path)


def test_ports_are_free_different_and_not_those_of_outgoing_connections():
    ports = free_ports(11)
    assert len(set(ports)) == 11
    assert max(ports) < int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_a_port_that_is_in_use_keeps_its_neighbours_out_of_another_lab():
    taken = free_ports(11)
    with socket.create_server(("127.0.0.1", taken[5])):
        for _ in range(20):
            assert not set(free_ports(11)) & set(taken)


def test_ports_that_were_found_are_not_found_again_before_their_node_listens():
    blocks = [set(free_ports(11)) for _ in range(64)]
    assert len(set.union(*blocks)) == 64 * 11


def test_another_process_does_not_find_them_either(monkeypatch: pytest.MonkeyPatch):
    other = "import json, sys; from shadowlab.ports import free_ports; print(free_ports(3)); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", other], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        theirs = json.loads(process.stdout.readline())
        monkeypatch.setattr("random.SystemRandom.choice", lambda _, starts: theirs[0])
        with pytest.raises(LabError, match="no 3 free ports"):
            free_ports(3)
        process.communicate(b"")
    assert free_ports(3) == theirs, "the process that had found them has ended"


def test_the_workers_of_a_node_have_ports_in_a_row_with_room_for_more(tmp_path: Path) -> None:
    needed = layout.ports_needed(2, breakable=False, workers=2)
    at = layout.plan(tmp_path, nodes=2, ports=range(20_000, 20_000 + needed), workers=2)
    first, second = at.nodes
    used = {first.smtp[1], second.smtp[1], *(port for _, port in (at.mailbox.inside, at.mailbox.outside))}
    used |= {int(node.admin.rpartition(":")[2]) for node in at.nodes}
    rows = [set(range(node.peer[1], node.peer[1] + 4)) for node in at.nodes]
    assert len(used | rows[0] | rows[1]) == 6 + 8 == needed
    assert [place.data_dir.name for place in first.places] == ["data", "worker-2"]
    layout.save(at)
    assert layout.load(tmp_path) == at


def test_workers_whose_ports_are_not_in_a_row_cannot_be_planned(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="in a row"):
        layout.plan(tmp_path, nodes=1, ports=range(20_000, 21_000, 2), workers=2)

"""Storage that goes away with its container is recognised by how it is mounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from shadowrelay.database.ephemeral import of_this_process, why_ephemeral

LAYER = "100 90 0:50 / / ro,relatime - overlay overlay rw,lowerdir=/a:/b\n"
DISK = "25 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
NAMED = "120 100 254:0 /var/lib/docker/volumes/lab_node-a-data/_data /data rw master:1 - ext4 /dev/vda rw\n"
ANONYMOUS = f"120 100 254:0 /var/lib/docker/volumes/{'0f' * 32}/_data /data rw - ext4 /dev/vda rw\n"
EMPTY_DIR = (
    "120 100 254:0 /var/lib/kubelet/pods/x/volumes/kubernetes.io~empty-dir/data /data rw - ext4 /dev/vda rw\n"
)
BOUND = "120 100 254:0 /srv/shadow\\040relay /data rw - xfs /dev/vdb rw\n"
MEMORY = "130 100 0:60 / /data rw - tmpfs tmpfs rw\n"


@pytest.mark.parametrize(
    ("mounts", "on"),
    [
        (LAYER, "the container's own layer"),
        (LAYER + MEMORY, "memory"),
        (LAYER + ANONYMOUS, "a volume without a name"),
        (LAYER + EMPTY_DIR, "an emptyDir"),
        (LAYER + NAMED + MEMORY, "memory"),
    ],
)
def test_what_goes_with_its_container_is_told(mounts: str, on: str) -> None:
    assert why_ephemeral(Path("/data"), mounts).startswith(on)


@pytest.mark.parametrize("mounts", [DISK, LAYER + NAMED, LAYER + BOUND, DISK + NAMED, ""])
def test_a_disk_or_a_named_volume_is_not(mounts: str) -> None:
    assert why_ephemeral(Path("/data"), mounts) == ""


def test_a_directory_below_the_mount_is_on_it_and_one_beside_it_is_not() -> None:
    assert why_ephemeral(Path("/data/below"), LAYER + NAMED) == ""
    assert why_ephemeral(Path("/database"), LAYER + NAMED) == "the container's own layer"


def test_the_mounts_of_this_process_can_be_read() -> None:
    assert of_this_process(Path("/dev/shm")) in {"memory", ""}

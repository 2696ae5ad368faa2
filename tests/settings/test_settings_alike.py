"""A digest of each section that members of a site should have alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shadowrelay.settings import Settings, settings_from_tree
from shadowrelay.settings.alike import Sections, sections


def settings(tmp_path: Path, name: str = "mx1", **more: Any) -> Settings:
    (tmp_path / name).mkdir(exist_ok=True)
    recipients = tmp_path / name / "recipients"
    recipients.write_text(more.pop("recipients", "anna@inside.test otto@inside.test\n"))
    tree: dict[str, Any] = {
        "name": f"{name}.test", "host": name, "data_dir": str(tmp_path / name),
        "accepted_domains": ["inside.test"], "recipients_file": str(recipients),
        "receive": {"default": {"listen": "127.0.0.1:2525"}},
        "routes": {"inside": {"domains": ["inside.test"], "host": "mail.test", "inside": True}},
    }  # fmt: skip
    return settings_from_tree(tree | more)


def told(found: Settings) -> dict[str, str]:
    return dict(sections(found, found.policy()))


@pytest.mark.parametrize(
    ("more", "differ"),
    [
        ({}, set()),
        ({"minimum_free_disk": "1GiB", "drain_timeout": "5s"}, set()),
        ({"accepted_domains": ["inside.test", "more.test"]}, {"accepted_domains"}),
        ({"relay_networks": ["10.1.0.0/16"]}, {"relay_networks"}),
        ({"shadow_heartbeat_frequency": "1m"}, {"policy"}),
        ({"recipients": "anna@inside.test carl@inside.test\n"}, {"recipients_file"}),
        ({"routes": {"inside": {"domains": ["inside.test"], "host": "other.test"}}}, {"routes.inside"}),
        ({"routes": {"all": {"domains": ["*"], "host": "mail.test"}}}, {"routes.inside", "routes.all"}),
    ],
)  # fmt: skip
def test_a_section_differs_if_mail_is_treated_otherwise(tmp_path: Path, more: Any, differ: set[str]):
    first, second = told(settings(tmp_path)), told(settings(tmp_path, "mx2", **more))
    assert {one for one in first | second if first.get(one) != second.get(one)} == differ


def test_the_digests_are_made_again_when_settings_change_and_once_a_minute(tmp_path: Path):
    now = 0.0
    found, others = settings(tmp_path), settings(tmp_path, "mx2", accepted_domains=["more.test"])
    policy, made = found.policy(), Sections(lambda: now)
    first = made.of(found, policy)
    (tmp_path / "mx1" / "recipients").write_text("carl@inside.test otto@inside.test\n")
    assert made.of(found, policy) is first
    now = 61.0
    later = made.of(found, policy)
    assert later["recipients_file"] != first["recipients_file"]
    assert made.of(others, policy)["accepted_domains"] != first["accepted_domains"]
    assert made.of(found, found.policy()) is not later

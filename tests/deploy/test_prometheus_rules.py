"""deploy/prometheus and deploy/grafana: alarms by promtool, queries by a Prometheus that scrapes a lab."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from running_lab import RunningLab, wait_until

from tests.deploy.scraped import HERE, MISSING, Prometheus, scraping

DASHBOARD = HERE.parent / "grafana" / "dashboards" / "shadowrelay.json"
PAGE = HERE.parents[1] / "docs" / "reference" / "metrics.md"
RULES = (HERE / "alerts.yml").read_text("utf-8")
ALARMS = re.findall(r"^ +- alert: (\w+)$", RULES, re.MULTILINE)
METRIC = re.compile(r"\bshadowrelay_\w+?(?=_bucket\b|_sum\b|_count\b|\b)")

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is missing"
)
needs_prometheus = pytest.mark.skipif(MISSING != "", reason=MISSING)


class Query(NamedTuple):
    panel: str
    expression: str


def dashboard() -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(DASHBOARD.read_text("utf-8"))
    return tree


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


QUERIES = [Query(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]


def promtool(*words: str | Path) -> None:
    done = subprocess.run(["promtool", *words], check=False, capture_output=True, text=True, cwd=HERE)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_configuration_and_its_rules_are_right():
    promtool("check", "config", "prometheus.yml")


@needs_promtool
def test_alarms_are_raised_when_they_should_be_and_not_before():
    promtool("test", "rules", "alerts_test.yml")


@pytest.mark.parametrize("alarm", ALARMS)
def test_every_alarm_has_a_case_that_raises_it_and_one_that_does_not(alarm: str):
    text = (HERE / "alerts_test.yml").read_text("utf-8")
    expected = re.findall(rf"alertname: {alarm}\n +exp_alerts:(.*)$", text, re.MULTILINE)
    assert {each.strip() for each in expected} == {"", "[]"}


def test_the_page_for_operators_lists_every_alarm_with_its_severity():
    page = (HERE.parents[1] / "docs" / "how-to" / "monitor.md").read_text("utf-8")
    listed = re.findall(r"^\| `(Shadowrelay\w+)` \|.*\| (\w+) \|$", page, re.MULTILINE)
    assert listed == re.findall(r"alert: (\w+)\n(?:.*\n)*? +severity: (\w+)", RULES)


@pytest.mark.parametrize("text", [RULES, DASHBOARD.read_text("utf-8")], ids=["alerts", "dashboard"])
def test_every_metric_that_is_asked_for_is_documented(text: str):
    documented = set(METRIC.findall(PAGE.read_text("utf-8")))
    assert set(METRIC.findall(text)) <= documented


def test_every_metric_that_tells_of_failure_is_on_the_dashboard():
    shown = set(METRIC.findall(DASHBOARD.read_text("utf-8")))
    left_out = {"shadowrelay_peer_failures", "shadowrelay_shadow_messages"}
    assert set(METRIC.findall(PAGE.read_text("utf-8"))) - shown == left_out


def test_panels_have_titles_and_numbers_of_their_own_and_do_not_overlap():
    every = dashboard()["panels"]
    assert len({panel["id"] for panel in every}) == len({panel["title"] for panel in every}) == len(every)
    taken: dict[tuple[int, int], str] = {}
    for panel in every:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


@pytest.fixture(scope="module")
def prometheus(lab: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """It scrapes a lab of three nodes with mail that waits; they look at what is short, and ask a filter."""
    own = "receive.default.filters.own"
    lab.up("back_pressure.enabled=true", f"{own}.address=unix:/nowhere", f"{own}.when_down=accept")
    nodes = lab.cluster.layout.nodes
    addresses = [node.admin.removeprefix("http://") for node in nodes]
    with scraping(tmp_path_factory.mktemp("observed") / "prometheus", addresses) as made:
        wait_until(lambda: len(made.query("up == 1")) == len(nodes), "all nodes are scraped")
        lab.send(5)
        lab.settle()
        lab.cluster.refuse()
        lab.send(3)
        wait_until(lambda: made.query("sum(shadowrelay_queued_messages) == 3"), "the backlog is seen")
        wait_until(lambda: made.query("count_over_time(up[1m]) > 4"), "there is something to make a rate of")
        yield made


@pytest.mark.lab
@pytest.mark.slow
@needs_prometheus
@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.panel)
def test_every_query_of_the_dashboard_has_an_answer(query: Query, prometheus: Prometheus):
    expression = query.expression.replace("$instance", ".*").replace("$__rate_interval", "1m")
    assert "$" not in expression
    assert prometheus.query(expression)


@pytest.mark.lab
@pytest.mark.slow
@needs_prometheus
def test_the_dashboard_shows_what_happened(prometheus: Prometheus):
    shown = {query.panel: query.expression for query in QUERIES}

    def value(panel: str) -> float:
        (found,) = prometheus.query(shown[panel].replace("$instance", ".*"))
        return float(found["value"][1])

    assert value("Nodes taking mail") == 3
    assert value("Messages at risk") == value("Members unreachable") == 0
    (variable,) = [each for each in dashboard()["templating"]["list"] if each["name"] == "instance"]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()
    found = prometheus.get(f"label/{label}/values", **{"match[]": metric})
    assert len(found) == 3


@pytest.mark.lab
@pytest.mark.slow
@needs_prometheus
def test_alarms_follow_a_node_that_dies(prometheus: Prometheus, lab: RunningLab):
    """Alarms that wait for a minute are pending until then."""

    def raised() -> set[str]:
        return {alert["labels"]["alertname"] for alert in prometheus.get("alerts")["alerts"]}

    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert [rule["name"] for rule in rules] == ALARMS
    assert {rule["health"] for rule in rules} == {"ok"}
    without_filter = {"ShadowrelayFilterDown", "ShadowrelayUnfiltered"}  # that of this lab is down
    wait_until(lambda: raised() == without_filter, "they are all", explain=lambda: str(raised()))
    lab.cluster.kill("mx3")
    expected = {"ShadowrelayNodeDown", "ShadowrelayMemberUnreachable", "ShadowrelayHolderUnreachable"}
    wait_until(lambda: expected <= raised(), "the death of mx3 is noticed", explain=lambda: str(raised()))
    lab.cluster.start("mx3")
    wait_until(lambda: not expected & raised(), "the alarms end", explain=lambda: str(raised()))

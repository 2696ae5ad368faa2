"""Names of queues: a name that is printed is accepted everywhere, and one that is no queue's nowhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from sending import MESSAGE, sent
from stations import Station, boundary
from test_jobs import running
from test_verbs_by_command import admin, command, in_time

from shadowrelay.admin.access import Access
from shadowrelay.admin.api import build_app
from shadowrelay.console.app import console
from shadowrelay.core.identifiers import NextHop, ServerName
from shadowrelay.core.reception.routing import Route
from shadowrelay.members import reconcile, record_replication
from shadowrelay.operator import job_runner
from shadowrelay.operator.queue_names import NoSuchQueue, queue_named

ROUTES = (
    Route(NextHop("inside"), ("inside.test",), inside=True),
    Route(NextHop("outside"), ("*.outside.test",)),
    Route(NextHop("east"), ("east.test",), site="east"),
    Route(NextHop("world"), ("*",), mx=True),
)
NODES = (ServerName("mx1.lab.test"), ServerName("w2.mx1.lab.test"), ServerName("mx2.lab.test"))


def named(given: str, seen: tuple[str, ...] = ()) -> str:
    return queue_named(given, ROUTES, ("east",), NODES, seen)


@pytest.mark.parametrize(
    ("given", "queue"),
    [
        ("inside", "inside"),
        (" inside ", "inside"),
        ("world", "world"),
        ("world/example.net", "world/example.net"),
        ("world/Example.NET.", "world/example.net"),
        ("world/grüße.example", "world/xn--gre-6ka8l.example"),
        ("world/[192.0.2.1]", "world/[192.0.2.1]"),
        ("site/east", "site/east"),
        ("local/lists", "local/lists"),
        ("mx1.lab.test\\inside", "inside"),
        ("MX1.lab.test\\inside", "inside"),
        ("w2.mx1.lab.test\\world/example.net", "world/example.net"),
    ],
)
def test_a_queue_has_one_spelling(given: str, queue: str) -> None:
    assert named(given) == queue


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("Inside", "no queue is called Inside: the nearest is inside"),
        ("insdie", "no queue is called insdie: the nearest is inside"),
        ("inside.test", "no queue is called inside.test: mail to inside.test is in the queue inside"),
        ("ann@inside.test", "mail to inside.test is in the queue inside"),
        ("a.outside.test", "mail to a.outside.test is in the queue outside"),
        ("example.net", "mail to example.net is in the queue world/example.net"),
        ("world/inside.test", "mail to inside.test is in the queue inside"),
        ("inside/inside.test", "mail to inside.test is in the queue inside"),
        ("east", "mail of the route east is in the queue site/east"),
        ("site", "no queue is called site: "),
        ("world/", "the nearest is world"),
        ("world/not a domain", "no queue is called world/not a domain"),
        ("World/example.net", "the nearest is world/example.net"),
        ("", "no queue is called : the queues are inside, outside, world, site/east, local/lists"),
        ("mx9.lab.test\\inside", "mx9.lab.test is no node here; the nearest are"),
        ("mx1.lab.test\\Shadow\\mx2.lab.test", "is a shadow queue, of copies for others"),
        ("mx1.lab.test\\inside.test", "mail to inside.test is in the queue inside"),
    ],
)
def test_a_name_that_is_no_queues_is_refused_with_what_is_near(given: str, told: str) -> None:
    with pytest.raises(NoSuchQueue, match=re.escape(told)):
        named(given)


def test_a_queue_that_the_settings_do_not_have_is_one_while_it_is_seen() -> None:
    with pytest.raises(NoSuchQueue, match="the queues are"):
        named("former")
    assert named("former", ("former",)) == "former"
    assert named("former/grüße.example", ("former/xn--gre-6ka8l.example",)) == "former/xn--gre-6ka8l.example"
    assert named("mx1.lab.test\\former", ("former",)) == "former"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(reconcile, "INTERVAL", 0.03)
    monkeypatch.setattr(job_runner, "INTERVAL", 0.05)
    monkeypatch.setattr(record_replication, "REFRESH", 0.1)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.reset_defaults()


WHY = ("--reason", "a broken queue")
BY_COMMAND: tuple[Callable[[str], tuple[str, ...]], ...] = (
    lambda name: ("queue", "show", name),
    lambda name: ("queue", "show", name, "--here"),
    *(lambda name, verb=verb: ("queue", verb, name, "--dry-run") for verb in ("retry", "remove", "bounce")),
    lambda name: ("queue", "suspend", name, *WHY),
    lambda name: ("queue", "resume", name, *WHY),
    *(
        lambda name, verb=verb: ("message", verb, "--queue", name, "--dry-run")
        for verb in ("retry", "suspend", "resume", "remove", "bounce")
    ),
    lambda name: ("queue", "retry", name, "--yes", "--no-wait", *WHY),
    lambda name: ("safety-net", "list", "--to", name),
    lambda name: ("resubmit", "add", "--since", "1h", "--until", "1m", "--dry-run", "--to", name, *WHY),
)
FILTER: Callable[[str], dict[str, Any]] = lambda name: {"filter": {"queue": name}}  # noqa: E731
BY_API: tuple[Callable[[str], tuple[str, dict[str, Any]]], ...] = (
    lambda name: ("/api/v1/jobs/preview", FILTER(name)),
    lambda name: ("/api/v1/jobs", {"verb": "retry", "reason": "why", **FILTER(name)}),
    lambda name: ("/api/v1/suspensions", {"queue": name, "act": "suspend", "reason": "why"}),
    lambda name: ("/api/v1/suspensions", {"queue": name, "act": "resume", "reason": "why"}),
)
BY_CONSOLE: tuple[Callable[[str], tuple[str, dict[str, str]]], ...] = (
    lambda name: (f"/queues/{name}", {}),
    lambda name: ("/act", {"verb": "retry", "queue": name}),
    lambda name: ("/act", {"verb": "suspend", "queue": name, "of": "queue"}),
    lambda name: ("/messages", {"queue": name}),
)
WAYS: dict[str, Any] = {
    "inside": {"domains": ["inside.test"], "host": "127.0.0.1", "port": 9, "tls": "none"},
    "world": {"domains": ["*"], "mx": True},
}


def pages(one: Station) -> httpx.AsyncClient:
    """A browser at the console of the node."""
    app = console(one.node, Access(())).into(build_app(one.node))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=f"http://{one.name}")


async def _printed(one: Station, url: str) -> set[str]:
    """The names of queues that commands print, and pages of the API have."""
    listed = [
        json.loads(line) for line in (await command(url, "queue", "list", "--json")).stdout.splitlines()
    ]
    queues = [row for row in listed if row["kind"] == "queue"]
    status = await command(url, "message", "list", "--json")
    messages = json.loads(status.stdout)["messages"]
    found = {row[key] for row in queues for key in ("identity", "next_hop")}
    return found | {hop for message in messages for hop in message["next_hops"]} | {"inside", "world"}


@pytest.mark.usefixtures("at_once")
async def test_every_name_that_is_printed_is_accepted_by_every_verb(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", routes=WAYS) as (one, two), admin(one) as url:
        await running(one, two)
        await sent(one, MESSAGE, "b@inside.test")
        await sent(two, MESSAGE, "c@example.net")
        names = await _printed(one, url)
        assert names >= {f"{one.name}\\inside", f"{two.name}\\world/example.net", "world/example.net"}
        for name in sorted(names):
            async with pages(one) as client:
                for page in BY_CONSOLE:
                    path, query = page(name)
                    assert (await client.get(path, params=query)).status_code == 200, (path, query)
            for verb in BY_COMMAND:
                done = await in_time(url, two, *verb(name))
                assert done.exit_code == 0, (name, verb(name), done.output)
                if verb(name)[:2] in {("queue", "remove"), ("message", "remove")}:
                    assert "1 message to 1 recipient" in done.output, (verb(name), done.output)


@pytest.mark.usefixtures("at_once")
async def test_a_route_whose_hosts_the_dns_has_is_shown_with_the_mail_of_all_its_domains(
    tmp_path: Path,
) -> None:
    async with boundary(tmp_path, "mx1", routes=WAYS) as (one,), admin(one) as url:
        await running(one)
        for address in ("b@example.net", "c@example.net", "d@example.org"):
            await sent(one, MESSAGE, address)

        async def shown(name: str) -> dict[str, Any]:
            told = json.loads((await command(url, "queue", "show", name, "--json")).stdout)
            return dict(told["nodes"][0])

        whole, part = (await shown("world"))["queue"], (await shown("world/example.net"))["queue"]
        assert (whole["identity"], whole["next_hop"]) == (f"{one.name}\\world", "world")
        assert (whole["messages"], part["messages"]) == (3, 2)
        assert (await shown("inside"))["queue"] is None
        await command(url, "queue", "suspend", "world", *WHY)
        assert (await shown("world/example.net"))["suspension"]["reason"] == WHY[1]
        assert (await shown("world"))["queue"]["status"] == "suspended"


UNKNOWN = ("nosuch", "Inside", "inside.test", "b@inside.test", "mx9.example.org\\inside", "world/inside.test")


@pytest.mark.usefixtures("at_once")
async def test_every_other_name_is_refused_by_every_verb_in_the_same_words(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", routes=WAYS) as (one, two), admin(one) as url:
        await running(one, two)
        await sent(one, MESSAGE, "b@inside.test")
        for name in UNKNOWN:
            said = set()
            for verb in BY_COMMAND:
                refused = await command(url, *verb(name))
                assert refused.exit_code == 2, (verb(name), refused.output)
                said.add(refused.stderr.partition("; no server is")[0].strip())
            async with httpx.AsyncClient() as client:
                for call in BY_API:
                    path, body = call(name)
                    answer = await client.post(url + path, json=body)
                    assert answer.status_code == 422, (path, body, answer.text)
                    said.add(f"Error: {answer.json()['error']}")
                told = (await client.get(f"{url}/api/v1/cluster/queues/{name}")).json()["error"]
            async with pages(one) as client:
                for page in BY_CONSOLE:
                    path, query = page(name)
                    answer = await client.get(path, params=query)
                    assert answer.status_code == 422, (path, query)
                    assert told[1:] in unescape(answer.text), (path, query)
            assert said == {f"Error: {told}"}, name
        assert await one.node.services.jobs.all() == []
        assert await one.node.services.suspensions.all() == []

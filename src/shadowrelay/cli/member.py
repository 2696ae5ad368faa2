"""``shadowrelay member``: adds a member to a running cluster, and lists the members."""

from __future__ import annotations

import os
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from shadowrelay.admin.client import AdminClient
from shadowrelay.cli.viewing import (
    act_options,
    console,
    needs,
    node_options,
    print_json,
    print_table,
    reporting,
)
from shadowrelay.shown.records import AnnouncedAnswer, MembersAnswer

_MOST = 64 * 1024  # octets that are read of an announcement


@click.group(short_help="Add a member to a running cluster, or list the members.")
def member() -> None:
    """Add a member to a running cluster, or list the members."""


@member.command("list")
@node_options
def list_members(node: AdminClient, *, as_json: bool) -> None:
    """One row per member: its address, its place, and whether settings or an announcement name it."""
    with reporting():
        answer = node.get(MembersAnswer, "members")
    needs(answer, "members")
    if as_json:
        return print_json(answer)
    columns = ("member", "address", "site", "host", "from")
    rows = [[one["name"], one["address"], one["site"], one["host"], one["from"]] for one in answer["members"]]
    print_table(console(), columns, rows, "This node has no members.")
    return None


@member.command()
@click.argument("file", type=click.File("r", encoding="utf-8"))
@act_options
def announce(node: AdminClient, file: Any, *, as_json: bool) -> None:
    """Give the announcement in FILE to a node, which verifies it, and tells every other member.

    The member is in the boundary at once, and stays over restarts. Put it into the settings files at leisure.
    """
    with reporting():
        answer = node.post(AnnouncedAnswer, "members", body={"signed": file.read(_MOST).strip()})
    if as_json:
        return print_json(answer)
    said = "joins the boundary" if answer["new"] else "was announced before: nothing changes"
    click.echo(f"{answer['name']} {said}")
    return None


@member.command()
@click.argument("name")
@click.option("--address", required=True, help="Where the other members reach it: host:port.")
@click.option(
    "--dir",
    "directory",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the authority (ca.pem, ca.key).",
)
@click.option(
    "--like",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Settings file of a member, from which the new one is made.",
)
@click.option("--like-address", help="Where that member is reached, if its own list does not say so.")
@click.option(
    "--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Where the files go."
)
@click.option("--site", help="Site of the new member. Default: that of the member it is like.")
@click.option("--host", help="Its failure domain: machine, rack or zone. Default: NAME.")
@click.option(
    "--workers", help="Its workers: a number, or auto. Default: as many as the member it is like has."
)
def add(
    name: str,
    address: str,
    directory: Path,
    like: Path,
    like_address: str | None,
    out: Path,
    site: str | None,
    host: str | None,
    workers: str | None,
) -> None:
    """Make all that the new member NAME needs. Run it where the authority's key is, not on a member.

    Makes its certificate, its settings file and a signed announcement. Nothing is sent anywhere.
    """
    from shadowrelay import authority
    from shadowrelay.core.workers import MOST
    from shadowrelay.settings import to_toml
    from shadowrelay.settings.values import parse_dialled, parse_workers
    from shadowrelay.wire.announcements import Announcement, format_signed, parse_signed, signed_octets

    now, name = datetime.now(UTC), name.lower()
    try:
        parse_dialled(address)
        tree = tomllib.loads(like.read_text("utf-8"))
        site = site or tree.get("site", "default")
        made = _settings(tree, name, site, host or name, like_address)
        if workers is not None:
            if not 1 <= parse_workers(int(workers) if workers.isdecimal() else workers) <= MOST:
                raise ValueError(f"--workers is a number from 1 to {MOST}, or auto")
            made["workers"] = int(workers) if workers.isdecimal() else workers
        announcement = Announcement(
            serial=int(now.timestamp() * 1000), name=name, address=address, site=site, host=host or name
        )
        text = format_signed(announcement, authority.sign(directory, signed_octets(announcement)))
        parse_signed(text)  # as a node will read it
        pair = authority.issue(directory, name, now=now, out=out)
    except (authority.AuthorityError, OSError, ValueError) as problem:
        raise click.ClickException(str(problem)) from problem
    settings, announced = out / "settings.toml", out / f"{name}.announcement.json"
    _write(settings, to_toml(made))
    _write(announced, text + "\n")
    _write(out / "members-ca.pem", authority.authority_pair(directory).certificate.read_text())
    for path in (pair.certificate, pair.key, settings, out / "members-ca.pem", announced):
        click.echo(f"wrote {path}")
    click.echo(f"Copy all but the last to {name}, to the paths that its settings name; check the settings,")
    click.echo("and start it. Then, on any member:")
    click.echo(f"shadowrelay member announce {announced.name}")


def _settings(
    tree: dict[str, Any], name: str, site: str, host: str, like_address: str | None
) -> dict[str, Any]:
    """The settings of the new member. Raises ValueError if the address of the other one is not known."""
    other = str(tree.get("name", "")).lower()
    if other == name:
        raise ValueError(f"{name} is the name of the member that it is to be like")
    members = [one for one in tree.get("members", []) if one.get("name", "").lower() != name]
    if all(one.get("name", "").lower() != other for one in members):
        if like_address is None:
            raise ValueError(f"the file does not list {other} itself: say where it is with --like-address")
        own = {"name": other, "address": like_address, "site": tree.get("site", "default")}
        if isinstance(workers := tree.get("workers"), int):  # else the node says how many they are
            own["workers"] = workers
        members.append({**own, "host": tree.get("host", other)})
    return {**tree, "name": name, "site": site, "host": host, "members": members}


def _write(path: Path, text: str) -> None:
    """Write a file that its owner alone may read: settings may hold a token."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)

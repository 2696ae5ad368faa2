"""Stores which message has the octets of a content: several messages may use one content, stored once.

A message has a row in ``content``, with its octets, or one in ``shared_content``, which names the message
that has them (``keeper``). A keeper uses no octets of another message, so one look-up is enough. If a damaged
database has both rows of a message, its own octets count.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator

from shadowrelay.core.decisions import Content
from shadowrelay.core.identifiers import Digest, MessageId
from shadowrelay.database.queries import load

SQL = load("queries.sql")

Run = Callable[..., sqlite3.Cursor]


def keeper(run: Run, message_id: MessageId) -> MessageId:
    """The message that has the octets; the message itself if it names none."""
    if run(SQL["content"], (message_id,)).fetchone() is not None:
        return message_id
    row = run(SQL["content_of"], (message_id,)).fetchone()
    return row[0] if row else message_id


def find(run: Run, message_id: MessageId) -> tuple[object, object] | None:
    """Data and path of the octets that a message uses; None if they are not there."""
    row: tuple[object, object] | None = run(SQL["content"], (message_id,)).fetchone()
    if row is None and (named := run(SQL["content_of"], (message_id,)).fetchone()):
        row = run(SQL["content"], named).fetchone()
    return row


def put(run: Run, message_id: MessageId, content: Content) -> None:
    """Store the content of a new message, or a reference to the content of another one."""
    if content.of is None:
        run(SQL["put_content"], (message_id, content.data, content.path))
    else:
        run(SQL["share_content"], (message_id, keeper(run, content.of)))


def leave(run: Run, message_id: MessageId) -> Iterator[str]:
    """The message uses its content no more. Others that use it keep the octets: one of them gets them.

    Yields the file that no message uses any more, if there is one. Go through it to the end.
    """
    heir = run(SQL["heir"], (message_id,)).fetchone()[0]
    if heir is not None:
        run(SQL["inherit_content"], (heir, message_id))
        run(SQL["stop_sharing"], (heir,))
        run(SQL["follow_heir"], (heir, message_id))
    else:
        row = run(SQL["content"], (message_id,)).fetchone()
        run(SQL["drop_content"], (message_id,))
        if row and isinstance(row[1], str):
            yield row[1]
    run(SQL["stop_sharing"], (message_id,))


def renew(run: Run, message_id: MessageId, content: Content, digest: Digest | None) -> Iterator[str]:
    """Replace a damaged content by one with that digest, for each message that uses the same and expects it.

    A message that expects other octets keeps what is stored. Yields as ``leave`` does.
    """
    former = keeper(run, message_id)
    if content.of is not None:
        if keeper(run, content.of) == former:
            return  # these octets were compared: they are good again
        yield from leave(run, message_id)
        put(run, message_id, content)
        return
    found = run(SQL["users_alike"], {"keeper": former, "digest": digest, "id": message_id}).fetchall()
    alike = [MessageId(row[0]) for row in found]
    for one in (message_id, *alike):
        yield from leave(run, one)
    put(run, message_id, content)
    for one in alike:
        put(run, one, Content(of=message_id))

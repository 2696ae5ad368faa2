"""What runs of aiosqlite, callable by callable; and that nothing private of it is used."""

from __future__ import annotations

import ast
from datetime import timedelta
from pathlib import Path

import aiosqlite
import callables
import pytest
from aiosqlite import context, core, cursor
from opened import NOW, database, message, save

from shadowmailbox.delivered_to import Delivered, DeliveredTo, TableError
from shadowrelay import database as package

MODULES = (core, cursor, context)


async def test_what_runs_of_the_library_is_what_the_page_says(tmp_path: Path) -> None:
    with callables.watched(*MODULES) as entered:
        async with database(tmp_path / "data") as found:
            await found.transact(save(message()))
            await found.touch(NOW)
        table = await DeliveredTo.open(tmp_path / "table", track=timedelta(hours=1))
        key = Delivered("<1@example.org>", "today", "a@example.net")
        await table.record([key], NOW)
        assert await table.known([key], NOW) == {key}
        assert await table.rows() == 1
        with pytest.raises(TableError):
            await table._written("record", [("a row of another table",)])
        await table.close()
    callables.agree("aiosqlite", entered, *MODULES)


async def test_nothing_private_of_the_library_is_used() -> None:
    connection = await aiosqlite.connect(":memory:")
    try:
        names = {*vars(connection), *vars(aiosqlite.Connection), *vars(aiosqlite.Cursor)}
    finally:
        await connection.close()
    private = {name for name in names if name.startswith("_") and not name.endswith("__")} - {"_connection"}
    assert {"_execute", "_conn", "_tx"} <= private
    used = {
        node.attr
        for file in Path(package.__file__ or "").parent.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute)
    }
    assert used & private == set()

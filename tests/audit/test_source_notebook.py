"""The notebook: whoever runs its ten cells finds the message that is lost, and only that one.

It opens a session of Spark of its own, in a process of its own where nothing is set up.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from shadowlab.generate.cluster import generate

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "find-your-lost-mail.ipynb"
FAULTS = {
    "lost": 1,
    "handover": 6,
    "in-transit": 2,
    "promotion": 3,
    "dropped-duplicate": 1,
    "damaged-copy": 1,
    "removed": 2,
    "expanded": 2,
}

WHERE = ('os.environ.get("TRACKING", "tracking")', '"two"')
TELL = "import json\nprint(json.dumps(dict(zip(missing.network_message_id, map(list, missing.log_absent)))))"
"""The notebook's search once more, where the logs of one node are absent."""


def code(book: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in book["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_has_ten_cells_and_keeps_nothing_of_who_ran_it() -> None:
    cells = code(json.loads(NOTEBOOK.read_text("utf-8")))
    assert len(cells) == 10
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)


def shown(cell: Any) -> str:
    """What the cell printed, and its table."""
    said = [one.get("text") or one.get("data", {}).get("text/html", "") for one in cell.outputs]
    return "".join(said)


@pytest.mark.slow
@pytest.mark.timeout(900)  # half a minute, where nothing else runs
def test_ten_cells_find_the_lost_message_and_the_nodes_that_had_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    truth = generate(tmp_path / "tracking", messages=120, faults=FAULTS, seed=6)
    (lost,) = (id_ for id_, classes in truth.found.items() if "lost" in classes)
    held = [id_ for id_, classes in truth.found.items() if "in-transit" in classes]
    prepared = ("JAVA", "PYSPARK", "SPARK", "TRACKING", "TABLES")
    for name in [name for name in os.environ if name.startswith(prepared)]:
        monkeypatch.delenv(name)  # where nothing is set up, and no other test has a session
    book = nbformat.read(NOTEBOOK, as_version=4)
    shutil.copytree(tmp_path / "tracking", tmp_path / "two", ignore=shutil.ignore_patterns("mx3*"))
    of_two = [cell.source.replace(*WHERE) for cell in code(book) if code(book).index(cell) in (0, 4, 5, 6)]
    book.cells += map(nbformat.v4.new_code_cell, [*of_two, TELL])
    nbclient.NotebookClient(
        book, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    nodes, unread, gaps, traffic, without_end, holders, missing, rows, last, verdict, warning, *_, told = map(
        shown, code(book)
    )
    said = "".join(one.text for cell in code(book) for one in cell.outputs if one.output_type == "stream")
    assert "WARN" not in said
    assert "[Stage" not in said
    for name in ("mx1", "mx2", "mx3"):
        assert f"{name}.example.net" in nodes
    assert "<td>" not in unread + gaps
    assert "width: 10em" in traffic or "background" in traffic, "bars"
    for id_ in (lost, *held):
        assert id_ in without_end
    for id_, classes in truth.found.items():
        assert id_ not in without_end or {"lost", "in-transit"} & set(classes), "nobody waits for it"
    for id_ in held:
        assert id_ in holders
        assert id_ not in missing + verdict
    assert lost not in holders
    assert lost in missing
    assert all(event in rows for event in ("RECEIVE", "HAREDIRECT", "HARECEIVE"))
    assert "RECEIVE" in last
    assert last.count("<tr") == 3, "a heading, its owner, its holder"
    assert "message was lost" in verdict or "messages was lost" in verdict
    assert lost in verdict
    assert "No log is here of" not in nodes
    assert "No log is here of: mx3.example.net\n" in warning
    without = json.loads(told)
    assert ["mx3.example.net"] in without.values()
    assert {id_ for id_, named in without.items() if not named} <= {lost}, "only with all its logs it is lost"

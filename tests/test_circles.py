"""No module needs itself, by whatever way; not for its types either."""

from __future__ import annotations

from graphlib import TopologicalSorter

import grimp
import pytest

PACKAGES = ("shadowrelay", "shadowlab", "shadowmailbox", "shadowaudit")


@pytest.mark.parametrize("package", PACKAGES)
def test_no_modules_import_each_other_in_a_circle(package: str) -> None:
    graph = grimp.build_graph(package, cache_dir=None)
    assert len(graph.modules) > 10
    needs = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(needs).prepare()  # raises CycleError, which names the circle

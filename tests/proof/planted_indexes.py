"""Faults in what compares indexes with the rows of their tables."""

from __future__ import annotations

from .planting import Fault

_FOUND = "members/test_indexes.py::"
_REQUEST = f"{_FOUND}test_a_request_is_not_done_before_it_has_found_what_a_damaged_index_hides"
_HIDDEN = f"{_FOUND}test_mail_that_a_damaged_index_hides_is_found_again_and_delivered"
_ROUND = "database/test_index_damage.py::test_a_round_finds_what_a_disk_made_of_any_index_or_table"

INDEXES = (
    Fault(
        name="rows are not looked up through their indexes",
        rule="an index decides nothing alone",
        file="database/indexes.py",
        edits=(
            (
                "        bad = [any(flags) for flags in zip(*(row[length:] for row in rows), strict=True)]\n",
                "        bad = [any(row[length] for row in rows)]\n",
            ),
        ),
        test=_ROUND,
    ),
    Fault(
        name="only the first index of each table is compared",
        rule="an index decides nothing alone",
        file="database/indexes.py",
        edits=(
            (
                "            meant = tuple(one for one in table.indexes if self.only in (None, one.name))\n",
                "            meant = tuple(one for one in table.indexes[:1] if not self.only)\n",
            ),
        ),
        test=_ROUND,
    ),
    Fault(
        name="a damaged index is logged and stays",
        rule="an index that differs from its table is built again",
        file="members/indexes.py",
        edits=(
            (
                "                await self._database.transact(partial(rebuild, differs=differs))\n",
                "                pass\n",
            ),
        ),
        test=_HIDDEN,
    ),
    Fault(
        name="a request is done when its index says so",
        rule="a resubmit request is not done before its index is compared",
        file="safety_net/making.py",
        edits=(
            (
                "    if by_time and found.rest is None and not await AllFound():"
                "  # an index alone does not say: done\n"
                "        return Made(more=True)\n",
                "    del by_time\n",
            ),
        ),
        test=_REQUEST,
    ),
    Fault(
        name="a request does not go through its window again when its index was built again",
        rule="what was looked up through a damaged index is looked up again",
        file="safety_net/making.py",
        edits=(
            (
                "        return Made(more=True)\n",
                "        pass\n",
            ),
        ),
        test=_REQUEST,
    ),
    Fault(
        name="what says that mail is due which is not is left alone",
        rule="an index that says what no row says is compared at once",
        file="database/queue.py",
        edits=(
            (
                "            ledger.doubted.add(DUE)\n",
                "            pass\n",
            ),
        ),
        test=f"{_FOUND}test_an_index_that_says_that_mail_is_due_which_is_not_is_compared_at_once",
    ),
    Fault(
        name="a file is swept because an index does not name it",
        rule="nothing is removed because an index does not name it",
        file="database/content.py",
        edits=(
            (
                '        if former is None and run(SQL["message"], (path.name[:_ID],)).fetchone():\n',
                "        if False:\n",
            ),
        ),
        test=f"{_FOUND}test_a_content_whose_row_no_index_finds_is_not_swept",
    ),
    Fault(
        name="a scrub at once compares no index",
        rule="a scrub covers every table and every index",
        file="members/scrub.py",
        edits=(
            (
                "            await self._indexes.round()\n",
                "            pass\n",
            ),
        ),
        test=f"{_FOUND}test_a_scrub_compares_every_index_as_the_disk_has_it_and_says_which_it_built_again",
    ),
)

"""What the files are worth: each database's files as a chain of sequences, and what is missing in it.

A database numbers its rows without gaps, closes each file with a footer, and takes a snapshot first and last
of each life. So a row, a file or the end of a log that is missing shows, without any message being looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from shadowaudit.core.evidence import Database, Evidence, Gap, Segment
from shadowaudit.core.facts import Fault, FileFacts, Flavour, Opened
from shadowaudit.core.namesakes import namesakes
from shadowaudit.core.verdict import counted
from shadowaudit.core.workers import node_of


def weigh(
    files: Iterable[FileFacts],
    *,
    lost: Iterable[str] = (),
    allow_open: bool = False,
    opened: Iterable[Opened] = (),
    since: int | None = None,
    notes: Iterable[str] = (),
) -> Evidence:
    """Judge the files. No file may be a copy of another (``copies.distinct`` sees to that).

    ``lost``: databases whose disk was lost, or the nodes that lost them, with all their workers;
    ``allow_open``: nodes may still be running, ``opened``: logs that
    nodes still wrote before the files were looked for, ``since``: nothing before that moment (milliseconds)
    matters, so a log may begin before it. ``notes``: what is known already, and changes nothing.
    """
    weighing = _Weighing(list(files), frozenset(lost), allow_open=allow_open, since=since)
    weighing.opened = tuple(opened)
    return replace(weighing.result(), notes=tuple(notes))


class _Weighing:
    def __init__(
        self, files: list[FileFacts], lost: frozenset[str], *, allow_open: bool, since: int | None
    ) -> None:
        self.files, self.lost, self.allow_open, self.since = files, lost, allow_open, since
        self.opened: tuple[Opened, ...] = ()
        self.gaps: list[Gap] = []
        self.unprovable: list[str] = []
        self.databases: dict[str, Database] = {}
        self.named: dict[str, str] = {}
        self.promoted: dict[str, int] = defaultdict(int)
        self.witnessed: dict[str, int] = defaultdict(int)
        self.set_back: dict[str, str] = {}
        # Rows that its node had written before it was set back, to a log that was lost with the disk.
        self.gone: dict[str, list[str]] = defaultdict(list)
        self.newest: dict[str, str] = {}  # node: the only database of it that can still be running

    def result(self) -> Evidence:
        by_database: dict[str, list[FileFacts]] = defaultdict(list)
        for file in self.files:
            self._faults(file)
            self.named.update(file.databases)
            self.set_back.update(file.set_back)
            for database, count in file.promoted.items():
                self.promoted[database] += count
            for database, sequence in file.witnessed.items():
                self.witnessed[database] = max(self.witnessed[database], sequence)
            if file.rows and file.database:
                by_database[file.database].append(file)
        lives = {database: lives_of(files) for database, files in by_database.items()}
        # A node has one database at a time: what wrote a row after another's last one has replaced it.
        for database in sorted(lives, key=lambda name: lives[name][-1][-1].ends):
            first = by_database[database][0]
            if first.flavour == Flavour.RELAY:
                self.newest[first.node] = database
        self.lost = frozenset(self._declared(by_database, lives))
        for database, files in by_database.items():
            self._chain(database, files, lives[database])
        self.gaps += namesakes(lives, self.lost)
        for log in strays(self.opened, by_database, self.lost):
            self._gap(
                f"the log that {log.node} still writes begins at row {log.first}",
                log.node,
                f"no closed log ends with row {log.first - 1}: files between them are missing",
            )
        self._without_logs(by_database)
        for name in sorted(self.lost):
            self._excuse(self.databases[name])
        nodes: dict[str, tuple[str, ...]] = defaultdict(tuple)
        for one in self.databases.values():
            if one.segments:
                nodes[one.node] = (*nodes[one.node], one.id)
        self._nodes_without_logs(nodes)
        # What has no row that can be read may be anybody's.
        weaker = any(one.flavour == Flavour.EXCHANGE and (one.rows or not one.faults) for one in self.files)
        return Evidence(
            databases=self.databases,
            nodes=dict(nodes),
            gaps=tuple(self.gaps),
            unprovable=tuple(self.unprovable),
            weaker=weaker,
            undigested=sum(file.undigested for file in self.files),
        )

    def _declared(
        self, logs: Mapping[str, Sequence[FileFacts]], lives: Mapping[str, list[list[FileFacts]]]
    ) -> Iterator[str]:
        """The databases that are declared lost. Of a node these are what its workers have no more."""
        servers = {**self.named, **{name: files[0].node for name, files in logs.items()}}
        for name in sorted(self.lost):
            if "." not in name:
                yield name
                continue
            found = [
                database
                for database, server in servers.items()
                if name in (server, node_of(server)) and self._missing(database, server, lives.get(database))
            ]
            yield from found
            if not found:
                self._gap(
                    f"the disk of {name} was declared lost, and no row of another database agrees",
                    name,
                    "nothing in the logs confirms the loss; what it held cannot be judged",
                )

    def _missing(self, database: str, server: str, lives: Sequence[Sequence[FileFacts]] | None) -> bool:
        """Is that the end of a database that its server has no more, as other rows tell?"""
        if lives is None or database in self.set_back or forks(lives):
            return True
        ending = lives[-1][-1]
        cut = not ending.last_closes_snapshot or self.witnessed.get(database, 0) > ending.last
        return cut and (database in self.promoted or self.newest.get(server, database) != database)

    def _gap(self, what: str, where: str, so: str) -> None:
        self.gaps.append(Gap(what, where, so))

    def _faults(self, file: FileFacts) -> None:
        for fault in file.faults:
            detail = fault
            if fault == Fault.UNREADABLE_ROWS:
                detail = f"{counted(file.unreadable, 'row')} that cannot be read, such as {file.example!r}"
            elif fault in (Fault.UNREADABLE_FILE, Fault.ENCODING) and file.example:
                detail = f"{fault}: {file.example}"
            self._gap(detail, file.path, "what its missing or changed rows told is not known")

    def _chain(self, database: str, files: list[FileFacts], lives: list[list[FileFacts]]) -> None:
        node = files[0].node
        if files[0].flavour == Flavour.EXCHANGE:
            segments = [Segment(file.boot, file.first, file.last, file.begins) for file in files]
            self.databases[database] = Database(
                id=database, node=node, flavour=Flavour.EXCHANGE, segments=tuple(segments), closed=True
            )
            return
        ending = lives[-1][-1]
        last, closed = ending.last, ending.last_closes_snapshot
        set_back = forks(lives)
        back = bool(set_back) or database in self.set_back
        declared, newest = database in self.lost, self.newest[node] == database
        # Of a database that was set back and went on, the end of what was given up is lost, not its own.
        lost = declared and not (back and (closed or newest))
        whole = not any(file.faults for file in files)
        segments = []
        expected = 1
        for life in lives:
            if not life[0].first_is_snapshot and not (not segments and life[0].first > 1):
                whole = False
                self._gap(
                    f"the life {life[0].boot} of the database does not begin with a snapshot",
                    life[0].path,
                    "the first rows of that life are missing",
                )
            for file in life:
                if file.first > expected and not (file is lives[0][0] and self._may_begin_late(file)):
                    missing = f"rows {expected} to {file.first - 1} of database {database} are missing"
                    if expected == 1 and file is lives[0][0]:
                        missing = f"the log of database {database} begins at row {file.first}"
                    whole = False
                    if declared and back and (life is not lives[-1] or file is life[0]):
                        self.gone[database].append(f"in its rows {expected} to {file.first - 1}")
                    else:
                        self._gap(
                            missing, f"{node}, before {file.path}", "messages of that time cannot be judged"
                        )
                elif file.first < expected and segments and segments[-1].boot == file.boot:
                    whole = False
                    self._gap(
                        f"rows from {file.first} of database {database} are there twice",
                        file.path,
                        "two files that are not the same tell the same rows, or two nodes write as one",
                    )
                expected = file.last + 1 if file is life[0] else max(expected, file.last + 1)
                segments.append(Segment(file.boot, file.first, file.last, file.begins))
        if back and not declared:
            whole = False
            self._given_up(database, node, set_back)
        written = [one for one in self.opened if one.node == node]
        going_on = [one for one in written if goes_on(one, files)]
        continued = bool(going_on)
        running = self.allow_open and newest and (continued or not written)
        awaited = 0
        if self.witnessed.get(database, 0) > last and not lost and not back:
            awaited = self.witnessed[database] if whole else 0
            whole = False  # nobody is accused by what is not in it
            if not (running and continued):
                self._gap(
                    f"another node saw row {self.witnessed[database]} of database {database}, "
                    f"its log ends with row {last}",
                    f"{node}, after {ending.path}",
                    "the end of the log is missing",
                )
        elif not closed and not lost and not running:
            self._gap(
                f"the log of database {database} ends without a closing snapshot",
                f"{node}, {ending.path}",
                self._why_open(node, database, written),
            )
        self.databases[database] = Database(
            id=database,
            node=node,
            segments=tuple(segments),
            snapshot=self._last_snapshot(database, lives),
            closed=closed and not continued,
            whole=whole,
            from_start=lives[0][0].first == 1,
            lost=lost,
            rolled_back=bool(set_back) or (declared and back),
            awaited=awaited,
            opened=(*going_on, _following(ending))[0],
        )

    def _given_up(self, database: str, node: str, ends: Sequence[FileFacts]) -> None:
        """Rows that were given up may have been on their way to the log: none says how many there were."""
        excuse = f"Say --lost {database} if that is so"
        for fork in ends:
            self._gap(
                f"database {database} was set back to an older state",
                f"{node}, after row {fork.last} in {fork.path}",
                f"what it did after that row, until it was set back, is in nobody's log. {excuse}",
            )
        if not ends:
            self._gap(
                f"holders say that database {database} was set back, and its log does not show it",
                node,
                f"the log of a life is missing. {excuse}",
            )

    def _why_open(self, node: str, database: str, written: Sequence[Opened]) -> str:
        newer = f"database {newest}" if (newest := self.newest[node]) != database else ""
        if not newer and written and self.allow_open:
            newer = f"a log that begins at row {written[0].first}"
        if newer:
            return (
                f"the node went on with {newer}: rows are missing, and what they told is not "
                f"known. Say --lost {database} if its disk was lost"
            )
        return (
            "the node runs, was killed, or rows are missing; what it did afterwards is not known. "
            "Stop it or start it again, say --allow-open if it runs, "
            f"or --lost {database} if its disk was lost"
        )

    def _may_begin_late(self, file: FileFacts) -> bool:
        return self.since is not None and file.begins <= self.since

    def _excuse(self, database: Database) -> None:
        """A declared loss is believed if other rows agree: it was set back, holders took over, or a successor
        began.
        """
        name, node = database.id, database.node
        promoted = self.promoted.get(name, 0)
        followed = self.newest.get(node, name) != name
        if not promoted and not followed and not database.rolled_back:
            self._gap(
                f"database {name} was declared lost, and no row of another database agrees",
                node,
                "nothing in the logs confirms the loss; what it held cannot be judged",
            )
            return
        ends = self.gone[name] + [f"after row {one.last} of its life {one.boot}" for one in database.given_up]
        if database.rolled_back and not database.given_up:
            ends.append("in the life that was given up")
        if database.lost:
            ends.append(f"after its row {database.last}" if database.segments else "at any time")
        happened = [
            *["set back to an older state"] * database.rolled_back,
            *["lost"] * database.lost,
        ]
        self.unprovable.append(
            f"A database of {node} was {', then '.join(happened)}: {promoted} of its messages were promoted "
            f"by holders. What it accepted without a holder {' and '.join(ends)} is in nobody's log. "
            f"It is {name}."
        )

    def _last_snapshot(self, database: str, lives: Sequence[Sequence[FileFacts]]) -> tuple[int, int] | None:
        """Between which sequences the rows of the last complete one are; the second is its closing row's.

        One that a killed node left without a closing row is not missed once a later one is complete.
        """
        listed: dict[str, int] = defaultdict(int)
        ends: dict[str, tuple[int, int, int]] = {}
        for file in (file for life in lives for file in life):
            for one in file.snapshots:
                listed[one.id] += one.listed
                if one.end is not None and one.count is not None:
                    ends[one.id] = (one.end, one.count, one.count if one.among is None else one.among)
        first, last = lives[0][0], lives[-1][-1]
        going_on = set() if last.last_closes_snapshot else {one.id for one in last.snapshots}
        best: tuple[int, int] | None = None
        gaps: list[str] = []
        unfinished: list[str] = []
        for name, rows in listed.items():
            end, count, among = ends.get(name, (0, -1, -1))
            if rows == count:
                best = (end - among, end)  # the later life's, should its numbers be lower
                unfinished.clear()
            elif count < 0 and name in going_on:
                continue  # the end of the log is in the middle of it
            elif count < 0:
                unfinished.append(f"snapshot {name} has {rows} rows, and no closing row")
            elif end - among >= first.first or not self._may_begin_late(first):
                gaps.append(f"snapshot {name} has {rows} rows, and {count} rows by its closing row")
        for told in (*gaps, *unfinished):
            self._gap(told, f"database {database}", "what the node held at that moment is not known")
        return best

    def _without_logs(self, logs: Mapping[str, Sequence[FileFacts]]) -> None:
        for database in sorted({*self.named, *self.lost} - set(self.databases)):
            node = self.named.get(database, "an unknown node")
            lost = database in self.lost
            self.databases[database] = Database(
                id=database, node=node, lost=lost, whole=False, from_start=False
            )
            if lost:
                continue
            told = f"Add its files, or say --lost {database} if its disk was lost"
            if new := new_log(node, self.opened, logs):
                told = (
                    f"The log that {node} still writes from row {new.first} on goes on where no closed one "
                    "ends, and may be its own: ask again when it is closed"
                )
            self._gap(f"database {database} has no log", node, f"what it did is not known. {told}")

    def _nodes_without_logs(self, nodes: Mapping[str, tuple[str, ...]]) -> None:
        named = {server for file in self.files if file.flavour == Flavour.RELAY for server in file.shadows}
        excused = {one.node for one in self.databases.values() if not one.segments}
        for server in sorted(named - set(nodes) - excused):
            self._gap("a node without logs", server, "whether it holds what others say it holds is not known")


def lives_of(files: Sequence[FileFacts]) -> list[list[FileFacts]]:
    """The files by incarnation, in the order of life: by sequence, and a life set back by its clock."""
    lives: dict[str, list[FileFacts]] = defaultdict(list)
    for file in sorted(files, key=lambda one: (one.first, one.begins)):
        lives[file.boot].append(file)
    ordered = sorted(lives.values(), key=lambda life: life[0].first)
    # A database that was set back gives numbers out again: then only the node's own clock tells the order.
    return sorted(lives.values(), key=lambda life: life[0].begins) if forks(ordered) else ordered


def forks(lives: Sequence[Sequence[FileFacts]]) -> list[FileFacts]:
    """The last file of each life whose end was given up: the next one gives its numbers out again."""
    return [before[-1] for before, after in pairwise(lives) if before[-1].last >= after[0].first]


def goes_on(opened: Opened, files: Sequence[FileFacts]) -> bool:
    """Is the log that the node still writes the next of these, or one that was closed meanwhile?"""
    closed = any((opened.boot, opened.first) == (one.boot, one.first) for one in files)
    return closed or opened.first == lives_of(files)[-1][-1].last + 1


def _following(last: FileFacts) -> Opened:
    """The next log of that database, as its node names it."""
    place = last.path.rpartition("/")[0]
    return Opened(node=last.node, boot=last.boot, first=last.last + 1, place=place)


def new_log(
    node: str, opened: Iterable[Opened], databases: Mapping[str, Sequence[FileFacts]]
) -> Opened | None:
    """A log that this node still writes, of a database that has no closed one here."""
    mine = [files for files in databases.values() if files[0].node == node]
    return next(
        (one for one in opened if one.node == node and not any(goes_on(one, files) for files in mine)), None
    )


def strays(
    opened: Iterable[Opened], databases: Mapping[str, Sequence[FileFacts]], lost: Container[str]
) -> Iterator[Opened]:
    """Logs still written that are neither a database's first, nor go on where one ends that is here.

    Of a node with a database that was ``lost`` one may go on with an older state of it.
    """
    for one in opened:
        mine = {name: files for name, files in databases.items() if files[0].node == one.node}
        back = any(
            name in lost and any(file.last >= one.first for file in files) for name, files in mine.items()
        )
        if one.first > 1 and not back and not any(goes_on(one, files) for files in mine.values()):
            yield one

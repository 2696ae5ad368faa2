"""Checking names and passwords: few at a time, alike for everybody, from a file that may change."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest
import structlog

from shadowrelay.core.reception.users import Cost, Hashed, format_users, hashed, matches
from shadowrelay.reception import logins
from shadowrelay.reception.logins import AT_A_TIME, MOST_WAITING, UserLogins
from shadowrelay.smtp.receiving.contract import Client
from shadowrelay.wire.replies import Refused

QUICK = Cost(ln=4, r=8, p=1)


def client(address: str = "192.0.2.7") -> Client:
    return Client(id="1", connector="submission", address=address, tls=True)


def users(path: Path, cost: Cost = QUICK, **passwords: str) -> Path:
    path.write_text(
        format_users({name: hashed(word.encode(), os.urandom(16), cost) for name, word in passwords.items()})
    )
    return path


@pytest.fixture
def made(tmp_path: Path) -> UserLogins:
    return UserLogins(users(tmp_path / "users", alice="Sesame", bob="0pen"), "submission")


async def test_the_right_password_of_the_right_user(made: UserLogins) -> None:
    assert made.offered
    assert await made.check(client(), "alice", b"Sesame")
    assert await made.check(client(), "alice", b"Sesame")  # as remembered
    for name, password in (("alice", b"0pen"), ("bob", b"Sesame"), ("carol", b""), ("", b""), ("alice", b"")):
        assert not await made.check(client(), name, password)
    assert made.counts == {"succeeded": 2, "failed": 5, "put_off": 0}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The file is looked at whenever somebody asks."""
    monkeypatch.setattr(logins, "LOOK_AGAIN", -1.0)
    return lambda: None


@pytest.mark.usefixtures("at_once")
async def test_the_file_may_change_at_any_time(made: UserLogins, tmp_path: Path) -> None:
    file = tmp_path / "users"
    assert await made.check(client(), "alice", b"Sesame")
    users(tmp_path / "new", alice="another", carol="third").rename(file)
    assert not await made.check(client(), "alice", b"Sesame")  # though it was remembered
    assert await made.check(client(), "alice", b"another")
    assert await made.check(client(), "carol", b"third")
    assert not await made.check(client(), "bob", b"0pen")
    (tmp_path / "none").write_text("")
    (tmp_path / "none").rename(file)
    assert not made.offered


@pytest.mark.usefixtures("at_once")
@pytest.mark.slow
async def test_of_a_file_that_cannot_be_read_the_users_before_stay_and_of_none_nobody(
    made: UserLogins, tmp_path: Path
) -> None:
    file = tmp_path / "users"
    assert made.offered
    (tmp_path / "new").write_text("alice:Sesame\n")
    (tmp_path / "new").rename(file)
    with structlog.testing.capture_logs() as told:
        for _ in range(3):
            assert await made.check(client(), "alice", b"Sesame")
    assert [row["event"] for row in told] == ["users_not_read"]  # told once
    assert "Sesame" not in str(told)
    file.unlink()
    os.mkfifo(file)  # nobody waits for what may never come
    assert await made.check(client(), "alice", b"Sesame")
    file.unlink()
    assert not made.offered
    assert not await made.check(client(), "alice", b"Sesame")


async def test_a_file_that_is_not_there_yet_offers_nothing(tmp_path: Path) -> None:
    assert not UserLogins(tmp_path / "users", "submission").offered


async def test_only_names_of_users_are_in_the_log_for_people_type_their_passwords_there(
    made: UserLogins,
) -> None:
    with structlog.testing.capture_logs() as told:
        await made.check(client(), "alice", b"wrong")
        await made.check(client(), "Sesame", b"alice")
    assert [
        (row["event"], row.get("user"), row["client"]) for row in told if row["event"] == "login_failed"
    ] == [
        ("login_failed", "alice", "192.0.2.7"),
        ("login_failed", None, "192.0.2.7"),
    ]
    assert "Sesame" not in str(told)
    assert "wrong" not in str(told)


class Checks:
    """In place of the check itself: counts how many run at once, and whose time they take."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.done: list[bytes] = []
        self.niceness: set[int] = set()
        self.costs: list[Cost] = []
        self.threads: set[int] = set()
        self._lock = threading.Lock()

    def __call__(self, password: bytes, kept: Hashed) -> bool:
        with self._lock:
            self.running += 1
            self.costs.append(kept.cost)
            self.most = max(self.most, self.running)
            self.niceness.add(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            self.threads.add(threading.get_ident())
        time.sleep(0.005)
        with self._lock:
            self.running -= 1
            self.done.append(password)
        return matches(password, kept)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    found = Checks()
    monkeypatch.setattr(logins, "matches", found)
    return found


async def test_few_checks_run_at_a_time_beside_the_event_loop_and_after_everybody_else(
    made: UserLogins, checks: Checks
) -> None:
    crowd = [made.check(client(f"192.0.2.{number}"), "alice", b"wrong") for number in range(20)]
    assert not any(await asyncio.gather(*crowd))
    assert checks.most == AT_A_TIME
    assert threading.get_ident() not in checks.threads
    assert checks.niceness == {os.getpriority(os.PRIO_PROCESS, 0) + 10}


async def test_past_so_many_that_wait_one_more_is_put_off(made: UserLogins, checks: Checks) -> None:
    crowd = [
        asyncio.ensure_future(made.check(client(f"192.0.2.{number}"), "alice", b"wrong"))
        for number in range(MOST_WAITING)
    ]
    await asyncio.sleep(0)
    with pytest.raises(Refused) as refused:
        await made.check(client("198.51.100.1"), "alice", b"Sesame")
    assert str(refused.value.reply) == "454 4.7.0 Too many logins at once, try again later"
    await asyncio.gather(*crowd)
    assert await made.check(client("198.51.100.1"), "alice", b"Sesame")
    assert made.counts == {"succeeded": 1, "failed": MOST_WAITING, "put_off": 1}


async def test_a_crowd_of_one_source_keeps_others_waiting_for_one_check_alone(
    made: UserLogins, checks: Checks
) -> None:
    crowd = [asyncio.ensure_future(made.check(client(), "alice", b"wrong")) for _ in range(30)]
    await asyncio.sleep(0.01)
    assert await made.check(client("198.51.100.1"), "alice", b"Sesame")
    assert checks.done.index(b"Sesame") <= 2 + AT_A_TIME
    await asyncio.gather(*crowd)


async def test_who_was_right_before_waits_behind_nobody(made: UserLogins, checks: Checks) -> None:
    assert await made.check(client("198.51.100.1"), "alice", b"Sesame")
    crowd = [
        asyncio.ensure_future(made.check(client(f"192.0.2.{number}"), "alice", b"wrong"))
        for number in range(MOST_WAITING)
    ]
    await asyncio.sleep(0)
    assert await made.check(client("198.51.100.1"), "alice", b"Sesame")
    assert len(checks.done) < 10
    await asyncio.gather(*crowd)


async def test_hashes_that_cost_something_else_do_not_tell_who_is_a_user(
    tmp_path: Path, checks: Checks
) -> None:
    """A file may come from elsewhere: an unknown name costs what one of the users does, and keeps to that."""
    costs = {Cost(ln=3, r=8, p=1), Cost(ln=5, r=8, p=2)}
    file = tmp_path / "users"
    file.write_text(format_users({f"u{cost.ln}": hashed(b"Sesame", os.urandom(16), cost) for cost in costs}))
    made = UserLogins(file, "submission")
    names = [f"nobody{number}" for number in range(30)]
    for name in names * 2:
        assert not await made.check(client(), name, b"wrong")
    assert set(checks.costs) == costs
    assert checks.costs[:30] == checks.costs[30:]


@pytest.mark.slow
async def test_an_unknown_user_and_a_wrong_password_take_the_same_time(tmp_path: Path) -> None:
    made = UserLogins(users(tmp_path / "users", cost=logins.COST, alice="Sesame"), "submission")
    took: dict[str, list[float]] = {"alice": [], "mallory": []}
    for _ in range(7):
        for name, times in took.items():
            began = time.thread_time_ns()
            clock = time.process_time()  # of all threads: a busy machine makes nothing longer
            assert not await made.check(client(), name, b"wrong")
            times.append(time.process_time() - clock)
            assert time.thread_time_ns() - began < 20_000_000  # of the event loop's own thread
    known, unknown = (min(times) for times in took.values())
    assert unknown == pytest.approx(known, rel=0.5)
    assert median(took["mallory"]) > 0.02

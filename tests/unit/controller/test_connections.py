"""Connections of bridges and their standby, and threads of the controller, which go on after what nobody expects."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from ipaddress import ip_address
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import PATIENCE_S, eventually
from tests.unit.balancer import balancer, claim, service
from xenoovs.controller.bridge import ExpectedBridge, Throttle, touches_ours
from xenoovs.controller.listen import PendingConnections, SwitchListener, TcpAddress, UnixAddress, parse_address
from xenoovs.controller.log import WARNINGS, LogLimit
from xenoovs.controller.mastership import MISSED_READS, Heartbeats, Lease, Mastership, decode_lease
from xenoovs.controller.neighbour_discovery import NeighbourProxy
from xenoovs.errors import MalformedOpenFlow, SwitchUnreachable
from xenoovs.log import TokenBucket
from xenoovs.model.address import Mac
from xenoovs.openflow.wire.flow import note_action, note_of

_TARGET = "tcp:127.0.0.1:6653"


@pytest.mark.parametrize(
    ("target", "db", "is_redundant", "advice"),
    [
        (_TARGET, None, False, "run `ovs-vsctl set-controller ovsbr1 tcp:127.0.0.1:6653`"),
        (
            _TARGET,
            "unix:/x/db.sock",
            False,
            "run `ovs-vsctl --db=unix:/x/db.sock set-controller ovsbr1 tcp:127.0.0.1:6653`",
        ),
        # It keeps other controllers.
        (
            _TARGET,
            None,
            True,
            "run `ovs-vsctl -- --id=@c create controller 'target=\"tcp:127.0.0.1:6653\"' connection_mode=out-of-band "
            "max_backoff=1000 -- add bridge ovsbr1 controller @c`",
        ),
        # With a launcher nobody guesses a port.
        (
            None,
            None,
            False,
            "run `ovs-vsctl set-controller ovsbr1 tcp:ADDRESS:PORT` with the address and port at which the launcher "
            "listens",
        ),
    ],
    ids=["alone", "at the Open vSwitch that was named", "redundant", "with a launcher"],
)
def test_a_bridge_that_never_connected_gets_the_command_to_connect_it(
    target: str | None, db: str | None, is_redundant: bool, advice: str
) -> None:
    expected = ExpectedBridge("ovsbr1", target=target, is_shared=is_redundant)
    expected.db = db
    with closing(expected), pytest.raises(SwitchUnreachable) as caught:
        expected.connected()
    assert caught.value.reason == f"it has not connected; to connect it {advice}"


def test_bug_the_error_for_a_lost_bridge_named_the_command_that_connects_it() -> None:
    place = ExpectedBridge("ovsbr1", target=_TARGET)
    connection: Any = SimpleNamespace()
    place.begin(connection)
    place.end(connection, "the switch closed the connection")
    lost = r"its connection was lost at 20\d\d-.*T\S* \(the switch closed the connection\); it reconnects by itself"
    with pytest.raises(SwitchUnreachable) as caught:
        place.connected()
    assert re.fullmatch(lost, caught.value.reason)


@pytest.mark.parametrize(
    ("text", "is_local"),
    [("127.0.0.1:6653", True), ("[::1]:0", True), ("0.0.0.0:6653", False), ("[2001:db8::1]:65535", False)],
)
def test_valid_addresses(text: str, is_local: bool) -> None:
    address = parse_address(text)
    assert isinstance(address, TcpAddress)
    assert (str(address), address.is_local) == (text, is_local)


@pytest.mark.parametrize("text", ["", "6653", "localhost:6653", "127.0.0.1", "::1:6653", "127.0.0.1:65536", "[1]:2"])
def test_invalid_addresses(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_address(text)


Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    """Connections: our end and theirs."""
    made = [socket.socketpair() for _ in range(5)]
    yield made
    for pair in made:
        for sock in pair:
            sock.close()


def _is_out(pair: Pair) -> bool:
    try:
        return pair[1].recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


def test_the_address_with_most_pending_connections_loses_its_oldest(pairs: list[Pair]) -> None:
    pending = PendingConnections(limit=3)
    for pair, host in zip(pairs, ("good", "bad", "bad", "bad", "good"), strict=True):
        pending.add(pair[0], host)
    assert [_is_out(pair) for pair in pairs] == [False, True, True, False, False]


def test_an_admitted_connection_is_never_evicted(pairs: list[Pair]) -> None:
    pending = PendingConnections(limit=1)
    pending.add(pairs[0][0], "bridge")
    pending.release(pairs[0][0])
    for pair in pairs[1:]:
        pending.add(pair[0], "bridge")
    assert [_is_out(pair) for pair in pairs] == [False, True, True, True, False]


def _taken(times: list[float], *, rate: float, size: float) -> int:
    bucket = TokenBucket(rate=rate, size=size, now_s=0.0)
    return sum(bucket.take(now_s) for now_s in times)


@pytest.mark.parametrize(
    ("times", "taken"),
    [
        pytest.param([0.0] * 100 + [0.3] * 100, 5 + 3, id="fills up again"),
        pytest.param([1000.0] * 100, 5, id="does not overflow"),
        pytest.param([10.0] * 100 + [0.0] * 100 + [10.0] * 100, 5, id="a clock that goes back adds none"),
    ],
)
def test_tokens(times: list[float], taken: int) -> None:
    assert _taken(times, rate=10, size=5) == taken


@given(steps=st.lists(st.floats(0, 2), max_size=100))
def test_never_more_than_size_and_rate_allow(steps: list[float]) -> None:
    times = list(accumulate(steps))
    assert _taken(times, rate=3, size=4) <= 4 + 3 * (times[-1] if times else 0)


LIMITED = "too many warnings of one kind to log each"


class Logged:
    """What was logged, with a clock that is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []
        self.time_s = 0.0
        self.limit = LogLimit(now_s=lambda: self.time_s)
        monkeypatch.setattr("xenoovs.controller.log.warn", self._record)

    def _record(self, event: str, **facts: object) -> None:
        self.events.append((event, facts))


def test_each_reason_of_a_peer_is_logged_once_and_of_a_thousand_there_are_twenty_lines_and_a_final_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logged, closed = Logged(monkeypatch), "a connection is closed"
    for number in [0, 0, *range(1000)]:
        logged.limit.once(f"192.0.2.{number // 2}", closed, reason=f"malformed OpenFlow: {number}")
    *lines, (last, _) = logged.events
    assert lines == [
        (closed, {"peer": f"192.0.2.{number // 2}", "reason": f"malformed OpenFlow: {number}"})
        for number in range(WARNINGS)
    ]
    assert last == LIMITED
    # One kind hides no other.
    logged.limit.once("00aa", "bridge refused", reason="this controller is for ovsbr1")
    assert logged.events[-1][0] == "bridge refused"


def test_what_was_left_out_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    logged = Logged(monkeypatch)
    for number in range(WARNINGS + 7):
        logged.limit.warn("bridge refused", bridge=f"br{number}")
    logged.time_s += 31
    logged.limit.warn("bridge refused", bridge="another")
    assert logged.events[-1] == ("bridge refused", {"bridge": "another", "suppressed": 7})


_MISSED = [(1, 5)] * MISSED_READS


@pytest.mark.parametrize(
    ("reads", "is_over"),
    [
        (_MISSED, False),
        # A standby waited until the lease expired, and took over after 1.5 to 3.5 s.
        ([*_MISSED, (1, 5)], True),
        ([(1, packets) for packets in range(100)], False),
        ([*_MISSED, (1, 6), *[(1, 6)] * (MISSED_READS - 1)], False),
        ([*_MISSED, (2, 5)], False),
    ],
    ids=["not yet", "gone", "its counter moves", "it moves again", "another master"],
)
def test_a_master_whose_counter_stands_still_is_gone(reads: list[tuple[int, int]], is_over: bool) -> None:
    seen = Heartbeats()
    seen.extend(reads)
    assert seen.are_over is is_over


@given(st.builds(Lease, st.integers(0, (1 << 32) - 1), st.text(max_size=50), st.binary(max_size=2000)))
def test_a_lease_is_read_as_it_was_written(lease: Lease) -> None:
    note = note_of(note_action(lease.encode()))
    assert note is not None
    assert decode_lease(note) == lease


@given(st.binary(max_size=60))
def test_a_note_of_another_program_is_no_lease(note: bytes) -> None:
    """Any bytes are a lease or none: no exception."""
    lease = decode_lease(note)
    assert lease is None or len(lease.holder.encode()) <= 3 * len(note)


def test_a_state_that_expands_without_end_is_cut() -> None:
    lease = decode_lease(Lease(1, "", bytes(1 << 24)).encode())
    assert lease is not None
    assert len(lease.state) == 1 << 20


_REMOVED = bytes.fromhex(
    "0513003800000000001000000000000000280002000200000000000700000000786f0000000000010001000a80000a020800000000000000"
)
_FOREIGN = bytes.fromhex(
    "051300300000000000100000000000000020000100000000000000030000000000000000000000050001000400000000"
)
_OWN = bytes.fromhex("051300180000000000100000000000000008000400001002")


@pytest.mark.parametrize(("frame", "touched"), [(_REMOVED, True), (_FOREIGN, False), (_OWN, False), (_OWN[:12], False)])
def test_only_flows_of_ours_that_others_changed_matter(frame: bytes, *, touched: bool) -> None:
    assert touches_ours(frame) is touched


@pytest.mark.parametrize("length", [0, 3, 23, 41, 65535])
def test_lengths_that_cannot_be(length: int) -> None:
    with pytest.raises(MalformedOpenFlow):
        touches_ours(_REMOVED[:16] + length.to_bytes(2, "big") + _REMOVED[18:])


def test_many_changes_wake_once_and_once_more_after_a_pause() -> None:
    woken = SimpleQueue[int]()
    calm, quick = Throttle(lambda: woken.put(1), pause_s=3600), Throttle(lambda: woken.put(2), pause_s=0.01)
    for _ in range(1000):
        calm.trigger()
    assert (woken.get(timeout=PATIENCE_S), woken.empty()) == (1, True)
    quick.trigger()
    quick.trigger()
    assert (woken.get(timeout=PATIENCE_S), woken.get(timeout=PATIENCE_S)) == (2, 2)


class Fault:
    """Something that fails, and what is logged of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.warnings: list[dict[str, object]] = []
        monkeypatch.setattr("xenoovs.controller.log.warn", lambda event, **facts: self.warnings.append(facts))

    def raise_it(self, *_: object) -> Any:
        raise LookupError("of a kind that nobody expects")

    def is_survived(self, part: str, reason: str = "LookupError: of a kind that nobody expects, test_conn") -> bool:
        """Whether it was logged again."""
        assert {each["part"] for each in self.warnings} <= {part}
        return sum(str(each["reason"]).startswith(reason) for each in self.warnings) > 1


def test_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Fault(monkeypatch)
    # A connection that has nothing of one.
    connection: Any = SimpleNamespace(is_standby=True)
    mastership = Mastership("ovsbr1", lambda: connection, lambda: None)
    eventually(lambda: fault.is_survived("roles", "AttributeError"), "a second step")
    mastership.close()


def test_neighbour_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Fault(monkeypatch)
    proxy = NeighbourProxy(fault.raise_it)
    one = replace(service(claim(ip_address("2001:db8::80")), 1), vip_mac=Mac(0x02005E100001))

    def is_followed_again() -> bool:
        proxy.follow(balancer(one))
        return fault.is_survived("neighbour discovery")

    eventually(is_followed_again, "a second step")
    proxy.close()


def test_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, address = Fault(monkeypatch), UnixAddress(tmp_path / "socket")
    listener = SwitchListener(address, serve=fault.raise_it, warn=print)
    for _ in range(2):
        with socket.socket(socket.AF_UNIX) as switch:
            switch.connect(str(address.path))
            assert switch.recv(1) == b""
    eventually(lambda: fault.is_survived("a connection"), "a second connection")
    listener.close()

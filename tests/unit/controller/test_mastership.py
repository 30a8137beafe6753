"""When a standby takes over, and what a lease holds."""

from __future__ import annotations

from queue import SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import PATIENCE_S
from xenoovs.controller.mastership import MISSED_READS, HeartbeatWatch, Lease, ObservedLease, decode_lease
from xenoovs.controller.monitor import Throttle, touches_ours
from xenoovs.errors import MalformedOpenFlow
from xenoovs.openflow.wire.flow import note_action, note_of


def _after(*reads: tuple[int, int]) -> HeartbeatWatch:
    """The watch after reads of cookies and counters."""
    watch = HeartbeatWatch()
    for cookie, packets in reads:
        watch = watch.after(ObservedLease(cookie, packets, None))
    return watch


def test_a_master_whose_counter_stands_still_is_gone() -> None:
    """A standby waited until the lease expired, and took over after 1.5 to 3.5 s."""
    assert not _after(*[(1, 5)] * MISSED_READS).is_over
    assert _after(*[(1, 5)] * (MISSED_READS + 1)).is_over


def test_a_master_whose_counter_moves_stays() -> None:
    assert not _after(*((1, packets) for packets in range(100))).is_over
    assert not _after(*[(1, 5)] * MISSED_READS, (1, 6), *[(1, 6)] * (MISSED_READS - 1)).is_over


def test_another_master_is_watched_from_the_start() -> None:
    assert not _after(*[(1, 5)] * MISSED_READS, (2, 5)).is_over


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

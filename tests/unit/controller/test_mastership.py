"""When a standby takes over, and what a lease holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from xenoovs.controller.mastership import (
    MISSED_READS,
    STEP_S,
    HeartbeatWatch,
    Lease,
    ObservedLease,
    decode_lease,
)
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


def test_a_standby_takes_over_within_a_second() -> None:
    """The last heartbeat comes just before a read, and the step that finds the master gone also requests its role."""
    assert (MISSED_READS + 1) * STEP_S < 0.9


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

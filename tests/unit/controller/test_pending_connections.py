"""Connections that are not admitted yet: which one is closed beyond the limit."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from xenoovs.controller.listen import PendingConnections

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


def test_a_closed_connection_leaves_room(pairs: list[Pair]) -> None:
    pending = PendingConnections(limit=1)
    for pair in pairs:
        pending.add(pair[0], "one")
        pending.release(pair[0])
    assert not any(map(_is_out, pairs))

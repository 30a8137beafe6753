"""Strangers at the controller's door: who has to go when one more comes."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from xenoovs.controller.listen import Doorway

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


def test_the_address_with_most_strangers_loses_its_oldest(pairs: list[Pair]) -> None:
    doorway = Doorway(strangers=3)
    for pair, host in zip(pairs, ("good", "bad", "bad", "bad", "good"), strict=True):
        doorway.enter(pair[0], host)
    assert [_is_out(pair) for pair in pairs] == [False, True, True, False, False]


def test_who_is_known_is_never_driven_out(pairs: list[Pair]) -> None:
    doorway = Doorway(strangers=1)
    doorway.enter(pairs[0][0], "bridge")
    doorway.known(pairs[0][0])
    for pair in pairs[1:]:
        doorway.enter(pair[0], "bridge")
    assert [_is_out(pair) for pair in pairs] == [False, True, True, True, False]


def test_who_has_gone_leaves_room(pairs: list[Pair]) -> None:
    doorway = Doorway(strangers=1)
    for pair in pairs:
        doorway.enter(pair[0], "one")
        doorway.known(pair[0])
    assert not any(map(_is_out, pairs))

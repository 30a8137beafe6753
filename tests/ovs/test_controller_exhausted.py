"""A controller without file descriptors: it waits, says so, and goes on when there are some again."""

from __future__ import annotations

import select
import socket

import pytest

from tests.ovs.dummy import DummyBridge
from tests.ovs.openflow_peer import peer
from tests.ovs.ways import Record, Way, running_server
from tests.patience import eventually
from xenoovs.controller import listen

pytestmark = pytest.mark.ovs


class _Exhausted(socket.socket):
    """A listening socket of a process that has no file descriptor left."""

    tries = 0
    is_exhausted = True

    def accept(self) -> tuple[socket.socket, object]:
        if self.is_exhausted and _is_readable(self):
            self.tries += 1
            raise OSError(24, "Too many open files")
        return super().accept()


def _is_readable(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(200))


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> list[_Exhausted]:
    """The sockets of controllers that are made from now on."""
    made: list[_Exhausted] = []
    plain = listen._listen

    def exhausted(address: listen.Address) -> socket.socket:
        sock = plain(address)
        made.append(_Exhausted(sock.family, sock.type, fileno=sock.detach()))
        made[-1].settimeout(0.2)
        return made[-1]

    monkeypatch.setattr(listen, "_listen", exhausted)
    return made


def test_a_controller_without_descriptors_does_not_spin(
    listening: list[_Exhausted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found when accept(2) was called in a loop at full speed, for EMFILE leaves the connection in the queue."""
    monkeypatch.setattr(listen, "_EXHAUSTED_PAUSE_S", 3600.0, raising=False)
    record = Record()
    with running_server(record) as server, peer(server):
        (sock,) = listening
        eventually(lambda: sock.tries > 0, "the first try")
        for _ in range(20):
            assert sock.tries == 1
            with socket.create_connection(sock.getsockname()):
                pass
    assert record.of("connections cannot be accepted; retrying") == [{"reason": "Too many open files"}]


def test_a_controller_that_has_descriptors_again_goes_on(
    bridge: DummyBridge, listening: list[_Exhausted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "_EXHAUSTED_PAUSE_S", 0.01)
    record = Record()
    with running_server(record) as server:
        (sock,) = listening
        with peer(server):
            eventually(lambda: sock.tries > 3, "some tries")
        sock.is_exhausted = False
        assert Way(server).switch(bridge.ovs).dump_flows(bridge.name) == ()
    assert len(record.of("connections cannot be accepted; retrying")) == 1

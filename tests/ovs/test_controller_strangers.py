"""Who connects to the controller and is no bridge that is wanted: however many they are, bridges come in.

Without file descriptors it waits, says so, and goes on when there are some again.
"""

from __future__ import annotations

import select
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.ovs.certificates import certificates
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.ovs.scripted_switch import ADD, HELLO, peer, read_to_end, scripted_switch
from tests.ovs.ways import Record, Way, connect, running_server
from tests.patience import PATIENCE_S, eventually
from xenoovs.controller import listen
from xenoovs.controller.listen import MAX_PENDING
from xenoovs.controller.log import WARNINGS
from xenoovs.controller.session import Timeouts

_FOREVER = Timeouts(handshake_s=3600.0)
"""So that strangers do not go by themselves."""
_LIMITED = "too many refused connections to log each"


@pytest.mark.parametrize("said", [b"", HELLO], ids=["silent", "polite"])
def test_strangers_keep_no_bridge_out_and_drive_none_out(bridge: DummyBridge, said: bytes) -> None:
    """Found when 64 connections that said nothing were all that the controller would have."""
    record = Record()
    with running_server(record, timeouts=_FOREVER) as server:
        switch = Way(server).switch(bridge.ovs)
        for is_connected in (False, True):
            with ExitStack() as strangers:
                oldest = strangers.enter_context(peer(server))
                for _ in range(3 * MAX_PENDING):
                    strangers.enter_context(peer(server)).sendall(said)
                read_to_end(oldest)
                if not is_connected:
                    switch.apply(bridge.name, ADD)
                assert len(switch.dump_flows(bridge.name)) == 1
    assert record.of("bridge disconnected")[0]["reason"] == "the controller stops"


def test_strangers_that_do_not_even_begin_tls_keep_no_bridge_out(own_ovs: DummyOvs, tmp_path: Path) -> None:
    authority = trustme.CA()
    switch_side = certificates(authority, tmp_path, "switch")
    own_ovs.ovs.vsctl("set-ssl", str(switch_side.key), str(switch_side.certificate), str(switch_side.authority))
    record = Record()
    with (
        own_ovs.bridge(),
        running_server(record, certificates=certificates(authority, tmp_path, "controller")) as server,
        ExitStack() as strangers,
    ):
        for _ in range(2 * MAX_PENDING):
            strangers.enter_context(peer(server))
        server.expect("ovsbr1")
        connect(own_ovs.ovs, "ovsbr1", server)
        assert server.registry.expect("ovsbr1").connected(timeout_s=PATIENCE_S).bridge == "ovsbr1"


def test_bridges_that_nobody_wants_fill_no_log() -> None:
    """Found when one peer got a line for each name that it gave itself."""
    record = Record()
    with running_server(record) as server:
        for number in range(3 * WARNINGS):
            with scripted_switch(server, datapath_id=number + 1, name=f"br{number}", is_wanted=False):
                pass
        eventually(lambda: record.of(_LIMITED) != [], "the last word")
    assert len(record.of("bridge refused")) == WARNINGS


class Descriptors:
    """Of a process that has none left: accept(2) fails while a connection waits."""

    def __init__(self) -> None:
        self.are_out, self.tries, self._accept = True, 0, socket.socket.accept

    def accept(self, sock: socket.socket) -> tuple[socket.socket, Any]:
        if self.are_out and select.select([sock], [], [], 0.2)[0]:
            self.tries += 1
            raise OSError(24, "Too many open files")
        return self._accept(sock)


@pytest.fixture
def descriptors(monkeypatch: pytest.MonkeyPatch) -> Descriptors:
    made = Descriptors()
    monkeypatch.setattr(socket.socket, "accept", lambda sock: made.accept(sock))
    return made


def test_a_controller_without_descriptors_does_not_spin(
    descriptors: Descriptors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found when accept(2) was called in a loop at full speed, for EMFILE leaves the connection in the queue."""
    monkeypatch.setattr(listen, "_EXHAUSTED_PAUSE_S", 3600.0, raising=False)
    record = Record()
    with running_server(record) as server, peer(server):
        eventually(lambda: descriptors.tries > 0, "the first try")
        for _ in range(20):
            assert descriptors.tries == 1
            with peer(server):
                pass
    assert record.of("connections cannot be accepted; retrying") == [{"reason": "Too many open files"}]


def test_a_controller_that_has_descriptors_again_goes_on(
    bridge: DummyBridge, descriptors: Descriptors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "_EXHAUSTED_PAUSE_S", 0.01)
    record = Record()
    with running_server(record) as server:
        with peer(server):
            eventually(lambda: descriptors.tries > 3, "some tries")
        descriptors.are_out = False
        assert Way(server).switch(bridge.ovs).dump_flows(bridge.name) == ()
    assert len(record.of("connections cannot be accepted; retrying")) == 1

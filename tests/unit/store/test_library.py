"""The library `ovs`, which is an extra, and what it sends and receives."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import eventually
from xenoovs.errors import StoreError, StoreUnreachable
from xenoovs.store.client import CommitOutcome, StoreClient
from xenoovs.store.replica import MessageParser, Replica, StoreSession, WholeCharacters, open_session
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.view import Changes

_PROGRAM = """
import sys
sys.modules["ovs"] = None
from xenoovs.cli.main import main
main(["fleet", "--directory", "/nonexistent", "relay", "--stop"])
"""


def test_without_the_library_a_fleet_command_names_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "install openvswitch-switch, or with pip `xenoovs[fleet]`" in done.stderr
    assert "Traceback" not in done.stderr


def test_rows_of_the_server_itself_are_no_rows_of_the_store() -> None:
    """Version 3.1 of the library notifies of these rows too, and the client then had no view."""
    replica = Replica(["unix:/nonexistent"], StoreDatabase.FLEET, {"Fleet": ("name",)})
    for table in ("Database", "Fleet"):
        replica.notify("delete", SimpleNamespace(_table=SimpleNamespace(name=table, columns=()), uuid=uuid4()))
    assert [table for table, _ in replica.touched] == ["Fleet"]


def test_a_library_that_cannot_write_is_named_and_not_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("xenoovs.store.client.Transaction.add_op")
    with pytest.raises(StoreError, match=r"the Python library `ovs` has to be 3\.3 or newer"):
        StoreClient("unix:/nonexistent", with_intents=True).commit(0, Changes())


def test_dpus_that_lose_a_server_do_not_all_come_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a relay died, 500 agents reconnected to a queue of ten, and the last one took 44 s."""
    monkeypatch.setattr("xenoovs.store.replica.uniform", lambda _least, most: most)

    def waits_ms(dpus: int, *, is_lost: bool) -> int:
        session = open_session(["unix:/nonexistent"])
        watched, reconnect = StoreSession(session), session.reconnect
        watched.dpus = dpus
        reconnect.run(0)
        reconnect.connecting(0)
        if is_lost:
            reconnect.connected(0)
            session.reconnect.activity(5000)
        session.reconnect.disconnected(5000, errno.EPIPE)
        return int(reconnect.timeout(5000))

    assert waits_ms(1000, is_lost=True) - waits_ms(0, is_lost=True) == 10_000
    assert waits_ms(100, is_lost=True) - waits_ms(0, is_lost=True) == 1_000
    assert waits_ms(9000, is_lost=True) == waits_ms(1000, is_lost=True), "no longer than 10 s"
    assert waits_ms(1000, is_lost=False) == waits_ms(0, is_lost=False), "after a failed attempt the back-off counts"


def test_bug_a_commit_did_not_end_while_the_library_raises_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time was looked at only where a step succeeds: 2 s were asked, and it was not back after 12 s."""

    def fail(_replica: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(Replica, "run", fail)
    with (
        StoreClient("unix:/nonexistent", with_intents=True) as client,
        pytest.raises(StoreUnreachable, match="internal error: RuntimeError: broken"),
    ):
        client.commit(0, Changes(), timeout_s=0.1)


def test_bug_a_commit_did_not_end_when_its_client_was_closed_before_it_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client closed the connection, waited for a second, and then ended without a look at its transactions."""
    failed, outcomes = Event(), list[CommitOutcome]()

    def fail(_replica: object) -> None:
        failed.set()
        raise RuntimeError("broken")

    monkeypatch.setattr(Replica, "run", fail)
    with StoreClient("unix:/nonexistent", with_intents=True) as client:
        committing = Thread(target=lambda: outcomes.append(client.commit(0, Changes())), daemon=True)
        assert failed.wait(10)
        eventually(lambda: "broken" in client.connection.reason, "the client has not lost its connection")
        committing.start()
        eventually(lambda: client._attempt is not None, "nothing was committed")
    committing.join(10)
    assert outcomes == [CommitOutcome.UNKNOWN]
    assert client.connection.reason == "closed"


_OTHERS = """
import ovs.json, ovs.poller, sys
before = ovs.json.Parser, ovs.poller.SelectPoll, "eventlet" in sys.modules
import xenoovs.store.client
assert before == (ovs.json.Parser, ovs.poller.SelectPoll, "eventlet" in sys.modules)
"""


def test_another_user_of_the_library_in_this_process_has_it_as_it_is() -> None:
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", _OTHERS], check=False).returncode == 0


def test_bug_a_character_that_arrives_in_two_parts_broke_the_connection_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "store.sock"
    data = '{"id":null,"method":"update","params":["Zürich"]}'.encode()
    middle = data.index("ü".encode()) + 1
    received: list[object] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        session = open_session([f"unix:{path}"])

        def has_received() -> bool:
            session.run()
            message = session.recv()
            received.extend(() if message is None else message.params)
            return bool(received)

        assert not has_received()
        peer, _ = listener.accept()
        with peer:
            peer.sendall(data[:middle])
            eventually(lambda: has_received() or session.rpc.get_received_bytes() > 0, "the first part")
            peer.sendall(data[middle:])
            eventually(has_received, "the message")
            session.close()
    assert received == ["Zürich"]


@given(st.text(), st.lists(st.integers(1, 9)))
def test_pieces_of_any_text_are_whole_characters(text: str, sizes: list[int]) -> None:
    data, found = text.encode(), b""
    stream = _Pieces(data, sizes)
    while stream.left:
        error, piece = stream.recv(4096)
        assert error == 0 or (error, piece) == (errno.EAGAIN, b"")
        piece.decode()
        found += piece
    assert found == data


class _Source:
    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self.left, self._sizes = data, [*sizes]

    def recv(self, size: int) -> tuple[int, bytes]:
        size = self._sizes.pop() if self._sizes else size
        piece, self.left = self.left[:size], self.left[size:]
        return 0, piece


class _Pieces(WholeCharacters, _Source):
    """A stream whose bytes come in pieces."""


@pytest.mark.parametrize("text", ['{"id":x}', '{"id":' + "[" * 100_000 + "}"])
def test_bug_a_message_of_any_depth_is_refused_as_no_json(text: str) -> None:
    parser = MessageParser()
    assert parser.feed(text) == len(text)
    assert str(parser.finish()).startswith("no JSON: ")

"""A character of several bytes may arrive in two parts; a config with umlauts broke the connection for ever."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.patience import eventually
from xenoovs.store.replica import WholeCharacters, open_session


def test_a_message_whose_character_comes_in_two_parts_is_read(tmp_path: Path) -> None:
    path = tmp_path / "store.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        session = open_session([f"unix:{path}"])
        peer: list[socket.socket] = []
        listener.setblocking(False)

        def is_connected() -> bool:
            session.run()
            if not peer:
                peer.append(listener.accept()[0])
            return bool(session.is_connected())

        session.run()
        eventually(is_connected, "the connection")
        data = '{"id":null,"method":"update","params":["Zürich"]}'.encode()
        middle = data.index("ü".encode()) + 1
        peer[0].sendall(data[:middle])
        eventually(lambda: session.recv() is None and session.rpc.get_received_bytes() > 0, "the first part")
        peer[0].sendall(data[middle:])
        received: list[object] = []

        def is_received() -> bool:
            message = session.recv()
            received.extend(() if message is None else message.params)
            return bool(received)

        eventually(is_received, "the message")
        session.close()
        peer[0].close()
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

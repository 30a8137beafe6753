"""The packet socket of probes, where its device cannot take a frame."""

from __future__ import annotations

import errno
import os
from unittest.mock import patch

import pytest

from xenoovs.agent.control.schemas import PinRequest, parse_request
from xenoovs.agent.paths.port import ProbePort


class _Socket:
    """A packet socket that refuses all frames for one reason."""

    def __init__(self, number: int) -> None:
        self._number = number

    def getsockname(self) -> tuple[object, ...]:
        return "lo", 0, 0, 1, bytes(6)

    def send(self, _frame: bytes) -> int:
        raise OSError(self._number, os.strerror(self._number))


def _port(number: int) -> ProbePort:
    with patch("xenoovs.agent.paths.port._open", lambda *_: _Socket(number)):
        return ProbePort("lo")


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOBUFS])
def test_a_full_queue_sends_no_probe_and_keeps_the_socket(number: int) -> None:
    """ENOBUFS closed the socket, so all paths counted as silent until it was open again."""
    assert _port(number).send(b"") is None


def test_a_device_that_is_gone_ends_the_socket() -> None:
    with pytest.raises(OSError, match=os.strerror(errno.ENXIO)):
        _port(errno.ENXIO).send(b"")


def test_a_path_by_uplink_can_be_pinned_whatever_its_port_is_called() -> None:
    assert parse_request(b'{"remote": "rack7/b", "path": "p0@x"}', PinRequest).path == "p0@x"

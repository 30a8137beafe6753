"""Requests to a switch and their answers, whoever has opened the connection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from xenoovs.errors import SwitchError, WireError
from xenoovs.openflow.wire.codec import decode, encode
from xenoovs.openflow.wire.error import Error
from xenoovs.openflow.wire.frame import HEADER
from xenoovs.openflow.wire.kinds import ERROR, MULTIPART_REPLY
from xenoovs.openflow.wire.message import Message
from xenoovs.openflow.wire.multipart import Request

ANSWER_TIMEOUT_S = 15.0
"""For the next message of an answer. A busy switch may work on a large bundle for seconds."""

_MORE_AT, _MORE = 11, 1
"""OFPMPF_REPLY_MORE and where it is (OpenFlow 1.4.0, 7.3.5)."""


class Exchange(Protocol):
    """Requests with their answers, by one caller at a time."""

    @property
    def bridge(self) -> str:
        """The name of the bridge."""

    def take_xids(self, number: int) -> int:
        """Return the first of so many transaction ids in a row, for as many messages."""

    def send(self, data: bytes) -> None:
        """Send whole messages. Raises SwitchUnreachable."""

    def receive(self, *, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes:
        """Return the next message that has a transaction id of this exchange.

        Raises SwitchUnreachable where the connection is lost or nothing comes, WireError.
        """


def error_of(frame: bytes) -> Error:
    """Return the error that a message holds. Raises WireError."""
    message = decode(frame).message
    if not isinstance(message, Error):
        raise WireError(data=frame, offset=1, expected="an error, or the answer to a request")
    return message


def ask(exchange: Exchange, request: Message) -> Message:
    """Return the one message that answers a request. Raises SwitchError, WireError."""
    exchange.send(encode(request, xid=exchange.take_xids(1)))
    answer = decode(exchange.receive()).message
    if isinstance(answer, Error):
        raise SwitchError(f"bridge {exchange.bridge} refused {type(request).__name__}: {answer.name}")
    return answer


def answers(exchange: Exchange, requests: Iterable[Request]) -> tuple[bytes, ...]:
    """Send all requests at once and return the messages of their answers. Raises SwitchError, WireError."""
    return tuple(_answers(exchange, tuple(requests)))


def _answers(exchange: Exchange, requests: tuple[Request, ...]) -> Iterator[bytes]:
    first = exchange.take_xids(len(requests))
    exchange.send(b"".join(encode(request, xid=xid) for xid, request in enumerate(requests, first)))
    unanswered = set(range(first, first + len(requests)))
    while unanswered:
        frame = exchange.receive()
        _, kind, length, xid = HEADER.unpack_from(frame)
        if xid not in unanswered:
            continue
        if kind == ERROR or kind != MULTIPART_REPLY or length <= _MORE_AT:
            raise SwitchError(f"bridge {exchange.bridge} refused a request: {error_of(frame).name}")
        yield frame
        if not frame[_MORE_AT] & _MORE:
            unanswered.discard(xid)

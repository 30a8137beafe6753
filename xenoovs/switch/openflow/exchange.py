"""Requests to a switch and their answers, over any connection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from xenoovs.errors import SwitchError, WireError
from xenoovs.openflow.wire.codec import decode, encode
from xenoovs.openflow.wire.error import Error
from xenoovs.openflow.wire.frame import HEADER
from xenoovs.openflow.wire.kinds import MULTIPART_REPLY
from xenoovs.openflow.wire.message import Message
from xenoovs.openflow.wire.multipart import Request

ANSWER_TIMEOUT_S = 15.0
"""Until the next message of an answer. A busy switch may work on a large bundle for seconds."""

_MORE_AT, _MORE = 11, 1
"""OFPMPF_REPLY_MORE, and the offset of its byte in a multipart reply (OpenFlow 1.4.0, 7.3.5)."""


class Exchange(Protocol):
    """One caller's requests and the messages that answer them."""

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


def answers(exchange: Exchange, requests: Iterable[Request]) -> tuple[tuple[bytes, ...], ...]:
    """Send all requests at once and return the messages that answer each. Raises SwitchError, WireError."""
    sent = tuple(requests)
    first = exchange.take_xids(len(sent))
    exchange.send(b"".join(encode(request, xid=xid) for xid, request in enumerate(sent, first)))
    found: dict[int, list[bytes]] = {xid: [] for xid in range(first, first + len(sent))}
    unanswered = set(found)
    while unanswered:
        frame = exchange.receive()
        _, kind, length, xid = HEADER.unpack_from(frame)
        if xid not in unanswered:
            continue
        if kind != MULTIPART_REPLY or length <= _MORE_AT:
            raise SwitchError(f"bridge {exchange.bridge} refused a request: {error_of(frame).name}")
        found[xid].append(frame)
        if not frame[_MORE_AT] & _MORE:
            unanswered.discard(xid)
    return tuple(map(tuple, found.values()))

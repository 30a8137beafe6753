"""UDP and DNS probes: a datagram or a DNS query is answered."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype

from xenoovs.agent.probe.sockets import host_of, open_socket
from xenoovs.agent.probe.target import DnsTarget, Expectation, UdpTarget, Via, quoted
from xenoovs.model.address import IPAddress

_MAX_DATAGRAM_BYTES = 65535


async def probe_udp(target: UdpTarget) -> str | None:
    """Return why the target failed; None: it answered. Raises OSError; an ICMP error is ECONNREFUSED."""
    with _connected(target.address, target.port, target.via) as sock:
        sock.send(target.send)
        answer = await _next_datagram(sock)
    if target.expect in answer:
        return None
    return f"answered {quoted(answer)}, wanted {quoted(target.expect)} in it"


@contextmanager
def _connected(address: IPAddress, port: int, via: Via) -> Iterator[socket.socket]:
    with open_socket(address, socket.SOCK_DGRAM, via) as sock:
        sock.connect((host_of(address), port))
        yield sock


async def _next_datagram(sock: socket.socket) -> bytes:
    return await asyncio.get_running_loop().sock_recv(sock, _MAX_DATAGRAM_BYTES)


# DNS: RFC 1035, with EDNS of RFC 6891. Answers with another id are passed over.


_PAYLOAD_BYTES = 1232
"""Largest answer asked for: fits any path without fragments (DNS Flag Day 2020)."""

_HEADER_BYTES = 12
"""RFC 1035, section 4.1.1."""


async def probe_dns(target: DnsTarget, expectation: Expectation) -> str | None:
    """Return why the target failed; None: it answered. Raises OSError as probe_udp."""
    try:
        query = dns.message.make_query(target.query, "A", use_edns=0, payload=_PAYLOAD_BYTES)
    except dns.exception.DNSException as error:
        return f"the query cannot be asked: {error}"
    with _connected(target.address, target.port, target.via) as sock:
        sock.send(query.to_wire())
        while not _has_id(data := await _next_datagram(sock), query.id):
            expectation.await_part("only answers to other queries")
    return _failure(query, data)


def _has_id(data: bytes, query_id: int) -> bool:
    return len(data) < _HEADER_BYTES or int.from_bytes(data[:2], "big") == query_id


def _failure(query: dns.message.Message, data: bytes) -> str | None:
    try:
        answer = dns.message.from_wire(data, ignore_trailing=True, raise_on_truncation=False)
    except (dns.exception.DNSException, ValueError):
        return f"the answer is no DNS message: {quoted(data)}"
    if not query.is_response(answer) and answer.rcode() == dns.rcode.NOERROR:
        return "the answer is to another question"
    question = f"{query.question[0].name.to_text(omit_final_dot=True)} A"
    if answer.rcode() != dns.rcode.NOERROR:
        return f"{dns.rcode.to_text(answer.rcode())} for {question}"
    if answer.flags & dns.flags.TC:
        return f"the answer for {question} is truncated"
    if not any(group.rdtype == dns.rdatatype.A for group in answer.answer):
        return f"{question} is without a record"
    return None

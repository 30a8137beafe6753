"""A datagram is answered, or a DNS query."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype

from xenoovs.agent.probe.sockets import host_of, open_socket
from xenoovs.agent.probe.target import DnsTarget, UdpTarget, Via, Waiting, quoted
from xenoovs.model.address import IPAddress

_LONGEST = 65535


async def probe_udp(target: UdpTarget) -> str | None:
    """Why not, or None. Raises OSError; `connection refused` is an ICMP error that came back."""
    async with talk(target.address, target.port, target.via) as conversation:
        answer = await conversation.ask(target.send)
    if target.expect in answer:
        return None
    return f"answered {quoted(answer)}, wanted {quoted(target.expect)} in it"


class Conversation:
    """One connected datagram socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    async def ask(self, request: bytes) -> bytes:
        """Send, and the next datagram that comes."""
        self._sock.send(request)
        return await self.next()

    async def next(self) -> bytes:
        """The next datagram that comes."""
        return await asyncio.get_running_loop().sock_recv(self._sock, _LONGEST)


@asynccontextmanager
async def talk(address: IPAddress, port: int, via: Via) -> AsyncIterator[Conversation]:
    """A socket for datagrams to and from one address and port."""
    with open_socket(address, socket.SOCK_DGRAM, via) as sock:
        sock.connect((host_of(address), port))
        yield Conversation(sock)


# A DNS server answers a query (RFC 1035; EDNS of RFC 6891). Answers with another id or question are not ours.


_PAYLOAD_BYTES = 1232
"""Largest answer asked for: fits any path without fragments (DNS Flag Day 2020)."""

_HEADER_BYTES = 12
"""RFC 1035, section 4.1.1."""


async def probe_dns(target: DnsTarget, waiting: Waiting) -> str | None:
    """Why not, or None. Raises OSError as a UDP probe."""
    try:
        query = dns.message.make_query(target.query, target.kind, use_edns=0, payload=_PAYLOAD_BYTES)
        wanted = tuple(_canonical(target, text) for text in target.expected)
    except dns.exception.DNSException as error:
        return f"the query cannot be asked: {error}"
    async with talk(target.address, target.port, target.via) as conversation:
        data = await conversation.ask(query.to_wire())
        while not _is_ours(query, data):
            waiting.missing = "only answers to other queries"
            data = await conversation.next()
    return _fault(query, data, wanted)


def _is_ours(query: dns.message.Message, data: bytes) -> bool:
    return len(data) < _HEADER_BYTES or int.from_bytes(data[:2], "big") == query.id


def _fault(query: dns.message.Message, data: bytes, wanted: tuple[str, ...]) -> str | None:
    try:
        answer = dns.message.from_wire(data, ignore_trailing=True, raise_on_truncation=False)
    except (dns.exception.DNSException, ValueError):
        return f"the answer is no DNS message: {quoted(data)}"
    if not query.is_response(answer) and answer.rcode() == dns.rcode.NOERROR:
        return "the answer is to another question"
    if answer.rcode() != dns.rcode.NOERROR:
        return f"{dns.rcode.to_text(answer.rcode())} for {_question(query)}"
    if answer.flags & dns.flags.TC:
        return f"the answer for {_question(query)} is truncated"
    return _missing(query, answer, wanted)


def _missing(query: dns.message.Message, answer: dns.message.Message, wanted: tuple[str, ...]) -> str | None:
    kind = query.question[0].rdtype
    seen = sorted(record.to_text() for group in answer.answer if group.rdtype == kind for record in group)
    absent = sorted(set(wanted) - set(seen))
    if seen and not absent:
        return None
    asked = f", wanted {', '.join(absent)}" if absent else ""
    return f"{_question(query)} is {', '.join(seen) or 'without a record'}{asked}"


def _canonical(target: DnsTarget, text: str) -> str:
    kind = dns.rdatatype.from_text(target.kind)
    return dns.rdata.from_text(dns.rdataclass.IN, kind, text, origin=dns.name.root, relativize=False).to_text()


def _question(query: dns.message.Message) -> str:
    asked = query.question[0]
    return f"{asked.name.to_text(omit_final_dot=True)} {dns.rdatatype.to_text(asked.rdtype)}"

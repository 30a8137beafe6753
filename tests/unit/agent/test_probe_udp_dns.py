"""UDP and DNS: what a server may answer, and what becomes of it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from ipaddress import ip_address

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest

from tests.probe_support import ask, udp_answers
from xenoovs.agent.probe.target import DnsTarget, UdpTarget

LOCAL = ip_address("127.0.0.1")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_udp_answered(host: str) -> None:
    with udp_answers(lambda request: [request + b" pong"], host=host) as port:
        assert ask(UdpTarget(ip_address(host), port, b"ping", b"pong")).ok


def test_udp_other_answer() -> None:
    with udp_answers(lambda _: [b"\xffno"]) as port:
        assert ask(UdpTarget(LOCAL, port, b"ping", b"pong")).reason == "answered '\\xffno', wanted 'pong' in it"


def test_udp_refused() -> None:
    assert ask(UdpTarget(LOCAL, 1, b"ping")).reason == "connection refused"


def test_udp_from_another_port_is_no_answer() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        result = ask(UdpTarget(LOCAL, silent.getsockname()[1], b"ping"), timeout_s=0.05)
    assert result.reason == "no answer within 50ms"


def answer(change: Callable[[dns.message.Message], object]) -> Callable[[bytes], list[bytes]]:
    def build(request: bytes) -> list[bytes]:
        message = dns.message.make_response(dns.message.from_wire(request))
        message.answer.append(dns.rrset.from_text("www.example.", 60, "IN", "A", "192.0.2.7"))
        change(message)
        return [message.to_wire()]

    return build


def truncate(message: dns.message.Message) -> None:
    message.flags |= dns.flags.TC


def empty(message: dns.message.Message) -> None:
    message.answer.clear()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda _: None, "answered"),
        (lambda m: m.set_rcode(dns.rcode.NXDOMAIN), "NXDOMAIN for www.example A"),
        (lambda m: m.set_rcode(dns.rcode.SERVFAIL), "SERVFAIL for www.example A"),
        (truncate, "the answer for www.example A is truncated"),
        (empty, "www.example A is without a record"),
    ],
)
def test_dns(change: Callable[[dns.message.Message], object], reason: str) -> None:
    with udp_answers(answer(change)) as port:
        result = ask(DnsTarget(LOCAL, "www.example", port=port))
    assert (result.ok, result.reason) == (reason == "answered", reason)


def test_dns_garbage() -> None:
    with udp_answers(lambda request: [request[:2] + b"\xff" * 20]) as port:
        assert ask(DnsTarget(LOCAL, "www.example", port=port)).reason.startswith("the answer is no DNS message")


def test_dns_other_id_is_passed_over() -> None:
    good = answer(lambda _: None)

    def forged_first(request: bytes) -> list[bytes]:
        real = good(request)[0]
        return [bytes([real[0] ^ 1]) + real[1:], real]

    with udp_answers(forged_first) as port:
        assert ask(DnsTarget(LOCAL, "www.example", port=port)).ok
    with udp_answers(lambda request: forged_first(request)[:1]) as port:
        reason = ask(DnsTarget(LOCAL, "www.example", port=port), timeout_s=0.1).reason
    assert reason == "only answers to other queries within 100ms"


def test_dns_query_that_cannot_be_asked() -> None:
    assert ask(DnsTarget(LOCAL, "a..b")).reason.startswith("the query cannot be asked")

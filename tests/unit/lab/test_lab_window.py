"""How long `lab traffic` waits for answers."""

from __future__ import annotations

import select
import socket
import struct
import subprocess
import time
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from ipaddress import ip_address, ip_network
from math import inf
from typing import Any

import dns.message
import dns.rcode
import pytest

from tests.judged import assert_recorded
from xenoovs.errors import LabError
from xenoovs.lab.client import (
    AnswerCounts,
    Flight,
    Pace,
    SendWindow,
    TrafficChannel,
    TrafficExchange,
    echo_request,
    parse_counts,
    parse_echo_reply,
    parse_round,
    render_counts,
    render_round,
)
from xenoovs.lab.responder import CheckAnswer, Job, dns_answer, http_answer, parse_job, render_job
from xenoovs.lab.topology import Machine
from xenoovs.lab.traffic import (
    LabReport,
    Load,
    ServiceTraffic,
    Trial,
    plan_trials,
    service_traffic,
)
from xenoovs.model.address import Family, checksum, parse_mac
from xenoovs.model.balancer import (
    Backend,
    Balancer,
    BlockKey,
    Claim,
    KeyField,
    OtherTraffic,
    PortRange,
    Protocol,
    Service,
    Uplinks,
)
from xenoovs.model.next_hop import Direct
from xenoovs.switch.process import PYTHON_MODULE


def test_packets_without_an_answer_expire_oldest_first() -> None:
    window = SendWindow(3, 1.0, 0.1)
    assert window.wait_s(now_s=5) == 0
    for key, now_s in enumerate((0.0, 0.5, 0.9)):
        assert not window.is_full
        window.add(key, now_s=now_s)
    assert window.is_full
    assert window.wait_s(now_s=0.75) == 0.25
    assert window.expire(now_s=1.5) == [0, 1]
    assert window.lost == 2
    for _ in range(2):
        assert list(window.under_way) == [2]
        window.remove(0)


def test_after_two_windows_of_losses_the_timeout_is_short() -> None:
    window = SendWindow(1, 1.0, 0.1)
    for key in range(3):
        assert window.current_timeout_s == 1.0
        window.add(key, now_s=key)
        assert window.expire(now_s=key + 1) == [key]
    assert window.current_timeout_s == 0.1


class _LateServer(TrafficChannel):
    """A channel whose server answers the last packet alone, half a second late. Time passes only while one waits."""

    LATE_S = 0.5

    def __init__(self, last: int) -> None:
        self.now_s, self._last, self._due_s = 0.0, last, inf
        self._client = ""

    def sockets(self) -> list[Any]:
        return []

    def send(self, key: int, _flight: Flight, source: str) -> None:
        if key == self._last:
            self._due_s, self._client = self.now_s + self.LATE_S, source

    def receive(self) -> list[tuple[int, str, str]]:
        self._due_s = inf
        return [(self._last, self._client, "one")]

    def select(self, _readable: object, _writable: object, _failed: object, timeout_s: float) -> tuple[Any, Any, Any]:
        is_there = self._due_s <= self.now_s + timeout_s
        self.now_s = self._due_s if is_there else self.now_s + timeout_s
        return [self] if is_there else [], [], []


def test_a_late_answer_to_the_last_packet_counts_though_many_were_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """After two windows of losses the time-out is short, so the last answers counted as lost."""
    sources = tuple(f"10.0.{number >> 8}.{number & 255}" for number in range(400))
    server = _LateServer(len(sources) - 1)
    monkeypatch.setattr(select, "select", server.select)
    monkeypatch.setattr(time, "monotonic", lambda: server.now_s)
    counts = AnswerCounts([0])
    exchange = TrafficExchange(server, [Flight("udp", "10.3.10.45", 53, sources)])
    exchange.run(None, lambda each: counts.add(each, [0]))
    assert counts.sent == [400]
    assert counts.answers == {(0, sources[-1], "one"): 1}


RUN = b"\x01\x02\x03\x04\x05\x06\x07\x08"


def test_checksum_of_the_example_in_rfc_1071() -> None:
    assert checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2


def _packet4(kind: int, *, protocol: int = 1, options: bytes = b"") -> bytes:
    request = echo_request(socket.AF_INET, RUN, 70_000)
    assert (request[:2], checksum(request)) == (b"\x08\x00", 0)
    start = bytes([0x45 + len(options) // 4]) + bytes(8) + bytes([protocol]) + bytes(2)
    return (
        start + socket.inet_aton("10.3.10.45") + socket.inet_aton("198.18.0.7") + options + bytes([kind]) + request[1:]
    )


def _packet6() -> bytes:
    message = b"\x81" + echo_request(socket.AF_INET6, RUN, 5)[1:]
    header = struct.pack("!IHBB", 6 << 28, len(message), 58, 64) + bytes(16)
    return header + socket.inet_pton(socket.AF_INET6, "2001:db8:c::9") + message


@pytest.mark.parametrize(
    ("family", "packet", "reply"),
    [
        (socket.AF_INET, _packet4(0), (RUN, 70_000, "198.18.0.7")),
        (socket.AF_INET, _packet4(0, options=bytes(8)), (RUN, 70_000, "198.18.0.7")),
        (socket.AF_INET6, _packet6(), (RUN, 5, "2001:db8:c::9")),
        (socket.AF_INET, _packet4(8), None),
        (socket.AF_INET, _packet4(3), None),
        (socket.AF_INET, _packet4(0, protocol=17), None),
        (socket.AF_INET, _packet4(0)[:-1], None),
    ],
    ids=["IPv4", "IPv4 with options", "IPv6", "a request", "unreachable", "UDP", "short"],
)
def test_echo_replies_are_read_and_other_packets_are_none(
    family: socket.AddressFamily, packet: bytes, reply: tuple[bytes, int, str] | None
) -> None:
    assert parse_echo_reply(family, packet) == reply


V4, BOTH = frozenset({Family.IPV4}), frozenset(Family)
BACKENDS = (Backend("a", Direct(parse_mac("02:00:5e:10:00:02"), "p1"), Fraction(1)),)
VIP, VIP6 = ip_address("10.3.10.45"), ip_address("2001:db8:10::80")


def _balancer(*claims: Claim, bits: BlockKey | None = None) -> Balancer:
    services = (Service(f"s{i}", claim, BACKENDS, key=bits or BlockKey()) for i, claim in enumerate(claims))
    return Balancer(Uplinks("ovsbr1", ("p0",), "p1", OtherTraffic.PASSTHROUGH), tuple(services))


@pytest.mark.parametrize("packets", [2, 7, 20_000])
def test_all_packets_are_sent_and_no_client_has_two_more_than_another(packets: int) -> None:
    claims = [Claim(V4, (VIP,), Protocol.UDP, (PortRange(53, 55),)), Claim(BOTH, (VIP, VIP6), Protocol.TCP)]
    trials, _ = plan_trials(_balancer(*claims), Load(clients=100, packets=packets))
    flights = [flight for trial in trials for flight in trial.flights]
    assert sum(len(flight.sources) for flight in flights) == packets
    for flight in flights:
        counts = Counter(flight.sources)
        assert max(counts.values()) - min(counts.values()) <= 1


def test_every_vip_and_port_is_tried_from_addresses_of_its_version() -> None:
    claim = Claim(BOTH, (VIP, VIP6), Protocol.UDP, (PortRange(53, 54), PortRange(1000, 2000)))
    (trial,), _ = plan_trials(_balancer(claim), Load(clients=10, packets=800))
    assert {(flight.destination, flight.port) for flight in trial.flights} == {
        (str(vip), port) for vip in (VIP, VIP6) for port in (53, 54, 1000, 2000)
    }
    for flight in trial.flights:
        assert {ip_address(source).version for source in flight.sources} == {ip_address(flight.destination).version}
    assert trial.clients == 20


def test_sctp_is_left_out_with_the_reason() -> None:
    claims = [Claim(V4, (VIP,), Protocol.SCTP), Claim(V4, (VIP,), Protocol.UDP)]
    trials, skipped = plan_trials(_balancer(*claims), Load())
    assert [trial.service.name for trial in trials] == ["s1"]
    assert skipped == (("s0", "the lab cannot send SCTP"),)
    with pytest.raises(LabError, match="no service can be tried: s0: the lab cannot send SCTP"):
        plan_trials(_balancer(claims[0]), Load())


def test_clients_differ_in_the_bits_that_split_them() -> None:
    bits = BlockKey(positions=(24, 25))
    (trial,), _ = plan_trials(_balancer(Claim(V4), bits=bits), Load(clients=200, packets=200))
    sources = {int(ip_address(source)) >> 24 & 3 for flight in trial.flights for source in flight.sources}
    assert sources == {0, 1, 2, 3}
    (usual,), _ = plan_trials(_balancer(Claim(V4)), Load(clients=200, packets=200))
    assert all(ip_address(source) in ip_network("198.18.0.0/15") for source in usual.flights[0].sources)


@pytest.mark.parametrize("key", KeyField)
def test_packets_to_a_service_by_source_port_come_from_many_ports(key: KeyField) -> None:
    claim = Claim(V4, (VIP,), Protocol.UDP, (PortRange(53, 55),))
    (trial,), _ = plan_trials(_balancer(claim, bits=BlockKey(key, (15, 14))), Load(clients=3, packets=9))
    assert {flight.fresh_ports for flight in trial.flights} == {key is KeyField.SOURCE_PORT}
    assert trial.clients == 3


@pytest.mark.parametrize(
    ("load", "message"),
    [
        *((load, "use 1 or more of each") for load in (Load(clients=0), Load(packets=0), Load(clients=-1))),
        (Load(protocol=Protocol.ICMP), "s0: it does not serve icmp"),
    ],
)
def test_what_cannot_be_sent_is_refused(load: Load, message: str) -> None:
    with pytest.raises(LabError, match=message):
        plan_trials(_balancer(Claim(V4, (VIP,), None, (PortRange(53, 53),))), load)


CHECKS = (CheckAnswer("http", 80, "/ready?x=1", 204, "fine"), CheckAnswer("http", 80))
JOB = Job("b1", ("one", "two"), (("udp", 7), ("tcp", 80)), "/log", ("10.0.0.1", "fd00::1"), CHECKS, 2.0, "/pem")


@pytest.mark.parametrize("name", ["example.org", ".", "a." * 60 + "org"])
def test_a_dns_query_gets_an_address(name: str) -> None:
    query = dns.message.make_query(name, "A")
    answer = dns.message.from_wire(dns_answer(query.to_wire()))
    assert query.is_response(answer)
    assert answer.rcode() == dns.rcode.NOERROR
    assert [str(record) for record in answer.answer[0]] == ["192.0.2.1"]
    for wrong in (b"", b"\0", b"\1\2\3\4\5\6\7\10\11\12\13\14\377", bytes(11)):
        assert dns_answer(wrong)


@pytest.mark.parametrize(
    ("request_line", "head", "body"),
    [
        ("GET /ready?x=1 HTTP/1.1", "HTTP/1.1 204 lab", "b1 one/two\nfine"),
        ("GET / HTTP/1.1", "HTTP/1.1 200 lab", "b1 one/two\n"),
        ("GET /other HTTP/1.1", "HTTP/1.1 404 lab", "no health check asks for this path\n"),
        ("", "HTTP/1.1 404 lab", "no health check asks for this path\n"),
    ],
)
def test_http_answers_are_those_of_the_path(request_line: str, head: str, body: str) -> None:
    answer = http_answer(f"{request_line}\r\nHost: x\r\n\r\n".encode(), CHECKS, JOB.greeting).decode()
    assert answer.startswith(f"{head}\r\n")
    assert f"Content-Length: {len(body)}\r\n" in answer
    assert answer.endswith(f"\r\n\r\n{body}")


MACS = ("02:00:5e:10:00:02", "02:00:5e:10:00:03", "02:00:5e:10:00:04")
CLIENT, OTHER = "198.18.0.1", "198.18.0.2"


def _backend(name: str, mac: str, weight: int, *, egress: str = "p1") -> Backend:
    return Backend(name, Direct(parse_mac(mac), egress), Fraction(weight))


def _machine(label: str, name: str, mac: str, *, egress: str = "p1") -> Machine:
    return Machine(label, f"xo-x-{label}", mac, egress, (name,), (), (), (), MACS[0])


SERVICE = Service("s", Claim(frozenset(Family)), (_backend("a", MACS[0], 3), _backend("b", MACS[1], 1)))
TRIAL = Trial(SERVICE, Protocol.UDP, (Flight("udp", "192.0.2.1", 7, (CLIENT, OTHER, CLIENT)),))
MACHINES = (_machine("b1", "a", MACS[0]), _machine("b2", "b", MACS[1]), _machine("b3", "c", MACS[2]))


TWINS = Trial(
    Service("s", SERVICE.claim, (_backend("near", MACS[0], 1), _backend("far", MACS[0], 1, egress="p2"))),
    Protocol.ICMP,
    TRIAL.flights,
)
ON_TWO_PORTS = (_machine("b1", "near", MACS[0]), _machine("b2", "far", MACS[0], egress="p2"))
STRANGER = "02:ff:00:00:00:01"


def _traffic(sent: int, answers: dict[tuple[str, str], int]) -> ServiceTraffic:
    return service_traffic(TRIAL, MACHINES, sent=sent, answers=Counter(answers))


def _report(*services: ServiceTraffic) -> LabReport:
    return LabReport(services, (), 0, (), 1.0)


GOOD = _report(_traffic(1, {(CLIENT, "b1"): 1}))
REPORTS: dict[str, LabReport] = {
    "labels and MACs become names of the service, and other machines are counted apart": _report(
        _traffic(7, {(CLIENT, "b1"): 2, (OTHER, MACS[1]): 1, (CLIENT, "b3"): 1, (CLIENT, STRANGER): 2})
    ),
    "a MAC on two ports is identified by its label alone": _report(
        service_traffic(TWINS, ON_TWO_PORTS, sent=3, answers=Counter({(CLIENT, "b2"): 2, (CLIENT, MACS[0]): 1}))
    ),
    "all are answered by its own": _report(_traffic(3, {(CLIENT, "b1"): 2, (OTHER, "b2"): 1})),
    "one of a hundred is lost": _report(_traffic(100, {(CLIENT, "b1"): 99})),
    "two of a hundred are lost": _report(_traffic(100, {(CLIENT, "b1"): 98})),
    "no answer": _report(_traffic(3, {})),
    "another service answers": _report(_traffic(3, {(CLIENT, "b1"): 2, (OTHER, "b3"): 1})),
    "answers twice": replace(GOOD, duplicates=1),
    "packets that were not sent": replace(GOOD, failures=(("no route", 3),)),
    "nothing was sent": _report(_traffic(0, {})),
    "no service": _report(),
}


def test_served_is_what_its_own_backends_answered_once(*, update_golden: bool) -> None:
    shown = dict[str, str]()
    for title, report in REPORTS.items():
        lines = [f"sent: {report.is_sent}, served: {report.is_served}"]
        for each in report.services:
            lines += [f"{each.clients} clients, {each.answered} of {each.sent} answered, served: {each.is_served}"]
            lines += map(str, (*each.backends, *each.foreign_answers, *sorted(each.answers.items())))
        shown[title] = "\n".join(lines)
    assert_recorded("lab/traffic.txt", shown, update=update_golden)


def test_what_programs_of_a_lab_tell_each_other_survives_json() -> None:
    assert parse_job(render_job(JOB)) == JOB
    for pace in (None, Pace(10, 2.5), Pace(0.5, None)):
        assert parse_round(render_round(TRIAL.flights, pace)) == (list(TRIAL.flights), pace)
    counts = AnswerCounts([3], Counter({(0, CLIENT, "b1"): 2}), 1, Counter({"No buffer space": 4}))
    assert parse_counts(render_counts(counts)) == counts


_FORBIDDEN = "the elephant cannot send to 255.255.255.255: Permission denied"


def test_an_elephant_begins_at_once_or_says_why_not() -> None:
    for arguments, said in (
        (("127.0.0.1", "100000", "0.1"), (0, "ready\n", "")),
        # A socket without SO_BROADCAST may not send there (ip(7)).
        (("255.255.255.255", "1000000"), (1, "ready\n", f"{_FORBIDDEN}\n")),
    ):
        argv = [*PYTHON_MODULE, "xenoovs.lab.fabric.elephant", *arguments]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == said

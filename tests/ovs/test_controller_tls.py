"""Switches that connect by TLS: both sides show a certificate, and strangers do not come in."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

import pytest
import trustme

from tests.ovs.certificates import certificates
from tests.ovs.dummy import DummyOvs
from tests.ovs.scripted_switch import HELLO, peer, read_to_end
from tests.ovs.ways import Record, Way, live_switch, running_server
from tests.patience import eventually
from xenoovs.controller.server import Server
from xenoovs.openflow.flow import Bundle, Command, FlowMod
from xenoovs.openflow.text import parse_flow

_FLOWS = tuple(
    parse_flow(f"cookie=0x786f000000000001, priority={priority},ip actions=output:p1") for priority in range(1, 2001)
)


@pytest.fixture
def record() -> Record:
    return Record()


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server(authority: trustme.CA, record: Record, tmp_path: Path) -> Iterator[Server]:
    with running_server(record, certificates=certificates(authority, tmp_path, "controller")) as made:
        yield made


def test_flows_go_and_come_by_tls(own_ovs: DummyOvs, authority: trustme.CA, server: Server, tmp_path: Path) -> None:
    own = certificates(authority, tmp_path, "switch")
    own_ovs.ovs.vsctl("set-ssl", str(own.key), str(own.certificate), str(own.authority))
    with own_ovs.bridge():
        assert server.target.startswith("ssl:127.0.0.1:")
        switch = Way(server).switch(own_ovs)
        switch.apply("ovsbr1", Bundle(tuple(FlowMod(Command.ADD, flow) for flow in _FLOWS)))
        seen = {observed.flow for observed in switch.dump_flows("ovsbr1")}
        assert seen == set(_FLOWS) == {observed.flow for observed in live_switch(own_ovs.ovs).dump_flows("ovsbr1")}


@pytest.mark.parametrize(
    ("who", "reason"),
    [
        ("a switch of another authority", "CERTIFICATE_VERIFY_FAILED"),
        ("a switch whose certificate has ended", "CERTIFICATE_VERIFY_FAILED"),
        ("a controller of another authority", "TLSV1_ALERT_UNKNOWN_CA"),
    ],
)
def test_a_certificate_that_the_other_side_does_not_trust(
    own_ovs: DummyOvs, authority: trustme.CA, tmp_path: Path, who: str, reason: str
) -> None:
    other, ended = trustme.CA(), datetime(2020, 1, 1, tzinfo=timezone.utc) if "ended" in who else None
    own = certificates(authority if ended else other, tmp_path, "switch", not_after=ended)
    ours = certificates(authority, tmp_path, "controller")
    # Only one side is to refuse the other.
    if "controller" in who:
        other.cert_pem.write_to_path(ours.authority)
    else:
        authority.cert_pem.write_to_path(own.authority)
    own_ovs.ovs.vsctl("set-ssl", str(own.key), str(own.certificate), str(own.authority))
    record = Record()
    with own_ovs.bridge(), running_server(record, certificates=ours) as server:
        Way(server).switch(own_ovs)
        event = "a connection is refused: no TLS with a certificate we trust"
        eventually(lambda: record.of(event) != [], "the refusal")
        assert server.registry.connections == ()
    assert record.of(event)[0]["reason"] == reason


def test_a_peer_without_tls_or_without_certificate(record: Record, server: Server, authority: trustme.CA) -> None:
    with peer(server) as sock:
        sock.sendall(HELLO)
        read_to_end(sock)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.check_hostname = False
    with peer(server) as sock, context.wrap_socket(sock) as secure, suppress(OSError):
        secure.sendall(HELLO)
        read_to_end(secure)
    eventually(lambda: len(record.events) >= 3, "both are told")
    reasons = [str(facts["reason"]) for event, facts in record.events if "refused" in event]
    assert [reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST") for reason in reasons] == [True, False]
    assert reasons[1] == "PEER_DID_NOT_RETURN_A_CERTIFICATE"

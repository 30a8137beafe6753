"""Switches that connect by TLS: both sides show a certificate, and strangers do not come in."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

import pytest
import trustme

from tests.command_line import CommandLine
from tests.ovs.certificates import certificates
from tests.ovs.dummy import DummyOvs
from tests.ovs.scripted_switch import HELLO, peer, read_to_end
from tests.ovs.ways import Record, Way, live_switch, running_server
from tests.patience import eventually
from xenoovs.controller.server import Server
from xenoovs.openflow.flow import Bundle, Command, FlowMod
from xenoovs.openflow.text import parse_flow
from xenoovs.switch.certificates import Certificates

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


def _give(ovs: DummyOvs, own: Certificates) -> None:
    ovs.ovs.vsctl("set-ssl", str(own.key), str(own.certificate), str(own.authority))


def test_flows_go_and_come_by_tls(own_ovs: DummyOvs, authority: trustme.CA, server: Server, tmp_path: Path) -> None:
    _give(own_ovs, certificates(authority, tmp_path, "switch"))
    with own_ovs.bridge():
        assert server.target.startswith("ssl:127.0.0.1:")
        switch = Way(server).switch(own_ovs)
        switch.apply("ovsbr1", Bundle(tuple(FlowMod(Command.ADD, flow) for flow in _FLOWS)))
        seen = {observed.flow for observed in switch.dump_flows("ovsbr1")}
        assert seen == set(_FLOWS) == {observed.flow for observed in live_switch(own_ovs.ovs).dump_flows("ovsbr1")}


def test_a_switch_of_another_authority_or_whose_certificate_has_run_out_is_refused(
    own_ovs: DummyOvs, authority: trustme.CA, tmp_path: Path
) -> None:
    ended = datetime(2020, 1, 1, tzinfo=timezone.utc)
    ours = certificates(authority, tmp_path, "controller")
    with own_ovs.bridge():
        for name, wrong in (
            ("stranger", certificates(trustme.CA(), tmp_path, "stranger")),
            ("ended", certificates(authority, tmp_path, "ended", not_after=ended)),
        ):
            _give(own_ovs, wrong)
            record = Record()
            with running_server(record, certificates=ours) as server:
                Way(server).switch(own_ovs)
                event = "a connection is refused: no TLS with a certificate we trust"
                eventually(lambda: record.of(event) != [], f"refusal of {name}")  # noqa: B023
                assert server.registry.connections == ()
            own_ovs.ovs.vsctl("del-controller", "ovsbr1")
    assert record.of(event)[0]["reason"] == "CERTIFICATE_VERIFY_FAILED"


def test_a_controller_of_another_authority_is_let_go_by_the_switch(own_ovs: DummyOvs, tmp_path: Path) -> None:
    """The other way round: the switch does not trust us, and says so; nothing of ours breaks."""
    ours, theirs, record = trustme.CA(), trustme.CA(), Record()
    switch_side = certificates(theirs, tmp_path, "switch")
    mixed = certificates(ours, tmp_path, "controller")
    theirs.cert_pem.write_to_path(mixed.authority)
    own_ovs.ovs.vsctl("set-ssl", str(switch_side.key), str(switch_side.certificate), str(switch_side.authority))
    with own_ovs.bridge(), running_server(record, certificates=mixed) as running:
        Way(running).switch(own_ovs)
        eventually(lambda: len(record.events) > 1, "the failure is told")
        assert running.registry.connections == ()


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


_TLS = ["--tls-key", "k", "--tls-cert", "c", "--tls-ca", "a"]


@pytest.mark.parametrize(
    ("options", "status", "told"),
    [
        (["--listen", "0.0.0.0:0"], 64, "give --tls-key, --tls-cert and --tls-ca"),
        (["--listen", "[::]:0"], 64, "give --tls-key, --tls-cert and --tls-ca"),
        (["--listen", "127.0.0.1:0", "--tls-ca", "a"], 64, "TLS needs all of"),
        (["--listen", "127.0.0.1:0", *_TLS], 1, "c with the key k for TLS: No such file"),
        (_TLS, 64, "--tls-ca is for --listen ADDRESS:PORT"),
    ],
)
def test_beyond_this_host_tls_is_required(
    capsys: pytest.CaptureFixture[str], config: Path, options: list[str], status: int, told: str
) -> None:
    # A place of its own: an agent locks its bridge, and others of this name are at work.
    said = CommandLine(capsys)("controller", config, "--db", f"unix:{config.parent}/db.sock", *options)
    assert (said.status, told in said.err) == (status, True), said.err

"""Doctor's rows of tunnels of Open vSwitch: each fault without an error message has its row and a fix."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any

import pytest

from tests.judged import assert_shown
from tests.unit.judge.doctor.facts import as_text
from xenoovs.datapath.database import BridgeState, Database, PortState
from xenoovs.datapath.fact import NOT_READ, Fact, Unknown
from xenoovs.datapath.host import Daemon, Device, HostFacts, OffloadHistory, OffloadState
from xenoovs.datapath.ike_log import IkeFailure
from xenoovs.datapath.ipsec import IpsecState, RouteTo, SecurityAssociation, parse_policies
from xenoovs.datapath.tunnel_facts import NeighbourEntry, TunnelEnd, TunnelFacts, tunnel_ends
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor.check import CheckResult, CheckState, DoctorCase, RemoteAnswers, RequiredTunnel, Requirements
from xenoovs.judge.doctor.tunnels import check_probe_ports, check_reflectors, check_source_ports, check_tunnel_ends

LOCAL, REMOTE = int(IPv4Address("192.0.2.1")), int(IPv4Address("192.0.2.12"))
GENEVE = TunnelEnd("gnv0", "geneve", "genev_sys_6081", "192.0.2.12", "192.0.2.1", 6081)
POLICY = """\
src 192.0.2.1/32 dst 192.0.2.12/32 proto udp dport 6081
\tdir out priority 366847 ptype main
\ttmpl src 0.0.0.0 dst 0.0.0.0
\t\tproto esp reqid 2 mode transport
"""
TUNNEL = PortState("gnv0", ofport=3, type="geneve", options={"remote_ip": "flow", "key": "flow"})
UPLINK = PortState("br-ul", ofport=65534, type="internal")


def _device(name: str, *, mtu: int = 1600, switch_id: str | None = "aa", ingress: Fact[bool] = True) -> Device:
    return Device(name, is_up=True, mtu=mtu, switch_id=switch_id, ingress=ingress)


DEVICES = {
    "p0": _device("p0", mtu=1500),
    "p1": _device("p1"),
    "br-ul": _device("br-ul", switch_id=None),
    "genev_sys_6081": _device("genev_sys_6081", switch_id=None),
}


def _rows(
    end: TunnelEnd = GENEVE,
    *,
    route: Fact[RouteTo] = RouteTo("p1", LOCAL),  # noqa: B008
    neighbours: Mapping[str, NeighbourEntry] | None = None,
    cached: Mapping[str, str] | None = None,
    ipsec: Fact[IpsecState] = IpsecState(),  # noqa: B008
    programs: frozenset[str] = frozenset(),
    devices: Mapping[str, Device] = DEVICES,
    is_on: bool = True,
    datapath: str = "system",
    failures: Mapping[str, IkeFailure] | None = None,
    others: tuple[TunnelEnd, ...] = (),
    tagged: Collection[str] = (),
) -> dict[tuple[str, str | None], CheckResult]:
    facts = TunnelFacts(
        (end, *others),
        routes={"192.0.2.12": route},
        addresses={"lo": ("127.0.0.1",), "p1": ("192.0.2.1",)},
        neighbours={"192.0.2.12": NeighbourEntry("02:00:00:00:00:02", "STALE")} if neighbours is None else neighbours,
        cached=cached or {},
        ipsec=ipsec,
        programs=programs,
        ike_failures=failures or {},
    )
    bridges = (
        BridgeState("br-ul", (UPLINK, PortState("u0"))),
        BridgeState("ovsbr1", (TUNNEL,), datapath_type=datapath),
    )
    daemon = Daemon(OffloadState(is_on, "the log"), OffloadHistory(), 200_000)
    host = HostFacts(is_local=True, database=Database(bridges=bridges), daemon=daemon, devices=devices, tunnels=facts)
    case = DoctorCase(Evidence(host), Requirements("ovsbr1", ("p0",), ("gnv0",), entries=0, tagged=frozenset(tagged)))
    return {(row.name, row.subject): row for row in check_tunnel_ends(case)}


def test_a_tunnel_that_the_nic_can_encapsulate_has_these_rows() -> None:
    assert {name: row.state for (name, _), row in _rows().items()} == dict.fromkeys(
        ("tunnel route", "tunnel local", "tunnel MTU", "tunnel neighbour", "tunnel qdisc"), CheckState.OK
    )


USERSPACE = TunnelEnd("gnv0", "geneve", "genev_sys", "192.0.2.12", None, 6081, is_userspace=True)
IN_USERSPACE = {"end": USERSPACE, "route": RouteTo("br-ul"), "datapath": "netdev"}
GRE = TunnelEnd("gre0", "gre", "gre_sys", "192.0.2.12", "192.0.2.1")
ENCRYPTED = replace(GENEVE, is_encrypted=True)
NO_QDISC = {**DEVICES, "genev_sys_6081": _device("genev_sys_6081", ingress=False)}
WITH_ETH0 = {**DEVICES, "eth0": _device("eth0", switch_id=None)}
POLICIES = IpsecState(parse_policies(POLICY))
NO_KEY = IkeFailure("2026-11-24T13:42:36+0000", "its pre-shared key is another one")


def _by_p1(mtu: int) -> RouteTo:
    return RouteTo("p1", LOCAL, mtu=mtu)


def _known(mac: str | None, state: str) -> dict[str, NeighbourEntry]:
    return {"192.0.2.12": NeighbourEntry(mac, state)}


def _ipsec(offload: str | None = None, packets: int = 7) -> IpsecState:
    device = None if offload is None else "p1"
    out = SecurityAssociation(LOCAL, REMOTE, False, 1, device, "out" if device else None, offload, packets)
    back = SecurityAssociation(REMOTE, LOCAL, False, 2, packets=packets)
    return IpsecState(parse_policies(POLICY), (out, back))


def _running(*programs: str) -> dict[str, Any]:
    return {"end": ENCRYPTED, "ipsec": _ipsec(), "programs": frozenset(("ovs-monitor-ipsec", *programs))}


ROWS: dict[str, list[tuple[dict[str, Any], str]]] = {
    "tunnel route": [
        ({}, "ok: by p1, on the eSwitch of p0"),
        ({"route": RouteTo("br-ul", LOCAL)}, "wrong: by br-ul of bridge br-ul: the CPU encapsulates..."),
        (
            {"route": RouteTo("eth0", LOCAL), "devices": WITH_ETH0},
            "wrong: by eth0, which is not on the eSwitch of p0",
        ),
        ({"route": RouteTo("lo", LOCAL, is_local=True)}, "wrong: it is an address of this host"),
        ({"route": Unknown("Network is unreachable")}, "wrong: none: Network is unreachable"),
        (IN_USERSPACE, "ok: ..."),
        ({**IN_USERSPACE, "route": RouteTo("p1")}, "wrong: ..."),
        # Bug: an address on a port of the bridge was right, and nothing came back.
        (
            {**IN_USERSPACE, "route": RouteTo("u0")},
            "wrong: by u0, a port of bridge br-ul: a userspace datapath needs the address on br-ul itself",
        ),
    ],
    "tunnel MTU": [
        ({}, "ok: 1600 of p1, needed 1550 (1500 of the clients + 50 of geneve)"),
        (
            {"route": _by_p1(1549)},
            "wrong: 1549 of p1 is below 1550 (1500 of the clients + 50 of geneve); or lower that of the clients -> ...",
        ),
        ({"route": _by_p1(1550)}, "ok: ..."),
        (
            {"end": GRE, "route": _by_p1(1541)},
            "wrong: 1541 of p1 is below 1542 (1500 of the clients + 42 of gre); or lower that of the clients -> ...",
        ),
        ({"end": GRE, "route": _by_p1(1542)}, "ok: ..."),
        (
            {"end": ENCRYPTED, "route": _by_p1(1586)},
            "wrong: 1586 of p1 is below 1587 (1500 of the clients + 50 of geneve + 37 of ESP); or lower...",
        ),
        ({"end": ENCRYPTED, "route": _by_p1(1587)}, "ok: ..."),
        # A tag that frames keep in a tunnel needs room.
        (
            {"route": _by_p1(1553), "tagged": {"gnv0"}},
            "wrong: 1553 of p1 is below 1554 (1500 of the clients + 50 of geneve + 4 of a tag); or lower...",
        ),
        ({"route": _by_p1(1554), "tagged": {"gnv0"}}, "ok: 1554 of p1, needed 1554..."),
    ],
    "tunnel local": [
        ({"end": replace(GENEVE, local="192.0.2.77")}, "wrong: 192.0.2.77 is on no device"),
    ],
    "tunnel neighbour": [
        ({"neighbours": _known("02:00:00:00:00:02", "REACHABLE")}, "ok: ..."),
        ({"neighbours": _known(None, "FAILED")}, "wrong: ..."),
        ({"neighbours": _known(None, "INCOMPLETE")}, "unknown: ..."),
        (
            {"route": RouteTo("p1", LOCAL, gateway="192.0.2.254")},
            "unknown: 192.0.2.254: no MAC yet; the CPU forwards the first packets -> ...",
        ),
        # A backend whose MAC changed is a black hole in userspace.
        (
            {**IN_USERSPACE, "cached": {"192.0.2.12": "02:00:00:00:00:99"}},
            "wrong: ...=> ovs-appctl tnl/neigh/flush",
        ),
        ({**IN_USERSPACE, "cached": {"192.0.2.12": "02:00:00:00:00:02"}}, "ok: ..."),
    ],
    "tunnel qdisc": [
        ({"devices": NO_QDISC}, "wrong: ..."),
        ({"devices": NO_QDISC, "is_on": False}, "unknown: ..."),
    ],
    "IPsec programs": [
        (_running("charon"), "ok: ovs-monitor-ipsec and charon run"),
        (_running(), "wrong: an IKE daemon not running on this host -> ..."),
        # That which Debian 13 installs by default.
        (
            _running("charon-systemd"),
            "wrong: an IKE daemon not running on this host; charon-systemd does not read what ovs-monitor-ipsec writes"
            " -> apt-get install strongswan-charon && systemctl restart openvswitch-ipsec",
        ),
    ],
    "IPsec policy": [
        ({"end": ENCRYPTED, "ipsec": _ipsec()}, "ok: ..."),
        ({"end": ENCRYPTED}, "wrong: none covers packets to this remote..."),
        # strongSwan has policies before SAs, and logs by address; Libreswan has both together, and logs by port.
        *(
            (
                {"end": ENCRYPTED, "failures": {whose: NO_KEY}},
                "wrong: ...; the last SA failed: its pre-shared key is another one (at 13:42:36)...",
            )
            for whose in ("192.0.2.12", "gnv0")
        ),
    ],
    "IPsec SA": [
        ({"end": ENCRYPTED, "ipsec": _ipsec()}, "ok: 7 packets out, 7 in"),
        ({"end": ENCRYPTED, "ipsec": POLICIES}, "wrong: none from 192.0.2.1;..."),
        *(
            (
                {"end": ENCRYPTED, "ipsec": POLICIES, "failures": {whose: NO_KEY}},
                "wrong: none from 192.0.2.1: its pre-shared key is another one (at 13:42:36)",
            )
            for whose in ("192.0.2.12", "gnv0")
        ),
    ],
    "IPsec offload": [
        ({"end": ENCRYPTED, "ipsec": _ipsec(), "is_on": False}, "ok: none: the CPU encapsulates and encrypts"),
        ({"end": ENCRYPTED, "ipsec": _ipsec()}, "unknown: ..."),
        ({"end": ENCRYPTED, "ipsec": _ipsec("crypto")}, "unknown: ..."),
        ({"end": ENCRYPTED, "ipsec": _ipsec("packet")}, "ok: ..."),
        # A tunnel without `ipsec` that a policy of another program covers.
        ({"ipsec": _ipsec()}, "unknown: ..."),
    ],
}


@pytest.mark.parametrize(
    ("name", "facts", "row"), [(name, facts, row) for name, rows in ROWS.items() for facts, row in rows]
)
def test_the_row_of_a_tunnel(name: str, facts: dict[str, Any], row: str) -> None:
    (found,) = (each for (check, _), each in _rows(**facts).items() if check == name)
    assert_shown(as_text(found), row)


def test_bug_the_command_of_one_tunnel_made_the_mtu_too_low_for_another() -> None:
    devices = {**DEVICES, "p1": _device("p1", mtu=1500)}
    rows = _rows(GENEVE, others=(GRE,), devices=devices)
    for port in ("gnv0", "gre0"):
        fix = rows["tunnel MTU", f"{port} 192.0.2.12"].fix
        assert fix is not None
        assert fix.commands == (("ip", "link", "set", "dev", "p1", "mtu", "1550"),)


def test_ends_come_from_the_options_of_ports() -> None:
    options = {"remote_ip": "192.0.2.7", "psk": "(hidden)", "dst_port": "4790"}
    ports = (
        TUNNEL,
        PortState("v0", type="vxlan", options=options),
        PortState("v1", type="vxlan", options={"remote_ip": "host.example"}),
        PortState("p0"),
    )
    found = list(tunnel_ends(BridgeState("ovsbr1", ports), {"gnv0": ("192.0.2.11", "192.0.2.12")}))
    assert [(end.port, end.remote, end.device, end.dst_port, end.is_encrypted) for end in found] == [
        ("gnv0", "192.0.2.11", "genev_sys_6081", 6081, False),
        ("gnv0", "192.0.2.12", "genev_sys_6081", 6081, False),
        ("v0", "192.0.2.7", "vxlan_sys_4790", 4790, True),
    ]


_HOST = HostFacts(is_local=True, database=NOT_READ, daemon=NOT_READ, devices=NOT_READ)


def rows(remotes: Fact[tuple[RemoteAnswers, ...]], *, has_source_ports: bool | None = True) -> dict[str, str]:
    tunnel = RequiredTunnel("rack7", remotes, has_source_ports)
    required = Requirements("ovsbr1", ("p0",), ("pf0hpf",), entries=0, tunnels=(tunnel,))
    case = DoctorCase(Evidence(_HOST), required)
    found = [*check_reflectors(case), *check_source_ports(case)]
    return {f"{row.name} {row.subject}": as_text(row) for row in found}


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ((RemoteAnswers("rack7/b", "", 0x20, 0x20),), {}),
        (
            (RemoteAnswers("rack7/b", "", 0, 0x20),),
            {"TOS kept rack7/b": "wrong: 0x00 came back, 0x20 was sent..."},
        ),
        (
            (RemoteAnswers("rack7/b", "", 0x20, 0x20, returned=7),),
            {"TOS of host rack7/b": "wrong: 7 packets of the host came back; choose another `tos` at both ends..."},
        ),
        (
            (RemoteAnswers("rack7/b", "no path answers", None, 0x20),),
            {"reflector answers rack7/b": "wrong: no path answers..."},
        ),
        (Unknown("no agent runs"), {"reflector answers rack7": "unknown: no agent runs..."}),
    ],
    ids=["our TOS", "another TOS", "the host writes it too", "silent", "no agent"],
)
def test_the_rows_of_the_remotes_of_a_tunnel(answers: Fact[tuple[RemoteAnswers, ...]], wanted: dict[str, str]) -> None:
    """All others are right."""
    found, names = rows(answers), ["source ports of host rack7"]
    if not isinstance(answers, Unknown) and not answers[0].problem:
        names += [f"{name} rack7/b" for name in ("reflector answers", "TOS kept", "TOS of host")]
    right = dict.fromkeys(names, "ok: ...")
    assert found.keys() == (right | wanted).keys()
    for name, row in (right | wanted).items():
        assert_shown(found[name], row)


def _probe_port(*ports: PortState, devices: Fact[Mapping[str, Device]] = NOT_READ) -> CheckResult:
    database = Database(bridges=(BridgeState("ovsbr1", ports=ports),))
    host = HostFacts(is_local=True, database=database, daemon=NOT_READ, devices=devices)
    tunnels = (RequiredTunnel("rack7", (), None, "xoar0"),)
    (row,) = check_probe_ports(
        DoctorCase(Evidence(host), Requirements("ovsbr1", ("p0",), ("pf0hpf",), 0, tunnels=tunnels))
    )
    return row


INTERNAL = PortState("xoar0", ofport=3, type="internal")


@pytest.mark.parametrize(
    ("port", "is_up", "row"),
    [
        (None, None, "wrong: on no bridge => ovs-vsctl ... && ip ..."),
        (INTERNAL, None, "unknown: ..."),
        (INTERNAL, True, "ok: ..."),
        (INTERNAL, False, "wrong: ...=> ..."),
        (PortState("xoar0", ofport=3), None, "wrong: of type system, not internal..."),
        (PortState("xoar0", type="internal", error="busy"), None, "wrong: does not work: busy..."),
    ],
)
def test_the_row_of_a_probe_port(port: PortState | None, is_up: bool | None, row: str) -> None:
    devices = NOT_READ if is_up is None else {"xoar0": Device("xoar0", is_up=is_up, mtu=1500)}
    assert_shown(as_text(_probe_port(*filter(None, [port]), devices=devices)), row)


def test_a_host_whose_ports_are_not_known_may_cost_28232_megaflows() -> None:
    (row,) = rows((), has_source_ports=False).values()
    assert_shown(row, "unknown: ...28232...")
    assert not rows((), has_source_ports=None)

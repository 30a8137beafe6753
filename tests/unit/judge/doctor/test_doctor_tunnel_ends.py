"""Doctor's rows of tunnels of Open vSwitch: each fault without an error message has its row and a fix."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from ipaddress import IPv4Address

import pytest

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


def _row(name: str, subject: str | None = "gnv0 192.0.2.12", **facts: object) -> CheckResult:
    return _rows(**facts)[name, subject]  # type: ignore[arg-type]


def test_a_tunnel_that_the_nic_can_encapsulate_is_right() -> None:
    found = _rows()
    assert {name: row.state for (name, _), row in found.items()} == dict.fromkeys(
        ("tunnel route", "tunnel local", "tunnel MTU", "tunnel neighbour", "tunnel qdisc"), CheckState.OK
    )
    assert found["tunnel route", "gnv0 192.0.2.12"].seen == "by p1, on the eSwitch of p0"
    assert found["tunnel MTU", "gnv0 192.0.2.12"].seen == (
        "1600 of p1, needed 1550 (1500 of the clients + 50 of geneve)"
    )


@pytest.mark.parametrize(
    ("route", "seen"),
    [
        (RouteTo("br-ul", LOCAL), "by br-ul of bridge br-ul: the CPU encapsulates"),
        (RouteTo("eth0", LOCAL), "by eth0, which is not on the eSwitch of p0"),
        (RouteTo("lo", LOCAL, is_local=True), "it is an address of this host"),
        (Unknown("Network is unreachable"), "none: Network is unreachable"),
    ],
)
def test_a_route_by_which_the_nic_cannot_encapsulate(route: Fact[RouteTo], seen: str) -> None:
    devices = {**DEVICES, "eth0": _device("eth0", switch_id=None)}
    row = _row("tunnel route", route=route, devices=devices)
    assert row.state is CheckState.WRONG
    assert row.seen.startswith(seen)


def test_a_userspace_datapath_sends_by_a_bridge() -> None:
    end = TunnelEnd("gnv0", "geneve", "genev_sys", "192.0.2.12", None, 6081, is_userspace=True)
    assert _row("tunnel route", end=end, route=RouteTo("br-ul"), datapath="netdev").state is CheckState.OK
    assert _row("tunnel route", end=end, route=RouteTo("p1"), datapath="netdev").state is CheckState.WRONG


def test_bug_an_address_on_a_port_of_the_bridge_was_right_in_userspace_and_nothing_came_back() -> None:
    end = TunnelEnd("gnv0", "geneve", "genev_sys", "192.0.2.12", None, 6081, is_userspace=True)
    row = _row("tunnel route", end=end, route=RouteTo("u0"), datapath="netdev")
    assert (row.state, row.seen) == (
        CheckState.WRONG,
        "by u0, a port of bridge br-ul: a userspace datapath needs the address on br-ul itself",
    )


def test_a_tag_that_frames_keep_in_a_tunnel_needs_room() -> None:
    seen = {
        (row := _row("tunnel MTU", route=RouteTo("p1", LOCAL, mtu=mtu), tagged={"gnv0"})).state: row.seen
        for mtu in (1553, 1554)
    }
    needs = "1554 (1500 of the clients + 50 of geneve + 4 of a tag)"
    assert seen[CheckState.WRONG] == f"1553 of p1 is below {needs}; or lower that of the clients"
    assert seen[CheckState.OK].startswith("1554 of p1, needed 1554")


def test_bug_the_command_of_one_tunnel_made_the_mtu_too_low_for_another() -> None:
    gre = TunnelEnd("gre0", "gre", "gre_sys", "192.0.2.12", "192.0.2.1")
    devices = {**DEVICES, "p1": _device("p1", mtu=1500)}
    rows = _rows(GENEVE, others=(gre,), devices=devices)
    for port in ("gnv0", "gre0"):
        fix = rows["tunnel MTU", f"{port} 192.0.2.12"].fix
        assert fix is not None
        assert fix.commands == (("ip", "link", "set", "dev", "p1", "mtu", "1550"),)


@pytest.mark.parametrize(
    ("end", "mtu", "need"),
    [
        (GENEVE, 1549, "1550 (1500 of the clients + 50 of geneve)"),
        (TunnelEnd("gre0", "gre", "gre_sys", "192.0.2.12"), 1541, "1542 (1500 of the clients + 42 of gre)"),
        (
            TunnelEnd("gnv0", "geneve", "genev_sys_6081", "192.0.2.12", None, 6081, is_encrypted=True),
            1586,
            "1587 (1500 of the clients + 50 of geneve + 37 of ESP)",
        ),
    ],
)
def test_an_mtu_that_packets_of_clients_do_not_fit_in(end: TunnelEnd, mtu: int, need: str) -> None:
    row = _row("tunnel MTU", subject=f"{end.port} 192.0.2.12", end=end, route=RouteTo("p1", LOCAL, mtu=mtu))
    assert (row.state, row.seen) == (
        CheckState.WRONG,
        f"{mtu} of p1 is below {need}; or lower that of the clients",
    )
    right = _row("tunnel MTU", subject=f"{end.port} 192.0.2.12", end=end, route=RouteTo("p1", LOCAL, mtu=mtu + 1))
    assert right.state is CheckState.OK


def test_a_local_address_that_no_device_has() -> None:
    end = TunnelEnd("gnv0", "geneve", "genev_sys_6081", "192.0.2.12", "192.0.2.77", 6081)
    row = _row("tunnel local", end=end)
    assert (row.state, row.seen) == (CheckState.WRONG, "192.0.2.77 is on no device")


@pytest.mark.parametrize(
    ("entry", "state"),
    [
        (NeighbourEntry("02:00:00:00:00:02", "REACHABLE"), CheckState.OK),
        (NeighbourEntry(None, "FAILED"), CheckState.WRONG),
        (NeighbourEntry(None, "INCOMPLETE"), CheckState.UNKNOWN),
    ],
)
def test_the_neighbour_of_a_remote(entry: NeighbourEntry, state: CheckState) -> None:
    assert _row("tunnel neighbour", neighbours={"192.0.2.12": entry}).state is state


def test_the_neighbour_is_that_of_the_gateway() -> None:
    row = _row("tunnel neighbour", route=RouteTo("p1", LOCAL, gateway="192.0.2.254"))
    assert (row.state, row.seen) == (
        CheckState.UNKNOWN,
        "192.0.2.254: not known yet; the first packets go by the CPU",
    )


def test_a_backend_whose_mac_changed_is_a_black_hole_in_userspace() -> None:
    end = TunnelEnd("gnv0", "geneve", "genev_sys", "192.0.2.12", None, 6081, is_userspace=True)
    row = _row("tunnel neighbour", end=end, route=RouteTo("br-ul"), cached={"192.0.2.12": "02:00:00:00:00:99"})
    assert (row.state, row.has_safe_fix) == (CheckState.WRONG, True)
    assert row.fix is not None
    assert row.fix.commands == (("ovs-appctl", "tnl/neigh/flush"),)
    right = _row("tunnel neighbour", end=end, route=RouteTo("br-ul"), cached={"192.0.2.12": "02:00:00:00:00:02"})
    assert right.state is CheckState.OK


def test_a_tunnel_device_without_its_qdisc() -> None:
    devices = {**DEVICES, "genev_sys_6081": _device("genev_sys_6081", ingress=False)}
    assert _row("tunnel qdisc", "genev_sys_6081", devices=devices).state is CheckState.WRONG
    assert _row("tunnel qdisc", "genev_sys_6081", devices=devices, is_on=False).state is CheckState.UNKNOWN


ENCRYPTED = TunnelEnd("gnv0", "geneve", "genev_sys_6081", "192.0.2.12", "192.0.2.1", 6081, is_encrypted=True)


def _ipsec(offload: str | None = None, packets: int = 7) -> IpsecState:
    device = None if offload is None else "p1"
    out = SecurityAssociation(LOCAL, REMOTE, False, 1, device, "out" if device else None, offload, packets)
    back = SecurityAssociation(REMOTE, LOCAL, False, 2, packets=packets)
    return IpsecState(parse_policies(POLICY), (out, back))


def test_a_tunnel_with_ipsec_in_software() -> None:
    programs = frozenset(("ovs-monitor-ipsec", "charon"))
    found = _rows(ENCRYPTED, ipsec=_ipsec(), programs=programs, is_on=False)
    subject = "gnv0 192.0.2.12"
    assert found["IPsec programs", None].seen == "ovs-monitor-ipsec and charon run"
    assert found["IPsec policy", subject].state is CheckState.OK
    assert found["IPsec SA", subject].seen == "7 packets out, 7 in"
    assert found["IPsec offload", subject].seen == "none: the CPU encapsulates and encrypts"


@pytest.mark.parametrize(
    ("name", "facts", "seen"),
    [
        ("IPsec policy", {"ipsec": IpsecState()}, "none covers packets to this remote"),
        ("IPsec SA", {"ipsec": IpsecState(parse_policies(POLICY))}, "none from 192.0.2.1;"),
    ],
)
def test_a_tunnel_whose_ipsec_does_not_work(name: str, facts: dict[str, object], seen: str) -> None:
    row = _row(name, "gnv0 192.0.2.12", end=ENCRYPTED, **facts)
    assert row.state is CheckState.WRONG
    assert row.seen.startswith(seen)


@pytest.mark.parametrize("whose", ["192.0.2.12", "gnv0"])
def test_the_ike_daemon_has_the_cause(whose: str) -> None:
    """strongSwan has policies before SAs, and logs by address; Libreswan has both together, and logs by port."""
    failures = {whose: IkeFailure("2026-11-24T13:42:36+0000", "its pre-shared key is another one")}
    row = _row("IPsec SA", end=ENCRYPTED, ipsec=IpsecState(parse_policies(POLICY)), failures=failures)
    assert (row.state, row.seen) == (
        CheckState.WRONG,
        "none from 192.0.2.1: its pre-shared key is another one (at 13:42:36)",
    )
    row = _row("IPsec policy", end=ENCRYPTED, ipsec=IpsecState(), failures=failures)
    assert row.seen.endswith("; the last SA failed: its pre-shared key is another one (at 13:42:36)")


def test_ipsec_without_its_programs() -> None:
    row = _row("IPsec programs", None, end=ENCRYPTED, ipsec=_ipsec(), programs=frozenset(("ovs-monitor-ipsec",)))
    assert (row.state, row.seen) == (CheckState.WRONG, "an IKE daemon not running on this host")


def test_the_charon_that_debian_13_installs_by_default_does_not_read_what_the_monitor_writes() -> None:
    programs = frozenset(("ovs-monitor-ipsec", "charon-systemd"))
    row = _row("IPsec programs", None, end=ENCRYPTED, ipsec=_ipsec(), programs=programs)
    why = "an IKE daemon not running on this host; charon-systemd does not read what ovs-monitor-ipsec writes"
    assert (row.state, row.seen) == (CheckState.WRONG, why)
    assert str(row.fix) == "apt-get install strongswan-charon && systemctl restart openvswitch-ipsec"


@pytest.mark.parametrize(
    ("offload", "state"),
    [(None, CheckState.UNKNOWN), ("crypto", CheckState.UNKNOWN), ("packet", CheckState.OK)],
)
def test_offload_of_ipsec_while_open_vswitch_offloads(offload: str | None, state: CheckState) -> None:
    assert _row("IPsec offload", end=ENCRYPTED, ipsec=_ipsec(offload)).state is state


def test_a_policy_of_another_program_has_rows_too() -> None:
    """A tunnel without `ipsec` that a policy of another program covers."""
    assert _row("IPsec offload", ipsec=_ipsec()).state is CheckState.UNKNOWN


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


def rows(remotes: Fact[tuple[RemoteAnswers, ...]], *, has_source_ports: bool | None = True) -> list[CheckResult]:
    tunnel = RequiredTunnel("rack7", remotes, has_source_ports)
    required = Requirements("ovsbr1", ("p0",), ("pf0hpf",), entries=0, tunnels=(tunnel,))
    case = DoctorCase(Evidence(_HOST), required)
    return [*check_reflectors(case), *check_source_ports(case)]


def states(found: list[CheckResult]) -> dict[tuple[str, str | None], CheckState]:
    return {(row.name, row.subject): row.state for row in found}


def test_a_remote_that_answers_with_our_tos_is_right() -> None:
    found = states(rows((RemoteAnswers("rack7/b", "", 0x20, 0x20),)))
    assert found == {
        ("reflector answers", "rack7/b"): CheckState.OK,
        ("TOS kept", "rack7/b"): CheckState.OK,
        ("TOS of host", "rack7/b"): CheckState.OK,
        ("source ports of host", "rack7"): CheckState.OK,
    }


def test_another_tos_is_wrong_and_both_are_named() -> None:
    (row,) = (row for row in rows((RemoteAnswers("rack7/b", "", 0, 0x20),)) if row.name == "TOS kept")
    assert row.state is CheckState.WRONG
    assert row.seen == "0x00 came back, 0x20 was sent"


def test_a_host_that_writes_the_tos_of_probes_is_wrong_with_the_number_of_its_packets() -> None:
    found = rows((RemoteAnswers("rack7/b", "", 0x20, 0x20, returned=7),))
    (row,) = (row for row in found if row.name == "TOS of host")
    assert row.state is CheckState.WRONG
    assert row.seen == "7 packets of the host came back; choose another `tos` at both ends"


def _probe_port(*ports: PortState, devices: Fact[Mapping[str, Device]] = NOT_READ) -> CheckResult:
    database = Database(bridges=(BridgeState("ovsbr1", ports=ports),))
    host = HostFacts(is_local=True, database=database, daemon=NOT_READ, devices=devices)
    tunnels = (RequiredTunnel("rack7", (), None, "xoar0"),)
    (row,) = check_probe_ports(
        DoctorCase(Evidence(host), Requirements("ovsbr1", ("p0",), ("pf0hpf",), 0, tunnels=tunnels))
    )
    return row


def test_a_probe_port_that_is_missing_can_be_added_by_fix() -> None:
    row = _probe_port()
    assert (row.state, row.seen, row.has_safe_fix) == (CheckState.WRONG, "on no bridge", True)
    assert row.fix is not None
    assert [command[0] for command in row.fix.commands] == ["ovs-vsctl", "ip"]


def test_a_probe_port_is_internal_and_up() -> None:
    port = PortState("xoar0", ofport=3, type="internal")
    assert _probe_port(port).state is CheckState.UNKNOWN
    assert _probe_port(port, devices={"xoar0": Device("xoar0", is_up=True, mtu=1500)}).state is CheckState.OK
    down = _probe_port(port, devices={"xoar0": Device("xoar0", is_up=False, mtu=1500)})
    assert (down.state, down.has_safe_fix) == (CheckState.WRONG, True)
    assert _probe_port(PortState("xoar0", ofport=3)).seen == "of type system, not internal"
    assert _probe_port(PortState("xoar0", type="internal", error="busy")).seen == "does not work: busy"


def test_a_silent_remote_is_wrong_with_the_agents_reason() -> None:
    found = rows((RemoteAnswers("rack7/b", "no path answers", None, 0x20),))
    assert states(found)["reflector answers", "rack7/b"] is CheckState.WRONG
    assert found[0].seen == "no path answers"


def test_without_an_agent_it_is_unknown() -> None:
    found = rows(Unknown("no agent runs"))
    assert states(found)["reflector answers", "rack7"] is CheckState.UNKNOWN


def test_a_host_whose_ports_are_not_known_may_cost_28232_megaflows() -> None:
    (row,) = (row for row in rows((), has_source_ports=False))
    assert row.state is CheckState.UNKNOWN
    assert "28232" in row.seen
    assert not rows((), has_source_ports=None)

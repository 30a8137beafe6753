"""Doctor's rows of tunnels: reflectors, the TOS that comes back, and the host's source ports."""

from __future__ import annotations

from collections.abc import Mapping

from xenoovs.datapath.database import BridgeState, Database, PortState
from xenoovs.datapath.fact import NOT_READ, Fact, Unknown
from xenoovs.datapath.host import Device, HostFacts
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor.check import CheckResult, CheckState, DoctorCase, RemoteAnswers, RequiredTunnel, Requirements
from xenoovs.judge.doctor.tunnels import check_probe_ports, check_reflectors, check_source_ports

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

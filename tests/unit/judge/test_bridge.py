"""Any bridge: megaflows by port, verdict and reason, and what is judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xenoovs.datapath.megaflow import Megaflow, Verdict
from xenoovs.datapath.parse import parse_dump, scan_dump
from xenoovs.evidence.evidence import BridgePorts, Evidence
from xenoovs.evidence.samples import DatapathSample, sample_of
from xenoovs.judge.bridge import BridgeFindings, check_bridge
from xenoovs.judge.findings import Conclusion

HW, TC_SW, SW = ", offloaded:yes, dp:tc", ", dp:tc", ", dp:ovs"


def _line(in_port: str, where: str, *, packets: int = 10, actions: str = "p1", key: str = "") -> str:
    keys = f"recirc_id(0),in_port({in_port}),eth(){key},eth_type(0x0800),ipv4(frag=no)"
    return f"{keys}, packets:{packets}, bytes:{packets}, used:1.000s{where}, actions:{actions}"


def _check(*lines: str, ports: BridgePorts | None = None) -> BridgeFindings:
    return check_bridge(scan_dump("\n".join(lines)), Evidence(ports=ports, internal_ports=frozenset({"br0"})))


@pytest.mark.parametrize(
    ("line", "reason", "is_judged"),
    [
        (_line("p0", SW), "", True),
        (_line("p0", SW, actions="drop"), "drop", False),
        (_line("br0", SW), "internal port", False),
        (_line("p0", SW, actions="br0"), "internal port", False),
        (_line("p0", SW, key=",ct_state(0x21/0x21)"), "first packet of a connection", False),
        (
            _line("p0", SW, actions="userspace(pid=1,slow_path(action))"),
            "slow path: ovs-vswitchd handles each packet",
            True,
        ),
        (
            _line("p0", SW) + ", dp-offload-info:match unsupported: ct_state=+new",
            "match unsupported: ct_state=+new",
            True,
        ),
        (
            _line("p0", SW).replace("recirc_id(0)", "recirc_id(0x3)"),
            "perhaps recirculated packets, or packets that will be recirculated",
            True,
        ),
        (_line("p0", HW, actions="drop"), "", True),
    ],
)
def test_the_reason_and_whether_it_is_judged(line: str, reason: str, is_judged: bool) -> None:
    (row,) = _check(line).rows
    assert (row.reason, row.is_judged) == (reason, is_judged)


@pytest.mark.parametrize(
    ("lines", "required", "conclusion"),
    [
        ([], None, Conclusion.NOTHING_SEEN),
        ([_line("p0", SW, actions="drop")], None, Conclusion.NOTHING_SEEN),
        ([_line("p0", HW)], None, Conclusion.IN_HARDWARE),
        ([_line("p0", HW), _line("p0", SW, actions="drop")], None, Conclusion.IN_HARDWARE),
        ([_line("p0", HW, packets=95), _line("p1", SW, packets=5)], None, Conclusion.NOT_ALL_IN_HARDWARE),
        ([_line("p0", HW, packets=95), _line("p1", SW, packets=5)], 0.95, Conclusion.IN_HARDWARE),
        ([_line("p0", HW, packets=94), _line("p1", SW, packets=6)], 0.95, Conclusion.NOT_ALL_IN_HARDWARE),
        ([_line("p0", HW, packets=0)], 0.95, Conclusion.NOTHING_SEEN),
        ([_line("p0", HW, packets=0)], None, Conclusion.NOTHING_SEEN),
        ([_line("p0", "")], None, Conclusion.CHECK_FAILED),
        (["ovs-appctl: no"], None, Conclusion.CHECK_FAILED),
    ],
)
def test_the_conclusion(lines: list[str], required: float | None, conclusion: Conclusion) -> None:
    assert _check(*lines).conclusion_for(required) is conclusion


def test_ports_of_other_bridges_are_left_out_and_tunnels_go_by_their_datapath_name() -> None:
    ports = BridgePorts(frozenset({"p0"}), ("vxlan_sys_",))
    found = _check(_line("p0", HW), _line("q0", SW), _line("vxlan_sys_4789", HW), ports=ports)
    assert [row.in_port for row in found.rows] == ["p0", "vxlan_sys_4789"]
    assert found.read == 3


def test_a_dump_that_may_be_filtered_proves_nothing() -> None:
    whole = _check(_line("p0", HW))
    assert whole.conclusion_for(None) is whole.conclusion_for(0.95) is Conclusion.IN_HARDWARE
    filtered = replace(whole, is_filtered=True)
    assert filtered.conclusion_for(None) is filtered.conclusion_for(0.95) is Conclusion.NOTHING_SEEN


_HOP = (
    "ufid:11111111-0000-4000-8000-00000000000{id}, recirc_id({id:#x}),in_port(p0),eth(),eth_type(0x0800),ipv4(), "
    "packets:{packets}, bytes:{packets}, used:0.100s, offloaded:yes, dp:tc, actions:{actions}"
)


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        (None, (100, 95), Verdict.HW),
        (None, (100, 5), Verdict.UNCONFIRMED),
        ((1000, 10), (1100, 105), Verdict.HW),
        ((1000, 990), (1100, 995), Verdict.SW),
        ((1000, 10), (1010, 10), Verdict.HW),
    ],
    ids=["as many", "far fewer", "as many now", "far fewer now", "too few to tell"],
)
def test_a_chain_is_in_hardware_if_its_next_link_takes_the_packets(
    before: tuple[int, int] | None, now: tuple[int, int], verdict: Verdict
) -> None:
    """The packets that no megaflow took were upcalls, and the chain was "in hardware"."""

    def megaflows(packets: tuple[int, int]) -> list[Megaflow]:
        first = _HOP.format(id=0, packets=packets[0], actions="ct(zone=1),recirc(0x1)")
        return list(parse_dump(f"{first}\n{_HOP.format(id=1, packets=packets[1], actions='p1')}\n"))

    earlier = None if before is None else DatapathSample(sample_of(megaflows(before), None))
    (row,) = check_bridge(megaflows(now), Evidence(before=earlier)).rows
    assert row.verdict is verdict

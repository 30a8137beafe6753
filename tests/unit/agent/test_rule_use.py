"""Samples of the agent: rules that the NIC holds and does not use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from xenoovs.agent.offload import MegaflowCounters, RuleUse
from xenoovs.datapath.host import CpuCounter, PortPackets
from xenoovs.datapath.megaflow import Verdict
from xenoovs.datapath.parse import scan_dump
from xenoovs.datapath.tc import TcCounters, TcFilter, cookie_of_ufid
from xenoovs.errors import ParseError
from xenoovs.judge.offload import MegaflowState, state_of

UFID = "43d31ab9-4e39-4fcc-bd80-4aaf34dc5a32"
COOKIE = cookie_of_ufid(UFID) or ""


@dataclass
class Nic:
    """One rule of p0, its counters, and the packets that the CPU got."""

    packets: int = 0
    hw_packets: int = 0
    cpu: int = 0
    entered: int = 0
    reads: list[str] = field(default_factory=list)
    counters: MegaflowCounters = field(default_factory=MegaflowCounters)

    def ports(self, ports: Iterable[str], *, is_brief: bool) -> Mapping[str, PortPackets]:
        entered = None if is_brief else self.entered
        return {port: PortPackets(self.cpu, CpuCounter.CPU, "rx", entered) for port in ports}

    def filters(self, devices: Iterable[str]) -> Mapping[str, TcFilter]:
        self.reads += devices
        counters = TcCounters(self.packets, 100 * self.packets, self.hw_packets, 100 * self.hw_packets)
        return {COOKIE: TcFilter("ip", 2, 0, 1, COOKIE, in_hw=True, counters=counters)}

    def sample(self, use: RuleUse) -> MegaflowState:
        """Return the state of the rule in one sample."""
        use.begin()
        lines = [
            f"ufid:{UFID}, in_port(p0),eth_type(0x0800), packets:{self.packets}, bytes:{100 * self.packets}, "
            "used:0.1s, offloaded:yes, dp:tc, actions:p1"
        ]
        increments = tuple(self.counters.increments(lines))
        context = use.evidence(lines, increments)
        [megaflow] = scan_dump(increments)
        assert not isinstance(megaflow, ParseError)
        state = state_of(megaflow, context.filters, context.before, context.contradicted)
        assert state is not None
        return state


def test_while_ports_agree_traffic_control_is_not_read() -> None:
    nic, verdicts = Nic(), []
    use = RuleUse(nic.ports, nic.filters)
    for _ in range(4):
        nic.packets += 1000
        nic.hw_packets += 1000
        verdicts.append(nic.sample(use).verdict)
    assert (set(verdicts), nic.reads) == ({Verdict.HW}, [])


def _sampled(times: int, **each: int) -> list[MegaflowState]:
    """Return the states after a first sample; before each, these counters grow so much."""
    nic = Nic(packets=1000, hw_packets=1000)
    use = RuleUse(nic.ports, nic.filters)
    nic.sample(use)
    found = []
    for _ in range(times):
        for name, packets in each.items():
            setattr(nic, name, getattr(nic, name) + packets)
        found.append(nic.sample(use))
    return found


@pytest.mark.parametrize(
    ("each", "verdicts"),
    [
        # After a reset of the NIC, the page and the metrics still showed 100 % in hardware.
        ({"packets": 224, "cpu": 224}, [Verdict.HW, Verdict.IDLE_HW, Verdict.IDLE_HW]),
        # Half of the packets were shown as in hardware, and none was.
        (
            {"packets": 448, "hw_packets": 224, "cpu": 224, "entered": 224},
            [Verdict.HW, Verdict.TC_SW, Verdict.CONTRADICTED, Verdict.CONTRADICTED],
        ),
        (
            {"packets": 224, "hw_packets": 224, "cpu": 224},
            [Verdict.HW, Verdict.CONTRADICTED, Verdict.CONTRADICTED],
        ),
    ],
    ids=["not used", "counted by traffic control, and the wire contradicts", "counted, and the CPU contradicts"],
)
def test_rules_that_the_nic_does_not_use_are_found_from_the_second_sample_on(
    each: dict[str, int], verdicts: list[Verdict]
) -> None:
    found = _sampled(len(verdicts), **each)
    assert [state.verdict for state in found] == verdicts
    if Verdict.IDLE_HW in verdicts:
        assert [(state.packets, state.hw_packets) for state in found[1:]] == [(224, 0)] * 2


def test_when_it_is_over_the_verdict_is_hardware_again() -> None:
    nic = Nic()
    use = RuleUse(nic.ports, nic.filters)
    for _ in range(3):
        nic.packets += 224
        nic.cpu += 224
        nic.sample(use)
    nic.packets += 500
    nic.hw_packets += 500
    state = nic.sample(use)
    assert (state.verdict, state.packets, state.hw_packets) == (Verdict.HW, 500, 500)
    assert len(nic.reads) == 2


def test_packets_of_32_bits_that_wrap_are_counted_on() -> None:
    """Open vSwitch reads them in 32 bits; at 100 million packets a second they wrap each 43 s."""
    counters = MegaflowCounters()

    def increment(packets: int, size: int) -> str:
        [line] = counters.increments([f"ufid:{UFID}, in_port(p0), packets:{packets}, bytes:{size}, used:0.1s"])
        return line.partition(", packets:")[2].partition(", used")[0]

    increment(4_294_967_290, 429_496_729_000)
    assert increment(994, 429_496_829_000) == "1000, bytes:100000"
    # Installed again, with larger packets.
    assert increment(5, 500_000_000_000) == "5, bytes:500000000000"

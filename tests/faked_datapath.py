"""A switch in memory whose datapath has a megaflow for each block, in the NIC if a test selects it, and counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from uuid import NAMESPACE_OID, uuid5

from tests.fake_switch import FakeSwitch
from xenoovs.compile.program import Program
from xenoovs.datapath.database import BridgeState
from xenoovs.datapath.megaflow import Verdict
from xenoovs.judge.expected import ExpectedBlock, expected_services
from xenoovs.model.next_hop import mac_and_port
from xenoovs.openflow.flow import Field, Match

_RUNS = {
    Verdict.HW: "offloaded:yes, dp:tc",
    Verdict.PARTIAL: "offloaded:partial, dp:ovs",
    Verdict.TC_SW: "dp:tc",
    Verdict.SW: "dp:ovs",
}
_PACKET_BYTES = 1000
_PROTOCOLS = {6: "tcp", 17: "udp"}


class FakedDatapath(FakeSwitch):
    """`program`: whose blocks have megaflows. `verdict`: of a block, by service, backend and its number there.

    Each dump counts `packets` of a block more for it. Services of IPv4 with one TCP or UDP port.
    """

    def __init__(self, *bridges: BridgeState) -> None:
        super().__init__(*bridges)
        self.program: Callable[[], Program | None] = lambda: None
        self.verdict: Callable[[str, str, int], Verdict] = lambda *_: Verdict.HW
        self.packets: Callable[[ExpectedBlock], int] = lambda _: 1000
        self.counters: dict[str, int] = {}

    def dump_megaflows(self) -> str:
        """As `dpctl/dump-flows -m` prints them."""
        super().dump_megaflows()
        program = self.program()
        return "" if program is None else "".join(f"{line}\n" for line in self._lines(program))

    def _lines(self, program: Program) -> Iterator[str]:
        for service in expected_services(program):
            for entry in service.entries:
                for number, block in enumerate(service.blocks):
                    verdict = self.verdict(service.name, block.backend, number)
                    if verdict is not Verdict.ABSENT:
                        yield self._line(service.name, entry, block, runs=_RUNS[verdict])

    def _line(self, service: str, entry: Match, block: ExpectedBlock, *, runs: str) -> str:
        key = f"{service} {block.key.value:#x}/{block.key.mask:#x} {block.backend}"
        packets = self.counters[key] = self.counters.get(key, 0) + self.packets(block)
        source = f"{IPv4Address(block.key.value)}/{IPv4Address(block.key.mask)}"
        vip, number, l4_port = (_value(entry, field) for field in (Field.NW_DST, Field.NW_PROTO, Field.TP_DST))
        mac, port = mac_and_port(block.hops[0])
        return (
            f"ufid:{uuid5(NAMESPACE_OID, key)}, recirc_id(0),in_port({entry.in_port}),eth_type(0x0800),"
            f"ipv4(src={source},dst={IPv4Address(vip)},proto={number},frag=no),{_PROTOCOLS[number]}(dst={l4_port}), "
            f"packets:{packets}, bytes:{packets * _PACKET_BYTES}, used:0.100s, {runs}, "
            f"actions:set(eth(dst={mac})),{port}"
        )


def _value(match: Match, field: Field) -> int:
    found = match.get(field)
    return 0 if found is None else found.value

"""Rules of other programs in traffic control that packets of blocks meet before the rules of Open vSwitch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xenoovs.datapath.megaflow import MaskedValue
from xenoovs.datapath.tc import TcFilter
from xenoovs.datapath.tc_foreign import ForeignRule
from xenoovs.errors import counted, first_names
from xenoovs.verify.expected import ANY, ExpectedBlock, ExpectedService, index_blocks
from xenoovs.verify.overlap import OverlapIndex

_FAMILIES = (0x0800, 0x86DD)
_LISTED = 3


@dataclass(frozen=True, slots=True)
class PreemptingRule:
    """One rule of another program on a port, before those of Open vSwitch.

    Attributes:
        device: the port.
        blocks: blocks whose packets it may match, in the order of the program.
        in_hw: whether a NIC holds it.
    """

    device: str
    pref: int
    rule: ForeignRule
    blocks: tuple[ExpectedBlock, ...]
    in_hw: bool

    @property
    def is_effective(self) -> bool:
        """Whether it takes packets: it has, or it is in the NIC, where those of the blocks meet it."""
        return self.in_hw or self.rule.packets > 0

    @property
    def name(self) -> str:
        """The rule in words."""
        match = f" {self.rule.match}" if self.rule.match else ""
        return f"pref {self.pref} {self.rule.kind}{match} -> {self.rule.actions}"

    def describe(self) -> str:
        """Return what it meets and took."""
        services = first_names(tuple(dict.fromkeys(block.service for block in self.blocks)), most=_LISTED)
        backends = first_names(tuple(dict.fromkeys(block.backend for block in self.blocks)), most=_LISTED)
        took = f"it took {counted(self.rule.packets, 'packet')}"
        meets = f"meets {counted(len(self.blocks), 'block')}"
        where = "in the NIC" if self.in_hw else "in software"
        return f"{self.name} ({where}) {meets} of {services} ({backends}) before Open vSwitch does; {took}"


def preempting_rules(
    services: Sequence[ExpectedService], filters: Iterable[tuple[str, TcFilter]]
) -> tuple[PreemptingRule, ...]:
    """Return the rules of other programs that packets of blocks meet first, with these blocks.

    Args:
        services: what is expected.
        filters: all filters of the ingress ports, with their device.
    """
    listed = tuple(filters)
    others = [(device, one, one.foreign) for device, one in listed if one.foreign is not None and one.chain == 0]
    if not others:
        return ()
    last: dict[str, int] = {}
    for device, one in listed:
        if one.foreign is None:
            last[device] = max(one.pref, last.get(device, 0))
    index = OverlapIndex(index_blocks(services))
    order = {id(block): number for number, block in enumerate(block for each in services for block in each.blocks)}
    found = []
    for device, one, rule in others:
        # Without rules of Open vSwitch its software datapath gets the packets, behind all of traffic control.
        if not rule.is_final or one.pref > last.get(device, one.pref):
            continue
        met = {id(block): block for block in _met(index, device, rule)}
        if met:
            blocks = tuple(sorted(met.values(), key=lambda block: order[id(block)]))
            found.append(PreemptingRule(device, one.pref, rule, blocks, one.in_hw is True))
    return tuple(found)


def _met(index: OverlapIndex, device: str, rule: ForeignRule) -> Iterable[ExpectedBlock]:
    for eth_type in _FAMILIES if rule.eth_type is None else (rule.eth_type,):
        fields: Mapping[str, MaskedValue] = {**rule.fields, "dl_type": MaskedValue(eth_type, 0xFFFF)}
        for entry in index.entries(device, fields):
            name = entry.blocks.by_mask[0][0] if entry.blocks.by_mask else ""
            yield from index.blocks(entry.blocks, fields.get(name, ANY))

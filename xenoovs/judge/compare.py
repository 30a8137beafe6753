"""Two records of one host compared: which traffic left the NIC, and what changed that may be the cause."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import Device, Feature
from xenoovs.datapath.megaflow import Verdict, output_ports
from xenoovs.datapath.parse import scan_dump
from xenoovs.datapath.tunnel import tunnel_kind
from xenoovs.display import percent
from xenoovs.errors import counted
from xenoovs.evidence.evidence import Evidence
from xenoovs.evidence.samples import NO_GROWTH, Growth
from xenoovs.judge.bridge import check_bridge
from xenoovs.judge.links import MegaflowLink
from xenoovs.regex import regex

_KIND = regex(r"set\([a-z0-9_]+|[a-z_]+")
_DROP = "drop"
_LEAST = 0.01
"""Share of packets; smaller differences are no change."""


class TrafficClass(NamedTuple):
    """Megaflows that enter by one port and have the same kinds of actions. `exits`: ports, comma-separated."""

    bridge: str
    in_port: str
    exits: str
    actions: str

    def __str__(self) -> str:
        return f"{self.bridge}: {self.in_port} -> {self.exits or '(recirculated)'} [{self.actions or 'output'}]"


@dataclass(slots=True)
class Traffic:
    """The megaflows of a class. `growth`: between the two samples; since installation if no packet came."""

    verdict: Verdict = Verdict.ABSENT
    megaflows: int = 0
    growth: Growth = NO_GROWTH
    reasons: set[str] = field(default_factory=set)

    @property
    def share(self) -> float | None:
        """Share of packets that the NIC forwarded (0-1); None if there were none."""
        return self.growth.hw_packets / self.growth.packets if self.growth.packets else None


@dataclass(frozen=True, slots=True)
class Side:
    """One record. `facts`: settings, versions and devices by names that are the same in both records."""

    traffic: Mapping[TrafficClass, Traffic]
    facts: Mapping[str, str]

    @property
    def total(self) -> Growth:
        return sum((each.growth for each in self.traffic.values()), NO_GROWTH)

    @property
    def share(self) -> float | None:
        """Share of all packets that the NIC forwarded (0-1); None if there were none."""
        return self.total.hw_packets / self.total.packets if self.total.packets else None


def side_of(evidence: Evidence, versions: Mapping[str, str]) -> Side:
    """Judge the megaflows of a record, each chain once. `versions`: of programs, as they print them."""
    found = check_bridge(scan_dump(evidence.lines), evidence, is_listing=True)
    links = [link for link in found.links if link.is_judged and not link.megaflow.recirc_id]
    has_growth = any(link.state.growth is not None and link.state.growth.packets for link in links)
    traffic = defaultdict[TrafficClass, Traffic](Traffic)
    for link in links:
        each = traffic[_class_of(link, evidence)]
        each.verdict = max(each.verdict, link.chain, key=lambda verdict: verdict.badness)
        each.megaflows += 1
        state = link.state
        now = (state.growth or NO_GROWTH) if has_growth else Growth(state.packets, state.hw_packets)
        # Packets that another link of the chain forwards in software do not count as forwarded by the NIC.
        each.growth += now if link.chain is state.verdict else Growth(now.packets)
        if link.reason:
            each.reasons.add(link.reason)
    return Side(dict(traffic), {**dict(_facts(evidence)), **versions})


def _class_of(link: MegaflowLink, evidence: Evidence) -> TrafficClass:
    in_port, exits = link.megaflow.in_port or "", output_ports(link.megaflow)
    kinds = (kind[0] for action in link.megaflow.actions if action not in exits and (kind := _KIND.match(action)))
    actions = ",".join(dict.fromkeys(f"{kind})" if "(" in kind else kind for kind in kinds))
    shared = tunnel_kind(in_port) or in_port
    ports = ((bridge.name, port) for bridge in evidence.bridges for port in bridge.ports)
    home = next((bridge for bridge, port in ports if port.name == in_port or port.type == shared), "")
    return TrafficClass(home, in_port, ",".join(sorted(set(exits))), actions)


def _facts(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Yield name and value of each fact that may explain a change."""
    database, devices, kernel = evidence.host.database, evidence.host.devices, evidence.host.kernel
    yield "Open vSwitch", evidence.version or "unknown"
    if evidence.offload is not None:
        yield "offload of the running ovs-vswitchd", "on" if evidence.offload.is_on else "off"
    if not isinstance(kernel, Unknown):
        yield "kernel", kernel.release
        if not isinstance(kernel.hugepages_bytes, Unknown):
            yield "huge pages", f"{kernel.hugepages_bytes >> 20} MiB"
    if not isinstance(database, Unknown):
        yield from ((f"other_config:{key}", value) for key, value in database.config.items())
        for bridge in database.bridges:
            yield f"bridge {bridge.name}", f"{bridge.datapath_type}, {bridge.fail_mode}"
            yield from ((f"port {port.name}", f"on {bridge.name}, {port.type}") for port in bridge.ports)
    ports = {port.name for bridge in evidence.bridges for port in bridge.ports}
    for device in () if isinstance(devices, Unknown) else (each for each in devices.values() if each.name in ports):
        yield from ((f"device {device.name}: {name}", value) for name, value in _device(device))
    for each in evidence.host.eswitches:
        values = (("mode", each.mode), ("steering", each.steering), ("multiport", each.multiport))
        yield from (
            (f"eSwitch {each.pci}: {name}", str(value)) for name, value in values if not isinstance(value, Unknown)
        )


def _device(device: Device) -> Iterator[tuple[str, str]]:
    yield "state", "up" if device.is_up else "down"
    yield "MTU", str(device.mtu)
    yield "eSwitch", device.switch_id or "none"
    if isinstance(device.hw_tc_offload, Feature):
        yield "hw-tc-offload", "on" if device.hw_tc_offload.is_on else "off"
    if not isinstance(device.ingress, Unknown):
        yield "ingress qdisc", "yes" if device.ingress else "no"


_LIKELY = (
    r"device \S+: (?:eSwitch|hw-tc-offload)",
    r"device \S+: (?:ingress qdisc|state)|port ",
    r"offload|eSwitch",
    r"other_config:(?:hw-offload|tc-policy)",
    r"other_config:|bridge ",
)
"""Facts that may keep traffic out of the NIC, the most likely first; others are versions and sizes."""
_SUBJECT = regex(r"(?:device|port) ([^:\s]+)")


class Change(NamedTuple):
    """A fact that differs. `before`, `after`: None if the record does not have it."""

    name: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        port = self.name.partition(" ")[2].partition(":")[0]
        match self.name.partition(": ")[2], self.after:
            case "eSwitch", "none":
                return f"port {port} is no longer on the eSwitch"
            case "state", str(state):
                return f"port {port} is {state}"
        return f"{self.name} is {self.after or 'no longer there'}, was {self.before or 'not there'}"

    def rank(self, ports: Set[str]) -> int:
        """Return the rank of this change as a cause of lost traffic on these ports; 0 is the most likely."""
        subject = _SUBJECT.match(self.name)
        if subject is not None and subject[1] not in ports:
            return len(_LIKELY)
        return next((rank for rank, likely in enumerate(_LIKELY) if re.match(likely, self.name)), len(_LIKELY))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two records of one host."""

    before: Side
    after: Side

    @property
    def kinds(self) -> list[TrafficClass]:
        """All classes, those with the most packets first."""
        packets = Counter[TrafficClass]()
        for side in (self.before, self.after):
            packets.update({kind: each.growth.packets for kind, each in side.traffic.items()})
        return sorted(packets, key=lambda kind: (-packets[kind], kind))

    @property
    def worse(self) -> dict[TrafficClass, str]:
        """Classes of which the NIC forwards less, new ones that it does not forward, and lost ones, with the reason."""
        return {kind: text for kind in self.kinds if (text := self._worse(kind))}

    def _worse(self, kind: TrafficClass) -> str:
        now, was = self.after.traffic.get(kind), self.before.traffic.get(kind, Traffic())
        if (gone := self._gone(kind)) or now is None:
            return gone
        reasons = sorted(now.reasons - was.reasons)
        if was.verdict is Verdict.ABSENT:
            is_much = now.growth.packets > _LEAST * self.after.total.packets
            return "; ".join((f"new, and {now.verdict.value}", *reasons)) if now.verdict.is_software and is_much else ""
        lost = 0.0 if was.share is None or now.share is None else was.share - now.share
        if lost <= _LEAST and not (now.verdict.is_software and now.verdict.badness > was.verdict.badness):
            return ""
        shares = f"{percent(now.share)} in hardware, was {percent(was.share)}"
        return "; ".join((f"{now.verdict.value}, was {was.verdict.value}", shares, *reasons))

    def _gone(self, kind: TrafficClass) -> str:
        """Return the loss with a class that has no packets any more; empty if there is none, or the class only drops.

        If flows have changed, a new class may have the packets of its port; then the new class is judged instead.
        """
        was = self.before.traffic.get(kind)
        flowing = {each for each, now in self.after.traffic.items() if now.growth.packets}
        new = {each for each in flowing - self.before.traffic.keys() if each.actions != _DROP}
        is_replaced = any(each[:2] == kind[:2] for each in new)
        if was is None or kind in flowing or kind.actions == _DROP or is_replaced or self.is_silent:
            return ""
        share = was.growth.packets / self.before.total.packets
        text = f"no packets, was {percent(share)} of all, {percent(was.share)} of it in hardware"
        return text if share > _LEAST else ""

    @property
    def changes(self) -> list[Change]:
        """Facts that differ, the most likely causes first."""
        before, after = self.before.facts, self.after.facts
        found = [Change(name, before.get(name), after.get(name)) for name in dict.fromkeys((*before, *after))]
        ports = self._ports
        return sorted((each for each in found if each.before != each.after), key=lambda change: change.rank(ports))

    @property
    def _ports(self) -> set[str]:
        """The ports of traffic that got worse."""
        return {port for kind in self.worse for port in (kind.in_port, *kind.exits.split(","))}

    @property
    def is_silent(self) -> bool:
        """Whether a record has no packet, and so proves nothing."""
        return self.before.share is None or self.after.share is None

    @property
    def headline(self) -> str:
        was, now, worse = self.before.share, self.after.share, self.worse
        if not worse and self.is_silent:
            return f"the record {'before' if was is None else 'after'} has no traffic: nothing can be compared"
        if not worse:
            return f"no traffic got worse: {percent(now)} of packets in hardware, before {percent(was)}"
        lost = 0.0 if was is None or now is None else was - now
        what = f"{counted(len(worse), 'class', 'classes')} of traffic got worse"
        if lost > _LEAST:
            what = f"{round(lost * 100)} % of packets left the NIC"
        kind, why = next(iter(worse.items()))
        cause = next((change for change in self.changes if change.rank(self._ports) < len(_LIKELY)), f"{kind}: {why}")
        return f"{what}: {cause}"


def to_json(comparison: Comparison) -> dict[str, object]:
    worse = comparison.worse

    def row(kind: TrafficClass, side: Side) -> dict[str, object] | None:
        each = side.traffic.get(kind)
        if each is None:
            return None
        counts = {"megaflows": each.megaflows, "packets": each.growth.packets, "hw_packets": each.growth.hw_packets}
        return {"verdict": each.verdict.value, **counts, "hw_share": each.share, "reasons": sorted(each.reasons)}

    sides = {"before": comparison.before, "after": comparison.after}
    return {
        "headline": comparison.headline,
        "hw_share": {name: side.share for name, side in sides.items()},
        "classes": [
            {**kind._asdict(), **{name: row(kind, side) for name, side in sides.items()}, "worse": worse.get(kind)}
            for kind in comparison.kinds
        ],
        "changes": [change._asdict() for change in comparison.changes],
    }

"""A scenario's record, read: what was sent, what OVS says, what the NIC says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address
from typing import Any

from tests.nic.guest.ovs import TUNNELS
from tests.nic.truth import PortCounters, Rule, parse_ports, parse_rules, ufid_of
from xenoovs.datapath.megaflow import MaskedValue, Megaflow, Verdict, match_of, verdict_of
from xenoovs.datapath.outer import parse_outer
from xenoovs.datapath.parse import parse_dump

_PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17}
VIP = "10.3.10.45"
BLOCKS = 7
"""Flows of balancers/dns.yaml, foreign_port.yaml and each service of vlan.yaml: the popcounts of three windows."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look of a scenario. `sent` holds the bursts before it."""

    label: str
    forgotten: int
    changed: bool
    megaflows: tuple[Megaflow, ...]
    rules: tuple[Rule, ...]
    ports: dict[str, PortCounters]
    tc: dict[str, list[dict[str, Any]]]
    sent: tuple[dict[str, Any], ...]

    @property
    def filters(self) -> dict[str, dict[str, Any]]:
        """All rules of traffic control, in hardware or not, by ufid."""
        return _filters(self.tc)

    @property
    def in_hardware_by_tc(self) -> set[str]:
        """The ufids of the rules that `tc` shows as `in_hw`."""
        return {ufid for ufid, rule in self.filters.items() if rule.get("in_hw")}

    def verdicts(self, *, to: str = VIP) -> dict[str, Verdict]:
        """The verdict on each megaflow for packets to `to` that enter at a port, by ufid."""
        wanted = MaskedValue(int(IPv4Address(to)), 0xFFFFFFFF)
        mine = (flow for flow in self.megaflows if flow.recirc_id == 0 and match_of(flow).get("nw_dst") == wanted)
        return {flow.ufid or "": verdict_of(flow) or Verdict.ABSENT for flow in mine}


@dataclass(frozen=True, slots=True)
class Story:
    """One scenario."""

    name: str
    record: dict[str, Any]

    @property
    def looks(self) -> list[Seen]:
        """All looks, oldest first."""
        return [_seen(look, self.record["bursts"]) for look in self.record["looks"]]

    def look(self, label: str) -> Seen:
        """The look of that label."""
        return next(look for look in self.looks if look.label == label)

    def said(self, command: str) -> list[dict[str, Any]]:
        """What a command of xenoovs has said beside the NIC, oldest first."""
        return [said for said in self.record["said"] if said["argv"][0] == command]

    @property
    def refused(self) -> dict[str, str]:
        """What the NIC refused and why, by ufid; of a megaflow that it refused more than once the last reason."""
        return {ufid: reasons[-1] for ufid, reasons in self.refusals.items()}

    @property
    def refusals(self) -> dict[str, list[str]]:
        """The reasons of all refusals by ufid, in their order."""
        found: dict[str, list[str]] = {}
        for cookie, reason in re.findall(r" refused ([0-9a-f]{32}): (.*)", "\n".join(self.record["kernel_log"])):
            found.setdefault(ufid_of(cookie), []).append(reason)
        return found


def packets_matching(bursts: tuple[dict[str, Any], ...], megaflow: Megaflow) -> int:
    """How many of the packets sent are of this megaflow, which must match headers alone."""
    # A megaflow without a tag in its match is of frames without one.
    wanted = {"dl_vlan": MaskedValue(0, 0x1FFF)} | match_of(megaflow)
    # A tag that is kept is shown with a priority that its rule does not match.
    retags = "pop_vlan" in megaflow.actions
    priority = retags and re.fullmatch(r"vid=[1-9][^,]*,pcp=(\d)", megaflow.key("vlan") or "")
    return sum(
        burst["packets_each"]
        for burst in bursts
        if _enters_as(burst) == (megaflow.in_port, _remote_of(megaflow))
        if not priority or burst["kind"].get("pcp", 0) == int(priority[1])
        for source in burst["sources"]
        if _is_of(_headers(burst["kind"], source), wanted)
    )


def _enters_as(burst: dict[str, Any]) -> tuple[str, int | None]:
    """The port of the datapath, and the remote of the tunnel."""
    tunnel = burst["kind"]["tunnel"]
    return (TUNNELS[tunnel["type"]].device, int(IPv4Address(tunnel["remote"]))) if tunnel else (burst["port"], None)


def _remote_of(megaflow: Megaflow) -> int | None:
    outer = megaflow.key("tunnel")
    return parse_outer(outer).source if outer else None


def _is_of(headers: dict[str, int], wanted: dict[str, MaskedValue]) -> bool:
    return all(name in headers and headers[name] & masked.mask == masked.value for name, masked in wanted.items())


@dataclass(frozen=True, slots=True)
class TcCounters:
    """What TC counts for one rule, in the NIC and in its own software."""

    hw_packets: int
    hw_bytes: int
    sw_packets: int


def tc_counters(tc: dict[str, list[dict[str, Any]]]) -> dict[str, TcCounters]:
    """The counters of all rules of traffic control, in hardware or not, by ufid."""
    return {ufid: _counters(rule["actions"][-1]["stats"]) for ufid, rule in _filters(tc).items()}


def _filters(tc: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    rules = [row["options"] for rows in tc.values() for row in rows if "options" in row]
    return {next(ufid_of(action["cookie"]) for action in rule["actions"] if "cookie" in action): rule for rule in rules}


def _counters(stats: dict[str, int]) -> TcCounters:
    # tc leaves out the parts as long as hardware has counted nothing.
    hw_packets = stats.get("hw_packets", 0)
    return TcCounters(hw_packets, stats.get("hw_bytes", 0), stats["packets"] - hw_packets)


def _headers(kind: dict[str, Any], source: str) -> dict[str, int]:
    ip = "ipv6" if ":" in source else "nw"
    return {
        "dl_src": 0x020000000001,
        "dl_vlan": 0x1000 | kind["vlan"] if "vlan" in kind else 0,
        "dl_dst": int(kind["mac"].replace(":", ""), 16),
        "dl_type": 0x86DD if ":" in source else 0x0800,
        f"{ip}_src": int(ip_address(source)),
        f"{ip}_dst": int(ip_address(kind["destination"])),
        "nw_proto": _PROTOCOLS[kind["protocol"]],
        "nw_ttl": 64,
        "nw_tos": kind["tos"],
        "tp_src": kind["source_port"],
        "tp_dst": kind["port"],
        "tcp_flags": kind["flags"],
        "icmp_type": 8,
        "icmp_code": 0,
    }


def _seen(look: dict[str, Any], bursts: list[dict[str, Any]]) -> Seen:
    return Seen(
        label=look["label"],
        forgotten=look["forgotten"],
        changed=look["changed"],
        megaflows=tuple(parse_dump(look["megaflows"])),
        rules=tuple(parse_rules(look["rules"])),
        ports=parse_ports(look["port_counters"]),
        tc=look["tc"],
        sent=tuple(bursts[: look["bursts"]]),
    )

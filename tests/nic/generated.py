"""Random rules, limits and faults for the emulated NIC, always the same for a seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from tests.nic.guest.frames import ACK, SYN, Kind

SEED = 28
ROUNDS = 8
CASES_OF_ROUND = 25
"""All cases of a round are judged together: a machine that is emulated needs seconds for each command."""
PARTS = {"generated": slice(4, None), "generated_more": slice(4)}
"""The rounds of each scenario. Those of the first have each limit and each fault."""

CLIENT = "198.18.5.33"

_MATCHES = (
    "",
    "",
    "",
    "tp_dst=53",
    "nw_src=0.0.0.1/0.0.0.3",
    "nw_src=198.18.0.0/16",
    "nw_tos=184",
    "tp_src=0xfa0/0xff0",
)
_ACTIONS = (
    *("output:p1",) * 4,
    "mod_dl_dst:02:00:5e:10:00:07,output:p1",
    "output:p1,output:pf0hpf",
    "mod_nw_dst:10.9.9.9,mod_tp_dst:5353,output:p1",
    "mod_nw_src:10.9.9.8,output:pf0hpf",
    "push_vlan:0x8100,set_field:4101->vlan_vid,output:p1",
    "output(port=p1,max_len=64)",
    "dec_ttl,output:p1",
    "mod_nw_tos:32,output:p1",
)
_PROTOCOLS = ("udp", "udp", "tcp", "icmp")


@dataclass(frozen=True, slots=True)
class Case:
    """One flow with its packets: `before` the first sample, and `between` the two.

    Attributes:
        flow: As ovs-ofctl takes it.
        kind: The packets, all of CLIENT.
    """

    flow: str
    kind: Kind
    before: int
    between: int


@dataclass(frozen=True, slots=True)
class CaseRound:
    """Cases with the same limits and faults.

    Attributes:
        limits: Parameters of the module when the rules come.
        faults: Parameters of the module when the packets come between the samples.
        is_faulty_before: Whether the faults are there from the start.
    """

    cases: tuple[Case, ...]
    limits: Mapping[str, str]
    faults: Mapping[str, str]
    is_faulty_before: bool


def generate(seed: int = SEED) -> tuple[CaseRound, ...]:
    """Return all rounds of a seed."""
    random = Random(seed)
    return tuple(_round(random, number) for number in range(ROUNDS))


def _round(random: Random, number: int) -> CaseRound:
    limits = {
        "max_rules": random.choice(("4096", "4096", "12", "6")),
        "tcp_flags": random.choice("YYN"),
        # Open vSwitch gives its rules 2 and more.
        "max_prio": random.choice(("65535", "65535", "16", "1")),
        "buckets": random.choice(("0", "0", "11")),
        "prefix_masks": random.choice("NNY"),
    }
    fault = random.choice(({}, {}, {"skip": "1"}, {"skip": "1"}, {"skip": "3"}, {"bypass": "Y"}))
    cases = tuple(_case(random, f"10.77.{number}.{each + 1}") for each in range(CASES_OF_ROUND))
    return CaseRound(cases, limits, fault, is_faulty_before=random.random() < 0.5)


def _case(random: Random, destination: str) -> Case:
    protocol, match, actions = random.choice(_PROTOCOLS), random.choice(_MATCHES), random.choice(_ACTIONS)
    if protocol == "icmp":
        match = random.choice(("", "icmp_type=8", "nw_src=0.0.0.1/0.0.0.3"))
        actions = actions.replace(",mod_tp_dst:5353", "")
    if protocol == "tcp" and random.random() < 0.3:
        match = "tcp_flags=+ack"
    keys = ",".join(filter(None, (protocol, "in_port=p0", f"nw_dst={destination}", match)))
    tos = 184 if match == "nw_tos=184" else 0
    flags = ACK if match == "tcp_flags=+ack" else random.choice((SYN, ACK))
    kind = Kind(destination=destination, protocol=protocol, tos=tos, flags=flags)
    between = random.choice((0, 6, 6, 12))
    # Below all others: a flow that may come first puts its keys into their megaflows, and this NIC matches no DSCP.
    priority = 2000 if tos else random.randint(2001, 2003)
    return Case(f"priority={priority},{keys} actions={actions}", kind, random.choice((0, 5)), between)

"""Megaflows that no offload check counts as a failure, and why.

NVIDIA's own check of a host leaves out the same: ARP, neighbour discovery, multicast 33:33, ICMP errors, drops, the
first packet of a tracked connection, and the bridge's own ports.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import Enum
from functools import lru_cache

from xenoovs.datapath.match import match_of
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.value import MaskedValue, read_masked
from xenoovs.model.intent import NEIGHBOUR_DISCOVERY
from xenoovs.openflow.field import ETH_ARP

_DESTINATION_UNREACHABLE = {"icmp": 3, "icmpv6": 1}
"""RFC 792; RFC 4443, 3.1."""

_NEW_TRACKED = 0x21
"""ct_state +new+trk (ovs-fields(7)): the connection is not established yet, and what follows is another megaflow."""


class Reason(Enum):
    """Why a megaflow of no block is not judged. OTHER: it could be offloaded, but is of no service of the config."""

    ARP = "arp"
    NEIGHBOUR_DISCOVERY = "neighbour discovery"
    MULTICAST = "multicast"
    UNREACHABLE = "icmp unreachable"
    DROP = "drop"
    NEW_CONNECTION = "first packet of a connection"
    INTERNAL_PORT = "internal port"
    RECIRCULATED = "recirculated"
    OTHER = "of no service"

    @property
    def is_expected(self) -> bool:
        """Whether such a megaflow belongs in software."""
        return self not in (Reason.RECIRCULATED, Reason.OTHER)


def reason_of(megaflow: Megaflow, internal_ports: Set[str], fields: Mapping[str, MaskedValue] | None = None) -> Reason:
    """The first reason that applies. `internal_ports`: names of bridges and of their ports of type internal.

    fields: the match of the megaflow, where it is known already.
    """
    fields = match_of(megaflow) if fields is None else fields
    eth_type, icmp_type, destination = (fields.get(name) for name in ("dl_type", "icmp_type", "dl_dst"))
    if eth_type is not None and eth_type.value == ETH_ARP:
        return Reason.ARP
    if icmp_type is not None and icmp_type.mask:
        names = {key.name for key in megaflow.keys}
        if "icmpv6" in names and icmp_type.value in NEIGHBOUR_DISCOVERY:
            return Reason.NEIGHBOUR_DISCOVERY
        if any(name in names and icmp_type.value == code for name, code in _DESTINATION_UNREACHABLE.items()):
            return Reason.UNREACHABLE
    if destination and destination.mask >> 40 & 1 and destination.value >> 40 & 1:
        return Reason.MULTICAST
    return _by_actions(megaflow, internal_ports)


def _by_actions(megaflow: Megaflow, internal_ports: Set[str]) -> Reason:
    if megaflow.actions == ("drop",):
        return Reason.DROP
    if _is_new(megaflow.key("ct_state")):
        return Reason.NEW_CONNECTION
    if megaflow.in_port in internal_ports or not internal_ports.isdisjoint(megaflow.actions):
        return Reason.INTERNAL_PORT
    return Reason.RECIRCULATED if megaflow.recirc_id else Reason.OTHER


@lru_cache(maxsize=1024)
def _is_new(ct_state: str | None) -> bool:
    if ct_state is None:
        return False
    try:
        return read_masked(ct_state, 32).value & _NEW_TRACKED == _NEW_TRACKED
    except ValueError:
        # As without -m: `+new-est+trk`.
        return "+new" in ct_state and "+trk" in ct_state

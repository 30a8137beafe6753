"""Whether the packets of a megaflow go to a next hop: the only translation of next hops into datapath actions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.value import MaskedValue
from xenoovs.model.next_hop import NextHop
from xenoovs.verify.expected import ExpectedBlock

_DESTINATION = re.compile(r"dst=((?:[0-9a-f]{2}:){5}[0-9a-f]{2})", re.ASCII)
_UNTOLD = re.compile(r"(?:recirc|slow_path|clone|check_pkt_len)\(")


def delivers(megaflow: Megaflow, fields: Mapping[str, MaskedValue], block: ExpectedBlock) -> bool:
    """Whether packets go to a next hop of the block. `fields`: the match of the megaflow."""
    return any(_delivers_to(megaflow, fields, hop) for hop in block.hops)


def _delivers_to(megaflow: Megaflow, fields: Mapping[str, MaskedValue], hop: NextHop) -> bool:
    mac, port = hop.mac.value, hop.port
    if len(megaflow.actions) == 1 and "(" not in megaflow.actions[0] and port != megaflow.actions[0]:
        return False
    came_with = fields.get("dl_dst")
    for written in _leaves_with(megaflow.actions, port):
        # A packet that comes with the backend's MAC already is not rewritten.
        if written == mac or (written is None and came_with is not None and came_with.value == mac):
            return True
    return False


@lru_cache(maxsize=1024)
def is_slow(actions: tuple[str, ...]) -> bool:
    """Whether each packet goes through ovs-vswitchd itself."""
    return any(action.startswith("userspace(") for action in actions)


@lru_cache(maxsize=1024)
def is_untold(actions: tuple[str, ...]) -> bool:
    """Whether what becomes of the packets is not in these actions: another megaflow, or a condition, decides it."""
    return any(map(_UNTOLD.search, actions))


@lru_cache(maxsize=1024)
def _leaves_with(actions: tuple[str, ...], egress: str) -> tuple[int | None, ...]:
    """The MACs that copies leave with by the port; None: the one that they came with. Actions work in their order."""
    # Behind a tunnel the port has a name that Open vSwitch chose.
    is_tunnel = any(action.startswith(("set(tunnel(", "tnl_push(")) for action in actions)
    written: int | None = None
    found = list[int | None]()
    for action in actions:
        if action.startswith("set(eth(") and (rewritten := _DESTINATION.search(action)):
            written = int(rewritten[1].replace(":", ""), 16)
        elif action == egress:
            found.append(written)
    return (*found, written) if is_tunnel else tuple(found)

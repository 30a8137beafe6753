"""Whether the packets of a megaflow leave as the flow of its block says."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.value import MaskedValue
from xenoovs.openflow.value import render_mac
from xenoovs.verify.expected import ExpectedBlock


def delivers(megaflow: Megaflow, fields: Mapping[str, MaskedValue], block: ExpectedBlock) -> bool:
    """Whether packets leave with the block's MAC by the block's port. `fields`: the match of the megaflow."""
    places = block.others or ((block.dl_dst, block.egress),)
    return any(_delivers_to(megaflow, fields, mac, port) for mac, port in places)


def _delivers_to(megaflow: Megaflow, fields: Mapping[str, MaskedValue], mac: int | None, port: str | None) -> bool:
    if len(megaflow.actions) == 1 and "(" not in megaflow.actions[0] and port not in (None, megaflow.actions[0]):
        return False
    if not _leaves_by(megaflow.actions, port):
        return False
    if mac is None or _writes(megaflow.actions, mac):
        return True
    # A packet that comes with the backend's MAC already is not rewritten.
    came_with = fields.get("dl_dst")
    return came_with is not None and came_with.value == mac and not _rewrites(megaflow.actions)


@lru_cache(maxsize=1024)
def is_slow(actions: tuple[str, ...]) -> bool:
    """Whether each packet goes through ovs-vswitchd itself."""
    return any(action.startswith("userspace(") for action in actions)


@lru_cache(maxsize=1024)
def _leaves_by(actions: tuple[str, ...], egress: str | None) -> bool:
    """Whether the port is among the actions. Behind a tunnel it has a name that Open vSwitch chose."""
    is_tunnel = any(action.startswith(("set(tunnel(", "tnl_push(")) for action in actions)
    return egress is None or is_tunnel or egress in actions


@lru_cache(maxsize=1024)
def _writes(actions: tuple[str, ...], dl_dst: int) -> bool:
    destination = f"dst={render_mac(dl_dst)}"
    return any(action.startswith("set(eth(") and destination in action for action in actions)


@lru_cache(maxsize=1024)
def _rewrites(actions: tuple[str, ...]) -> bool:
    return any(action.startswith("set(eth(") and "dst=" in action for action in actions)

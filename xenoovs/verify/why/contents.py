"""What a megaflow matches and does, asked in the words of lib/odp-util.c."""

from __future__ import annotations

from collections.abc import Iterable

from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.value import parse_number

OVS_ACTIONS = {
    2: "userspace",
    6: "sample",
    7: "recirc",
    8: "hash",
    9: "push_mpls",
    10: "pop_mpls",
    12: "ct",
    13: "trunc",
    14: "push_eth",
    15: "pop_eth",
    16: "ct_clear",
    17: "push_nsh",
    18: "pop_nsh",
    19: "meter",
    20: "clone",
    21: "check_pkt_len",
    22: "add_mpls",
}
"""enum ovs_action_attr of uapi/linux/openvswitch.h -> its word in a dump, for those that Open vSwitch may refuse."""


def kinds_of(megaflow: Megaflow) -> frozenset[str]:
    """The kinds of actions: `set`, `hash`, `userspace` ...; a port counts as `output`."""
    return frozenset(map(_kind, megaflow.actions))


def set_fields(megaflow: Megaflow) -> frozenset[str]:
    """What `set(...)` writes: `eth`, `ipv4`, `udp`, `tunnel` ..."""
    sets = (action.removeprefix("set(") for action in megaflow.actions if action.startswith("set("))
    return frozenset(action.partition("(")[0] for action in sets)


def matches_key(megaflow: Megaflow, name: str) -> bool:
    """Whether at least one bit of the key is matched."""
    text = megaflow.key(name)
    if text is None:
        return False
    mask = text.partition("/")[2]
    try:
        return not mask or parse_number(mask) != 0
    except ValueError:
        return True


def is_fragment(megaflow: Megaflow) -> bool:
    """Whether it matches IP fragments."""
    return any("frag=first" in key.inner or "frag=later" in key.inner for key in megaflow.keys)


def listed(words: Iterable[str]) -> str:
    """Words in a stable order, for a sentence."""
    return ", ".join(sorted(words))


_PLAIN = frozenset(OVS_ACTIONS.values()) | {"set", "push_vlan", "pop_vlan", "drop", "tnl_push", "tnl_pop", "ct"}


def _kind(action: str) -> str:
    name = action.partition("(")[0]
    return name if "(" in action or name in _PLAIN else "output"

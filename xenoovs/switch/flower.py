"""Rules of the flower classifier (tc-flower(8)) as the kernel holds them, and the same rule once more as a trial.

Numbers are from uapi/linux/{rtnetlink,pkt_cls,pkt_sched}.h and uapi/linux/tc_act/*.h of Linux.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from xenoovs.switch.netlink import (
    Attribute,
    decode_attributes,
    encode_attributes,
    find_attribute,
    kind_of,
)

TCMSG = struct.Struct("=BxxxiIII")
"""struct tcmsg: family, ifindex, handle, parent, info; info is preference << 16 | EtherType in network order."""

INGRESS_PARENT = 0xFFFFFFF2
"""TC_H_CLSACT with TC_H_MIN_INGRESS: of ingress and of clsact qdiscs, as Open vSwitch gives it (lib/tc.c)."""
BLOCK_IFINDEX = -1
"""TCM_IFINDEX_MAGIC_BLOCK: parent is the number of a shared block (as of a bond)."""

TCA_KIND, TCA_OPTIONS, TCA_CHAIN, TCA_INGRESS_BLOCK = 1, 2, 11, 13
_CLASSID, _ACTIONS, _FLAGS, _IN_HW_COUNT = 1, 3, 22, 86
_SKIP_HW, _SKIP_SW, _IN_HW, _NOT_IN_HW = 1, 2, 4, 8
_ACT_KIND, _ACT_OPTIONS, _ACT_COOKIE = 1, 2, 6

_PARAMETERS = {"pedit": 4, "csum": 1, "ct": 1}
"""The attribute with the parameters of an action kind where it is not 2."""
_DROPPED = {
    "mirred": frozenset((1, 3)),
    "pedit": frozenset((1, 3)),
    "gact": frozenset((1, 4)),
    "vlan": frozenset((1, 5)),
    "mpls": frozenset((1, 3)),
    "skbedit": frozenset((1, 6)),
    "tunnel_key": frozenset((1, 8)),
    "csum": frozenset((2, 3)),
    "ct": frozenset((2, 15)),
}
"""Times and padding that the kernel tells but does not take."""
_SHARED = "police"
"""Refers by its index to a meter that flows share; without the index it would be a new meter."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where rules are: on the ingress qdisc of a device, or on a block that devices share (`ifindex` BLOCK_IFINDEX).

    parent: whatever a new rule names becomes that of all rules of the qdisc (block->classid of net/sched/cls_api.c), so
            that a rule that is to leave no trace must name what the others have.
    """

    ifindex: int
    parent: int = INGRESS_PARENT

    def pack(self, *, handle: int = 0, info: int = 0) -> bytes:
        """struct tcmsg."""
        return TCMSG.pack(0, self.ifindex, handle, self.parent, info)


@dataclass(frozen=True, slots=True)
class FlowerRule:
    """One rule. `protocol`: EtherType, host order. `cookie`: of its first action that has one. `options`: its rest."""

    place: Place
    preference: int
    protocol: int
    handle: int
    chain: int | None
    flags: int
    in_hw_count: int | None
    cookie: bytes | None
    options: tuple[Attribute, ...]

    @property
    def in_hw(self) -> bool:
        return bool(self.flags & _IN_HW)

    @property
    def not_in_hw(self) -> bool:
        return bool(self.flags & _NOT_IN_HW)

    @property
    def skip_hw(self) -> bool:
        return bool(self.flags & _SKIP_HW)


def parse_rule(body: bytes) -> FlowerRule | None:
    """One message of a dump of filters; None: a header, or a rule of another classifier."""
    _, ifindex, handle, parent, info = TCMSG.unpack_from(body)
    attributes = decode_attributes(body[TCMSG.size :])
    nested = find_attribute(attributes, TCA_OPTIONS)
    if find_attribute(attributes, TCA_KIND) != b"flower\0" or nested is None or handle == 0:
        return None
    options = decode_attributes(nested)
    return FlowerRule(
        place=Place(ifindex, parent),
        preference=info >> 16,
        protocol=_swap16(info & 0xFFFF),
        handle=handle,
        chain=_number(find_attribute(attributes, TCA_CHAIN)),
        flags=_number(find_attribute(options, _FLAGS)) or 0,
        in_hw_count=_number(find_attribute(options, _IN_HW_COUNT)),
        cookie=_cookie(options),
        options=options,
    )


def preference_of(body: bytes) -> int:
    """The preference of any message of a dump of filters, whatever its classifier."""
    return int(TCMSG.unpack_from(body)[4]) >> 16


def info_of(preference: int, protocol: int) -> int:
    """tcm_info of a rule."""
    return preference << 16 | _swap16(protocol)


def trial_options(rule: FlowerRule) -> bytes:
    """The attributes of the same rule for hardware alone (skip_sw), without what ties it to its megaflow."""
    kept = [
        (kind, _trial_actions(payload) if kind_of((kind, payload)) == _ACTIONS else payload)
        for kind, payload in rule.options
        if kind_of((kind, payload)) not in (_CLASSID, _FLAGS, _IN_HW_COUNT)
    ]
    return encode_attributes((*kept, (_FLAGS, struct.pack("=I", _SKIP_SW))))


def _trial_actions(payload: bytes) -> bytes:
    return encode_attributes((order, _trial_action(action)) for order, action in decode_attributes(payload))


def _trial_action(payload: bytes) -> bytes:
    """Kind and options alone: Open vSwitch takes a rule with its cookie for a megaflow of its own."""
    attributes = decode_attributes(payload)
    name = (find_attribute(attributes, _ACT_KIND) or b"").rstrip(b"\0").decode("ascii", "replace")
    kept = [attribute for attribute in attributes if kind_of(attribute) in (_ACT_KIND, _ACT_OPTIONS)]
    return encode_attributes(
        (kind, _trial_parameters(name, data) if kind_of((kind, data)) == _ACT_OPTIONS else data) for kind, data in kept
    )


def _trial_parameters(name: str, payload: bytes) -> bytes:
    if name == _SHARED:
        return payload
    dropped, parameters = _DROPPED.get(name, frozenset()), _PARAMETERS.get(name, 2)
    return encode_attributes(
        (kind, _as_new(data) if kind_of((kind, data)) == parameters else data)
        for kind, data in decode_attributes(payload)
        if kind_of((kind, data)) not in dropped
    )


def _as_new(parameters: bytes) -> bytes:
    """`tc_gen` (uapi/linux/pkt_cls.h) is index, capab, action, refcnt, bindcnt: an action that is not yet there."""
    capab_and_action = parameters[4:12]
    return bytes(4) + capab_and_action + bytes(8) + parameters[20:]


def _cookie(options: tuple[Attribute, ...]) -> bytes | None:
    actions = decode_attributes(find_attribute(options, _ACTIONS) or b"")
    cookies = (find_attribute(decode_attributes(action), _ACT_COOKIE) for _, action in actions)
    return next((cookie for cookie in cookies if cookie), None)


def _number(payload: bytes | None) -> int | None:
    return None if payload is None or len(payload) != 4 else int(struct.unpack("=I", payload)[0])


def _swap16(value: int) -> int:
    """Between host and network order."""
    return int(struct.unpack("=H", struct.pack("!H", value))[0])

"""Ask the driver why it refused a rule: add the same rule again for hardware only, and delete it at once.

With skip_sw the kernel fails if the driver refuses, and passes on the driver's message; without it, as Open vSwitch
installs rules, a refusal is silent (tc-flower(8), "skip_sw"). A journal has the rule before it is added, so that the
next run deletes what a killed run left.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from xenoovs.dataclass import asdict, dataclass, replace
from xenoovs.datapath.tc import DriverAnswer, Objection, objection_of
from xenoovs.errors import SwitchError
from xenoovs.switch.netlink import (
    NLM_F_CREATE,
    NLM_F_EXCL,
    Attribute,
    Netlink,
    Refused,
    decode_attributes,
    encode_attributes,
    find_attribute,
    kind_of,
)
from xenoovs.switch.undo_journal import TRIAL, UndoJournal

# Rules of the flower classifier (tc-flower(8)) as the kernel holds them, and the same rule once more as a trial.
#
# Numbers are from uapi/linux/{rtnetlink,pkt_cls,pkt_sched}.h and uapi/linux/tc_act/*.h of Linux.


TCMSG = struct.Struct("=BxxxiIII")
"""struct tcmsg: family, ifindex, handle, parent, info; info is preference << 16 | EtherType in network order."""

INGRESS_PARENT = 0xFFFFFFF2
"""TC_H_CLSACT with TC_H_MIN_INGRESS: for ingress and clsact qdiscs, as in Open vSwitch (lib/tc.c)."""
BLOCK_IFINDEX = -1
"""TCM_IFINDEX_MAGIC_BLOCK: the parent is the number of a shared block, such as that of a bond."""

TCA_KIND, TCA_OPTIONS, TCA_CHAIN, TCA_INGRESS_BLOCK = 1, 2, 11, 13
_CLASSID, _ACTIONS, _ETH_TYPE, _FLAGS, _VLAN_ETH_TYPE, _IN_HW_COUNT = 1, 3, 8, 22, 25, 86
_SKIP_HW, _SKIP_SW, _IN_HW = 1, 2, 4
_ACT_KIND, _ACT_OPTIONS, _ACT_COOKIE, _ACT_HW_STATS = 1, 2, 6, 8
_VLAN_PROTOCOLS = (0x8100, 0x88A8)
"""ETH_P_8021Q and ETH_P_8021AD of uapi/linux/if_ether.h."""

_PARAMETERS = {"pedit": 4, "csum": 1, "ct": 1}
"""The attribute with the parameters of an action, for kinds where it is not 2."""
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
"""Attributes for times and padding, which the kernel dumps but does not accept."""
_SHARED = "police"
"""An action that refers by index to a meter that flows share; without the index it would be a new meter."""
_POLICE = 1
"""TCA_POLICE_TBF: struct tc_police, which begins with that index."""


def place_of_rules(ifindex: int, parent: int = INGRESS_PARENT, *, handle: int = 0, info: int = 0) -> bytes:
    """Return a struct tcmsg: the ingress qdisc of a device, or a block that devices share (`ifindex` BLOCK_IFINDEX).

    `parent`: the parent in a new rule becomes that of all rules of the qdisc (block->classid of net/sched/cls_api.c),
    so a trial rule must have the parent of the other rules.
    """
    return TCMSG.pack(0, ifindex, handle, parent, info)


@dataclass(frozen=True, slots=True)
class FlowerRule:
    """One rule. `ifindex`, `parent`: as in `place_of_rules`. `protocol`: EtherType, host order. `cookie`: of its first
    action with one. `options`: the rest."""

    ifindex: int
    parent: int
    preference: int
    protocol: int
    handle: int
    chain: int | None
    flags: int
    cookie: bytes | None
    options: tuple[Attribute, ...]

    @property
    def is_refused(self) -> bool:
        """Return whether the driver does not have the rule, although it was asked to."""
        return not self.flags & (_IN_HW | _SKIP_HW)


def parse_rule(body: bytes) -> FlowerRule | None:
    """Return the rule in one message of a dump of filters; None for a header, or a rule of another classifier."""
    _, ifindex, handle, parent, info = TCMSG.unpack_from(body)
    attributes = decode_attributes(body[TCMSG.size :])
    nested = find_attribute(attributes, TCA_OPTIONS)
    if find_attribute(attributes, TCA_KIND) != b"flower\0" or nested is None or handle == 0:
        return None
    options = decode_attributes(nested)
    return FlowerRule(
        ifindex=ifindex,
        parent=parent,
        preference=info >> 16,
        protocol=_swap16(info & 0xFFFF),
        handle=handle,
        chain=_number(find_attribute(attributes, TCA_CHAIN)),
        flags=_number(find_attribute(options, _FLAGS)) or 0,
        cookie=_cookie(options),
        options=options,
    )


def preference_of(body: bytes) -> int:
    """Return the preference in a message of a dump of filters of any classifier."""
    return int(TCMSG.unpack_from(body)[4]) >> 16


def trial_options(rule: FlowerRule) -> bytes:
    """Return the attributes of the same rule for hardware only (skip_sw), without the link to its megaflow."""
    return encode_attributes((*_as_requested(rule), (_FLAGS, struct.pack("=I", _SKIP_SW))))


def _essence(rule: FlowerRule) -> tuple[object, ...]:
    """Return a value that two rules of a dump share if they match the same packets and have the same actions."""
    return rule.protocol, rule.chain or 0, sorted(_lasting(rule, is_compared=True))


def _as_requested(rule: FlowerRule) -> Iterator[Attribute]:
    """Yield the attributes in the form of a request.

    TCA_FLOWER_KEY_ETH_TYPE is the outer type in a request, and the innermost one in a dump (fl_set_key, fl_dump_key of
    net/sched/cls_flower.c): a copy of the dump of a rule for tagged packets is a rule for untagged ones.
    """
    lasting = tuple(_lasting(rule))
    if rule.protocol not in _VLAN_PROTOCOLS:
        yield from lasting
        return
    inner = find_attribute(lasting, _ETH_TYPE)
    yield _ETH_TYPE, struct.pack("!H", rule.protocol)
    if inner is not None and find_attribute(lasting, _VLAN_ETH_TYPE) is None:
        yield _VLAN_ETH_TYPE, inner
    yield from (attribute for attribute in lasting if kind_of(attribute) != _ETH_TYPE)


def _lasting(rule: FlowerRule, *, is_compared: bool = False) -> Iterator[Attribute]:
    """Yield match and actions of a rule. `is_compared`: without the differences of two rules that share a meter."""
    for kind, payload in rule.options:
        if kind_of((kind, payload)) == _ACTIONS:
            yield kind, _lasting_actions(payload, is_compared=is_compared)
        elif kind_of((kind, payload)) not in (_CLASSID, _FLAGS, _IN_HW_COUNT):
            yield kind, payload


def _lasting_actions(payload: bytes, *, is_compared: bool) -> bytes:
    actions = decode_attributes(payload)
    return encode_attributes((order, _lasting_action(action, is_compared=is_compared)) for order, action in actions)


def _lasting_action(payload: bytes, *, is_compared: bool) -> bytes:
    """Return an action without its cookie, by which Open vSwitch would take the rule for one of its megaflows."""
    kept = (_ACT_KIND, _ACT_OPTIONS, _ACT_HW_STATS)
    attributes = [attribute for attribute in decode_attributes(payload) if kind_of(attribute) in kept]
    name = (find_attribute(attributes, _ACT_KIND) or b"").rstrip(b"\0").decode("ascii", "replace")
    return encode_attributes(
        (kind, _parameters(name, data, is_compared=is_compared) if kind_of((kind, data)) == _ACT_OPTIONS else data)
        for kind, data in attributes
    )


def _parameters(name: str, payload: bytes, *, is_compared: bool) -> bytes:
    if name == _SHARED:
        return (find_attribute(decode_attributes(payload), _POLICE) or b"")[:4] if is_compared else payload
    dropped, parameters = _DROPPED.get(name, frozenset()), _PARAMETERS.get(name, 2)
    return encode_attributes(
        (kind, _as_new(data) if kind_of((kind, data)) == parameters else data)
        for kind, data in decode_attributes(payload)
        if kind_of((kind, data)) not in dropped
    )


def _as_new(parameters: bytes) -> bytes:
    """Return parameters of a new action. `tc_gen` (uapi/linux/pkt_cls.h): index, capab, action, refcnt, bindcnt."""
    capab_and_action = parameters[4:12]
    return bytes(4) + capab_and_action + bytes(8) + parameters[20:]


def _cookie(options: tuple[Attribute, ...]) -> bytes | None:
    actions = decode_attributes(find_attribute(options, _ACTIONS) or b"")
    cookies = (find_attribute(decode_attributes(action), _ACT_COOKIE) for _, action in actions)
    return next((cookie for cookie in cookies if cookie), None)


def _number(payload: bytes | None) -> int | None:
    return None if payload is None or len(payload) != 4 else int(struct.unpack("=I", payload)[0])


def _swap16(value: int) -> int:
    """Convert between host and network order."""
    return int(struct.unpack("=H", struct.pack("!H", value))[0])


RTM_GETQDISC, RTM_NEWTFILTER, RTM_DELTFILTER, RTM_GETTFILTER = 38, 44, 45, 46
_INGRESS = 0xFFFFFFF1
"""TC_H_INGRESS and TC_H_CLSACT of uapi/linux/pkt_sched.h."""

_LAST_NEAR = 16
"""NICs such as mlx5 without ignore_flow_level take preferences 1 to 16 only (mlx5_chains_get_prio_range)."""
_FIRST_PREFERENCE, _LAST_PREFERENCE = 0xC001, 0xFFFE
"""Above all preferences that the kernel chooses itself (tcf_auto_prio of net/sched/cls_api.c: 0xC000 and below)."""
_HANDLE = 0x786F7072
"""Handle of the trial rule, "xopr": no other rule is ever deleted, not even at the same preference."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """The place of the trial rule: enough to delete it in another process.

    `device`, `device_index`: of the port. `ifindex`, `parent`: as in `place_of_rules`.
    """

    device: str
    device_index: int
    ifindex: int
    parent: int
    preference: int
    protocol: int
    chain: int | None

    @property
    def place(self) -> bytes:
        return place_of_rules(self.ifindex, self.parent)

    def body(self, *attributes: tuple[int, bytes]) -> bytes:
        """Return the message that deletes the rule, or adds it with its options in `attributes`."""
        chain = () if self.chain is None else ((TCA_CHAIN, struct.pack("=I", self.chain)),)
        info = self.preference << 16 | _swap16(self.protocol)
        head = place_of_rules(self.ifindex, self.parent, handle=_HANDLE, info=info)
        return head + encode_attributes(((TCA_KIND, b"flower\0"), *chain, *attributes))

    def find(self, bodies: Iterable[bytes]) -> bytes | None:
        """Return the trial rule from a dump of rules; None if it is not in it."""
        mine = (b for b in bodies if TCMSG.unpack_from(b)[2] == _HANDLE and preference_of(b) == self.preference)
        return next(mine, None)


@dataclass(frozen=True, slots=True)
class SkipSwProber:
    """Tries rules in the kernel of `netlink`. `directory`: of the journal. Every method may raise SwitchError."""

    netlink: Netlink
    directory: Path

    def finish(self) -> bool:
        """Delete the trial rule of a run that was killed; return whether there was one."""
        return self._journal.finish(self._clean_up)

    def ask(self, rules: Mapping[str, Iterable[str]]) -> dict[str, DriverAnswer]:
        """Return cookie -> answer. `rules`: device -> cookies (32 hexadecimal digits) of rules that are not in
        hardware.

        Leaves out rules that no longer exist or are in hardware by now, and those of removed devices.
        """
        answers: dict[str, DriverAnswer] = {}
        with self._journal.held():
            self._clean_up()
            for device, cookies in rules.items():
                answers |= self._ask_device(device, frozenset(cookies))
        return answers

    @property
    def _journal(self) -> UndoJournal:
        return UndoJournal(self.directory, TRIAL)

    def _ask_device(self, device: str, cookies: frozenset[str]) -> dict[str, DriverAnswer]:
        ifindex = _ifindex(device)
        if ifindex is None:
            return {}
        bodies = self._dump(RTM_GETTFILTER, self._place(ifindex))
        free = _free_preferences(bodies)
        found = {rule.cookie.hex(): rule for body in bodies if (rule := parse_rule(body)) and rule.cookie}
        return {
            cookie: self._try_near(rule, device, ifindex, free, _above(bodies))
            for cookie, rule in found.items()
            if cookie in cookies and rule.is_refused
        }

    def _try_near(
        self, rule: FlowerRule, device: str, ifindex: int, near: Iterable[int], above: int | None
    ) -> DriverAnswer:
        """Try the rule at one preference after the other, until the answer is not about the trial itself.

        If the driver accepts it there, it may have refused the rule for its own, higher preference. A trial at a
        preference above all others shows that.
        """
        answers = list[DriverAnswer]()
        for tried in near:
            answers.append(self._try(rule, device, ifindex, tried))
            if not answers[-1].is_about_trial:
                break
        # The first preference is the nearest one to that of the rule.
        answer = answers[0] if answers[-1].is_about_trial else answers[-1]
        if answer.is_accepted and above is not None and rule.preference > tried:
            as_high = self._try(rule, device, ifindex, above)
            if as_high.error is not None and as_high.is_about_trial:
                answer = replace(as_high, is_about_trial=False)
        words = dict.fromkeys(each.message for each in answers if each.message not in (None, answer.message))
        return replace(answer, further=tuple(filter(None, words)))

    def _try(self, rule: FlowerRule, device: str, ifindex: int, preference: int) -> DriverAnswer:
        trial = _Trial(device, ifindex, rule.ifindex, rule.parent, preference, rule.protocol, rule.chain)
        body = trial.body((TCA_OPTIONS, trial_options(rule)))
        self._journal.write(asdict(trial))
        try:
            self.netlink.request(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, body)
            held = trial.find(self._dump(RTM_GETTFILTER, trial.place))
            accepted = None if held is None else parse_rule(held)
            return DriverAnswer(None, is_about_trial=accepted is None or _essence(rule) != _essence(accepted))
        except Refused as refused:
            objection = objection_of(refused.error, refused.text)
            is_about_trial = objection is Objection.PREFERENCE or (objection is Objection.CHAIN and not rule.chain)
            return DriverAnswer(refused.error, os.strerror(refused.error), refused.text or None, is_about_trial)
        finally:
            self._clean_up()

    def _clean_up(self) -> bool:
        facts = self._journal.read()
        if facts is None:
            return False
        try:
            trial = _Trial(**facts)  # type: ignore[arg-type]  # a wrong one cannot be packed
            body, index = trial.body(), _ifindex(trial.device)
        except (TypeError, ValueError, struct.error):
            raise self._journal.malformed() from None
        # A device that is gone took its rules with it, and its number may be another one's by now.
        if index == trial.device_index:
            self._delete(trial, body)
        self._journal.erase()
        return True

    def _delete(self, trial: _Trial, body: bytes) -> None:
        try:
            self.netlink.request(RTM_DELTFILTER, 0, body)
        except Refused as refused:
            # Most often it was never there: the driver refused it. What counts is that it is not there now.
            if trial.find(self._dump(RTM_GETTFILTER, trial.place)) is not None:
                raise SwitchError(
                    f"cannot delete the trial rule at preference {trial.preference} of {trial.device}: {refused}"
                ) from None

    def _place(self, ifindex: int) -> bytes:
        """Return the place of the ingress rules of a device."""
        for body in self._dump(RTM_GETQDISC, TCMSG.pack(0, ifindex, 0, 0, 0)):
            _, index, _, parent, _ = TCMSG.unpack_from(body)
            if index == ifindex and parent == _INGRESS:
                block = find_attribute(decode_attributes(body[TCMSG.size :]), TCA_INGRESS_BLOCK)
                if block is not None:
                    return place_of_rules(BLOCK_IFINDEX, struct.unpack("=I", block)[0])
        return place_of_rules(ifindex)

    def _dump(self, kind: int, body: bytes) -> list[bytes]:
        try:
            return list(self.netlink.dump(kind, body))
        except Refused as refused:
            raise SwitchError(f"the kernel does not list its traffic control rules: {refused}; run as root") from None


def _above(bodies: Iterable[bytes]) -> int | None:
    """Return a preference above those of all rules; None if there is none."""
    above = max(map(preference_of, bodies), default=0) + 2
    return above if above <= _LAST_PREFERENCE else None


def _free_preferences(bodies: Iterable[bytes]) -> tuple[int, ...]:
    """Return the preferences to try, in order: rules of one preference must have the same kind and protocol.

    The first is near those of Open vSwitch, which drivers accept. The next higher one stays free, as Open vSwitch uses
    it for its next protocol (lib/netdev-offload-tc.c, get_next_available_prio).
    """
    used = set(map(preference_of, bodies))
    near = [number for number in range(2, _LAST_NEAR + 1) if number not in used]
    next_one = max((number for number in used if number <= _LAST_NEAR), default=1) + 1
    ordered = sorted(near, key=lambda number: (number <= next_one, number))
    far = next((number for number in range(_FIRST_PREFERENCE, _LAST_PREFERENCE) if number not in used), None)
    found = (*ordered[:2], *(() if far is None else (far,)))
    if not found:
        raise SwitchError("no preference is free for a trial rule")
    return found


def _ifindex(device: str) -> int | None:
    """Return the index of a device; None if it does not exist."""
    try:
        return socket.if_nametoindex(device)
    except OSError:
        return None

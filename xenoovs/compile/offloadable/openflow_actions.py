"""The actions of an OpenFlow flow as topics of the table (ovs-actions(7))."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from xenoovs.compile.offloadable.families import WRITTEN, family_of
from xenoovs.compile.offloadable.groups import Group
from xenoovs.compile.offloadable.seen import Seen
from xenoovs.openflow.action import (
    LOCAL,
    Action,
    Foreign,
    Learn,
    Move,
    Normal,
    Output,
    OutputInPort,
    Resubmit,
    SetField,
)
from xenoovs.openflow.parse_action import parse_actions
from xenoovs.openflow.render import render_actions

_NAME = re.compile(r"[A-Za-z_0-9]+", re.ASCII)
_TARGET = re.compile(r"->\s*([A-Za-z0-9_]+)", re.ASCII)
_INSIDE = re.compile(r"[a-z_]+\((.*)\)", re.ASCII)

_BY_NAME = {
    "mod_nw_src": "set-ip",
    "mod_nw_dst": "set-ip",
    "mod_nw_tos": "set-tos",
    "mod_nw_ecn": "set-tos",
    "mod_nw_ttl": "set-ttl",
    "dec_ttl": "set-ttl",
    "mod_vlan_vid": "vlan-action",
    "mod_vlan_pcp": "vlan-action",
    "set_vlan_vid": "vlan-action",
    "set_vlan_pcp": "vlan-action",
    "strip_vlan": "vlan-action",
    "pop_vlan": "vlan-action",
    "push_vlan": "vlan-action",
    "push_mpls": "mpls-action",
    "pop_mpls": "mpls-action",
    "set_mpls_label": "mpls-action",
    "set_mpls_tc": "mpls-action",
    "set_mpls_ttl": "mpls-action",
    "dec_mpls_ttl": "mpls-action",
    "set_tunnel": "set-tunnel",
    "set_tunnel64": "set-tunnel",
    "set_queue": "set-queue",
    "pop_queue": "set-queue",
    "controller": "controller",
    "CONTROLLER": "controller",
    "learn": "learn",
    "sample": "sample",
    "meter": "meter",
    "check_pkt_larger": "check-pkt-len",
    "encap": "nsh-action",
    "decap": "nsh-action",
    "dec_nsh_ttl": "nsh-action",
    "multipath": "multipath",
    "bundle": "multipath",
    "bundle_load": "multipath",
    "ct_clear": "ct-clear",
    "debug_recirc": "recirculated",
    "debug_slow": "slow-path",
    "FLOOD": "normal",
    "ALL": "normal",
    "note": "pipeline-action",
    "conjunction": "pipeline-action",
    "resubmit": "pipeline-action",
    "goto_table": "pipeline-action",
    "TABLE": "pipeline-action",
    "exit": "pipeline-action",
    "push": "pipeline-action",
    "pop": "pipeline-action",
    "fin_timeout": "pipeline-action",
    "write_metadata": "pipeline-action",
    "clear_actions": "pipeline-action",
    "delete_field": "set-tunnel-options",
}

_SCTP = 132
"""Assigned Internet Protocol Numbers (IANA)."""

_GROUP_DIGITS = 10
"""Group numbers have 32 bits (OpenFlow 1.4.0, 7.3.4.3)."""


class ActionReader:
    """Reads actions. `protocol`: IP protocol of the flow, None: any. `groups`: those of the bridge, by number."""

    __slots__ = ("_entered", "_groups", "_protocol", "count", "outputs")

    def __init__(self, *, protocol: int | None, groups: Mapping[int, Group]) -> None:
        self._protocol, self._groups = protocol, groups
        self._entered: tuple[int, ...] = ()
        """Groups that are being read: a dump may show one that leads back to itself."""
        self.outputs = 0
        self.count = 0
        """Actions of the datapath so far: outputs, and headers written before each."""

    def read(self, actions: Iterable[Action]) -> Iterator[Seen]:
        """What the actions do."""
        for action in actions:
            yield from self._action(action)

    def _action(self, action: Action) -> Iterator[Seen]:
        text = render_actions((action,))
        match action:
            case Output(port):
                yield self._output("output-local" if port == LOCAL else "output", text)
            case OutputInPort():
                yield self._output("output-in-port", text)
            case Normal():
                yield self._output("normal", text)
            case Move(source, target) if source is target:
                # Writes nothing; it makes the megaflow match the whole field.
                yield Seen("pipeline-action", text)
            case SetField(target, _) | Move(_, target):
                yield self._write(target.ovs_name, text)
            case Resubmit(_):
                yield Seen("pipeline-action", text)
            case Learn() | Foreign():
                yield from self._foreign(text)
            case _:
                assert_never(action)

    def _output(self, topic: str, text: str) -> Seen:
        self.outputs += 1
        self.count += 1
        return Seen(topic, text)

    def _write(self, name: str, text: str) -> Seen:
        family = family_of(name)
        if family == "port" and self._protocol == _SCTP:
            family = "sctp-port"
        topic = WRITTEN.get(family or "", "unknown-action")
        self.count += topic != "pipeline-action"
        return Seen(topic, text)

    def _foreign(self, text: str) -> Iterator[Seen]:
        found = _NAME.match(text)
        name = found[0] if found else ""
        match name:
            case "load" | "set_field" | "move":
                target = _TARGET.search(text)
                yield self._write(target[1] if target else "", text)
            case "mod_tp_src" | "mod_tp_dst":
                yield self._write(name.removeprefix("mod_"), text)
            case "output":
                # Else a register that names the port, or OVS 2.x's `output:NXM_NX_REG0[]`.
                yield self._output("truncate" if "max_len" in text else "output", text)
            case "enqueue":
                yield Seen("set-queue", text)
                yield self._output("output", text)
            case "group":
                yield from self._group(text)
            case "ct":
                yield from self._ct(text)
            case "clone" | "write_actions" | "apply_actions":
                yield from self._nested(name, text)
            case _:
                self.count += 1
                yield Seen(_BY_NAME.get(name, "unknown-action"), text)

    def _group(self, text: str) -> Iterator[Seen]:
        word = text.partition(":")[2]
        number = int(word) if word.isascii() and word.isdigit() and len(word) <= _GROUP_DIGITS else -1
        group = self._groups.get(number)
        if group is None or number in self._entered:
            yield Seen("group", text)
            return
        yield Seen(group.topic, group.text)
        self._entered = (*self._entered, number)
        yield from self._buckets(group)
        self._entered = self._entered[:-1]

    def _buckets(self, group: Group) -> Iterator[Seen]:
        """All buckets; where one is chosen, the one with most outputs counts."""
        before, most = self.outputs, 0
        for bucket in group.buckets:
            yield from self._parsed(bucket)
            if group.topic != "group-all":
                most, self.outputs = max(most, self.outputs - before), before
        self.outputs += most

    def _ct(self, text: str) -> Iterator[Seen]:
        self.count += 1
        yield Seen("ct-action", text)
        if "alg=" in text:
            yield Seen("ct-helper", text)
        if "table=" in text:
            yield Seen("recirculated", text)

    def _nested(self, name: str, text: str) -> Iterator[Seen]:
        if name == "clone":
            yield Seen("clone", text)
        inside = _INSIDE.fullmatch(text)
        if inside and inside[1]:
            yield from self._parsed(inside[1])

    def _parsed(self, text: str) -> Iterator[Seen]:
        """Actions inside of others, which nobody has parsed before."""
        try:
            actions = parse_actions(text)
        except ValueError:
            yield Seen("unknown-action", text)
            return
        yield from self.read(actions)

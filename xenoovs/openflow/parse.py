"""Dumps of `ovs-ofctl [--names] dump-flows` back to flows. What is not understood is kept or refused, never guessed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from xenoovs.errors import ParseError
from xenoovs.openflow.action import Action, Foreign, Move, Normal, Output, OutputInPort, Resubmit, SetField
from xenoovs.openflow.field import Field
from xenoovs.openflow.flow import Flow, FlowKey, ObservedFlow
from xenoovs.openflow.keyword import PROTOCOL_KEYWORDS
from xenoovs.openflow.match import Masked, Match, exact, match_of
from xenoovs.openflow.value import parse_mask, parse_value

_BY_NAME = {field.ovs_name: field for field in Field}
_BY_NXM = {field.nxm: field for field in Field}
_BY_SET_FIELD = {**_BY_NAME, "eth_src": Field.DL_SRC, "eth_dst": Field.DL_DST}
_SET = re.compile(r"(load|set_field):([^>]+)->([A-Za-z0-9_]+)(?:\[\])?", re.ASCII)
_MOVE = re.compile(r"move:([A-Z0-9_]+)\[\]->([A-Z0-9_]+)\[\]", re.ASCII)
_RESUBMIT = re.compile(r"resubmit\(,([0-9]+)\)|goto_table:([0-9]+)", re.ASCII)
_HEADER = re.compile(r"^(NXST_FLOW|OFPST_FLOW) reply", re.ASCII)
DEFAULT_PRIORITY = 0x8000
"""What OVS leaves out of a dump (OFP_DEFAULT_PRIORITY, ovs-ofctl(8))."""


def parse_dump(text: str) -> Iterator[ObservedFlow]:
    """All flows of a dump, in its order. Raises ParseError with the line."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line and not _HEADER.match(line):
            yield parse_observed(line, number=number)


def parse_flow(line: str) -> Flow:
    """One flow without its counters, as `render_flow` writes it. Raises ParseError."""
    return parse_observed(line).flow


def parse_observed(line: str, *, number: int = 1) -> ObservedFlow:
    """One line of a dump, with or without counters. Raises ParseError with line and column."""
    head, found, actions = line.strip().partition(" actions=")
    if not found:
        raise ParseError(text=line, offset=len(line), expected="' actions='", line=number)
    *statistics, last = head.split(", ")
    numbers = dict(item.partition("=")[::2] for item in statistics)
    try:
        priority, match = _parse_conditions(last)
        key = FlowKey(int(numbers.get("table", "0")), priority, match)
        flow = Flow(key, int(numbers.get("cookie", "0"), 16), parse_actions(actions))
        packets, size = int(numbers.get("n_packets", "0")), int(numbers.get("n_bytes", "0"))
        return ObservedFlow(flow, packets, size, float(numbers.get("duration", "0s").rstrip("s")))
    except ValueError as error:
        raise ParseError(text=line, offset=0, expected=f"a flow ({error})", line=number) from None


@lru_cache(maxsize=8192)
def parse_actions(text: str) -> tuple[Action, ...]:
    """The text behind `actions=`. Raises ValueError for a field value that cannot be."""
    return () if text == "drop" else tuple(map(_parse_action, split_outside_parentheses(text)))


def split_outside_parentheses(text: str) -> list[str]:
    """Split at commas that stand in no parenthesis and no quotes."""
    parts, depth, start, quoted = [], 0, 0, False
    for i, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


def _parse_conditions(text: str) -> tuple[int, Match]:
    priority, in_port, masked, foreign = DEFAULT_PRIORITY, None, list[Masked](), list[str]()
    # Flags such as `send_flow_rem` stand before the priority, divided by blanks (lib/ofp-flow.c).
    *flags, conditions = text.rsplit(" ", 1)
    for token in split_outside_parentheses(conditions) if conditions else ():
        name, _, value = token.partition("=")
        if name == "priority":
            priority = int(value)
        elif name == "in_port":
            in_port = _unquote(value)
        elif known := _parse_condition(token):
            masked.extend(known)
        else:
            foreign.append(token)
    return priority, match_of(masked, in_port=in_port, foreign=(*foreign, *flags))


@lru_cache(maxsize=65536)
def _parse_condition(token: str) -> tuple[Masked, ...]:
    name, is_condition, text = token.partition("=")
    if not is_condition:
        if name not in PROTOCOL_KEYWORDS:
            return ()
        dl_type, nw_proto = PROTOCOL_KEYWORDS[name]
        ether = exact(Field.DL_TYPE, dl_type)
        return (ether,) if nw_proto is None else (ether, exact(Field.NW_PROTO, nw_proto))
    field = _BY_NAME.get(name)
    if field is None:
        return ()
    value, is_masked, mask = text.partition("/")
    if is_masked:
        return (Masked(field, parse_value(field, value), parse_mask(field, mask)),)
    return (exact(field, parse_value(field, value)),)


def _parse_action(text: str) -> Action:
    name, _, argument = text.partition(":")
    match name:
        case "output":
            return Output(_unquote(argument))
        case "IN_PORT":
            return OutputInPort()
        case "NORMAL":
            return Normal()
        case "mod_dl_src" | "mod_dl_dst":
            field = _BY_NAME[name.removeprefix("mod_")]
            return SetField(field, parse_value(field, argument))
        case "load" | "set_field":
            return _parse_set(text)
        case "move":
            return _parse_move(text)
    if found := _RESUBMIT.fullmatch(text):
        return Resubmit(int(found[1] or found[2]))
    return Foreign(text)


def _parse_set(text: str) -> Action:
    if not (found := _SET.fullmatch(text)):
        return Foreign(text)
    verb, value, target = found.groups()
    field = (_BY_NXM if verb == "load" else _BY_SET_FIELD).get(target)
    if field is None or "/" in value:
        return Foreign(text)
    return SetField(field, int(value, 0) if verb == "load" else parse_value(field, value))


def _parse_move(text: str) -> Action:
    if (found := _MOVE.fullmatch(text)) and found[1] in _BY_NXM and found[2] in _BY_NXM:
        return Move(_BY_NXM[found[1]], _BY_NXM[found[2]])
    return Foreign(text)


def _unquote(name: str) -> str:
    return name[1:-1] if name.startswith('"') and name.endswith('"') else name

"""The text behind `actions=` back to actions (ovs-actions(7)). What xenoovs never writes is kept as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from xenoovs.openflow.action import (
    LOCAL,
    WIDEST_LOAD,
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
from xenoovs.openflow.field import Field
from xenoovs.openflow.flow import MAX_TABLE
from xenoovs.openflow.text import parse_name, split_list
from xenoovs.openflow.value import parse_value

_BY_NAME = {field.ovs_name: field for field in Field}
_BY_NXM = {field.nxm: field for field in Field}
_BY_SET_FIELD = {**_BY_NAME, "eth_src": Field.DL_SRC, "eth_dst": Field.DL_DST}
_LOAD = re.compile(r"load:(0x[0-9a-f]+|[0-9]+)->([A-Z0-9_]+)\[\]", re.ASCII)
_SET_FIELD = re.compile(r"set_field:([^>/]+)->([a-z0-9_]+)", re.ASCII)
_MOVE = re.compile(r"move:([A-Z0-9_]+)\[\]->([A-Z0-9_]+)\[\]", re.ASCII)
_LEARN = re.compile(
    r"learn\(table=([0-9]+),idle_timeout=([0-9]+),priority=([0-9]+),delete_learned,cookie=(0x[0-9a-f]+),"
    r"limit=([0-9]+),eth_type=(0x[0-9a-f]+),nw_proto=([0-9]+)((?:,[A-Z0-9_]+\[\])+)((?:,load:[^,]+)*),"
    r"output:([A-Z0-9_]+)\[\]\)",
    re.ASCII,
)
"""What `Learn` can say; all else is kept as it is."""

_RESUBMIT = re.compile(r'resubmit\(,([^,"()]+|"(?:[^"\\]|\\.)*")\)')


class UnknownTable(ValueError):
    """A table that is told by a name; ovs-ofctl does so where Flow_Table gives it one (ovs-vswitchd.conf.db(5))."""


def parse_table(text: str, *, names: Mapping[str, int] | None = None) -> int:
    """The number of a table. Raises UnknownTable for a name not in `names`, ValueError for a number above 254."""
    if text.isascii() and text.isdigit():
        if int(text) > MAX_TABLE:
            raise ValueError(f"table {text} is above {MAX_TABLE}")
        return int(text)
    name = parse_name(text)
    if names is None or name not in names:
        raise UnknownTable(f"table {name!r} has no known number")
    return names[name]


def parse_actions(text: str, *, tables: Mapping[str, int] | None = None) -> tuple[Action, ...]:
    """The text behind `actions=`. Raises ValueError (UnknownTable for a table name that is not in `tables`)."""
    return _parse_plain(text) if tables is None else tuple(_parse_action(a, tables) for a in _split(text))


@lru_cache(maxsize=65536)
def _parse_plain(text: str) -> tuple[Action, ...]:
    return tuple(_parse_action(action, None) for action in _split(text))


def _split(text: str) -> list[str]:
    return [] if text == "drop" else split_list(text)


def _parse_action(text: str, tables: Mapping[str, int] | None) -> Action:
    name, _, argument = text.partition(":")
    match name:
        case "output":
            return _parse_output(text, argument)
        case "mod_dl_src" | "mod_dl_dst":
            field = _BY_NAME[name.removeprefix("mod_")]
            return SetField(field, parse_value(field, argument))
        case "load" | "set_field":
            return _parse_set(text)
        case "move":
            return _parse_move(text)
        case "goto_table":
            return Resubmit(parse_table(argument, names=tables))
        case _:
            return _parse_word(text, tables)


def _parse_word(text: str, tables: Mapping[str, int] | None) -> Action:
    match text:
        case "IN_PORT":
            return OutputInPort()
        case "LOCAL":
            return Output(LOCAL)
        case "NORMAL":
            return Normal()
        case "" | "drop":
            raise ValueError(f"{text!r} cannot stand in a list of actions")
    if text.startswith("learn("):
        return _parse_learn(text)
    if found := _RESUBMIT.fullmatch(text):
        return Resubmit(parse_table(found[1], names=tables))
    return Foreign(text)


def _parse_output(text: str, argument: str) -> Action:
    # Such as output:NXM_NX_REG0[] and output(port=1,max_len=100): a port that the packet carries, a cut copy.
    return Foreign(text) if argument.endswith("]") else Output(parse_name(argument))


def _parse_set(text: str) -> Action:
    if found := _LOAD.fullmatch(text):
        field = _BY_NXM.get(found[2])
        return Foreign(text) if field is None else SetField(field, _fitting(field, int(found[1], 0)))
    if found := _SET_FIELD.fullmatch(text):
        field = _BY_SET_FIELD.get(found[2])
        if field is None or field.width > WIDEST_LOAD:
            return Foreign(text)
        return SetField(field, parse_value(field, found[1]))
    return Foreign(text)


def _fitting(field: Field, value: int) -> int:
    if value > field.all_ones:
        raise ValueError(f"{value:#x} does not fit the {field.width} bits of {field.ovs_name}")
    return value


def _parse_move(text: str) -> Action:
    if (found := _MOVE.fullmatch(text)) and found[1] in _BY_NXM and found[2] in _BY_NXM:
        return Move(_BY_NXM[found[1]], _BY_NXM[found[2]])
    return Foreign(text)


def _parse_learn(text: str) -> Action:
    found = _LEARN.fullmatch(text)
    if not found:
        return Foreign(text)
    same = [_BY_NXM.get(name.removesuffix("[]")) for name in found[8].split(",")[1:]]
    writes = [_parse_set(load) for load in found[9].split(",")[1:]]
    output = _BY_NXM.get(found[10])
    known = tuple(field for field in same if field is not None)
    loads = tuple(load for load in writes if isinstance(load, SetField))
    if output is None or len(known) < len(same) or len(loads) < len(writes):
        return Foreign(text)
    return Learn(
        table=parse_table(found[1]),
        priority=int(found[3]),
        cookie=int(found[4], 0),
        idle_timeout_s=int(found[2]),
        limit=int(found[5]),
        dl_type=int(found[6], 0),
        nw_proto=int(found[7]),
        same=known,
        writes=loads,
        output=output,
    )

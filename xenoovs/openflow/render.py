"""Flows as text: byte for byte what `ovs-ofctl --names --no-stats dump-flows` prints, and what `add-flows` takes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import assert_never

from xenoovs.openflow.action import Action, Foreign, Move, Normal, Output, OutputInPort, Resubmit, SetField
from xenoovs.openflow.bundle import Bundle, Command, FlowMod
from xenoovs.openflow.field import Field, Format
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.keyword import KEYWORD_OF
from xenoovs.openflow.match import Masked, Match
from xenoovs.openflow.value import render_mask, render_value

_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*", re.ASCII)
_MOD_DL = {Field.DL_SRC: "mod_dl_src", Field.DL_DST: "mod_dl_dst"}


def render_flow(flow: Flow) -> str:
    """One flow without counters, as one line of a dump (whose leading blank is left out)."""
    cookie = f"cookie={flow.cookie:#x}, " if flow.cookie else ""
    table = f"table={flow.table}, " if flow.table else ""
    return f"{cookie}{table}{_render_key(flow)} actions={render_actions(flow.actions)}"


def render_flow_mod(mod: FlowMod) -> str:
    """One line of a flow file for `ovs-ofctl add-flows` (ovs-ofctl(8): lines that start with a command)."""
    key = f"table={mod.flow.table},{_render_key(mod.flow)}"
    match mod.command:
        case Command.ADD:
            return f"add cookie={mod.flow.cookie:#x},{key} actions={render_actions(mod.flow.actions)}"
        case Command.MODIFY:
            return f"modify_strict {key} actions={render_actions(mod.flow.actions)}"
        case Command.DELETE:
            return f"delete_strict {key}"
        case _:
            assert_never(mod.command)


def render_bundle(bundle: Bundle) -> str:
    """The whole flow file, one flow-mod a line."""
    return "".join(f"{render_flow_mod(mod)}\n" for mod in bundle.mods)


def render_port(name: str) -> str:
    """A port name, quoted where ovs-ofctl would read something else (lib/ofp-port.c)."""
    return name if _PLAIN_NAME.fullmatch(name) else f'"{name}"'


@lru_cache(maxsize=4096)
def render_actions(actions: tuple[Action, ...]) -> str:
    """The text behind `actions=`."""
    return ",".join(map(_render_action, actions)) or "drop"


def render_match(match: Match) -> str:
    """The conditions, with the protocol keyword first; empty for a match of everything."""
    keyword, used = _keyword(match)
    first = [keyword] if keyword else []
    metadata = [_render_masked(m) for m in match.masked if m.field.rank <= Field.METADATA.rank]
    in_port = [] if match.in_port is None else [f"in_port={render_port(match.in_port)}"]
    header = [_render_masked(m) for m in match.masked if m.field.rank > Field.METADATA.rank and m.field not in used]
    return ",".join((*first, *metadata, *in_port, *header, *match.foreign))


def _render_key(flow: Flow) -> str:
    conditions = render_match(flow.match)
    return f"priority={flow.priority},{conditions}" if conditions else f"priority={flow.priority}"


def _keyword(match: Match) -> tuple[str | None, tuple[Field, ...]]:
    dl_type, nw_proto = match.get(Field.DL_TYPE), match.get(Field.NW_PROTO)
    if dl_type is None or not dl_type.is_exact:
        return None, ()
    if nw_proto is not None and nw_proto.is_exact:
        keyword = KEYWORD_OF.get((dl_type.value, nw_proto.value))
        if keyword is not None:
            return keyword, (Field.DL_TYPE, Field.NW_PROTO)
    keyword = KEYWORD_OF.get((dl_type.value, None))
    return keyword, (Field.DL_TYPE,) if keyword else ()


@lru_cache(maxsize=65536)
def _render_masked(masked: Masked) -> str:
    field = masked.field
    if masked.is_exact:
        return f"{field.ovs_name}={render_value(field, masked.value)}"
    value = f"{masked.value:#x}" if field.form is Format.L4_PORT else render_value(field, masked.value)
    return f"{field.ovs_name}={value}/{render_mask(field, masked.mask)}"


def _render_action(action: Action) -> str:
    match action:
        case Output(port):
            return f"output:{render_port(port)}"
        case OutputInPort():
            return "IN_PORT"
        case Normal():
            return "NORMAL"
        case SetField(field, value):
            if field in _MOD_DL:
                return f"{_MOD_DL[field]}:{render_value(field, value)}"
            return f"load:{value:#x}->{field.nxm}[]"
        case Move(source, target):
            return f"move:{source.nxm}[]->{target.nxm}[]"
        case Resubmit(table):
            return f"resubmit(,{table})"
        case Foreign(text):
            return text
        case _:
            assert_never(action)

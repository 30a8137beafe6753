"""Flows as text: byte for byte what `ovs-ofctl --names --no-stats dump-flows` prints, and what `add-flows` takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import assert_never

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
from xenoovs.openflow.bundle import Bundle, Command, FlowMod
from xenoovs.openflow.field import Field, Format
from xenoovs.openflow.flow import DEFAULT_PRIORITY, Flow
from xenoovs.openflow.keyword import KEYWORD_OF
from xenoovs.openflow.match import Masked, Match
from xenoovs.openflow.text import render_name
from xenoovs.openflow.value import render_flags, render_hex, render_mask, render_mask_to_send, render_value

_LAST_MARK, _LAST_REGISTER = Field.PKT_MARK.rank, Field.METADATA.rank
_MOD_DL = {Field.DL_SRC: "mod_dl_src", Field.DL_DST: "mod_dl_dst"}


def render_flow(flow: Flow) -> str:
    """One flow without counters, as one line of a dump (whose leading blank is left out)."""
    return _render_line(flow, _render_masked)


def render_flow_to_send(flow: Flow) -> str:
    """As `render_flow`, with masks spelled as ovs-ofctl reads them (`render_mask_to_send`)."""
    return _render_line(flow, _send_masked)


def _render_line(flow: Flow, render: Callable[[Masked], str]) -> str:
    cookie = f"cookie={flow.cookie:#x}, " if flow.cookie else ""
    table = f"table={flow.table}, " if flow.table else ""
    options = "".join(f"{option}, " if "=" in option else f"{option} " for option in flow.options)
    key = _render_key(flow, render)
    return f"{cookie}{table}{options}{key}{' ' if key else ''}actions={render_actions(flow.actions)}"


def render_flow_mod(mod: FlowMod) -> str:
    """One line of a flow file for `ovs-ofctl add-flows` (ovs-ofctl(8): lines that start with a command)."""
    flow = mod.flow
    key = render_key_to_send(flow)
    match mod.command:
        case Command.ADD:
            options = "".join(f",{option}" for option in flow.options)
            return f"add cookie={flow.cookie:#x}{options},{key} actions={render_actions(flow.actions)}"
        case Command.MODIFY:
            return f"modify_strict {key} actions={render_actions(flow.actions)}"
        case Command.DELETE:
            return f"delete_strict {key}"
        case _:
            assert_never(mod.command)


def render_key_to_send(flow: Flow) -> str:
    """Table, priority and conditions, as `ovs-ofctl --strict del-flows` takes them."""
    conditions = render_match_to_send(flow.match)
    return f"table={flow.table},priority={flow.priority}{',' if conditions else ''}{conditions}"


def render_match_to_send(match: Match) -> str:
    """As `render_match`, with masks spelled as ovs-ofctl reads them (`render_mask_to_send`)."""
    return _render_conditions(match, _send_masked)


def render_bundle(bundle: Bundle) -> str:
    """The whole flow file, one flow-mod a line."""
    return "".join(f"{render_flow_mod(mod)}\n" for mod in bundle.mods)


@lru_cache(maxsize=32768)
def render_actions(actions: tuple[Action, ...]) -> str:
    """The text behind `actions=`."""
    return ",".join(map(_render_action, actions)) or "drop"


def render_match(match: Match) -> str:
    """The conditions in the order of match_format() in lib/match.c; empty for a match of everything."""
    return _render_conditions(match, _render_masked)


def _render_conditions(match: Match, render: Callable[[Masked], str]) -> str:
    keyword, told = _keyword(match.get(Field.DL_TYPE), match.get(Field.NW_PROTO))
    marks, registers, headers = list[str](), list[str](), list[str]()
    for masked in match.masked:
        rank = masked.field.rank
        if masked.field not in told:
            group = marks if rank <= _LAST_MARK else registers if rank <= _LAST_REGISTER else headers
            group.append(render(masked))
    in_port = () if match.in_port is None else (f"in_port={render_name(match.in_port)}",)
    return ",".join((*marks, *keyword, *registers, *in_port, *headers, *match.foreign))


def _render_key(flow: Flow, render: Callable[[Masked], str]) -> str:
    priority = "" if flow.priority == DEFAULT_PRIORITY else f"priority={flow.priority}"
    return ",".join(filter(None, (priority, _render_conditions(flow.match, render))))


@lru_cache(maxsize=1024)
def _keyword(dl_type: Masked | None, nw_proto: Masked | None) -> tuple[tuple[str, ...], tuple[Field, ...]]:
    """The protocol keyword, if there is one, and the fields that it stands for."""
    if dl_type is None or not dl_type.is_exact:
        return (), ()
    if nw_proto is not None and nw_proto.is_exact and (both := KEYWORD_OF.get((dl_type.value, nw_proto.value))):
        return (both,), (Field.DL_TYPE, Field.NW_PROTO)
    keyword = KEYWORD_OF.get((dl_type.value, None))
    return ((keyword,), (Field.DL_TYPE,)) if keyword else ((), ())


@lru_cache(maxsize=65536)
def _render_masked(masked: Masked) -> str:
    return _condition(masked, render_mask)


@lru_cache(maxsize=65536)
def _send_masked(masked: Masked) -> str:
    return _condition(masked, render_mask_to_send)


def _condition(masked: Masked, render: Callable[[Field, int], str]) -> str:
    field = masked.field
    if field.form is Format.FLAGS:
        return f"{field.ovs_name}={render_flags(masked.value, masked.mask)}"
    if masked.is_exact:
        return f"{field.ovs_name}={render_value(field, masked.value)}"
    value = f"{masked.value:#x}" if field.form is Format.L4_PORT else render_value(field, masked.value)
    return f"{field.ovs_name}={value}/{render(field, masked.mask)}"


def _render_action(action: Action) -> str:
    match action:
        case Output(port) if port == LOCAL:
            return LOCAL
        case Output(port):
            return f"output:{render_name(port)}"
        case OutputInPort():
            return "IN_PORT"
        case Normal():
            return "NORMAL"
        case SetField(field, value):
            if field in _MOD_DL:
                return f"{_MOD_DL[field]}:{render_value(field, value)}"
            return _render_load(action)
        case Move(source, target):
            return f"move:{source.nxm}[]->{target.nxm}[]"
        case Resubmit(table):
            return f"resubmit(,{table})"
        case Learn():
            return _render_learn(action)
        case Foreign(text):
            return text
        case _:
            assert_never(action)


def _render_load(action: SetField) -> str:
    return f"load:{render_hex(action.value)}->{action.field.nxm}[]"


def _render_learn(learn: Learn) -> str:
    """As learn_format() of lib/learn.c does."""
    words = (
        f"table={learn.table}",
        f"idle_timeout={learn.idle_timeout_s}",
        f"priority={learn.priority}",
        "delete_learned",
        f"cookie={learn.cookie:#x}",
        f"limit={learn.limit}",
        f"eth_type={learn.dl_type:#x}",
        f"nw_proto={learn.nw_proto}",
        *(f"{field.nxm}[]" for field in learn.same),
        *map(_render_load, learn.writes),
        f"output:{learn.output.nxm}[]",
    )
    return f"learn({','.join(words)})"

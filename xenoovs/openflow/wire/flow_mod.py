"""Flow-mods as bytes (OpenFlow 1.4.0, 7.3.4.1). Only strict ones, which name exactly one flow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from struct import Struct, error

from xenoovs.errors import NotEncodable
from xenoovs.openflow.action import Action
from xenoovs.openflow.bundle import Command, FlowMod
from xenoovs.openflow.flow import MAX_TABLE, Flow, FlowKey
from xenoovs.openflow.render import render_flow
from xenoovs.openflow.wire.flow_options import Options, options_of, words_of
from xenoovs.openflow.wire.frame import HEADER, LARGEST, VERSION
from xenoovs.openflow.wire.instruction import decode_instructions, encode_instructions
from xenoovs.openflow.wire.kinds import FLOW_MOD
from xenoovs.openflow.wire.match import decode_match, encode_match
from xenoovs.openflow.wire.ports import ANY
from xenoovs.openflow.wire.reader import Reader

_FLOW_MOD = Struct("!QQBBHHHIIIHH")
"""cookie, cookie_mask, table, command, idle, hard, priority, buffer_id, out_port, out_group, flags, importance."""

_COMMANDS = {Command.ADD: 0, Command.MODIFY: 2, Command.DELETE: 4}
"""enum ofp_flow_mod_command: OFPFC_ADD, OFPFC_MODIFY_STRICT, OFPFC_DELETE_STRICT."""
_COMMAND_OF = {number: command for command, number in _COMMANDS.items()}

_NO_BUFFER = _ANY_GROUP = ANY
"""OFP_NO_BUFFER and OFPG_ANY are all ones, as OFPP_ANY is."""

_NO_OPTIONS = Options()
_Encode = Callable[[tuple[Action, ...]], bytes]


def encode_flow_mod(mod: FlowMod, *, xid: int, ofports: Mapping[str, int]) -> bytes:
    """One whole message.

    As ovs-ofctl does, only an add carries cookie and options, and a delete no actions. Raises NotEncodable.
    """
    return next(encode_flow_mods((mod,), first_xid=xid, ofports=ofports))


def encode_flow_mods(mods: Iterable[FlowMod], *, first_xid: int, ofports: Mapping[str, int]) -> Iterator[bytes]:
    """One message a flow-mod; their xids count up from `first_xid`. Raises NotEncodable."""
    known: dict[tuple[Action, ...], bytes] = {}

    def instructions(actions: tuple[Action, ...]) -> bytes:
        # Thousands of flows share some tens of lists of actions.
        if (packed := known.get(actions)) is None:
            packed = known[actions] = encode_instructions(actions, ofports)
        return packed

    for xid, mod in enumerate(mods, start=first_xid):
        try:
            yield _encode(mod, xid, instructions, encode_match(mod.flow.match, ofports))
        except (error, OverflowError) as problem:
            raise NotEncodable(part=render_flow(mod.flow), reason=f"a number does not fit ({problem})") from None


def _encode(mod: FlowMod, xid: int, instructions: _Encode, match: bytes) -> bytes:
    flow, command = mod.flow, mod.command
    is_add = command is Command.ADD
    options = options_of(flow.options) if is_add and flow.options else _NO_OPTIONS
    done = b"" if command is Command.DELETE else instructions(flow.actions)
    length = HEADER.size + _FLOW_MOD.size + len(match) + len(done)
    if length > LARGEST:
        raise NotEncodable(part=render_flow(flow), reason=f"it has more than {LARGEST} bytes")
    fixed = _FLOW_MOD.pack(
        flow.cookie if is_add else 0,
        0,
        flow.table,
        _COMMANDS[command],
        options.idle_timeout,
        options.hard_timeout,
        flow.priority,
        _NO_BUFFER,
        ANY,
        _ANY_GROUP,
        options.flags,
        options.importance,
    )
    return b"".join((HEADER.pack(VERSION, FLOW_MOD, length, xid & 0xFFFFFFFF), fixed, match, done))


def decode_flow_mod(body: Reader, names: Mapping[int, str]) -> FlowMod | None:
    """None for a command that is not strict, for one with a filter, and for one of all tables. Raises WireError.

    A switch heeds cookie and options of an add alone, and no actions of a delete (OpenFlow 1.4.0, 6.4).
    """
    cookie, cookie_mask, table, number, idle, hard, priority, _, out_port, out_group, flags, importance = body.unpack(
        _FLOW_MOD, "a flow-mod"
    )
    match = decode_match(body, names)
    actions = decode_instructions(body, names)
    if number not in _COMMAND_OF or table > MAX_TABLE or cookie_mask or (out_port, out_group) != (ANY, _ANY_GROUP):
        return None
    command, key = _COMMAND_OF[number], FlowKey(table, priority, match)
    if command is Command.ADD:
        return FlowMod(command, Flow(key, cookie, actions, words_of(Options(idle, hard, flags, importance))))
    return FlowMod(command, Flow(key, 0, () if command is Command.DELETE else actions))

"""Flows as bytes: actions and instructions both ways, flow-mods to bytes, flow statistics from bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import groupby
from struct import Struct, error

from xenoovs.dataclass import dataclass
from xenoovs.errors import NotEncodable, WireError, assert_never
from xenoovs.openflow.flow import (
    MAX_TABLE,
    WIDEST_LOAD,
    Action,
    Command,
    Failover,
    Field,
    Flow,
    FlowKey,
    FlowMod,
    Foreign,
    Group,
    GroupMod,
    Learn,
    Match,
    Move,
    Normal,
    ObservedFlow,
    Output,
    OutputInPort,
    Resubmit,
    SetField,
)
from xenoovs.openflow.text import PAST_OPTION, failover_of, render_actions, render_flow
from xenoovs.openflow.wire import frame
from xenoovs.openflow.wire.frame import ANY, FLOW_MOD, GROUP_MOD, HEADER, LARGEST, NICIRA, U16, VERSION, Reader, padded
from xenoovs.openflow.wire.match import (
    ACTION_HEADERS,
    HAS_MASK,
    PROTOCOL_OF,
    SET_FIELD_OF,
    decode_conditions,
    encode_match,
    match_header,
    size_of,
    whole_field,
)
from xenoovs.regex import ASCII, regex

# Actions as bytes (OpenFlow 1.4.0, 7.2.5; the extensions of Nicira: lib/ofp-actions.c of Open vSwitch).
#
# Actions that xenoovs never writes are text: `group:5`, `CONTROLLER:128`, `FLOOD`; all others are `wire:` and hex.


_OUTPUT = Struct("!HHIH6x")
_GROUP = Struct("!HHI")
_SET_FIELD_HEAD = Struct("!HHI")
_VENDOR = Struct("!HHIH")
_RESUBMIT_TABLE = Struct("!HHIHHB3x")
_LOAD = Struct("!HHIHHIQ")
_MOVE = Struct("!HHIHHHHII")

_TYPE_OUTPUT, _TYPE_GROUP, _TYPE_SET_FIELD, _TYPE_EXPERIMENTER = 0, 22, 25, 0xFFFF
"""enum ofp_action_type."""
_NX_MOVE, _NX_LOAD, _NX_RESUBMIT_TABLE = 6, 7, 14
"""NXAST_REG_MOVE, NXAST_REG_LOAD, NXAST_RESUBMIT_TABLE."""
_SAME_PORT = 0xFFF8
"""OFPP_IN_PORT in 16 bits: the look-up of NXAST_RESUBMIT_TABLE sees the packet's own ingress port."""

_SET_BY_FIELD = frozenset((Field.DL_SRC, Field.DL_DST, Field.NW_SRC, Field.NW_DST, Field.TP_SRC, Field.TP_DST))
"""Set by OFPAT_SET_FIELD, as ovs-ofctl sends `mod_dl_dst`; all others as it sends `load`: dumps show what was sent."""

_RAW_ACTION = "wire:"
_GROUP_TEXT = regex(r"group:([0-9]{1,10})", ASCII)
_CONTROLLER_TEXT = regex(r"CONTROLLER:([0-9]{1,5})", ASCII)
_PORT_WORDS = {"FLOOD": frame.FLOOD, "ALL": frame.ALL, "TABLE": frame.TABLE}


def encode_actions(actions: Iterable[Action], ofports: Mapping[str, int], *, protocol: int | None = None) -> bytes:
    """Return actions as bytes. `protocol`: that the flow matches; ports are set of no other. Raises NotEncodable."""
    return b"".join([_encode_action(action, ofports, protocol) for action in actions])


def decode_actions(body: Reader, names: Mapping[int, str]) -> tuple[Action, ...]:
    """Return all actions up to the end of `body`. Raises WireError."""
    found = list[Action]()
    while body.left:
        kind, action = body.element("an action")
        found.append(_decode(kind, action, names) or Foreign(f"{_RAW_ACTION}{action.hex()}"))
    return tuple(found)


def _encode_action(action: Action, ofports: Mapping[str, int], protocol: int | None) -> bytes:
    match action:  # the most frequent ones first
        case SetField(field, value):
            return _encode_set(field, value, protocol)
        case Output(port):
            return _output(frame.port_number(port, ofports))
        case OutputInPort():
            return _output(frame.IN_PORT)
        case Normal():
            return _output(frame.NORMAL)
        case Move(source, target):
            heads = ACTION_HEADERS[source], ACTION_HEADERS[target]
            return _MOVE.pack(_TYPE_EXPERIMENTER, _MOVE.size, NICIRA, _NX_MOVE, action.width, 0, 0, *heads)
        case Resubmit(table):
            size = _RESUBMIT_TABLE.size
            return _RESUBMIT_TABLE.pack(_TYPE_EXPERIMENTER, size, NICIRA, _NX_RESUBMIT_TABLE, _SAME_PORT, table)
        case Learn():
            return encode_learn(action)
        case Failover():
            raise NotEncodable(part=render_actions((action,)), reason="it needs a group of the bridge")
        case Foreign(text):
            return _encode_foreign(text)
        case _:
            assert_never(action)


def _output(port: int, *, max_len: int = 0) -> bytes:
    return _OUTPUT.pack(_TYPE_OUTPUT, _OUTPUT.size, port, max_len)


def _encode_set(field: Field, value: int, protocol: int | None) -> bytes:
    if value > field.all_ones:
        raise NotEncodable(part=f"{value:#x}", reason=f"{field.ovs_name} has {field.width} bits")
    if field in _SET_BY_FIELD:
        size, head = size_of(field), match_header(field, ether=None, protocol=protocol)
        if head is None:
            raise NotEncodable(part=field.ovs_name, reason="the flow does not say which protocol it is of")
        length = (_SET_FIELD_HEAD.size + size + 7) // 8 * 8
        return padded(_SET_FIELD_HEAD.pack(_TYPE_SET_FIELD, length, head) + value.to_bytes(size, "big"))
    head = ACTION_HEADERS.get(field)
    if head is None:
        raise NotEncodable(part=field.ovs_name, reason="xenoovs never writes it")
    return _LOAD.pack(_TYPE_EXPERIMENTER, _LOAD.size, NICIRA, _NX_LOAD, field.width - 1, head, value)


def _encode_foreign(text: str) -> bytes:
    if found := _GROUP_TEXT.fullmatch(text):
        return _GROUP.pack(_TYPE_GROUP, _GROUP.size, int(found[1]))
    if found := _CONTROLLER_TEXT.fullmatch(text):
        return _output(frame.CONTROLLER, max_len=int(found[1]))
    if text in _PORT_WORDS:
        return _output(_PORT_WORDS[text])
    if not text.startswith(_RAW_ACTION):
        raise NotEncodable(part=text, reason="xenoovs does not know its bytes")
    return unhex(text, behind=_RAW_ACTION)


_NX_NOTE = 8
"""NXAST_NOTE: bytes that mean nothing to the switch, filled up with zeros (include/openflow/nicira-ext.h)."""


def note_action(data: bytes) -> Foreign:
    """Return the action that stores bytes in a flow."""
    size = _VENDOR.size + len(data)
    head = _VENDOR.pack(_TYPE_EXPERIMENTER, (size + -size % 8) & 0xFFFF, NICIRA, _NX_NOTE)
    return Foreign(f"{_RAW_ACTION}{padded(head + data).hex()}")


def note_of(action: Action) -> bytes | None:
    """Return the bytes that an action stores, with zeros behind them; None for another action."""
    if not isinstance(action, Foreign) or not action.text.startswith(_RAW_ACTION):
        return None
    packed = unhex(action.text, behind=_RAW_ACTION)
    kind, _, vendor, subtype = _VENDOR.unpack_from(packed.ljust(_VENDOR.size, b"\0"))
    is_note = (kind, vendor, subtype) == (_TYPE_EXPERIMENTER, NICIRA, _NX_NOTE)
    return packed[_VENDOR.size :] if is_note else None


def unhex(text: str, *, behind: str) -> bytes:
    """Return the bytes behind a word, a multiple of 8 of them. Raises NotEncodable."""
    try:
        packed = bytes.fromhex(text.removeprefix(behind))
    except ValueError:
        packed = b""
    if not packed or len(packed) % 8:
        raise NotEncodable(part=text, reason="it is no multiple of 8 bytes in hexadecimal")
    return packed


def _decode(kind: int, action: bytes, names: Mapping[int, str]) -> Action | None:
    """Return None for an action that only its bytes describe."""
    decoded: Action | None = None
    match kind, len(action):
        case 0, _OUTPUT.size:
            decoded = _decode_output(action, names)
        case 22, _GROUP.size:
            decoded = Foreign(f"group:{_GROUP.unpack(action)[2]}")
        case 25, _:
            decoded = _decode_set_field(action)
        case 0xFFFF, size if size >= _VENDOR.size and _VENDOR.unpack_from(action)[2] == NICIRA:
            decoded = _decode_nicira(_VENDOR.unpack_from(action)[3], action)
    return decoded


def _decode_output(action: bytes, names: Mapping[int, str]) -> Action:
    _, _, port, max_len = _OUTPUT.unpack(action)
    match port:
        case frame.IN_PORT:
            return OutputInPort()
        case frame.NORMAL:
            return Normal()
        case frame.CONTROLLER:
            return Foreign(f"CONTROLLER:{max_len}")
        case frame.FLOOD | frame.ALL | frame.TABLE:
            return Foreign(frame.RESERVED[port])
        case _:
            return Output(frame.port_name(port, names))


def _decode_set_field(action: bytes) -> Action | None:
    head = int.from_bytes(action[4:8], "big")
    field = SET_FIELD_OF.get(head >> 9)
    if field is None or field.width > 64 or head & HAS_MASK or head & 0xFF != size_of(field):
        return None
    return SetField(field, int.from_bytes(action[8 : 8 + size_of(field)], "big"))


def _decode_nicira(subtype: int, action: bytes) -> Action | None:
    match subtype, len(action):
        case 14, _RESUBMIT_TABLE.size:
            *_, port, table = _RESUBMIT_TABLE.unpack(action)
            return Resubmit(table) if port == _SAME_PORT and table <= 254 else None
        case 7, _LOAD.size:
            *_, place, head, value = _LOAD.unpack(action)
            return _load(place, head, value)
        case 45, size:
            return decode_learn(action) if size > LEARN.size else None
        case 6, _MOVE.size:
            *_, bits, source_offset, target_offset, source, target = _MOVE.unpack(action)
            fields = whole_field(source), whole_field(target)
            if fields[0] is None or fields[1] is None or source_offset or target_offset:
                return None
            move = Move(fields[0], fields[1])
            return move if bits == move.width else None
    return None


def _load(place: int, head: int, value: int) -> Action | None:
    field = whole_field(head)
    if field is None or place != field.width - 1 or value > field.all_ones:
        return None
    return SetField(field, value)


# Instructions of a flow (OpenFlow 1.4.0, 7.2.4). xenoovs writes one, Apply-Actions, or none to drop.


_GOTO = Struct("!HHB3x")
_APPLY = Struct("!HH4x")
_GOTO_TABLE, _APPLY_ACTIONS = 1, 4
"""enum ofp_instruction_type."""

_RAW_INSTRUCTION = "instruction:"
"""In front of the hexadecimal bytes of an instruction that xenoovs does not know, as an action of its own."""


def encode_instructions(
    actions: tuple[Action, ...], ofports: Mapping[str, int], *, protocol: int | None = None
) -> bytes:
    """Return the instructions of a flow as bytes. `protocol`: as of `encode_actions`. Raises NotEncodable."""
    if actions and not any(map(_is_instruction, actions)):
        return _applied(actions, ofports, protocol)
    runs = groupby(actions, _is_instruction)
    return b"".join(_raw(run) if is_raw else _applied(run, ofports, protocol) for is_raw, run in runs)


def decode_instructions(body: Reader, names: Mapping[int, str]) -> tuple[Action, ...]:
    """Return the actions up to the end of `body`, in the order in which a switch executes them. Raises WireError."""
    found, only_applied = list[Action](), True
    while body.left:
        start = body.offset
        kind, instruction = body.element("an instruction")
        if kind == _APPLY_ACTIONS:
            found += decode_actions(Reader(body.data, offset=start + _APPLY.size, end=body.offset), names)
        elif kind == _GOTO_TABLE and len(instruction) == _GOTO.size and instruction[4] <= MAX_TABLE and only_applied:
            # Behind applied actions a goto does what a resubmit does; `parse_actions` reads both as one action too.
            found.append(Resubmit(instruction[4]))
        else:
            only_applied = False
            found.append(Foreign(f"{_RAW_INSTRUCTION}{instruction.hex()}"))
    return tuple(found)


def _is_instruction(action: Action) -> bool:
    return isinstance(action, Foreign) and action.text.startswith(_RAW_INSTRUCTION)


def _raw(run: Iterable[Action]) -> bytes:
    return b"".join(unhex(action.text, behind=_RAW_INSTRUCTION) for action in run if isinstance(action, Foreign))


def _applied(run: Iterable[Action], ofports: Mapping[str, int], protocol: int | None) -> bytes:
    packed = encode_actions(run, ofports, protocol=protocol)
    length = _APPLY.size + len(packed)
    if length > LARGEST:
        raise NotEncodable(part="a list of actions", reason=f"it has more than {LARGEST} bytes")
    return _APPLY.pack(_APPLY_ACTIONS, length) + packed


# Timeouts, flags and importance of a flow (OpenFlow 1.4.0, 7.3.4.1), as ovs-ofctl writes them, in its order.


_FLAGS = ("send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts", "no_byte_counts")
"""Bit 0 and up of ofp_flow_mod.flags."""


@dataclass(frozen=True, slots=True)
class FlowOptions:
    """Timeouts in seconds (0 if none), OFPFF_* flags, and importance (0 is evicted first)."""

    idle_timeout: int = 0
    hard_timeout: int = 0
    flags: int = 0
    importance: int = 0


def options_of(words: tuple[str, ...]) -> FlowOptions:
    """Return `Flow.options` as numbers. Raises NotEncodable for an unknown option."""
    numbers = {"idle_timeout": 0, "hard_timeout": 0, "importance": 0}
    flags = 0
    for word in words:
        name, _, value = word.partition("=")
        if name in numbers and value.isascii() and value.isdigit() and int(value) <= 0xFFFF:
            numbers[name] = int(value)
        elif word in _FLAGS:
            flags |= 1 << _FLAGS.index(word)
        else:
            raise NotEncodable(part=word, reason="it is no option of a flow")
    return FlowOptions(numbers["idle_timeout"], numbers["hard_timeout"], flags, numbers["importance"])


def words_of(options: FlowOptions) -> tuple[str, ...]:
    """Invert `options_of`. Flags without a name are left out, and the one that concerns only the moment of an add."""
    return (
        *_number("idle_timeout", options.idle_timeout),
        *_number("hard_timeout", options.hard_timeout),
        *(word for bit, word in enumerate(_FLAGS) if options.flags >> bit & 1 and word != PAST_OPTION),
        *_number("importance", options.importance),
    )


def _number(name: str, value: int) -> tuple[str, ...]:
    return (f"{name}={value}",) if value else ()


# Flow-mods as bytes (OpenFlow 1.4.0, 7.3.4.1). Only strict ones, which name exactly one flow.


_FLOW_MOD = Struct("!QQBBHHHIIIHH")
"""cookie, cookie_mask, table, command, idle, hard, priority, buffer_id, out_port, out_group, flags, importance."""

_COMMANDS = {Command.ADD: 0, Command.MODIFY: 2, Command.DELETE: 4}
"""enum ofp_flow_mod_command: OFPFC_ADD, OFPFC_MODIFY_STRICT, OFPFC_DELETE_STRICT."""

_NO_BUFFER = _NO_GROUP = ANY
"""OFP_NO_BUFFER and OFPG_ANY are all ones, as OFPP_ANY is."""

_DEFAULT_OPTIONS = FlowOptions()
_Encode = Callable[[Flow], bytes]


def encode_flow_mod(mod: FlowMod, *, xid: int, ofports: Mapping[str, int]) -> bytes:
    """Return a whole message. Raises NotEncodable.

    Only an add has a cookie and options, and a delete has no actions, as ovs-ofctl does it.
    """
    return next(encode_mods((mod,), first_xid=xid, ofports=ofports))


def encode_mods(mods: Iterable[FlowMod | GroupMod], *, first_xid: int, ofports: Mapping[str, int]) -> Iterator[bytes]:
    """Yield one message per mod; their xids count up from `first_xid`. Raises NotEncodable."""

    @cache
    def encoded(actions: tuple[Action, ...], protocol: int | None) -> bytes:
        # Many flows of a small config share a few dozen lists of actions.
        return encode_instructions(actions, ofports, protocol=protocol)

    def instructions(flow: Flow) -> bytes:
        exact = flow.match.get(Field.NW_PROTO)
        return encoded(flow.actions, None if exact is None else exact.value)

    for xid, mod in enumerate(mods, start=first_xid):
        if isinstance(mod, GroupMod):
            yield _encode_group_mod(mod, xid, ofports)
            continue
        try:
            yield _encode_flow_mod(mod, xid, instructions, encode_match(mod.flow.match, ofports))
        except (error, OverflowError) as problem:
            raise NotEncodable(part=render_flow(mod.flow), reason=f"a number does not fit ({problem})") from None


def _encode_flow_mod(mod: FlowMod, xid: int, instructions: _Encode, match: bytes) -> bytes:
    flow, command = mod.flow, mod.command
    is_add = command is Command.ADD
    options = options_of(flow.options) if is_add and flow.options else _DEFAULT_OPTIONS
    done = b"" if command is Command.DELETE else instructions(flow)
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
        _NO_GROUP,
        options.flags,
        options.importance,
    )
    return b"".join((HEADER.pack(VERSION, FLOW_MOD, length, xid & 0xFFFFFFFF), fixed, match, done))


# Groups (OpenFlow 1.4.0, 7.3.4.3 and 7.3.5.11).


_GROUP_HEAD, _GROUP_DESC, _BUCKET = Struct("!HBxI"), Struct("!HBxI"), Struct("!HHII4x")
_FAST_FAILOVER = 3
"""OFPGT_FF."""
_GROUP_COMMANDS = {Command.ADD: 0, Command.DELETE: 2}
"""enum ofp_group_mod_command: OFPGC_ADD, OFPGC_DELETE."""


def _encode_group_mod(mod: GroupMod, xid: int, ofports: Mapping[str, int]) -> bytes:
    group, body = mod.group, bytearray(_GROUP_HEAD.pack(_GROUP_COMMANDS[mod.command], _FAST_FAILOVER, mod.group.number))
    if mod.command is Command.ADD and group.failover is not None:
        for port, bucket in zip(group.failover.ports, group.failover.buckets, strict=True):
            actions = encode_actions(bucket, ofports, protocol=group.protocol)
            watched = frame.port_number(port, ofports)
            body += _BUCKET.pack(_BUCKET.size + len(actions), 0, watched, ANY) + actions
    return frame.message(GROUP_MOD, bytes(body), xid=xid)


def decode_groups(body: Reader, names: Mapping[int, str]) -> Iterator[Group]:
    """Yield all groups of one reply. Raises WireError."""
    while body.left:
        start = body.offset
        length, kind, number = body.unpack(_GROUP_DESC, "a group")
        if not _GROUP_DESC.size <= length <= body.end - start:
            body.offset = start
            raise body.error("the length of a group")
        inner, body.offset = Reader(body.data, offset=body.offset, end=start + length), start + length
        watched, buckets, protocols = list[str](), list[tuple[Action, ...]](), set[int]()
        while inner.left:
            first = inner.offset
            size, _, port, _ = inner.unpack(_BUCKET, "a bucket")
            if not _BUCKET.size <= size <= inner.end - first:
                inner.offset = first
                raise inner.error("the length of a bucket")
            watched.append(frame.port_name(port, names))
            actions, inner.offset = Reader(inner.data, offset=inner.offset, end=first + size), first + size
            buckets.append(decode_actions(actions, names))
            protocols |= set(_protocols_of(Reader(body.data, offset=first + _BUCKET.size, end=first + size)))
        found = failover_of(buckets) if kind == _FAST_FAILOVER and len(protocols) < 2 else None
        is_watched = found is not None and list(found.ports) == watched
        yield Group(number, found if is_watched else None, next(iter(protocols), None))


def _protocols_of(actions: Reader) -> Iterator[int]:
    while actions.left:
        kind, action = actions.element("an action")
        if kind == _TYPE_SET_FIELD and (protocol := PROTOCOL_OF.get(int.from_bytes(action[4:8], "big") >> 9)):
            yield protocol


# Flows and their counters, as a switch lists them (OpenFlow 1.4.0, 7.3.5.2).


_STATS = Struct("!HBxIIHHHHHxxQQQ")
_STATS_AND_MATCH = Struct(f"{_STATS.format}HH")

_OXM_MATCH = 1
_NANOSECONDS = 1_000_000_000
_NO_TIMEOUTS = (0, 0, 0, 0)


def decode_flow_stats(body: Reader, names: Mapping[int, str]) -> Iterator[ObservedFlow]:
    """Yield all flows of one reply. Raises WireError."""
    known: dict[bytes, tuple[Action, ...]] = {}
    data, offset, end = body.data, body.offset, body.end
    while offset < end:
        body.offset = offset
        if end - offset < _STATS_AND_MATCH.size:
            raise body.error("a flow")
        length, table, *numbers, kind, match_size = _STATS_AND_MATCH.unpack_from(data, offset)
        next_offset, match_start = offset + length, offset + _STATS.size
        match_end = match_start + match_size
        actions_start = match_end + -match_size % 8
        if kind != _OXM_MATCH or match_size < 4 or not actions_start <= next_offset <= end or table > MAX_TABLE:
            raise body.error("a flow of a table, with its length and its match")
        match = decode_conditions(Reader(data, offset=match_start + 4, end=match_end), names)
        packed = data[actions_start:next_offset]
        if (actions := known.get(packed)) is None:
            actions = decode_instructions(Reader(data, offset=actions_start, end=next_offset), names)
            known[packed] = actions
        yield _observed(table, numbers, match, actions)
        offset = next_offset
    body.offset = end


def _observed(table: int, numbers: list[int], match: Match, actions: tuple[Action, ...]) -> ObservedFlow:
    seconds, rest, priority, idle, hard, flags, importance, cookie, packets, size = numbers
    limits = (idle, hard, flags, importance)
    words = () if limits == _NO_TIMEOUTS else words_of(FlowOptions(*limits))
    flow = Flow(FlowKey(table, priority, match), cookie, actions, words)
    return ObservedFlow(flow, packets, size, (seconds * _NANOSECONDS + rest) / _NANOSECONDS)


# The action NXAST_LEARN2 (include/openvswitch/ofp-actions.h and lib/ofp-actions.c of Open vSwitch).


LEARN = Struct("!HHIHHHHQHBxHHIHxx")
"""struct nx_action_learn2: type, length, vendor, subtype, idle and hard timeout, priority, cookie, flags, table, both
timeouts after a FIN, limit, offset of the result."""

_PLACE = Struct("!IH")
"""A field and a first bit."""

_EXPERIMENTER, _SUBTYPE = 0xFFFF, 45
_DELETE_LEARNED = 1 << 1
"""NX_LEARN_F_DELETE_LEARNED."""

_IMMEDIATE, _TO_FIELD, _TO_PORT = 1 << 13, 1 << 11, 2 << 11
"""Bits of a specification: its source is a value that follows, not a field; its target is no match but this. The lowest
11 bits count the bits of the field (struct nx_action_learn, "flow_mod_spec")."""
_WIDTH = (1 << 11) - 1


def encode_learn(learn: Learn) -> bytes:
    specs = b"".join(
        (
            _given(Field.DL_TYPE, learn.dl_type),
            _given(Field.NW_PROTO, learn.nw_proto),
            *(U16.pack(field.width) + 2 * _PLACE.pack(ACTION_HEADERS[field], 0) for field in learn.same),
            *(_given(write.field, write.value, target=_TO_FIELD) for write in learn.writes),
            U16.pack(learn.output.width | _TO_PORT) + _PLACE.pack(ACTION_HEADERS[learn.output], 0),
        )
    )
    length = LEARN.size + len(specs) + -(LEARN.size + len(specs)) % 8
    identity = (_EXPERIMENTER, length, NICIRA, _SUBTYPE)
    content = (learn.idle_timeout_s, 0, learn.priority, learn.cookie, _DELETE_LEARNED, learn.table)
    return padded(LEARN.pack(*identity, *content, 0, 0, learn.limit, 0) + specs)


def decode_learn(action: bytes) -> Learn | None:
    """Return None for an action that `Learn` cannot express."""
    _, _, _, _, idle, hard, priority, cookie, flags, table, fin_idle, fin_hard, limit, result = LEARN.unpack_from(
        action
    )
    specs = _decode_specs(Reader(action, offset=LEARN.size))
    if flags != _DELETE_LEARNED or hard or fin_idle or fin_hard or result or not idle or not limit or table > MAX_TABLE:
        return None
    if specs is None or [spec.kind for spec in specs[:2]] != [_IMMEDIATE] * 2 or specs[-1].kind != _TO_PORT:
        return None
    ether, protocol, *middle, last = specs
    same = [spec for spec in middle if spec.kind == 0]
    writes = [spec for spec in middle if spec.kind == _IMMEDIATE | _TO_FIELD]
    if (ether.field, protocol.field) != (Field.DL_TYPE, Field.NW_PROTO) or not same or same + writes != middle:
        return None
    return Learn(
        table=table,
        priority=priority,
        cookie=cookie,
        idle_timeout_s=idle,
        limit=limit,
        dl_type=ether.value,
        nw_proto=protocol.value,
        same=tuple(spec.field for spec in same),
        writes=tuple(SetField(spec.field, spec.value) for spec in writes),
        output=last.field,
    )


@dataclass(frozen=True, slots=True)
class _Spec:
    """A specification. `kind`: its bits without the count. `value`: 0 where a field is the source."""

    kind: int
    field: Field
    value: int = 0


def _given(field: Field, value: int, *, target: int = 0) -> bytes:
    # A value takes whole words of 16 bits.
    packed = value.to_bytes((field.width + 15) // 16 * 2, "big")
    return U16.pack(field.width | _IMMEDIATE | target) + packed + _PLACE.pack(ACTION_HEADERS[field], 0)


def _decode_specs(body: Reader) -> tuple[_Spec, ...] | None:
    """Return None unless all of them are of the kinds that `Learn` has, on whole fields."""
    specs = []
    try:
        while body.left >= U16.size and (head := body.unpack(U16, "a specification")[0]):
            specs.append(_decode_spec(head, body))
    except WireError:
        return None
    known = tuple(spec for spec in specs if spec is not None)
    return known if len(known) == len(specs) >= 4 else None


def _decode_spec(head: int, body: Reader) -> _Spec | None:
    bits, kind = head & _WIDTH, head & ~_WIDTH
    expected = "a specification"
    value = int.from_bytes(body.take((bits + 15) // 16 * 2, expected), "big") if kind & _IMMEDIATE else 0
    source = None if kind & _IMMEDIATE else body.unpack(_PLACE, expected)
    place = source if kind & _TO_PORT else body.unpack(_PLACE, expected)
    field = whole_field(place[0]) if place is not None and not place[1] else None
    if field is None or field.width != bits or value > field.all_ones:
        return None
    if (kind == 0 and source != place) or (kind & _TO_FIELD and field.width > WIDEST_LOAD):
        return None
    return _Spec(kind, field, value)

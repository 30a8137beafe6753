"""Flows as text, both ways: what ovs-ofctl(8) prints and takes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from xenoovs.dataclass import dataclass
from xenoovs.errors import ParseError, UnknownTableName, assert_never
from xenoovs.openflow.flow import (
    DEFAULT_PRIORITY,
    ETH_ARP,
    ETH_IPV4,
    ETH_IPV6,
    LOCAL,
    MAX_PRIORITY,
    MAX_TABLE,
    TAGGED,
    UNTAGGED,
    WIDEST_LOAD,
    Action,
    Bundle,
    Command,
    Failover,
    Field,
    Flow,
    FlowKey,
    FlowMod,
    Foreign,
    Format,
    GroupMod,
    Learn,
    Masked,
    Match,
    Move,
    Normal,
    ObservedFlow,
    Output,
    OutputInPort,
    Resubmit,
    SetField,
    exact,
    match_of,
)
from xenoovs.regex import regex

_PLAIN_NAME = regex(r"[A-Za-z][A-Za-z0-9]*", re.ASCII)
_NUMBERED = regex(r"ofport ([0-9]+)", re.ASCII)
"""The name here of a port that is only known by its number: no device of Linux has a blank in its name."""
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_QUOTED_NAME = regex(_QUOTED)
_SYNTAX = regex(rf"{_QUOTED}|[(),\"]")


def split_list(text: str) -> list[str]:
    """Split at commas outside of parentheses and quotes. Raises ValueError where these are not closed."""
    if "(" not in text and '"' not in text and ")" not in text:
        return text.split(",")
    parts, depth, start = [], 0, 0
    for token in _SYNTAX.finditer(text):
        match token[0]:
            case "(":
                depth += 1
            case ")":
                depth -= 1
            case '"':
                raise ValueError(f"a quote is not closed in {text!r}")
            case "," if depth == 0:
                parts.append(text[start : token.start()])
                start = token.end()
        if depth < 0:
            break
    if depth:
        raise ValueError(f"parentheses do not match in {text!r}")
    return [*parts, text[start:]]


def name_of_number(number: int) -> str:
    """Return the name for a port without one."""
    return f"ofport {number}"


def number_of_name(name: str) -> int | None:
    """Invert `name_of_number`; None for a real name."""
    numbered = _NUMBERED.fullmatch(name)
    return int(numbered[1]) if numbered else None


@lru_cache(maxsize=4096)
def render_name(name: str) -> str:
    """Return a name of a port or table, quoted as a JSON string unless it is a letter and then letters and digits.

    `namemap_put` of lib/ofp-util.c writes it so, with the escapes of lib/json.c: non-ASCII characters stay. A port that
    was removed from the bridge has a number only, and is called `ofport 2` here.
    """
    if numbered := _NUMBERED.fullmatch(name):
        return numbered[1]
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def parse_name(text: str) -> str:
    """Invert `render_name`. Raises ValueError."""
    if not text.startswith('"'):
        if not text or '"' in text:
            raise ValueError(f"{text!r} is not a name")
        return name_of_number(int(text)) if text.isascii() and text.isdigit() else text
    if not _QUOTED_NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not a quoted name")
    name = json.loads(text, strict=False)
    assert isinstance(name, str)  # noqa: S101 - narrows the type; a JSON text in quotes is a string
    return name


# The protocol keywords of ovs-ofctl(8): `udp` stands for dl_type=0x0800,nw_proto=17.


PROTOCOL_KEYWORDS: dict[str, tuple[int, int | None]] = {
    "ip": (ETH_IPV4, None),
    "icmp": (ETH_IPV4, 1),
    "tcp": (ETH_IPV4, 6),
    "udp": (ETH_IPV4, 17),
    "sctp": (ETH_IPV4, 132),
    "ipv6": (ETH_IPV6, None),
    "icmp6": (ETH_IPV6, 58),
    "tcp6": (ETH_IPV6, 6),
    "udp6": (ETH_IPV6, 17),
    "sctp6": (ETH_IPV6, 132),
    "arp": (ETH_ARP, None),
    "rarp": (0x8035, None),
    "mpls": (0x8847, None),
    "mplsm": (0x8848, None),
}
"""Keyword -> (EtherType, IP protocol or None). `ip` is IPv4 alone (ovs-fields(7), "Prerequisites")."""

KEYWORD_OF = {meaning: keyword for keyword, meaning in PROTOCOL_KEYWORDS.items()}


# Values of fields as text and back, exactly as Open vSwitch writes them (lib/meta-flow.c, lib/packets.c).


_NUMBER = regex(r"0[xX][0-9a-fA-F]+|[0-9]+", re.ASCII)
_FLAGS = {
    1 << bit: name
    for bit, name in enumerate(
        ("fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]")
    )
}
"""As packet_tcp_flag_to_string() of lib/packets.c calls them."""

_FLAG_BITS = {name: bit for bit, name in _FLAGS.items()}
_FLAG = regex(r"([+-])([a-z0-9\[\]]+)", re.ASCII)
_FLAG_LIST = regex(r"([+-][a-z0-9\[\]]+)+", re.ASCII)
_BY_NAME = {field.ovs_name: field for field in Field}
_MAC = regex(r"[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}", re.ASCII)


@lru_cache(maxsize=65536)
def render_value(field: Field, value: int) -> str:
    """Return a value of a field as Open vSwitch writes it."""
    match field.form:
        case Format.DECIMAL | Format.L4_PORT:
            return str(value)
        case Format.FLAGS:
            return render_flags(value, field.all_ones)
        case Format.HEX:
            # OVS writes EtherTypes with four digits and all other numbers without leading zeros (lib/match.c).
            return f"0x{value:04x}" if field is Field.DL_TYPE else render_hex(value)
        case Format.MAC:
            return render_mac(value)
        case Format.IPV4:
            return render_ipv4(value)
        case Format.IPV6:
            return render_ipv6(value)
        case Format.VLAN:
            return str(value & ~TAGGED) if value & TAGGED else "none"


def render_bits(name: str, bits: int) -> str:
    """Return a value or a mask for people, short numbers in hexadecimal. `name`: of a field, also of an unknown one."""
    field = _BY_NAME.get(name)
    return f"{bits:#x}" if field is None or field.width <= 16 else render_value(field, bits)


@lru_cache(maxsize=65536)
def parse_value(field: Field, text: str) -> int:
    """Invert `render_value`; numbers also in the other base. Raises ValueError with the text."""
    match field.form:
        case Format.DECIMAL | Format.L4_PORT | Format.HEX | Format.FLAGS:
            value = _parse_number(text)
        case Format.MAC:
            value = _parse_mac(text)
        case Format.IPV4:
            value = int(_address(IPv4Address, text))
        case Format.IPV6:
            value = int(_address(IPv6Address, text))
        case Format.VLAN:
            value = _parse_number(text) + TAGGED
    if value > field.all_ones:
        raise ValueError(f"{text!r} does not fit the {field.width} bits of {field.ovs_name}")
    return value


@lru_cache(maxsize=4096)
def render_mask(field: Field, mask: int) -> str:
    """Return a mask as Open vSwitch writes it behind the slash: as a prefix length if it is one, else like a value."""
    match field.form:
        case Format.IPV4 | Format.IPV6:
            length = prefix_length(mask, field.width)
            return str(length) if length is not None else render_value(field, mask)
        case Format.DECIMAL | Format.L4_PORT:
            return f"{mask:#x}"
        case Format.HEX | Format.MAC | Format.FLAGS:
            return render_value(field, mask)
        case Format.VLAN:
            return f"0x{mask:04x}"


def render_mask_to_send(field: Field, mask: int) -> str:
    """Return a mask as ovs-ofctl reads it: an IPv6 mask whose first 16 bits are 0 starts with `::`.

    ovs-ofctl reads a digit behind the slash as the start of a prefix length (ipv6_parse_masked_len(), lib/packets.c),
    also where its own dumps print a mask such as `0:4:0:1000::`. A mask with other first bits has no such form:
    ovs-ofctl refuses `4000::`.
    """
    text = render_mask(field, mask)
    if field.form is not Format.IPV6 or mask >> 112 or ":" not in text or text.startswith(":"):
        return text
    groups = (f"{mask >> shift & 0xFFFF:x}" for shift in range(96, -1, -16))
    return f"::{':'.join(groups)}"


@lru_cache(maxsize=4096)
def parse_mask(field: Field, text: str) -> int:
    """Invert `render_mask`. Raises ValueError with the text."""
    if field.form in (Format.IPV4, Format.IPV6) and text.isascii() and text.isdigit():
        length = int(text)
        if length > field.width:
            raise ValueError(f"prefix length {text} is above {field.width}")
        return field.all_ones >> (field.width - length) << (field.width - length)
    return parse_value(field, text)


def render_flags(value: int, mask: int) -> str:
    """Return TCP flags that are on (+) and off (-), the lowest bit first (format_flags_masked() in lib/flow.c)."""
    shown = (bit for bit in _FLAGS if mask & bit)
    return "".join(f"{'+' if value & bit else '-'}{_FLAGS[bit]}" for bit in shown)


def parse_flags(text: str) -> tuple[int, int] | None:
    """Invert `render_flags`: return value and mask; None for another form, such as all flags at once."""
    if not _FLAG_LIST.fullmatch(text):
        return None
    signs = [(sign, _FLAG_BITS.get(name)) for sign, name in _FLAG.findall(text)]
    bits = [bit for _, bit in signs if bit is not None]
    if len(bits) < len(signs) or len(set(bits)) < len(bits):
        return None
    return sum(bit for sign, bit in signs if sign == "+" and bit), sum(bits)


def prefix_length(mask: int, width: int) -> int | None:
    """Return the length of a CIDR mask; None for another mask (such as 0.0.0.3)."""
    inverse = mask ^ ((1 << width) - 1)
    return width - inverse.bit_length() if inverse & (inverse + 1) == 0 else None


def render_hex(value: int) -> str:
    """Return a number as printf(3) does with `%#x`: zero has no prefix."""
    return f"{value:#x}" if value else "0"


def render_mac(value: int) -> str:
    return value.to_bytes(6, "big").hex(":")


def render_ipv4(value: int) -> str:
    return f"{value >> 24}.{value >> 16 & 255}.{value >> 8 & 255}.{value & 255}"


def render_ipv6(value: int) -> str:
    """Return an address as inet_ntop(3) of glibc: RFC 5952, the last 32 bits dotted behind 96 zero bits or ::ffff:."""
    high = value >> 32
    if (high == 0 and value >> 16) or high == 0xFFFF:
        return f"::{'ffff:' if high else ''}{render_ipv4(value & 0xFFFFFFFF)}"
    return IPv6Address(value).compressed


def _parse_number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    return int(text, 16) if text[:2] in ("0x", "0X") else int(text)


def _parse_mac(text: str) -> int:
    if not _MAC.fullmatch(text):
        raise ValueError(f"{text!r} is not a MAC address")
    return int(text.replace(":", ""), 16)


def _address(kind: type[IPv4Address] | type[IPv6Address], text: str) -> IPv4Address | IPv6Address:
    try:
        return kind(text)
    except AddressValueError as error:
        raise ValueError(f"{text!r} is not an address: {error}") from None


# Flows as text: byte for byte what `ovs-ofctl --names --no-stats dump-flows` prints, and what `add-flows` takes.


_LAST_MARK, _LAST_REGISTER = Field.PKT_MARK.rank, Field.METADATA.rank
_MOD = {
    Field.DL_SRC: "mod_dl_src",
    Field.DL_DST: "mod_dl_dst",
    Field.NW_SRC: "mod_nw_src",
    Field.NW_DST: "mod_nw_dst",
    Field.TP_SRC: "mod_tp_src",
    Field.TP_DST: "mod_tp_dst",
}
"""Actions with words of OpenFlow 1.0. Those of ports set the port of whichever protocol the flow matches."""


def render_flow(flow: Flow) -> str:
    """Return a flow without counters, as one line of a dump without its leading blank."""
    return _render_line(flow, _render_masked)


def render_flow_to_send(flow: Flow) -> str:
    """Return a flow with masks as ovs-ofctl reads them (`render_mask_to_send`)."""
    return _render_line(flow, _send_masked)


def _render_line(flow: Flow, render: Callable[[Masked], str]) -> str:
    key = flow.key
    cookie = f"cookie={flow.cookie:#x}, " if flow.cookie else ""
    table = f"table={key.table}, " if key.table else ""
    options = "".join([f"{option}, " if "=" in option else f"{option} " for option in flow.options])
    priority = "" if key.priority == DEFAULT_PRIORITY else f"priority={key.priority}"
    conditions = _render_conditions(key.match, render)
    asked = f"{priority},{conditions} " if priority and conditions else f"{priority or conditions} ".lstrip()
    return f"{cookie}{table}{options}{asked}actions={render_actions(flow.actions)}"


def render_flow_mod(mod: FlowMod) -> str:
    """Return one line of a flow file for `ovs-ofctl add-flows` (ovs-ofctl(8): lines that start with a command)."""
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
    """Return table, priority and conditions for `ovs-ofctl --strict del-flows`."""
    conditions = render_match_to_send(flow.match)
    return f"table={flow.table},priority={flow.priority}{',' if conditions else ''}{conditions}"


def render_match_to_send(match: Match) -> str:
    """Return the conditions with masks as ovs-ofctl reads them (`render_mask_to_send`)."""
    return _render_conditions(match, _send_masked)


def render_bundle(bundle: Bundle) -> str:
    """Return a whole file, one mod per line: for `ovs-ofctl bundle` if it has groups, else for `add-flows`."""
    mods = bundle.in_order
    flow = "flow " if len(mods) > len(bundle.mods) else ""
    lines = (render_group_mod(mod) if isinstance(mod, GroupMod) else f"{flow}{render_flow_mod(mod)}" for mod in mods)
    return "".join(f"{line}\n" for line in lines)


def render_group_mod(mod: GroupMod) -> str:
    """Return one line of a file for `ovs-ofctl bundle`. `dump-groups` adds a `bucket_id` to each bucket."""
    number, failover = mod.group.number, mod.group.failover
    if mod.command is Command.DELETE or failover is None:
        return f"group delete group_id={number}"
    pairs = zip(failover.ports, failover.buckets, strict=True)
    buckets = (f",bucket=watch_port:{_port(port)},actions={render_actions(bucket)}" for port, bucket in pairs)
    return f"group add group_id={number},type=ff{''.join(buckets)}"


def _port(name: str) -> str:
    return name if name == LOCAL else render_name(name)


@lru_cache(maxsize=32768)
def render_actions(actions: tuple[Action, ...]) -> str:
    """Return the text behind `actions=`."""
    return ",".join(map(_render_action, actions)) or "drop"


def render_match(match: Match) -> str:
    """Return the conditions in the order of match_format() in lib/match.c; empty for a match of everything."""
    return _render_conditions(match, _render_masked)


def _render_conditions(match: Match, render: Callable[[Masked], str]) -> str:
    keyword, implied = _keyword(match.get(Field.DL_TYPE), match.get(Field.NW_PROTO))
    parts: tuple[list[str], list[str], list[str]] = [], [], []
    for masked in match.masked:
        if (field := masked.field) not in implied:
            parts[(field.rank > _LAST_MARK) + (field.rank > _LAST_REGISTER)].append(render(masked))
    marks, registers, others = parts
    in_port = () if match.in_port is None else (f"in_port={render_name(match.in_port)}",)
    return ",".join((*marks, *keyword, *registers, *in_port, *others, *match.foreign))


@lru_cache(maxsize=1024)
def _keyword(dl_type: Masked | None, nw_proto: Masked | None) -> tuple[tuple[str, ...], tuple[Field, ...]]:
    """Return the protocol keyword, if there is one, and the fields that it implies."""
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
    if field is Field.VLAN and not (masked.is_exact and masked.value & TAGGED):
        # format_vlan() of lib/match.c
        return f"vlan_tci=0x{masked.value:04x}/{render(field, masked.mask)}"
    if masked.is_exact:
        return f"{field.ovs_name}={render_value(field, masked.value)}"
    value = f"{masked.value:#x}" if field.form is Format.L4_PORT else render_value(field, masked.value)
    return f"{field.ovs_name}={value}/{render(field, masked.mask)}"


def _render_action(action: Action) -> str:
    match action:  # the most frequent ones first
        case SetField(field, value):
            if field in _MOD:
                return f"{_MOD[field]}:{render_value(field, value)}"
            return _render_load(action)
        case Output(port):
            return LOCAL if port == LOCAL else f"output:{render_name(port)}"
        case OutputInPort():
            return "IN_PORT"
        case Normal():
            return "NORMAL"
        case Move(source, target):
            return f"move:{_render_part(source, action.width)}->{_render_part(target, action.width)}"
        case Resubmit(table):
            return f"resubmit(,{table})"
        case Learn():
            return _render_learn(action)
        case Failover(buckets):
            return f"failover({','.join(f'bucket={render_actions(bucket)}' for bucket in buckets)})"
        case Foreign(text):
            return text
        case _:
            assert_never(action)


def _render_part(field: Field, width: int) -> str:
    return field.place if width == field.width else f"{field.nxm}[0..{width - 1}]"


def _render_load(action: SetField) -> str:
    return f"load:{render_hex(action.value)}->{action.field.place}"


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
        *(field.place for field in learn.same),
        *map(_render_load, learn.writes),
        f"output:{learn.output.place}",
    )
    return f"learn({','.join(words)})"


# The text behind `actions=` back to actions (ovs-actions(7)). Unknown actions stay text.


_BY_NXM = {field.nxm: field for field in Field}
_BY_PLACE = {field.place: field for field in Field}
_BY_MOD = {word: field for field, word in _MOD.items()}
_SET_FIELD_NAMES = {"eth": "dl", "ip": "nw", "tcp": "tp", "udp": "tp", "sctp": "tp"}
"""What begins the names of fields in `set_field` and in `mod_`; `_src` or `_dst` ends them."""
_BY_SET_FIELD = {
    **_BY_NAME,
    **{
        f"{name}_{end}": _BY_NAME[f"{short}_{end}"]
        for name, short in _SET_FIELD_NAMES.items()
        for end in ("src", "dst")
    },
}
_LOAD = regex(r"load:(0x[0-9a-f]+|[0-9]+)->([A-Z0-9_]+\[[0-9.]*\])", re.ASCII)
_SET_ANY_FIELD = regex(r"set_field:([^>/]+)->([a-z0-9_]+)", re.ASCII)
_MOVE = regex(r"move:(([A-Z0-9_]+)\[[0-9.]*\])->(([A-Z0-9_]+)\[[0-9.]*\])", re.ASCII)
_LEARN = regex(
    r"learn\(table=([0-9]+),idle_timeout=([0-9]+),priority=([0-9]+),delete_learned,cookie=(0x[0-9a-f]+),"
    r"limit=([0-9]+),eth_type=(0x[0-9a-f]+),nw_proto=([0-9]+)((?:,[A-Z0-9_]+\[\])+)((?:,load:[^,]+)*),"
    r"output:([A-Z0-9_]+)\[\]\)",
    re.ASCII,
)
"""What `Learn` can express; any other form stays text."""

_RESUBMIT = regex(r'resubmit\(,([^,"()]+|"(?:[^"\\]|\\.)*")\)')


class UnknownTable(ValueError):
    """A table has a name, which ovs-ofctl prints, and its number is unknown (ovs-vswitchd.conf.db(5), Flow_Table)."""


def parse_table(text: str, *, names: Mapping[str, int] | None = None) -> int:
    """Return the number of a table. Raises UnknownTable for a name not in `names`, ValueError for one above 254."""
    if text.isascii() and text.isdigit():
        if int(text) > MAX_TABLE:
            raise ValueError(f"table {text} is above {MAX_TABLE}")
        return int(text)
    name = parse_name(text)
    if names is None or name not in names:
        raise UnknownTable(f"table {name!r} has no known number")
    return names[name]


def parse_actions(text: str, *, tables: Mapping[str, int] | None = None) -> tuple[Action, ...]:
    """Parse the text behind `actions=`. Raises ValueError (UnknownTable for a table name that is not in `tables`)."""
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
        case word if word in _BY_MOD:
            return SetField(_BY_MOD[word], parse_value(_BY_MOD[word], argument))
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
    if text.startswith("failover(bucket=") and text.endswith(")"):
        return _parse_failover(text)
    if found := _RESUBMIT.fullmatch(text):
        return Resubmit(parse_table(found[1], names=tables))
    return Foreign(text)


def _parse_output(text: str, argument: str) -> Action:
    if argument in ("IN_PORT", "in_port"):
        return OutputInPort()
    # Such as output:NXM_NX_REG0[] and output(port=1,max_len=100): a port that the packet carries, a cut copy.
    return Foreign(text) if argument.endswith("]") else Output(parse_name(argument))


def _parse_set(text: str) -> Action:
    if found := _LOAD.fullmatch(text):
        field = _BY_PLACE.get(found[2])
        return Foreign(text) if field is None else SetField(field, _fitting(field, int(found[1], 0)))
    if found := _SET_ANY_FIELD.fullmatch(text):
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
    found = _MOVE.fullmatch(text)
    if found is None or found[2] not in _BY_NXM or found[4] not in _BY_NXM:
        return Foreign(text)
    move = Move(_BY_NXM[found[2]], _BY_NXM[found[4]])
    return move if _render_action(move) == text else Foreign(text)


def _parse_failover(text: str) -> Failover:
    """Invert the text of a `Failover`, which no dump of ovs-ofctl has."""
    buckets = list[list[str]]()
    for token in split_list(text.removeprefix("failover(").removesuffix(")")):
        if token.startswith("bucket="):
            buckets.append([])
        buckets[-1].append(token.removeprefix("bucket="))
    found = failover_of(tuple(_parse_action(each, None) for each in bucket) for bucket in buckets)
    if found is None:
        raise ValueError(f"{text!r} has a bucket that does more, or less, than to rewrite and send to a port")
    return found


def failover_of(buckets: Iterable[tuple[Action, ...]]) -> Failover | None:
    """Return what does these lists of actions; None if one is no rewrites and then an output to a port."""
    found = list[tuple[SetField | Output, ...]]()
    for bucket in buckets:
        known = tuple(each for each in bucket if isinstance(each, SetField | Output))
        if len(known) < len(bucket) or [isinstance(each, Output) for each in known] != [False] * (len(known) - 1) + [
            True
        ]:
            return None
        found.append(known)
    return Failover(tuple(found)) if found else None


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


# Dumps of `ovs-ofctl [--names] dump-flows` back to flows. Unknown parts stay text or are refused, never guessed.


PAST_OPTION = "reset_counts"
"""It says how a flow was added, and nothing of the flow. Every flow that was added by OpenFlow 1.0 has it, as by
ovs-ofctl(8) without -O, which does not show it (ofputil_decode_flow_mod() of lib/ofp-flow.c)."""

_NEVER_CONDITIONS = frozenset(("cookie", "duration", "table", "n_packets", "n_bytes", "priority", "actions"))
_HEADER = regex(r"(?:NXST|OFPST)_FLOW reply .*:")
_OPTION = r"(?:idle_timeout|hard_timeout|importance|idle_age|hard_age)=[0-9]+, |(?:[a-z]+_)+(?:rem|overlap|counts) "
# The order of ofputil_flow_stats_format() in lib/ofp-flow.c. The match ends at the first blank outside of quotes.
_LINE = regex(
    r" *(?:cookie=0x([0-9a-f]{1,16}), )?(?:duration=([0-9]+(?:\.[0-9]+)?)s, )?"
    rf'(?:table=([0-9]+|[^," ]+|{_QUOTED}), )?(?:n_packets=([0-9]+), n_bytes=([0-9]+), )?((?:{_OPTION})*)'
    rf'(?:priority=([0-9]{{1,5}})(?:,(?=[^ ])|(?= )))?((?!actions=)[^ "]*(?:{_QUOTED}[^ "]*)*)?'
    r" ?(?<![^ ])actions=([^ ].*)",
    re.ASCII,
)


def parse_dump(text: str, *, tables: Mapping[str, int] | None = None) -> Iterator[ObservedFlow]:
    """Yield all flows of a dump, in its order. `tables`: the numbers of tables that have names. Raises ParseError with
    the line, UnknownTableName for a named table that is not in `tables`."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line and not _HEADER.fullmatch(line):
            yield parse_observed(line, number=number, tables=tables)


_ACTIONS = regex(r"[,\s]*\bactions?=", re.ASCII)
_ALIASES = {"ip_src": "nw_src", "ip_dst": "nw_dst", "eth_src": "dl_src", "eth_dst": "dl_dst"}
_ADD_FLAGS = ("send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts", "no_byte_counts")
_NUMBERS = ("idle_timeout", "hard_timeout", "importance")
_PORT_ACTION = regex(r"(?<![^,])(?:output=)?([0-9]+)(?![^,])|(?<![^,])(mod_[a-z_]+|output)=", re.ASCII)


def as_dumped(text: str) -> str:
    """Return a flow that was written for `ovs-ofctl add-flow` as a dump shows it (ovs-ofctl(8), Flow Syntax). Its words
    may stand in any order there, with commas or blanks; a timeout of 0 is none. Text of a dump stays."""
    found = _ACTIONS.search(text)
    if found is None or '"' in text or "n_packets=" in text:
        return text
    named = [token.partition("=") for token in re.split(r"[,\s]+", text[: found.start()]) if token]
    first = {name: value for name, _, value in named if name in ("cookie", "table", "priority", *_NUMBERS)}
    flags = [name for name, _, _ in named if name in _ADD_FLAGS]
    known = (*first, *flags)
    written = [f"{_ALIASES.get(name, name)}{equals}{value}" for name, equals, value in named if name not in known]
    head = "".join(f"{name}={first[name]}, " for name in ("cookie", "table", *_NUMBERS) if first.get(name, "0") != "0")
    head += "".join(f"{flag} " for flag in flags)
    priority = [f"priority={first['priority']}"] if "priority" in first else []
    actions = text[found.end() :].strip()
    if "(" not in actions:
        actions = _PORT_ACTION.sub(lambda each: f"output:{each[1]}" if each[1] else f"{each[2]}:", actions)
    return f"{head}{','.join((*priority, *written))} actions={actions}"


def parse_flow(line: str) -> Flow:
    """Parse one flow without its counters, as `render_flow` writes it. Raises ParseError."""
    return parse_observed(line).flow


def parse_observed(line: str, *, number: int = 1, tables: Mapping[str, int] | None = None) -> ObservedFlow:
    """Parse one line of a dump, with or without counters. Raises ParseError with the line."""
    if not (found := _LINE.fullmatch(line)):
        raise ParseError(text=line, offset=0, expected="a flow as ovs-ofctl dumps it", line=number)
    cookie, duration, table, packets, size, options, priority, conditions, actions = found.groups()
    try:
        key = FlowKey(
            parse_table(table, names=tables) if table else 0,
            _parse_priority(priority) if priority else DEFAULT_PRIORITY,
            _parse_match(conditions) if conditions else _ANYTHING,
        )
        done = parse_actions(actions, tables=tables)
        flow = Flow(key, int(cookie, 16) if cookie else 0, done, _parse_options(options) if options else ())
    except UnknownTable as error:
        raise UnknownTableName(text=line, offset=0, expected=f"a flow ({error})", line=number) from None
    except ValueError as error:
        raise ParseError(text=line, offset=0, expected=f"a flow ({error})", line=number) from None
    return ObservedFlow(flow, int(packets or 0), int(size or 0), float(duration or 0))


_ANYTHING = Match()


def _parse_priority(text: str) -> int:
    if int(text) > MAX_PRIORITY:
        raise ValueError(f"priority {text} is above {MAX_PRIORITY}")
    return int(text)


def _parse_options(text: str) -> tuple[str, ...]:
    # Ages are statistics of Open vSwitch's own, shown for OpenFlow 1.0 only.
    words = text.replace(",", "").split()
    return tuple(word for word in words if not word.startswith(("idle_age=", "hard_age=", PAST_OPTION)))


def _parse_match(text: str) -> Match:
    in_port, masked, foreign = None, list[Masked](), list[str]()
    for token in split_list(text):
        if token.startswith("in_port="):
            in_port = parse_name(token[8:])
        elif known := _parse_condition(token):
            masked += known
        else:
            foreign.append(_foreign_condition(token))
    return match_of(masked, in_port=in_port, foreign=foreign)


def _foreign_condition(token: str) -> str:
    if token.partition("=")[0] in _NEVER_CONDITIONS:
        raise ValueError(f"{token!r} does not stand among conditions")
    return token


@lru_cache(maxsize=65536)
def _parse_condition(token: str) -> tuple[Masked, ...]:
    name, is_condition, text = token.partition("=")
    if not is_condition:
        return _parse_keyword(name)
    if name == "vlan_tci" or (name, text) == ("dl_vlan", "0xffff"):
        return _parse_tci(name, text)
    field = _BY_NAME.get(name)
    if field is None:
        return ()
    if field is Field.TCP_FLAGS:
        flags = parse_flags(text)
        return () if flags is None else (Masked(field, *flags),)
    value, is_masked, mask = text.partition("/")
    if is_masked:
        return (Masked(field, parse_value(field, value), parse_mask(field, mask)),)
    return (exact(field, parse_value(field, value)),)


def _parse_tci(name: str, text: str) -> tuple[Masked, ...]:
    """Return no condition for one that asks for the priority too. dl_vlan=0xffff: no tag (ovs-fields(7), "VLAN")."""
    if name == "dl_vlan":
        return (exact(Field.VLAN, UNTAGGED),)
    value, _, mask = text.partition("/")
    bits = _parse_number(mask) if mask else 0xFFFF
    return (Masked(Field.VLAN, _parse_number(value), bits),) if bits <= Field.VLAN.all_ones else ()


def _parse_keyword(name: str) -> tuple[Masked, ...]:
    if not name:
        raise ValueError("a condition is empty")
    if name not in PROTOCOL_KEYWORDS:
        return ()
    dl_type, nw_proto = PROTOCOL_KEYWORDS[name]
    ether = exact(Field.DL_TYPE, dl_type)
    return (ether,) if nw_proto is None else (ether, exact(Field.NW_PROTO, nw_proto))


# Flows in a dump that are recognised by their text: parsing a table of 16,000 flows would take longer.


# OpenFlow 1.4 has no mod_*; there the same action is printed by its own name (ovs-actions(7), set_field).
_SET_BY_NAME = regex(r"set_field:([0-9a-f:.]+)->(eth|ip|tcp|udp|sctp)_(src|dst)(?![a-z0-9_\[])", re.ASCII)


def _as_mod(found: re.Match[str]) -> str:
    return f"mod_{_SET_FIELD_NAMES[found[2]]}_{found[3]}:{found[1]}"


@dataclass(frozen=True, slots=True)
class Recognised:
    """What distinguishes a dump from known flows. `missing`: known flows that the dump does not have, by their text."""

    missing: Mapping[str, Flow]
    others: tuple[Flow, ...]


def recognise(dump: str, known: Mapping[str, Flow]) -> Recognised:
    """Compare a dump without counters (`--no-stats`) with flows by their text, as `render_flow` writes it. Raises
    ParseError for a line that is neither known nor a flow."""
    lines = {line.strip() for line in _SET_BY_NAME.sub(_as_mod, dump).split("\n")}
    missing = {text: flow for text, flow in known.items() if text not in lines}
    unknown = "\n".join(sorted(lines - known.keys()))
    return Recognised(missing, tuple(seen.flow for seen in parse_dump(unknown)))

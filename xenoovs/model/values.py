"""Parsers of single values of a config, and the place of each value in its file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, ip_network
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar

from xenoovs.dataclass import dataclass
from xenoovs.model.address import IPAddress, Mac, PortRange, Vip, parse_mac
from xenoovs.model.block_key import MAX_KEY_BITS, KeyField
from xenoovs.model.next_hop import MAX_PORT as MAX_PORT
from xenoovs.model.next_hop import MAX_VLAN, NO_TAG, UNCHANGED
from xenoovs.openflow.flow import why_unusable
from xenoovs.regex import regex

if TYPE_CHECKING:
    from yaml import Mark

# The tree of plain values in a YAML text, and the position of each.


KeyPath = tuple[str | int, ...]

E = TypeVar("E", bound=Enum)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Number:
    """A YAML number that is not a short decimal integer, as it was written: 0.5, 1e30, .inf, .nan, 0x10, 010."""

    text: str

    @property
    def other_notation(self) -> str | None:
        """Return what to write instead of an integer that is not in plain decimals; None if it is a plain number."""
        sign, digits = ("-", self.text[1:]) if self.text[0] == "-" else ("", self.text.removeprefix("+"))
        if re.fullmatch("0[xo][0-9a-fA-F]{1,20}", digits):
            read = int(digits, 0)
            return f"{_shorten(self.text)} is {read} to YAML; write {read}"
        if re.fullmatch("0[0-9]+", digits):
            decimal = digits.lstrip("0") or "0"
            return (
                f"{_shorten(self.text)} starts with a zero: it is decimal in YAML 1.2 and octal in YAML 1.1; "
                f"write {_shorten(sign + decimal)}"
            )
        return None


Value = None | bool | int | Number | str | list["Value"] | dict[str, "Value"]

_SHOWN_CHARACTERS = 60


def render_path(path: KeyPath) -> str:
    """`services[0].backends[1].weight`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return _shorten(text.removeprefix("."))


def show(value: object) -> str:
    """Return a value for a message, shortened: text in quotes, numbers as they were written."""
    match value:
        case None:
            return "an empty value"
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case Number():
            return _shorten(value.text)
        case list():
            return f"a list of {len(value)} {'item' if len(value) == 1 else 'items'}"
        case dict():
            return f"a mapping of {len(value)} {'key' if len(value) == 1 else 'keys'}"
        case _:
            return repr(_shorten(str(value)))


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


Position = tuple[int, int]
"""Line and column in a file, both from 1."""


@dataclass(frozen=True, slots=True)
class Positions:
    """The mark, which counts from 0, of the value of each path, and of its key."""

    values: Mapping[KeyPath, Mark]
    keys: Mapping[KeyPath, Mark]

    def nearest(self, path: KeyPath) -> KeyPath:
        """`path`, or without an index that only our own reading added (`vip: x` is read as `vip: [x]`)."""
        return path[:-1] if path and isinstance(path[-1], int) and path not in self.values else path

    def of_value(self, path: KeyPath) -> Position:
        """Of the value; of the nearest thing around it that is there, when it is missing."""
        while path and path not in self.values:
            path = path[:-1]
        return position_of(self.values[path]) if path in self.values else (1, 1)

    def of_key(self, path: KeyPath) -> Position:
        return position_of(self.keys[path]) if path in self.keys else self.of_value(path)


def position_of(mark: Mark) -> Position:
    return mark.line + 1, mark.column + 1


# Plain YAML scalars by the core schema of YAML 1.2.2, section 10.3.2.
#
# YAML 1.1, which PyYAML's own resolver follows, reads the MAC 10:20:30:40:50:51 as an integer in base 60, and `on` as
# true.


_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_MAY_BE_NUMBER = frozenset("0123456789+-.")
_INTEGER = regex(r"[-+]?(0|[1-9][0-9]*)", re.ASCII)
_NUMBER = regex(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)|0o[0-7]+|0x[0-9a-fA-F]+",
    re.ASCII,
)
# Longer integers stay text: nothing here is that large, and converting millions of digits takes quadratic time.
_INTEGER_CHARACTERS = 20


# Most weights and ports of a config are equal.
_fraction = lru_cache(Fraction)
_integer = lru_cache(lambda text: int(text) if _INTEGER.fullmatch(text) else None)


def parse_plain_scalar(text: str) -> str | int | bool | Number | None:
    """Return the value of an unquoted scalar. It is text if it is nothing else."""
    if text[:1] not in _MAY_BE_NUMBER or ":" in text:
        return _WORDS.get(text, text)
    if len(text) <= _INTEGER_CHARACTERS and (integer := _integer(text)) is not None:
        return integer
    return Number(text) if _NUMBER.fullmatch(text) else text


# A mistake before its place in the file is looked up.


@dataclass(frozen=True, slots=True)
class Remark:
    """A mistake. `message`: has OTHER in place of the path `other`, which it contradicts. `at_key`: whether the key is
    wrong, not its value."""

    path: KeyPath
    message: str
    at_key: bool = False
    other: KeyPath | None = None


OTHER = "{other}"


def repeated(keys: Iterable[object]) -> Iterator[tuple[int, int]]:
    """Yield the index of each key that is there already, with the index of the first one; None is no key."""
    first: dict[object, int] = {}
    for index, key in enumerate(keys):
        other = first.setdefault(key, index)
        if other != index and key is not None:
            yield index, other


# Single values of the config: what is accepted, and the messages about the rest.
#
# Every parser takes a value of the tree and raises ValueError with "what it is, what to write instead".


def plain(value: Any) -> Value:
    """Return a value as text, a number or a list of them, as most are written."""
    match value:
        case str() | int() | None:
            return value
        case Enum():
            return str(value.value)
        case tuple():
            return [plain(each) for each in value]
        case _:
            return str(value)


@dataclass(frozen=True, slots=True)
class Parser(Generic[T]):
    """Reads one kind of value, and writes it. `schema`: what it reads, as JSON Schema. `write`: returns what is read as
    the value, as it stands in a file; None if the key is left out."""

    parse: Callable[[object], T]
    schema: Mapping[str, Any]
    write: Callable[[Any], Value] = plain

    def __call__(self, value: object) -> T:
        return self.parse(value)


def render_decimal(value: Fraction) -> str:
    """Return the exact number: 5, 22.5. Raises ValueError for 1/3."""
    digits = next((digits for digits in range(12) if 10**digits % value.denominator == 0), None)
    if digits is None:
        raise ValueError(f"{value} has no decimal form of at most 11 digits")
    if digits == 0:
        return str(value.numerator)
    whole, part = divmod(int(value * 10**digits), 10**digits)
    return f"{whole}.{part:0{digits}}"


def _percent(value: Fraction) -> str:
    return f"{render_decimal(value * 100)}%"


def _time(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    return f"{milliseconds // 1000}s" if milliseconds % 1000 == 0 else f"{milliseconds}ms"


def _written(kind: str, pattern: str) -> dict[str, Any]:
    """Return the schema of a text. kind: what the reference calls it."""
    return {"x-kind": kind, "type": "string", "pattern": pattern}


def accepts(write: Callable[[Any], Value] = plain, **schema: Any) -> Callable[[Callable[[object], T]], Parser[T]]:
    """Make a parser of a function. `schema`: what it accepts, as JSON Schema; `write`: as of `Parser`."""
    return lambda parse: Parser(parse, schema, write)


def matching(pattern: str, what: str, advice: str = "", *, kind: str = "", is_name: bool = False) -> Parser[str]:
    """Return a parser of text. `what`: what the text is, as the end of a sentence with "not". `kind`: what the
    reference calls it. `is_name`: of a number the message says to put it in quotes."""
    compiled = regex(pattern, re.ASCII)

    def parse(value: object) -> str:
        if isinstance(value, str) and compiled.fullmatch(value):
            return value
        if is_name and not isinstance(value, str):
            how = f'put it in quotes: "{show(value)}"' if isinstance(value, (bool, int, Number)) else "write a name"
            raise ValueError(f"{show(value)} is not text; {how}")
        raise ValueError(f"{show(value)} is not {what}{advice and f'; {advice}'}")

    return Parser(parse, _written(kind, pattern) if kind else {"type": "string", "pattern": pattern})


def either(word: str, meant: Any, other: Parser[Any]) -> Parser[Any]:
    """Return a parser of what `other` reads, or of a word that stands for `meant`."""
    return Parser(
        lambda value: meant if value == word else other.parse(value),
        {"anyOf": [{"const": word}, other.schema]},
        lambda value: word if value == meant else other.write(value),
    )


def whole(least: int, most: int, problem: str, write: Callable[[Any], Value] = plain) -> Parser[int]:
    """Return a parser of whole numbers. `problem`: what a message says of another value."""

    def parse(value: object) -> int:
        if not is_int(value) or not least <= value <= most:
            raise ValueError(f"{show(value)} {problem}")
        return value

    return Parser(parse, {"type": "integer", "minimum": least, "maximum": most}, write)


MAX_SERVICES = 1_000
MAX_ITEMS = 1_000
"""Addresses, ranges of ports, ports of the bridge or tunnels in one list."""
MAX_WEIGHT = 10**9
MAX_DECIMALS = 9
_MAX_DIGITS = 40
HIGHEST_BIT = 111
"""Of an IPv6 address: ovs-ofctl takes a mask that starts with a digit for a prefix length (ipv6_parse_masked_len() in
lib/packets.c of Open vSwitch), so that it cannot match under masks of the first 16 bits."""
SHORTEST_PREFIX = {4: 8, 6: 32}
"""Of a VIP, by IP version: what IANA gave to one registry, and what a provider gets at least (ripe-738, 5.1.1)."""
UNTAGGED = "untagged"
MAX_FLOWS = 2**MAX_KEY_BITS
MAX_COUNT = 100
MAX_WORDS = 100
LONGEST_MS, _LONGEST_BFD_MS = 3_600_000, 10_000
LONGEST_MARGIN_US = 1_000_000

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
# Names ovs-ofctl can read back in a flow: no separators of its grammar (ovs-ofctl(8), "Flow Syntax").
_DEVICE_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.@+~%^-]{0,254}$"
_PORT_NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.@+~%^-]{0,14}$"
_PORT_RANGE_PATTERN = r"^([0-9]{1,9}) ?- ?([0-9]{1,9})$"
_PREFIX_PATTERN = r"^[0-9A-Fa-f.:]{2,45}/[0-9]{1,3}$"
_DATAPATH_ID_PATTERN = r"^[0-9A-Fa-f]{16}$"
_PERCENT_PATTERN = r"^[0-9]+(\.[0-9]+)? ?%$"
_DURATION_PATTERN = r"^([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h)$"
_MARGIN_PATTERN = r"^([0-9]{1,7}(?:\.[0-9]{1,3})?)(us|ms)$"
_STATUS_PATTERN = r"^([1-5][0-9]{2})(?: ?- ?([1-5][0-9]{2}))?$"
# Labels of letters, digits, hyphens and underscores (RFC 1035, 2.3.1; RFC 2782 for underscores), or the root.
_QUERY_PATTERN = r"^(\.|([A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?)$"
_MAX_QUERY = 253
NO_QUERY = "."
"""The DNS root, which no probe queries, stands for: no query is configured."""

_PERCENT = {"x-kind": "percentage", "type": "string", "pattern": _PERCENT_PATTERN}
_PORT = {"type": "integer", "minimum": 0, "maximum": MAX_PORT}
_MAC: dict[str, Any] = {"x-kind": "MAC address", "type": "string", "pattern": "^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$"}
_ADDRESS: Mapping[str, Any] = {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}
_POSITIONS = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": HIGHEST_BIT},
    "minItems": 1,
    "maxItems": MAX_KEY_BITS,
    "uniqueItems": True,
}


class MatchField(Enum):
    """What of a packet splits clients: a key, or the source address of one IP version."""

    SOURCE_ADDRESS = "source_address"
    IPV4_SOURCE = "ipv4_source"
    IPV6_SOURCE = "ipv6_source"
    SOURCE_PORT = "source_port"

    @property
    def key(self) -> KeyField:
        of_one_version = self in (MatchField.IPV4_SOURCE, MatchField.IPV6_SOURCE)
        return KeyField.SOURCE_ADDRESS if of_one_version else KeyField(self.value)


def choice(kinds: type[E]) -> Parser[E]:
    """Return a parser of the words of an enumeration."""
    words = {member.value: member for member in kinds}

    def parse(value: object) -> E:
        if isinstance(value, str) and value in words:
            return words[value]
        raise ValueError(f"{show(value)} is not one of: {', '.join(words)}")

    return Parser(parse, {"enum": [*words]})


path = matching(r"^/(?!/)[!-~]{0,1023}$", "a path", "write one that starts with one slash, such as /health")
# A name or an address, with a port where it is not the usual one (RFC 9110, 7.2).
host = matching(r"^[A-Za-z0-9._:\[\]-]{1,253}$", "the name of a host", "write one such as www.example.org")
file = matching(r"^/[^\x00-\x1f\x7f]{1,4095}$", "the whole path of a file", "write one such as /etc/ssl/ca.pem")
text = matching(r"^[\t\n\r -~]{0,1000}$", "text of at most 1000 ASCII characters", "write it in quotes")
# Of a file or a directory to include.
included = matching(r"^[^\x00-\x1f\x7f]{1,4096}$", "a path", "write one such as conf.d or web.yaml", kind="path")
# Of a service or a backend: a label that is safe in tables, file names and metrics.
name = matching(
    NAME_PATTERN,
    "a name",
    "write 1 to 63 letters, digits, dots, dashes or underscores, a letter or digit first",
    kind="name",
    is_name=True,
)
# Of a bridge or a network device.
device = matching(
    _DEVICE_PATTERN,
    "a port name",
    "write letters, digits or _ . @ + ~ % ^ -, a letter, a digit or _ first",
    kind="device",
    is_name=True,
)
count = whole(1, MAX_COUNT, f"is not a whole number from 1 to {MAX_COUNT}")
max_flows = whole(1, MAX_FLOWS, f"is not a whole number from 1 to {MAX_FLOWS}; leave the key out for no budget")
# To which something can be sent.
port = whole(1, MAX_PORT, f"is not a port; write one from 1 to {MAX_PORT}", lambda value: value or None)
# How many next hops a group has.
depth = whole(2, 4, "is not from 2 to 4; write 2, or 3 to survive two dead ports")


_SITE = "@"
"""Between the name of a service and that of a group; no name has it."""


def site_name(service: str, group: str) -> str:
    """Return the name of a service as the DPUs of a group have it; of all DPUs, with an empty group, its own."""
    return f"{service}{_SITE}{group}" if group else service


def split_site(name: str) -> tuple[str, str]:
    """Return the names of the service and of the group of a `site_name`."""
    service, _, group = name.partition(_SITE)
    return service, group


@accepts(**_written("port", _PORT_NAME_PATTERN))
def port_name(value: object) -> str:
    """Read the name of an OVS port that flows can name."""
    label = device(value)
    reason = why_unusable(label)
    if reason is not None:
        raise ValueError(f"{show(value)} {reason}; give the port another name")
    return label


@accepts(
    write=lambda value: None if value is None else f"{value:016x}",
    **_written("16 hexadecimal digits", _DATAPATH_ID_PATTERN),
)
def datapath_id(value: object) -> int:
    """Read the id of a bridge, as ovs-vswitchd.conf.db(5) writes it: 16 hexadecimal digits, not all of them 0."""
    if isinstance(value, Number) or is_int(value):
        raise ValueError(f"{show(value)} is a number to YAML; write the 16 digits in quotes")
    if not isinstance(value, str) or not re.fullmatch(_DATAPATH_ID_PATTERN, value) or not int(value, 16):
        raise ValueError(f'{show(value)} is not a datapath id; write 16 hexadecimal digits such as "0000c470bda056ac"')
    return int(value, 16)


@accepts(**_MAC)
def mac(value: object) -> Mac:
    try:
        parsed = parse_mac(value if isinstance(value, str) else "")
    except ValueError:
        raise ValueError(f"{show(value)} is not a MAC address; write one such as 02:00:5e:10:00:01") from None
    if parsed.value == 0:
        raise ValueError(f"{parsed} is no station's address; write the MAC of the interface")
    if parsed.is_multicast:
        raise ValueError(f"{parsed} is a multicast address (its first octet is odd); write the MAC of one interface")
    return parsed


# Packets keep their MAC, or get one.
backend_mac = either(UNCHANGED, UNCHANGED, mac)
gateway = either("auto", None, mac)


@accepts(anyOf=[{"type": "boolean"}, _MAC])
def source_mac(value: object) -> Mac | bool:
    """Read false (keep the client side's), true (the VIP's) or a MAC."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise ValueError(f"{show(value)} is not true, false or a MAC address")
    return mac(value)


@accepts(type="string", anyOf=[{"format": "ipv4"}, {"format": "ipv6"}, _written("prefix", _PREFIX_PATTERN)])
def vip(value: object) -> Vip:
    """Read a unicast address that a client can send to, or a prefix of such addresses; 192.0.2.10/32 is an address."""
    advice = "write the address that clients connect to"
    if not isinstance(value, str) or "/" not in value:
        return _address(value, advice=advice)
    if not re.fullmatch(_PREFIX_PATTERN, value, re.ASCII):
        raise ValueError(f"{show(value)} is not a prefix; write one such as 192.0.2.0/24 or 2001:db8::/64")
    length = _prefix_length(value)
    if not length:
        raise ValueError(f"{value} is every address; leave `vip` out for all packets")
    first = _address(value.partition("/")[0], advice=advice)
    if length == first.max_prefixlen:
        return first
    shortest, longest = SHORTEST_PREFIX[first.version], first.max_prefixlen - 1
    if not shortest <= length <= longest:
        raise ValueError(
            f"{value} has {length} bits; write a prefix of {shortest} to {longest}, or leave `vip` out for all packets"
        )
    net = ip_network((first, length), strict=False)
    if net.network_address != first:
        raise ValueError(f"{value} has bits behind its mask; write {net}, or {first} for the one address")
    if (problem := _unusable(net[-1])) is not None:
        raise ValueError(f"{value} has {problem} in it, {net[-1]}; write a smaller prefix")
    return net


def _prefix_length(text: str) -> int:
    start, _, digits = text.partition("/")
    if digits != str(int(digits)):
        raise ValueError(f"{text} has a length that begins with 0; write {start}/{int(digits)}")
    return int(digits)


@accepts(**_ADDRESS)
def server_address(value: object) -> IPAddress:
    return _address(value, advice="write the server's own address")


@accepts(**_written("IPv4 network", r"^[0-9.]+(/[0-9]{1,2})?$"))
def client_network(value: object) -> IPv4Network:
    """Read an IPv4 network, or an address."""
    if isinstance(value, str) and "." in value and re.fullmatch(r"[0-9]*", value.partition("/")[2], re.ASCII):
        try:
            found = IPv4Network(value)
        except ValueError as error:
            if "has host bits set" in str(error):
                better = IPv4Network(value, strict=False)
                raise ValueError(f"{value} has bits behind its mask; write {better}") from None
        else:
            if "/" in value:
                _prefix_length(value)
            return found
    raise ValueError(f"{show(value)} is not an IPv4 network; write one such as 10.9.0.0/16")


@accepts(
    write=lambda value: None if value is None else parse_plain_scalar(str(value)),
    anyOf=[_PORT, _written("range", _PORT_RANGE_PATTERN)],
)
def ports(value: object) -> PortRange:
    """Read a port, or a range such as 8000-8003."""
    if is_int(value):
        first = last = value
    elif isinstance(value, str) and (match := re.fullmatch(_PORT_RANGE_PATTERN, value, re.ASCII)):
        first, last = int(match[1]), int(match[2])
    else:
        raise ValueError(f"{show(value)} is not a port; write one such as 53 or a range such as 8000-8003")
    if not 0 <= min(first, last) <= max(first, last) <= MAX_PORT:
        raise ValueError(f"{show(value)} is outside 0 to {MAX_PORT}")
    if first > last:
        raise ValueError(f"{show(value)} ends before it starts; write {last}-{first}")
    return PortRange(first, last)


@accepts(
    write=lambda value: value.numerator if value.denominator == 1 else Number(render_decimal(value)),
    type="number",
    minimum=0,
    maximum=MAX_WEIGHT,
)
def weight(value: object) -> Fraction:
    """Read a weight from 0 to 10^9 with at most 9 decimals, exactly."""
    if is_int(value) and 0 <= value <= MAX_WEIGHT:
        return _fraction(value)
    too_large = "only ratios of weights count, so write smaller ones"
    return _from_zero(value, below="write 0 for a backend that gets nothing", above=too_large)


@accepts(
    write=lambda weights: {group: weight.write(each) for group, each in weights.items()},
    **{"type": "object", "additionalProperties": weight.schema, "x-kind": "mapping of groups to weights"},
)
def group_weights(value: object) -> dict[str, Fraction]:
    """Read weights by name of a group."""
    if not isinstance(value, dict):
        raise ValueError(f"{show(value)} is not a mapping; write such as {{berlin: 0}}: a group, then the weight")
    return {name(group): weight(each) for group, each in value.items()}


@accepts(type="number", minimum=0, maximum=MAX_WEIGHT)
def amount(value: object) -> Fraction:
    """Read a capacity, a cost or a time from 0 to 10^9 with at most 9 decimals, exactly."""
    return _from_zero(value, below=f"write one from 0 to {MAX_WEIGHT}", above="write it in a larger unit")


def _from_zero(value: object, *, below: str, above: str) -> Fraction:
    """Return a number from 0 to 10^9. `below`, `above`: what to do about a number outside."""
    quoted = isinstance(value, str) and not isinstance(parse_plain_scalar(value), str)
    number = _number(value, "write it without quotes" if quoted else f"write one from 0 to {MAX_WEIGHT}")
    if number < 0:
        raise ValueError(f"{show(value)} is below 0; {below}")
    if number > MAX_WEIGHT:
        raise ValueError(f"{show(value)} is above {MAX_WEIGHT}; {above}")
    return _exact(number, value)


@accepts(write=_percent, anyOf=[_PERCENT, {"type": "number", "exclusiveMinimum": 0, "maximum": 1}])
def tolerance(value: object) -> Fraction:
    """Read `5%` or 0.05; above 0, at most 1."""
    form = "write a percentage such as 5%, above 0% and at most 100%"
    if isinstance(value, str):
        if not re.fullmatch(_PERCENT_PATTERN, value, re.ASCII):
            raise ValueError(f"{show(value)} is not a tolerance; {form}")
        number = _decimal(value.rstrip(" %"), form)
        if not 0 < number <= 100:
            raise ValueError(f"{show(value)} is outside the range; {form}")
        return _exact(number, value) / 100
    number = _number(value, form)
    if 1 < number <= 100:
        raise ValueError(f"{show(value)} without a percent sign is more than 100%; did you mean {show(value)}%?")
    if not 0 < number <= 1:
        raise ValueError(f"{show(value)} is outside the range; {form}")
    return _exact(number, value)


@accepts(anyOf=[{"const": "auto"}, {"type": "integer", "minimum": 0, "maximum": MAX_KEY_BITS}, _POSITIONS])
def bits(value: object) -> str | int | tuple[int, ...]:
    """Read `auto`, a number of bits, or a list of bit positions (their range depends on the family: checked later)."""
    most = MAX_KEY_BITS
    form = f"write auto, a number from 0 to {most}, or a list of 1 to {most} bit positions such as [0, 1, 2]"
    if value == "auto":
        return "auto"
    if is_int(value) and 0 <= value <= most:
        return value
    if not isinstance(value, list) or not 1 <= len(value) <= most:
        raise ValueError(f"{show(value)} is not a choice of bits; {form}")
    wrong = [item for item in value if not is_int(item) or item < 0]
    if wrong:
        raise ValueError(f"{show(wrong[0])} is not a bit position; {form}")
    repeated = next((item for item in value if value.count(item) > 1), None)
    if repeated is not None:
        raise ValueError(f"bit {repeated} is listed twice; list each bit once")
    return tuple(value)


version = Parser(whole(1, 1, "is not a version this xenoovs reads; write 1").parse, {"const": 1})


@accepts(write=_time, **_written("time", _DURATION_PATTERN))
def duration_ms(value: object) -> int:
    """Read `500ms`, `1.5s`, `2m`; whole milliseconds, 1 ms to 1 h."""
    form = "a time from 1ms to 1h; write one such as 500ms, 1s or 2m"
    return _units(value, _DURATION_PATTERN, {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}, LONGEST_MS, form)


def _units(value: object, pattern: str, units: Mapping[str, int], most: int, form: str) -> int:
    """Return a time as a whole number from 1 to `most`. `units`: how many it is of each that `pattern` reads."""
    found = re.fullmatch(pattern, value, re.ASCII) if isinstance(value, str) else None
    number = Decimal(found[1]) * units[found[2]] if found else Decimal(0)
    if number != int(number) or not 1 <= number <= most:
        raise ValueError(f"{show(value)} is not {form}")
    return int(number)


@accepts(write=_time, **_written("time", _DURATION_PATTERN))
def bfd_interval_ms(value: object) -> int:
    """Read a time between two messages of BFD, 1 ms to 10 s."""
    if (found := duration_ms(value)) > _LONGEST_BFD_MS:
        raise ValueError(f"{show(value)} is longer than 10s; a dead remote is left after several, so write 100ms or 1s")
    return found


@accepts(type="string", format="ipv4")
def tunnel_address(value: object) -> IPv4Address:
    """Read the unicast IPv4 address of one end of a tunnel."""
    found = _address(value, advice="write the address of the tunnel's end")
    if not isinstance(found, IPv4Address):
        raise ValueError(f"{found} is IPv6; tunnels are supported over IPv4 only")
    return found


@accepts(anyOf=[{"type": "integer", "minimum": 0, "maximum": 252, "multipleOf": 4}])
def tos(value: object) -> int:
    """Read a type of service, in decimal or as 0x20; its last two bits are ECN."""
    is_hex = isinstance(value, Number) and re.fullmatch("0x[0-9a-fA-F]{1,2}", value.text, re.ASCII)
    number = int(value.text, 16) if isinstance(value, Number) and is_hex else value
    if not isinstance(number, Number) and is_int(number) and 0 <= number <= 255 and not number & 3:
        return number
    raise ValueError(f"{show(value)} is not a type of service; write a multiple of 4 from 0 to 252, such as 0x20")


@accepts(lambda value: f"{value}us", **_written("time", _MARGIN_PATTERN))
def _margin_us(value: object) -> int:
    """Read `30us` or `5ms`; whole microseconds, 1 us to 1 s."""
    form = "a time from 1us to 1000ms; write auto, or one such as 30us or 5ms"
    return _units(value, _MARGIN_PATTERN, {"us": 1, "ms": 1_000}, LONGEST_MARGIN_US, form)


margin_us = either("auto", None, _margin_us)
_TWO_TAGS = "frames with two tags (IEEE 802.1ad) are not supported"
vlan = either(
    UNTAGGED,
    NO_TAG,
    whole(1, MAX_VLAN, f"is not a VLAN; write one from 1 to {MAX_VLAN}, or untagged; {_TWO_TAGS}"),
)


@accepts(write=_percent, **_PERCENT)
def part(value: object) -> Fraction:
    """Read `0%` to `100%`."""
    is_percentage = isinstance(value, str) and len(value) <= 20 and re.fullmatch(_PERCENT_PATTERN, value, re.ASCII)
    number = Decimal(str(value).rstrip(" %")) if is_percentage else None
    if number is None or number > 100:
        raise ValueError(f"{show(value)} is not a part of the backends; write a percentage from 0% to 100%")
    return Fraction(number) / 100


@accepts(
    write=lambda value: f"{value[0]}-{value[1]}",
    anyOf=[{"type": "integer", "minimum": 100, "maximum": 599}, _written("range", _STATUS_PATTERN)],
)
def status(value: object) -> tuple[int, int]:
    """Read `200` or `200-299`: HTTP statuses (RFC 9110, 15)."""
    shown = str(value) if is_int(value) else value
    found = re.fullmatch(_STATUS_PATTERN, shown, re.ASCII) if isinstance(shown, str) else None
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if first > last:
        raise ValueError(f"{show(value)} is not an HTTP status or a range of them; write one such as 200 or 200-299")
    return first, last


@accepts(type="boolean")
def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{show(value)} is neither true nor false")
    return value


@accepts(type="array", items={"type": "string"}, minItems=1, maxItems=MAX_WORDS)
def command(value: object) -> tuple[str, ...]:
    """Read a program by its whole path, and its arguments, which no shell reads."""
    words = value if isinstance(value, list) else []
    if not words or len(words) > MAX_WORDS or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise ValueError(f"{show(value)} is not a list of a program and its arguments; write [/usr/bin/check, -v]")
    if not words[0].startswith("/"):
        raise ValueError(f"{show(words[0])} is not the whole path of a program; write one such as /usr/bin/check")
    return tuple(words)


@accepts(write=lambda value: None if value == NO_QUERY else str(value), **_written("domain name", _QUERY_PATTERN))
def query(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MAX_QUERY or not re.fullmatch(_QUERY_PATTERN, value, re.ASCII):
        raise ValueError(f"{show(value)} is not a domain name; write one such as example.org")
    return value


def is_int(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number; Python counts true and false among them. Raises ValueError for an
    integer that YAML reads as another number than a person may."""
    if isinstance(value, Number) and value.other_notation is not None:
        raise ValueError(value.other_notation)
    return isinstance(value, int) and not isinstance(value, bool)


def _address(value: object, *, advice: str) -> IPAddress:
    """Return a unicast address. `advice`: what to write instead of another one."""
    parsed: IPAddress | None = None
    try:
        if isinstance(value, str):
            parsed = IPv6Address(value) if ":" in value else IPv4Address(value)
    except AddressValueError:
        pass
    if parsed is None:
        hint = ", without a mask" if isinstance(value, str) and "/" in value else ""
        raise ValueError(f"{show(value)} is not an IP address; write one such as 192.0.2.10 or 2001:db8::10{hint}")
    problem = _unusable(parsed)
    if problem is not None:
        raise ValueError(f"{value} is {problem}; {advice}")
    return parsed


_MULTICAST, _LOOPBACK = 224, 127
"""First octets of IPv4 (RFC 5771, RFC 1122)."""


def _unusable(address: IPAddress) -> str | None:
    if isinstance(address, IPv4Address) and 0 < int(address) >> 24 < _MULTICAST and int(address) >> 24 != _LOOPBACK:
        return None
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return "an address with an interface name"
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return "an IPv4-mapped address (RFC 4291, 2.5.5.2), which no packet carries"
    facts = {
        "a multicast address": address.is_multicast,
        "the unspecified address": address.is_unspecified,
        "a loopback address": address.is_loopback,
        "the broadcast address": address == IPv4Address("255.255.255.255"),
    }
    return next((text for text, true in facts.items() if true), None)


def _number(value: object, hint: str) -> Decimal:
    if is_int(value):
        return Decimal(value)
    if isinstance(value, Number):
        return _decimal(value.text, hint)
    raise ValueError(f"{show(value)} is not a number; {hint}")


def _decimal(digits: str, hint: str) -> Decimal:
    """Return the number; Decimal keeps 1e999999 small, a Fraction of it would not be."""
    try:
        number = Decimal(digits)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise ValueError(f"{show(Number(digits))} is not a finite number; {hint}")
    return number


def _exact(number: Decimal, value: object) -> Fraction:
    """Return the number as a Fraction. Its size is checked before, because that of 1e-999999 takes megabytes."""
    if not number:
        return Fraction(0)
    fits = number.adjusted() >= -MAX_DECIMALS and len(number.as_tuple().digits) <= _MAX_DIGITS
    if not fits or (Fraction(number) * 10**MAX_DECIMALS).denominator != 1:
        raise ValueError(f"{show(value)} has more than {MAX_DECIMALS} decimals; round it")
    return Fraction(number)

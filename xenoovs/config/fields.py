"""Single values of the config: what is accepted, and what is said about the rest.

Every parser takes a value of the tree and raises ValueError with "what it is, what to write instead".
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from enum import Enum
from fractions import Fraction
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import TypeGuard, TypeVar

from xenoovs.config.scalar import parse_plain_scalar
from xenoovs.config.tree import Number, show
from xenoovs.model.address import IPAddress, Mac, parse_mac
from xenoovs.model.block_key import MAX_KEY_BITS, KeyField
from xenoovs.model.service import PortRange

MAX_WEIGHT = 10**9
MAX_DECIMALS = 9
_MAX_DIGITS = 40
HIGHEST_BIT = 111
"""Of an IPv6 address: ovs-ofctl takes a mask that starts with a digit for a prefix length (ipv6_parse_masked_len() in
lib/packets.c of Open vSwitch), so that it cannot match under masks of the first 16 bits."""
MAX_PORT = 65_535
MAX_FLOWS = 2**MAX_KEY_BITS

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
# Names ovs-ofctl can read back in a flow: no separators of its grammar (ovs-ofctl(8), "Flow Syntax").
PORT_NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.@+~%^-]{0,254}$"
PORT_RANGE_PATTERN = r"^([0-9]{1,9}) ?- ?([0-9]{1,9})$"
DATAPATH_ID_PATTERN = r"^[0-9A-Fa-f]{16}$"
PERCENT_PATTERN = r"^[0-9]+(\.[0-9]+)? ?%$"

# Words that ovs-ofctl takes for an OpenFlow reserved port, in any case (ovs-ofctl(8), "Port"; OpenFlow 1.4, 7.2.1).
_RESERVED_PORTS = frozenset(
    ("in_port", "table", "normal", "flood", "all", "controller", "local", "any", "none", "unset")
)

E = TypeVar("E", bound=Enum)


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


def choice(value: object, kinds: type[E]) -> E:
    """One of the words of an enumeration."""
    for member in kinds:
        if member.value == value:
            return member
    raise ValueError(f"{show(value)} is not one of: {', '.join(str(member.value) for member in kinds)}")


def name(value: object) -> str:
    """Of a service or backend: a label that is safe in tables, file names and metrics."""
    text = _text(value)
    if not re.fullmatch(NAME_PATTERN, text):
        raise ValueError(
            f"{show(value)} is not a name; write 1 to 63 letters, digits, dots, dashes or underscores, "
            "a letter or digit first"
        )
    return text


def port_name(value: object) -> str:
    """Of an OVS port or bridge."""
    text = _text(value)
    if not re.fullmatch(PORT_NAME_PATTERN, text):
        raise ValueError(
            f"{show(value)} is not a port name; write 1 to 255 letters, digits or _ . @ + ~ % ^ -, "
            "a letter, a digit or _ first"
        )
    if text.isdigit() or text.lower() in _RESERVED_PORTS:
        raise ValueError(f"{show(value)} means a port of its own in OpenFlow; give the port another name")
    return text


def datapath_id(value: object) -> int:
    """Of a bridge, as ovs-vswitchd.conf.db(5) writes it: 16 hexadecimal digits, not all of them 0."""
    if is_int(value) or isinstance(value, Number):
        raise ValueError(f"{show(value)} is a number to YAML; write the 16 digits in quotes")
    if not isinstance(value, str) or not re.fullmatch(DATAPATH_ID_PATTERN, value) or not int(value, 16):
        raise ValueError(f'{show(value)} is not a datapath id; write 16 hexadecimal digits such as "0000c470bda056ac"')
    return int(value, 16)


def mac(value: object) -> Mac:
    """A unicast MAC address."""
    try:
        parsed = parse_mac(value) if isinstance(value, str) else None
    except ValueError:
        parsed = None
    if parsed is None:
        raise ValueError(f"{show(value)} is not a MAC address; write one such as 02:00:5e:10:00:01")
    if parsed.value == 0:
        raise ValueError(f"{parsed} is no station's address; write the MAC of the interface")
    if parsed.is_multicast:
        raise ValueError(f"{parsed} is a multicast address (its first octet is odd); write the MAC of one interface")
    return parsed


def source_mac(value: object) -> Mac | bool:
    """false: keep the client side's; true: the VIP's; or a MAC."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise ValueError(f"{show(value)} is not true, false or a MAC address")
    return mac(value)


def vip(value: object) -> IPAddress:
    """A unicast address that a client can send to."""
    return address(value, purpose="write the address that clients connect to")


def address(value: object, *, purpose: str) -> IPAddress:
    """A unicast address; `purpose`: what to write instead of another one."""
    parsed = _address(value)
    problem = _unusable(parsed)
    if problem is not None:
        raise ValueError(f"{parsed} is {problem}; {purpose}")
    return parsed


def ports(value: object) -> PortRange:
    """A port, or a range such as 8000-8003."""
    if is_int(value):
        first = last = value
    elif isinstance(value, str) and (match := re.fullmatch(PORT_RANGE_PATTERN, value, re.ASCII)):
        first, last = int(match[1]), int(match[2])
    else:
        raise ValueError(f"{show(value)} is not a port; write one such as 53 or a range such as 8000-8003")
    if not 0 <= min(first, last) <= max(first, last) <= MAX_PORT:
        raise ValueError(f"{show(value)} is outside 0 to {MAX_PORT}")
    if first > last:
        raise ValueError(f"{show(value)} ends before it starts; write {last}-{first}")
    return PortRange(first, last)


def weight(value: object) -> Fraction:
    """0 to 10^9, at most 9 decimals, exactly."""
    quoted = isinstance(value, str) and not isinstance(parse_plain_scalar(value), str)
    number = _number(value, "write it without quotes" if quoted else f"write one from 0 to {MAX_WEIGHT}")
    if number < 0:
        raise ValueError(f"{show(value)} is below 0; write 0 for a backend that gets nothing")
    if number > MAX_WEIGHT:
        raise ValueError(f"{show(value)} is above {MAX_WEIGHT}; only ratios of weights count, so write smaller ones")
    return Fraction(value) if isinstance(value, int) else _exact(number, value)


def tolerance(value: object) -> Fraction:
    """`5%` or 0.05; above 0, at most 1."""
    form = "write a percentage such as 5%, above 0% and at most 100%"
    if isinstance(value, str):
        if not re.fullmatch(PERCENT_PATTERN, value, re.ASCII):
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


def max_flows(value: object) -> int:
    """A budget of flows."""
    if not is_int(value) or not 1 <= value <= MAX_FLOWS:
        raise ValueError(f"{show(value)} is not a whole number from 1 to {MAX_FLOWS}; leave the key out for no budget")
    return value


def bits(value: object) -> str | int | tuple[int, ...]:
    """`auto`, a number of bits, or a list of bit positions (their range depends on the family: checked later)."""
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


def version(value: object) -> int:
    """The version of the config's form; there is one."""
    if not is_int(value) or value != 1:
        raise ValueError(f"{show(value)} is not a version this xenoovs reads; write 1")
    return 1


def one_or_many(value: object) -> list[object]:
    """A single value stands for a list of one."""
    if value is None or value == []:
        empty = show(value) if value is None else "an empty list"
        raise ValueError(f"{empty} says nothing; write a value or, where the key is optional, leave it out")
    return value if isinstance(value, list) else [value]


def is_int(value: object) -> TypeGuard[int]:
    """A whole number, and not true or false, which Python counts among them."""
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | Number):
        raise ValueError(f'{show(value)} is not text; put it in quotes: "{show(value)}"')
    raise ValueError(f"{show(value)} is not text; write a name")


def _address(value: object) -> IPAddress:
    try:
        if isinstance(value, str):
            return IPv6Address(value) if ":" in value else IPv4Address(value)
    except AddressValueError:
        pass
    hint = ", without a mask" if isinstance(value, str) and "/" in value else ""
    raise ValueError(f"{show(value)} is not an IP address; write one such as 192.0.2.10 or 2001:db8::10{hint}")


def _unusable(address: IPAddress) -> str | None:
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


def _decimal(text: str, hint: str) -> Decimal:
    """Decimal keeps 1e999999 small; a Fraction of it would not be."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise ValueError(f"{show(Number(text))} is not a finite number; {hint}")
    return number


def _exact(number: Decimal, value: object) -> Fraction:
    """Looks at the size of the number before a Fraction is made, because that of 1e-999999 takes megabytes."""
    if not number:
        return Fraction(0)
    fits = number.adjusted() >= -MAX_DECIMALS and len(number.as_tuple().digits) <= _MAX_DIGITS
    if not fits or (Fraction(number) * 10**MAX_DECIMALS).denominator != 1:
        raise ValueError(f"{show(value)} has more than {MAX_DECIMALS} decimals; round it")
    return Fraction(number)

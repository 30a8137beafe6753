"""Outer headers of tunnels in dumps: `tunnel(..)` and `set(tunnel(..))`, `tnl_push(..)` and `tnl_pop(..)`.

Forms: format_odp_tun_attr(), format_geneve_opts(), format_odp_tnl_push_header() of lib/odp-util.c, 2.13 to 4.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from xenoovs.dataclass import dataclass, field
from xenoovs.datapath.megaflow import KeyTextError, MaskedValue, parse_value, read_masked
from xenoovs.regex import regex

UDP, GRE = 17, 47
"""IP protocols of tunnels (IANA, Protocol Numbers)."""

_WIDTHS = {
    "tun_id": 64,
    "src": 32,
    "dst": 32,
    "ipv6_src": 128,
    "ipv6_dst": 128,
    "tos": 8,
    "ttl": 8,
    "tp_src": 16,
    "tp_dst": 16,
}
_OPTION_WIDTHS = {"class": 16, "type": 8}
_LENGTH = regex(r"([0-9]{1,3})(?:/(?:0|0x[0-9a-f]{1,2}))?", re.ASCII)
"""In bytes. A mask of 0 says that the option is not matched, not that it has no data."""
_FLAGS = regex(r"(?:[+-][a-z]+)*|0|(?:[a-z]+|0x[0-9a-f]+)(?:\|(?:[a-z]+|0x[0-9a-f]+))*", re.ASCII)
_NAME = regex(r"[a-z_][a-z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class GeneveOption:
    """One option of Geneve (RFC 8926, 3.5). `option_class`: None if not matched. `type`: None if not matched. `length`:
    of the data in bytes. `data`: None if there is none, or none is matched."""

    option_class: MaskedValue | None
    type: MaskedValue | None
    length: int
    data: MaskedValue | None


@dataclass(frozen=True, slots=True)
class OuterHeader:
    """The outer header that a megaflow matches, or that it gives a packet. `fields`: by their names in the dump:
    tun_id, src, dst, ipv6_src, ipv6_dst, tos, ttl, tp_src, tp_dst. `geneve`: None if the dump has no `geneve(..)`."""

    fields: tuple[tuple[str, MaskedValue], ...]
    geneve: tuple[GeneveOption, ...] | None = None

    def field(self, name: str) -> MaskedValue | None:
        """Return a field by its name in the dump; None if the dump does not have it."""
        return next((value for found, value in self.fields if found == name), None)

    def exact(self, name: str) -> int | None:
        """Return the value of a field all of whose bits count; None if there is none."""
        found = self.field(name)
        return found.value if found is not None and found.mask == (1 << _WIDTHS[name]) - 1 else None

    @property
    def is_ipv6(self) -> bool:
        return self.field("ipv6_dst") is not None

    @property
    def source(self) -> int | None:
        """Its source address; None for any, or left to the route."""
        return self.exact("ipv6_src" if self.is_ipv6 else "src")

    @property
    def destination(self) -> int | None:
        """Return the destination address; None if not the whole of it is given."""
        return self.exact("ipv6_dst" if self.is_ipv6 else "dst")


@lru_cache(maxsize=4096)
def parse_outer(inner: str) -> OuterHeader:
    """Parse the text inside `tunnel(..)`. Raises KeyTextError."""
    fields = dict[str, MaskedValue]()
    geneve: tuple[GeneveOption, ...] | None = None
    seen = set[str]()
    for start, text in _items(inner):
        found = _NAME.match(text)
        name, rest = (found[0], text[found.end() :]) if found else ("", text)
        begin = start + len(name) + 1
        if name in seen:
            raise KeyTextError(start, f"'{name}' only once")
        seen.add(name)
        if rest.startswith("=") and name in _WIDTHS:
            fields[name] = _masked(rest[1:], _WIDTHS[name], begin)
        elif not (name and (rest.startswith("=") or (rest.startswith("(") and rest.endswith(")")))):
            raise KeyTextError(start, "an attribute of a tunnel, as tun_id=0x1 or flags(..)")
        elif rest[0] == "(" and name == "geneve":
            geneve = tuple(_geneve_options(rest[1:-1], begin))
        elif rest[0] == "(" and name == "flags" and not _FLAGS.fullmatch(rest[1:-1]):
            raise KeyTextError(begin, "flags as in flags(-df+csum+key) or flags(df|key)")
    return OuterHeader(tuple(fields.items()), geneve)


def _items(text: str, offset: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the parts between commas outside brackets, each with its offset. Raises KeyTextError. `offset`: of `text`
    in the text that errors are about."""
    depth, start = 0, 0
    for at, char in enumerate(text):
        if char in "({":
            depth += 1
        elif char in ")}":
            depth -= 1
            if depth < 0:
                raise KeyTextError(offset + at, "no closing bracket here")
        elif char == "," and not depth:
            yield offset + start, text[start:at]
            start = at + 1
    if depth:
        raise KeyTextError(offset + len(text), "a closing bracket")
    if text:
        yield offset + start, text[start:]


def _masked(text: str, width: int, offset: int) -> MaskedValue:
    try:
        return read_masked(text, width)
    except ValueError as error:
        raise KeyTextError(offset, str(error)) from None


def _geneve_options(text: str, offset: int) -> Iterator[GeneveOption]:
    start = 0
    while start < len(text):
        end = text.find("}", start)
        if text[start] != "{" or end < 0:
            raise KeyTextError(offset + start, "an option of Geneve as in {class=0x102,type=0x80,len=4,0x1}")
        yield _geneve_option(text[start + 1 : end], offset + start + 1)
        start = end + 1


def _geneve_option(text: str, offset: int) -> GeneveOption:
    found = dict[str, MaskedValue]()
    length: int | None = None
    data: MaskedValue | None = None
    for at, item in _items(text, offset):
        name, has_name, value = item.partition("=")
        if name in _OPTION_WIDTHS and name not in found and length is None:
            found[name] = _masked(value, _OPTION_WIDTHS[name], at + len(name) + 1)
        elif name == "len" and length is None and (bytes_ := _LENGTH.fullmatch(value)) is not None:
            length = int(bytes_[1])
        elif not has_name and length and data is None:
            data = _masked(item, 8 * length, at)
        else:
            raise KeyTextError(at, "class=, type=, len= and the data of an option of Geneve")
    if length is None:
        raise KeyTextError(offset + len(text), "len= of an option of Geneve")
    return GeneveOption(found.get("class"), found.get("type"), length, data)


# What actions make of a packet.


@dataclass(frozen=True, slots=True)
class Encapsulation:
    """A packet leaves in a tunnel: its outer header, as the actions write it. `device`: the datapath port of the
    tunnel, a name such as `vxlan_sys_4789`, or a number without `-m`. `local`: None: the address of the route to
    `remote`. `protocol`: UDP or GRE. `dst_port`: None: of GRE. `key`: VNI or GRE key. `out_port`: the port by which a
    userspace datapath sends the packet; None: the kernel routes it. `options`: of Geneve; two tunnels that differ in
    them alone are equal."""

    device: str
    remote: int
    local: int | None = None
    protocol: int = UDP
    dst_port: int | None = None
    key: int | None = None
    is_ipv6: bool = False
    out_port: str | None = None
    options: tuple[GeneveOption, ...] = field(default=(), compare=False)


_SET_TUNNEL = "set(tunnel("
_TNL_PUSH, _TNL_POP = "tnl_push(", "tnl_pop("
_CLONED = f"clone({_TNL_PUSH}"
"""Before Open vSwitch 3.0 each packet into a tunnel is a clone, since then the last one is not (commit c8bff848a)."""


@lru_cache(maxsize=4096)
def encapsulations(actions: tuple[str, ...]) -> tuple[Encapsulation, ...]:
    """Return the tunnels by which packets leave, in the order of the actions. Raises KeyTextError for unread text."""
    found = list[Encapsulation]()
    header: OuterHeader | None = None
    for action in actions:
        if action.startswith(_SET_TUNNEL):
            header = parse_outer(action[len(_SET_TUNNEL) : -2])
        elif action.startswith(_TNL_PUSH):
            found.append(parse_push(action))
        elif action.startswith(_CLONED):
            found += encapsulations(tuple(item for _, item in _items(action[len(_CLONED) - len(_TNL_PUSH) : -1])))
        elif "(" not in action and header is not None and header.destination is not None:
            port = header.exact("tp_dst")
            found.append(
                Encapsulation(
                    device=action,
                    remote=header.destination,
                    local=header.source,
                    protocol=GRE if port is None else UDP,
                    dst_port=port,
                    key=header.exact("tun_id"),
                    is_ipv6=header.is_ipv6,
                    options=header.geneve or (),
                )
            )
    return tuple(found)


def check_action(action: str) -> None:
    """Check the form of an action that concerns tunnels. Raises KeyTextError."""
    if action.startswith(_SET_TUNNEL):
        if not action.endswith("))"):
            raise KeyTextError(len(action), "a closing parenthesis")
        try:
            parse_outer(action[len(_SET_TUNNEL) : -2])
        except KeyTextError as error:
            raise KeyTextError(len(_SET_TUNNEL) + error.offset, error.expected) from None
    elif action.startswith((_TNL_PUSH, _CLONED)):
        encapsulations((action,))
    elif action.startswith(_TNL_POP) and not re.fullmatch(r"[^(),]+\)", action[len(_TNL_POP) :]):
        raise KeyTextError(len(_TNL_POP), "the port of tnl_pop(..)")


_PUSHED_OPTIONS = regex(r"\boptions\(((?:\{[^{}]*\})*)\)")
_KEYS = {"vxlan": "vni", "geneve": "vni", "gre": "key", "gtpu": "teid"}
"""The tunnel's header in tnl_push(..) -> its key."""


@lru_cache(maxsize=4096)
def parse_push(action: str) -> Encapsulation:
    """Parse `tnl_push(tnl_port(..),header(..),out_port(..))`. Raises KeyTextError."""
    parts = _parts(action[len(_TNL_PUSH) : -1], len(_TNL_PUSH), ("tnl_port", "header", "out_port"))
    start, header = parts["header"]
    layers = dict(_layers(header, start))
    end = start + len(header)
    is_ipv6 = "ipv6" in layers
    if not is_ipv6 and "ipv4" not in layers:
        raise KeyTextError(end, "ipv4(..) or ipv6(..) of the outer header")
    address = layers["ipv6" if is_ipv6 else "ipv4"]
    width = 128 if is_ipv6 else 32
    kind = next((name for name in _KEYS if name in layers), None)
    pushed = _PUSHED_OPTIONS.search(header)
    return Encapsulation(
        device=parts["tnl_port"][1],
        remote=_number(address, "dst", width, end),
        local=_number(address, "src", width, end),
        protocol=_number(address, "proto", 8, end),
        dst_port=_number(layers["udp"], "dst", 16, end) if "udp" in layers else None,
        key=_number(layers[kind], _KEYS[kind], 32, end) if kind and _KEYS[kind] in layers[kind] else None,
        is_ipv6=is_ipv6,
        out_port=parts["out_port"][1],
        options=tuple(_geneve_options(pushed[1], start + pushed.start(1))) if pushed else (),
    )


def _parts(text: str, offset: int, names: tuple[str, ...]) -> dict[str, tuple[int, str]]:
    """Return the inner texts of `name(..),name(..)` with their offsets: these names in this order."""
    found = dict[str, tuple[int, str]]()
    items = tuple(_items(text, offset))
    for name, (start, item) in zip(names, items, strict=False):
        if not (item.startswith(f"{name}(") and item.endswith(")")):
            raise KeyTextError(start, f"{name}(..)")
        found[name] = start + len(name) + 1, item[len(name) + 1 : -1]
    if len(items) != len(names):
        raise KeyTextError(offset + len(text), f"{', '.join(f'{name}(..)' for name in names)}")
    return found


def _layers(header: str, offset: int) -> Iterator[tuple[str, dict[str, tuple[int, str]]]]:
    """Yield the layers of a header that is pushed: name, and name of each attribute -> offset and text."""
    for start, item in _items(header, offset):
        name, is_layer, inner = item.partition("(")
        if not is_layer:
            continue
        if not (_NAME.fullmatch(name) and inner.endswith(")")):
            raise KeyTextError(start, "a layer of the outer header, as ipv4(..)")
        attributes = dict[str, tuple[int, str]]()
        for begin, attribute in _items(inner[:-1], start + len(name) + 1):
            key, has_value, value = attribute.partition("=")
            if has_value and not key.startswith("("):
                attributes[key] = begin + len(key) + 1, value
        yield name, attributes


def _number(attributes: dict[str, tuple[int, str]], name: str, width: int, end: int) -> int:
    if name not in attributes:
        raise KeyTextError(end, f"{name}= in the outer header")
    offset, text = attributes[name]
    try:
        return parse_value(text, width)
    except ValueError as error:
        raise KeyTextError(offset, str(error)) from None

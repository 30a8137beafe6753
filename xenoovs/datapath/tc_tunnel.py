"""Tunnels in filters of traffic control: keys `enc_*` of flower, and the action `tunnel_key`, in JSON.

Forms: flower_print_opt() of tc/f_flower.c and print_tunnel_key() of tc/m_tunnel_key.c, iproute2 4.19 to 7.1. A mask
that is not full is a key of its own, such as `enc_tos_mask`, or stands behind an address.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from xenoovs.datapath.megaflow import MaskedValue, read_masked
from xenoovs.datapath.outer import GRE, UDP, Encapsulation, GeneveOption, OuterHeader

_NUMBERS = {"enc_key_id": ("tun_id", 64), "enc_dst_port": ("tp_dst", 16), "enc_tos": ("tos", 8), "enc_ttl": ("ttl", 8)}
_ADDRESSES = {"enc_src_ip": "src", "enc_dst_ip": "dst"}


class TunnelValueError(ValueError):
    """A key of a tunnel has a value that tc does not print. `name`: the key."""

    def __init__(self, name: str, expected: str) -> None:
        super().__init__(f"{name}: {expected}")
        self.name, self.expected = name, expected


def outer_of(keys: Mapping[str, Any]) -> OuterHeader | None:
    """Return the outer header that a filter matches; None: it matches none. Raises TunnelValueError."""
    fields = tuple(_fields(keys))
    options = tuple(_options(keys)) if "geneve_opt_key" in keys else None
    return OuterHeader(fields, geneve=options) if fields or options is not None else None


def _fields(keys: Mapping[str, Any]) -> Iterator[tuple[str, MaskedValue]]:
    for name, (field, width) in _NUMBERS.items():
        if name in keys:
            yield field, _masked(name, keys[name], keys.get(f"{name}_mask"), width)
    for name, end in _ADDRESSES.items():
        if name in keys:
            is_ipv6 = ":" in str(keys[name])
            yield f"ipv6_{end}" if is_ipv6 else end, _masked(name, keys[name], None, 128 if is_ipv6 else 32)


def _masked(name: str, value: object, mask: object, width: int) -> MaskedValue:
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise TunnelValueError(name, f"a number or an address, not {value!r}")
    try:
        # Masks have hexadecimal digits without 0x (print_color_hex() of lib/json_print.c).
        return read_masked(str(value) if mask is None else f"{value}/0x{mask}", width)
    except ValueError as error:
        raise TunnelValueError(name, str(error)) from None


def _options(keys: Mapping[str, Any]) -> Iterator[GeneveOption]:
    values, masks = keys["geneve_opt_key"], keys.get("geneve_opt_mask") or []
    if not isinstance(values, list) or not isinstance(masks, list) or (masks and len(masks) != len(values)):
        raise TunnelValueError("geneve_opt_key", "a list of options, and as many masks")
    full = [{"class": 0xFFFF, "type": 0xFF, "data": [0xFF] * len(_data(option))} for option in values]
    for option, mask in zip(values, masks or full, strict=True):
        data, data_mask = _data(option), _data(mask)
        yield GeneveOption(
            _under(_number(option, "class", 16), _number(mask, "class", 16)),
            _under(_number(option, "type", 8), _number(mask, "type", 8)),
            len(data),
            _under(int.from_bytes(data, "big"), int.from_bytes(data_mask, "big")) if data else None,
        )


def _under(value: int, mask: int) -> MaskedValue:
    return MaskedValue(value & mask, mask)


def _number(option: object, name: str, width: int) -> int:
    value = option.get(name) if isinstance(option, Mapping) else None
    if not isinstance(value, int) or value >> width:
        raise TunnelValueError("geneve_opt_key", f"{name} as a number of {width} bits, not {value!r}")
    return value


def _data(option: object) -> bytes:
    try:
        return bytes(option["data"])  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        raise TunnelValueError("geneve_opt_key", f"data as a list of bytes in {option!r}") from None


def encapsulations_of(actions: list[Mapping[str, Any]]) -> tuple[Encapsulation, ...]:
    """Return the tunnels by which packets of a filter leave, in the order of its actions. Raises TunnelValueError."""
    found = list[Encapsulation]()
    key: Mapping[str, Any] | None = None
    for action in actions:
        if action.get("kind") == "tunnel_key":
            key = action if action.get("mode") == "set" else None
        elif action.get("kind") == "mirred" and key is not None and "dst_ip" in key:
            found.append(_encapsulation(key, str(action.get("to_dev", ""))))
    return tuple(found)


def _encapsulation(key: Mapping[str, Any], device: str) -> Encapsulation:
    is_ipv6 = ":" in str(key["dst_ip"])
    width = 128 if is_ipv6 else 32
    port = _exact(key, "dst_port", 16)
    return Encapsulation(
        device=device,
        remote=_masked("dst_ip", key["dst_ip"], None, width).value,
        local=_exact(key, "src_ip", width),
        protocol=UDP if port else GRE,
        dst_port=port or None,
        key=_exact(key, "key_id", 64),
        is_ipv6=is_ipv6,
    )


def _exact(key: Mapping[str, Any], name: str, width: int) -> int | None:
    return _masked(name, key[name], None, width).value if name in key else None

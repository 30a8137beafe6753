"""Ranges of ports as masks: exact, disjoint, few."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.strategies import port_numbers, port_ranges
from xenoovs.compile.encoding import PortMask, port_masks
from xenoovs.model.balancer import PortRange


def held(mask: PortMask) -> range:
    return range(mask.value, mask.value + (1 << 16 - mask.bits))


@given(port_ranges())
def test_every_port_of_the_ranges_is_held_once_and_no_other(ranges: tuple[PortRange, ...]) -> None:
    wanted = {port for ports in ranges for port in range(ports.first, ports.last + 1)}
    found = [port for mask in port_masks(ranges) for port in held(mask)]
    assert len(found) == len(wanted)
    assert set(found) == wanted


@given(port_numbers, port_numbers)
def test_no_two_masks_could_be_one(first: int, last: int) -> None:
    masks = port_masks([PortRange(min(first, last), max(first, last))])
    found = {(mask.value, mask.bits) for mask in masks}
    assert not [(value, bits) for value, bits in found if (value ^ 1 << 16 - bits, bits) in found and bits]


@given(port_ranges())
def test_the_order_of_ranges_does_not_matter(ranges: tuple[PortRange, ...]) -> None:
    assert port_masks(reversed(ranges)) == port_masks(ranges)


@pytest.mark.parametrize(
    ("first", "last", "masks"),
    [
        (0, 65535, [(0, 0x0000)]),
        (0, 0, [(0, 0xFFFF)]),
        (65535, 65535, [(0xFFFF, 0xFFFF)]),
        (1, 65535, [(1 << bit, 0x10000 - (1 << bit)) for bit in range(16)]),
        (8000, 8003, [(8000, 0xFFFC)]),
        (32767, 32768, [(32767, 0xFFFF), (32768, 0xFFFF)]),
    ],
)
def test_known_ranges(first: int, last: int, masks: list[tuple[int, int]]) -> None:
    assert [(mask.value, mask.mask) for mask in port_masks([PortRange(first, last)])] == masks


def test_no_range_is_no_mask() -> None:
    assert port_masks([]) == ()

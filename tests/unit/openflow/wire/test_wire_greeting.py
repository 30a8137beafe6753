"""The first messages on a connection, which may be of another version, and errors."""

from __future__ import annotations

import pytest

from xenoovs.openflow.wire.frame import (
    BARRIER_REQUEST,
    NICIRA,
    Error,
    decode_error,
    decode_hello,
    message,
    name_versions,
)
from xenoovs.openflow.wire.message import Port, PortReason, decode_port_status, names_of, numbers_of


@pytest.mark.parametrize(
    ("hello", "versions"),
    [
        ("01000008 00000001", {1}),
        ("04000008 00000001", {1, 2, 3, 4}),
        ("06000008 00000001", {1, 2, 3, 4, 5, 6}),
        ("04000010 00000001 00010008 00000030", {4, 5}),
        ("06000010 00000001 00010008 00000052", {1, 4, 6}),
        ("05000010 00000001 00020008 ffffffff", {1, 2, 3, 4, 5}),
        ("0600000c 00000001 00010003", {1, 2, 3, 4, 5, 6}),
        ("05000018 00000001 0007000500000000 0001000800000020", {5}),
        ("0500001a 00000001 00010008 00000020 00070006 aabb0000 0102", {5}),
    ],
)
def test_versions(hello: str, versions: set[int]) -> None:
    assert decode_hello(bytes.fromhex(hello)) == versions


def test_versions_have_the_names_of_open_vswitch() -> None:
    assert name_versions((5, 4, 1, 0, 7)) == ("OpenFlow10", "OpenFlow13", "OpenFlow14")


REFUSED = message(BARRIER_REQUEST, xid=77)


@pytest.mark.parametrize(
    ("error", "name", "refused_xid"),
    [
        (Error(5, 1, REFUSED), "OFPFMFC_TABLE_FULL", 77),
        (Error(5, 1, REFUSED[:7]), "OFPFMFC_TABLE_FULL", None),
        (Error(0xFFFF, 37, NICIRA.to_bytes(4, "big") + REFUSED), "NXFMFC_INVALID_TLV_FIELD", 77),
        (Error(5, 99), "type 5, code 99", None),
        (Error(99, 0), "type 99, code 0", None),
        (Error(0xFFFF, 3, bytes.fromhex("00001018")), "vendor 0x1018, code 3", None),
    ],
)
def test_an_error_has_a_name_or_numbers_and_names_the_message_it_refuses(
    error: Error, name: str, refused_xid: int | None
) -> None:
    assert (error.name, error.refused_xid) == (name, refused_xid)


def test_an_error_of_another_version_is_understood() -> None:
    error = decode_error(bytes.fromhex("01010016 00000001 0000 0000") + b"no version")
    assert (error.name, error.refused) == ("OFPHFC_INCOMPATIBLE", b"no version")


def test_ports_by_name_and_by_number_and_a_name_of_two_ports_means_neither() -> None:
    """Open vSwitch cuts the names of two ports to the same text; a flow to one was read as a flow to the other."""
    twice = (Port(2, "a-name-of-15-by", 0), Port(3, "a-name-of-15-by", 0))
    ports = (Port(1, "p0", 0), *twice, Port(4, "LOCAL", 0), Port(0xFFFFFFFE, "br0", 0))
    assert numbers_of(ports) == {"p0": 1}
    assert names_of(ports) == {1: "p0"}


@pytest.mark.parametrize(("config", "state", "is_up"), [(0, 4, True), (0, 1, False), (1, 0, False)])
def test_a_port_is_up_with_a_link_and_unless_set_down(config: int, state: int, is_up: bool) -> None:
    assert Port(1, "p0", 0, config=config, state=state).is_up is is_up


def test_a_name_cut_within_a_character_can_be_shown() -> None:
    """Open vSwitch cuts names after 15 bytes, also within a character."""
    name = ("x" * 14 + "é").encode()[:15]
    body = bytes(8) + bytes.fromhex("00000001 0028 0000 020000000001 0000") + name.ljust(16, b"\0") + bytes(8)
    wanted = Port(1, "x" * 14 + "\\xc3", 0x020000000001)
    assert decode_port_status(message(12, body, xid=1)) == (PortReason.ADD, wanted)

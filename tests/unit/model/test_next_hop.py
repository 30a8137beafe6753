"""Next hops: their text, their order, and which modules may read their parts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from xenoovs.model.address import Mac
from xenoovs.model.next_hop import UNKNOWN_MAC, Direct, Translated, mac_and_port, parse_next_hop, with_mac

PACKAGE = Path(__file__).parents[3] / "xenoovs"
HOP = Direct(Mac(0x02005E100002), "p1")

TRANSLATORS = {
    "model/next_hop.py",
    "model/switch_tunnel.py",
    "config/build.py",
    "config/emit.py",
    "config/switch_tunnels.py",
    "compile/encoding.py",
    "compile/receive.py",
    "compile/returns.py",
    "verify/expected.py",
}
"""A new kind of next hop is written here and nowhere else."""

APART = re.compile(r"\b(Direct|Translated|Tunneled)\b|\b(\w*hops?(\[\w+\])?|old|new|opens)\.(mac|port)\b")


@pytest.mark.parametrize("port", ["p1", "0", "pf0hpf", "en3f0pf0sf0.5@p0"])
def test_it_is_read_back_from_its_text(port: str) -> None:
    hop = Direct(HOP.mac, port)
    assert str(hop) == f"02:00:5e:10:00:02@{port}"
    assert parse_next_hop(str(hop)) == hop


@pytest.mark.parametrize(
    "text",
    [
        "",
        "p1",
        "@p1",
        "02:00:5e:10:00:02",
        "02:00:5e:10:00:02@",
        "2:0:5e:10:0:2@p1",
        "02:00:5e:10:00:02/192.0.2.1/x@p1",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse_next_hop(text)


@pytest.mark.parametrize("text", ["10.3.20.11", "10.3.20.11:8080", "10.3.20.11:65535"])
def test_a_server_behind_nat_is_read_back_from_its_text(text: str) -> None:
    written = f"02:00:5e:10:00:02>{text}@p1"
    hop = parse_next_hop(written)
    assert isinstance(hop, Translated)
    assert (str(hop), hop.endpoint) == (written, text)


@pytest.mark.parametrize(
    "text", ["10.3.20.256", "", "10.3.20.11:", "10.3.20.11:0", "10.3.20.11:080", "10.3.20.11:65536"]
)
def test_other_servers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_next_hop(f"02:00:5e:10:00:02>{text}@p1")


def test_next_hops_are_in_the_order_of_their_macs() -> None:
    first, second, third = (Direct(Mac(mac), port) for mac, port in ((1, "p1"), (1, "p2"), (2, "p0")))
    assert sorted([third, second, first]) == [first, second, third]


def test_a_mac_that_is_found_changes_nothing_else() -> None:
    assert with_mac(Direct(UNKNOWN_MAC, "p1"), HOP.mac) == HOP
    assert (HOP.ports, mac_and_port(HOP)) == (("p1",), ("02:00:5e:10:00:02", "p1"))


def test_no_other_module_reads_the_parts_of_a_next_hop() -> None:
    """Found by the names of variables; mypy finds the rest as soon as there is a second kind."""
    modules = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    found = {name for name, text in modules.items() if APART.search(text)}
    assert found == TRANSLATORS

"""A profile for TRex: as recorded, and what its functions send by the names of TRex's stateless API."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from importlib import import_module
from ipaddress import ip_address
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.command_line import CommandLine
from tests.golden.test_flows import compare
from xenoovs import __version__
from xenoovs.compile.program import compile_config
from xenoovs.judge.simulate.walk import tables_of, walk
from xenoovs.model.address import Mac
from xenoovs.model.load import parse_config
from xenoovs.model.next_hop import mac_of
from xenoovs.model.packet import Packet

FOLDER = Path(__file__).parent / "trex"
STUB = Path(__file__).parents[1] / "trex_stub"

SERVICES = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
services:
  - name: dns
    vip: 10.3.10.45
    vip_mac: c4:70:bd:a0:56:ac
    protocol: udp
    ports: [53]
    backends:
      - {name: fips2, mac: 02:00:5e:10:00:02, weight: 3}
      - {name: fips3, mac: 02:00:5e:10:00:03, weight: 1}
  - name: web
    vip: ["2001:db8::45", 10.3.10.46]
    protocol: tcp
    ports: [80]
    match: {field: source_port}
    backends:
      - {name: fips4, mac: 02:00:5e:10:00:04, weight: 1}
      - {name: fips5, mac: 02:00:5e:10:00:05, weight: 1}
"""


@pytest.fixture
def profile(xenoovs: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(SERVICES)
    Path("blocks.py").write_text(xenoovs("measure", "trex-profile", "my.yaml").out)
    monkeypatch.syspath_prepend(str(STUB))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield import_module("blocks")
    for name in ("blocks", "trex_stl_lib", "trex_stl_lib.api"):
        sys.modules.pop(name, None)


def test_a_profile_is_as_recorded(xenoovs: CommandLine, profile: ModuleType, *, update_golden: bool) -> None:
    assert profile.__file__ is not None
    text = Path(profile.__file__).read_text().replace(f"xenoovs {__version__}", "xenoovs VERSION")
    compare(FOLDER / "blocks.py.txt", text, update=update_golden)


@pytest.mark.parametrize("options", [[], ["--size", "1518", "--clients", "1000"]], ids=["any", "clients"])
def test_every_stream_matches_its_block(profile: ModuleType, options: list[str]) -> None:
    program = compile_config(parse_config(SERVICES, file="my.yaml"))
    tables, chance = tables_of(program.flows), random.Random(1)
    streams = profile.register().get_streams(direction=0, port_id=0, tunables=options)
    assert len(streams) == sum(len(service.blocks) for service in program.services)
    for stream in streams:
        backend = next(b for s in program.services for b in s.service.backends if b.name == stream.name.split("-")[-1])
        for _ in range(20):
            (copy,) = walk(tables, sent(stream, chance)).copies
            assert (copy.port, Mac(copy.dl_dst)) == ("p1", mac_of(backend.next_hop)), stream.name
        assert len(stream.packet.pkt) + 4 >= (1518 if options else 64)


def test_the_rates_of_backends_are_their_shares(profile: ModuleType) -> None:
    balancer = parse_config(SERVICES, file="my.yaml")
    rates: Counter[str] = Counter()
    for stream in profile.register().get_streams(direction=0, port_id=0, tunables=[]):
        rates[stream.name.split("-")[-1]] += stream.mode.pps
    for service in balancer.services:
        total = sum(rates[backend.name] for backend in service.backends)
        shares = tuple(Fraction(rates[backend.name], total) for backend in service.backends)
        assert shares == service.target_shares
    # The other port of a pair sends nothing.
    assert profile.register().get_streams(direction=1, port_id=1, tunables=[]) == []


def sent(stream: Any, chance: random.Random) -> Packet:
    """A packet of a stream, as TRex's field engine makes it."""
    builder = stream.packet
    layers = {layer.name: dict(layer.fields) for layer in builder.pkt.layers}
    variables: dict[str, int] = {}
    for command in builder.vm.list_of_commands:
        match type(command).__name__:
            case "STLVmFlowVar" | "STLVmFlowVarRepeatableRandom":
                variables[command.name] = chance.randint(command.min_value, command.max_value)
            case "STLVmWrMaskFlowVar":
                layer, field = command.pkt_offset.split(".")
                value = layers[layer][field]
                number = value if field == "sport" else int(ip_address(value))
                # Of an address the last four bytes are written.
                assert command.pkt_cast_size == (2 if field == "sport" else 4)
                assert command.offset_fixup == (12 if layer == "IPv6" else 0)
                number = number & ~command.mask | variables[command.fv_name] & command.mask
                layers[layer][field] = number if field == "sport" else type(ip_address(value))(number)
    name = "IPv6" if "IPv6" in layers else "IP"
    protocol = "TCP" if "TCP" in layers else "UDP"
    return Packet(
        "p0",
        ip_address(layers[name]["src"]),
        ip_address(layers[name]["dst"]),
        6 if protocol == "TCP" else 17,
        layers[protocol]["sport"],
        layers[protocol]["dport"],
    )

"""The cases of flows/: a folder each, with a config and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import yaml

from tests.compiled import compiled
from xenoovs.compile.program import Program
from xenoovs.model.address import family_of
from xenoovs.model.balancer import Balancer, Protocol
from xenoovs.model.load import load_config
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import tag_of

ROOT = Path(__file__).parents[2] / "flows"
CASES = tuple(sorted(folder.name for folder in ROOT.iterdir() if folder.is_dir()))
WITH_ORIGINAL = tuple(name for name in CASES if (ROOT / name / "original.txt").exists())


@dataclass(frozen=True, slots=True)
class Example:
    """A packet of packets.yaml and where it goes: a backend's name, or `other`: a port, normal, drop or left."""

    packet: Packet
    backend: str | None
    other: str | None


def file_of(case: str, name: str) -> Path:
    return ROOT / case / name


def balancer_of(case: str) -> Balancer:
    return load_config(file_of(case, "config.yaml"))


def program_of(case: str) -> Program:
    return compiled(balancer_of(case))


def examples_of(case: str) -> tuple[Example, ...]:
    return tuple(map(_example, yaml.safe_load(file_of(case, "packets.yaml").read_text())))


def _example(entry: dict[str, Any]) -> Example:
    source, destination = ip_address(entry["source"]), ip_address(entry["destination"])
    packet = Packet(
        in_port=entry.get("in_port", "p0"),
        source=source,
        destination=destination,
        protocol=Protocol(entry["protocol"]).number(family_of(source)),
        sport=entry.get("type", entry.get("sport", 40000)),
        dport=entry.get("port", 0),
        tos=entry.get("tos", 0),
        vlan=tag_of(entry.get("vlan", 0)),
    )
    return Example(packet, entry.get("backend"), entry.get("other"))

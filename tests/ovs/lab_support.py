"""Balancers and labs for tests: names of their own, hand-written flows, and what a lab leaves on the machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.ovs.dummy import ofctl
from xenoovs.compile.program import compile_config
from xenoovs.lab.fabric import build
from xenoovs.lab.fabric_topology import FabricShape
from xenoovs.lab.host import marked_processes
from xenoovs.lab.lab import DIRECTORY_VARIABLE, MARK, FabricLab, Lab
from xenoovs.lab.lifecycle import down, up
from xenoovs.lab.traffic import ServiceTraffic
from xenoovs.model.address import Family, parse_mac
from xenoovs.model.balancer import Backend, Balancer, Claim, OtherTraffic, PortRange, Protocol, Service, Uplinks
from xenoovs.model.emit import render_config
from xenoovs.model.load import parse_config
from xenoovs.model.next_hop import Direct
from xenoovs.openflow.text import render_flow

EVEN_MAC, ODD_MAC, THIRD_MAC = "02:00:5e:10:00:02", "02:00:5e:10:00:03", "02:00:5e:10:00:04"
VIP_MAC = "02:00:5e:10:00:01"
DNS_CLAIM = Claim(frozenset({Family.IPV4}), (ip_address("10.3.10.45"),), Protocol.UDP, (PortRange(53, 53),))

WEB = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
services:
  - name: web
    vip: 10.3.10.45
    protocol: tcp
    ports: [80]
    vip_mac: 02:00:5e:10:00:01
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, weight: 1}
      - {name: two, mac: 02:00:5e:10:00:03, weight: 1}
"""
"""A config without addresses: the lab chooses them."""


def before_services(lines: str, text: str = WEB) -> str:
    """Return a config with more keys."""
    return text.replace("services:", f"{lines}\nservices:")


BACK = "priority=1,in_port=p1 actions=output:p0"
"""The way of the answers."""


def lab_name(suffix: str) -> str:
    """A name that no other test process uses."""
    return f"t{os.getpid()}-{suffix}"


def backend(name: str, mac: str, *, weight: int = 1, egress: str = "p1") -> Backend:
    return Backend(name, Direct(parse_mac(mac), egress), Fraction(weight))


def pair() -> tuple[Backend, ...]:
    """Two backends, named after the clients they get in these tests."""
    return (backend("even", EVEN_MAC), backend("odd", ODD_MAC))


def service(name: str, claim: Claim, *, backends: Sequence[Backend] = (), vip_mac: str | None = None) -> Service:
    return Service(name, claim, tuple(backends) or pair(), vip_mac=parse_mac(vip_mac) if vip_mac else None)


def balancer(*services: Service, other: OtherTraffic = OtherTraffic.PASSTHROUGH) -> Balancer:
    return Balancer(Uplinks("ovsbr1", ("p0",), "p1", other), services)


@contextmanager
def running_lab(suffix: str, wanted: Balancer, directory: Path) -> Iterator[Lab]:
    name = lab_name(suffix)
    lab = up(name, wanted, directory=directory)
    try:
        yield lab
    finally:
        down(name, directory=directory)


def lab_fixture(
    suffix: str, wanted: Balancer, prepare: Callable[[Lab], object] = lambda _lab: None
) -> Callable[..., Iterator[Lab]]:
    """Return the fixture of a lab for a module, whose directory commands find, with the config in my.yaml beside it."""

    @pytest.fixture(scope="module")
    def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
        directory = tmp_path_factory.mktemp("lab")
        with running_lab(suffix, wanted, directory) as made, pytest.MonkeyPatch.context() as patch:
            patch.setenv(DIRECTORY_VARIABLE, str(directory))
            (directory / "my.yaml").write_text(render_config(wanted))
            prepare(made)
            yield made

    return lab


def fabric_fixture(suffix: str, shape: FabricShape) -> Callable[..., Iterator[FabricLab]]:
    """Return the fixture of a fabric lab for a module, whose directory commands find."""

    @pytest.fixture(scope="module")
    def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FabricLab]:
        directory = tmp_path_factory.mktemp("lab")
        made = build.up(lab_name(suffix), shape, directory=directory)
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(DIRECTORY_VARIABLE, str(directory))
                yield made
        finally:
            down(made.name, directory=directory)

    return lab


def set_flows(lab: Lab, *flows: str) -> None:
    """Make these all the flows of the lab's bridge."""
    target = f"unix:{lab.ovs.directory / lab.topology.bridge}.mgmt"
    ofctl(lab.ovs, "-O", "OpenFlow14", "replace-flows", target, "-", stdin="\n".join(flows))


def load_text(text: str) -> Balancer:
    """Return the config that a text is."""
    return parse_config(text, file="my.yaml", for_lab=True)


def install(lab: Lab, balancer: Balancer) -> None:
    """Make the program of a config all the flows of the lab's bridge."""
    set_flows(lab, *map(render_flow, compile_config(balancer).flows))


def split(match: str, source: str, *, in_port: str = "p0") -> tuple[str, str]:
    """Two flows: even clients to `even`, odd ones to `odd`; `source`: the flow syntax of the lowest bit, 0 or 1."""
    return (
        f"priority=9,in_port={in_port},{match},{source.format(0)} actions=mod_dl_dst:{EVEN_MAC},output:p1",
        f"priority=9,in_port={in_port},{match},{source.format(1)} actions=mod_dl_dst:{ODD_MAC},output:p1",
    )


def assert_split_by_lowest_bit(traffic: ServiceTraffic) -> None:
    """Nothing is lost, and each client got exactly the backend of its lowest bit."""
    assert traffic.lost == 0
    clients = {client for client, _ in traffic.answers}
    assert {*traffic.answers} == {(client, "odd" if int(ip_address(client)) & 1 else "even") for client in clients}
    assert len(clients) == traffic.clients


def owners_of_blocks(traffic: ServiceTraffic) -> dict[int, str]:
    """Return the backend of each block by its two lowest bits; every client has been answered by that of its block."""
    owners = {(int(ip_address(client)) & 3, backend) for client, backend in traffic.answers}
    assert len(owners) == len(dict(owners)) == 4
    return dict(owners)


def remains(name: str, directory: Path) -> dict[str, object]:
    """Everything that lab `name` has on this machine."""
    return {
        "namespaces": [entry.name for entry in Path("/run/netns").glob(f"xo-{name}-*")],
        "mounts": [line for line in Path("/proc/mounts").read_text().splitlines() if f"xo-{name}-" in line],
        "processes": marked_processes(MARK, str(directory / name)),
        "files": sorted(map(str, directory.glob("*"))),
    }


def links() -> set[str]:
    """The devices of the host's own namespace."""
    return set(os.listdir("/sys/class/net"))  # noqa: PTH208

"""The laws of configs of several files: it matters neither where a service stands, nor where a key of it does."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.test_config_roundtrip import balancers
from xenoovs.model.address import Family, IPAddress, family_of
from xenoovs.model.balancer import Balancer, Claim, PortRange, Protocol
from xenoovs.model.claims import Occupancy
from xenoovs.model.emit import render_config
from xenoovs.model.load import compose, load_config
from xenoovs.model.values import Number

Tree = dict[str, Any]


def written(value: Any) -> str:
    """A tree as YAML in the form of JSON; numbers as they were written."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)}: {written(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    return value.text if isinstance(value, Number) else json.dumps(value)


def tree_of(balancer: Balancer) -> Tree:
    root = compose(render_config(balancer), file="c.yaml").root
    assert isinstance(root, dict)
    return root


def loaded(files: dict[str, Tree]) -> Balancer:
    with TemporaryDirectory() as name:
        for file, tree in files.items():
            Path(name, file).write_text(written(tree))
        return load_config(Path(name, "my.yaml"))


@given(balancers(), st.data())
def test_it_does_not_matter_in_which_file_a_service_stands(balancer: Balancer, data: st.DataObject) -> None:
    root = tree_of(balancer)
    count = data.draw(st.integers(1, 4))
    files: dict[str, Tree] = {f"{number}.yaml": {"services": []} for number in range(count)}
    for number in range(1, count):
        # Each file is included by one before it.
        parent = files[f"{data.draw(st.integers(0, number - 1))}.yaml"]
        parent.setdefault("include", []).append(f"{number}.yaml")
    for service in root["services"]:
        files[f"{data.draw(st.integers(0, count - 1))}.yaml"]["services"].append(service)
    files["my.yaml"] = {**root, "services": [], "include": "0.yaml"}
    found = loaded(files)
    assert found.uplinks == balancer.uplinks
    assert sorted(found.services, key=lambda s: s.name) == sorted(balancer.services, key=lambda s: s.name)


@given(balancers(), st.data())
def test_it_does_not_matter_whether_a_key_stands_in_the_defaults(balancer: Balancer, data: st.DataObject) -> None:
    """A key that all services have in common, or all backends, may stand in `defaults`."""
    root = tree_of(balancer)
    services: list[Tree] = root["services"]
    backends = [backend for service in services for backend in service["backends"]]
    defaults: dict[str, Tree] = {"services": {}, "backends": {}}
    for kind, trees, own in (("services", services, {"name", "backends"}), ("backends", backends, {"name", "address"})):
        for key in sorted({*(trees[0] if trees else ())} - own):
            if all(key in tree and tree[key] == trees[0][key] for tree in trees) and data.draw(st.booleans()):
                defaults[kind][key] = trees[0][key]
                for tree in trees:
                    del tree[key]
    assert loaded({"my.yaml": {**root, "defaults": defaults}}) == balancer


VIPS: tuple[IPAddress, ...] = (IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2"), IPv6Address("2001:db8::1"))


@st.composite
def claims(draw: st.DrawFn) -> Claim:
    vips = tuple(draw(st.lists(st.sampled_from(VIPS), max_size=2, unique=True)))
    families = frozenset(map(family_of, vips)) or frozenset({draw(st.sampled_from(Family))})
    protocol = draw(st.none() | st.sampled_from(Protocol))
    ports: list[PortRange] = []
    if protocol is not None and protocol.has_ports:
        edges = sorted(draw(st.sets(st.integers(0, 12), max_size=6)))
        ports = [PortRange(first, last) for first, last in zip(edges[::2], edges[1::2], strict=False)]
    return Claim(families, vips, protocol, tuple(draw(st.permutations(ports))))


@given(st.lists(claims(), max_size=8))
@settings(max_examples=500, deadline=None)
def test_the_same_as_every_pair(wanted: list[Claim]) -> None:
    occupancy = Occupancy()
    held: list[int] = []
    ordered = sorted(wanted, key=lambda claim: bool(claim.vips))
    for index, claim in enumerate(ordered):
        rivals = {other for other in held if ordered[other].overlaps(claim)}
        clash = occupancy.add(claim, owner=index)
        assert (clash is None) == (not rivals)
        if clash is None:
            held.append(index)
        else:
            assert clash.owner in rivals

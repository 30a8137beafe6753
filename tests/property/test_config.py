"""Configs: any text is one or has findings, what is written is read back, and files may be divided as one likes."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.strategies import damaged
from tests.switch_tunnels import moved_behind_tunnels
from xenoovs.errors import ConfigError
from xenoovs.model.address import Family, IPAddress, Mac, PortRange, Vip, family_of, vip_of
from xenoovs.model.balancer import (
    AgentCheck,
    AllDown,
    Backend,
    Balancer,
    Churn,
    Claim,
    Health,
    Initial,
    Nat,
    Notify,
    OtherTraffic,
    ProbeKind,
    Protocol,
    Service,
    Uplinks,
    usual_positions,
)
from xenoovs.model.block_key import BlockKey, KeyField
from xenoovs.model.claims import Occupancy
from xenoovs.model.emit import config_tree, render_config, render_json
from xenoovs.model.load import compose, load_config, parse_config
from xenoovs.model.next_hop import Direct, NextHop, Translated, Unchanged
from xenoovs.model.packet import Packet
from xenoovs.model.packet import claims as is_claimed
from xenoovs.model.templates import read_template, template_names
from xenoovs.model.values import Number

# Names that YAML could take for something else.
NAMES = st.sampled_from(["1e5", "0x1F", "true", "null", "53", "no", "22.30", "web", "a.b-c_d", "9e", "1_0", "0o7"])
EGRESS = st.sampled_from(["p1", "pf0hpf", "0x7", "vxlan-10.0.0.1", "_x", "e@1", "1e3"])
MACS = st.integers(1, 2**40 - 1).map(lambda low: Mac(2 << 40 | low))
NETWORKS = st.sampled_from([IPv4Network("10.9.0.0/16"), IPv4Network("0.0.0.0/0"), IPv4Network("10.8.0.1/32")])
NATS = st.builds(Nat, st.none() | MACS, st.lists(NETWORKS, max_size=3, unique=True).map(tuple))
ADDRESSES = st.integers(0x0A000001, 0x0AFFFFFE).map(IPv4Address)


@st.composite
def decimals(draw: st.DrawFn) -> Fraction:
    """At least 0.5 beside 3 x 500: more than five parts of 2^14, which meets every tolerance below."""
    return Fraction(draw(st.integers(50, 500)), 10 ** draw(st.integers(0, 2)))


@st.composite
def bits(draw: st.DrawFn, protocol: Protocol | None) -> BlockKey:
    has_ports = protocol is not None and protocol.has_ports
    field = draw(st.sampled_from(KeyField)) if has_ports else KeyField.SOURCE_ADDRESS
    order = tuple(draw(st.permutations(range(min(32, field.width(Family.IPV4)))))[: draw(st.integers(14, 16))])
    usual = usual_positions(field, protocol)
    return draw(st.sampled_from([BlockKey(field, usual), BlockKey(field, usual, 15), BlockKey(field, order)]))


COMMANDS = st.sampled_from([("/bin/true",), ("/bin/a b", "", '"\n\\')])


@st.composite
def checks(draw: st.DrawFn) -> Health | None:
    probe = draw(st.sampled_from(ProbeKind))
    interval, fast, timeout = sorted(draw(st.tuples(*[st.integers(1, 3_600_000)] * 3)), reverse=True)
    text = st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.sampled_from("\n\r\t"), max_size=20)
    parts = st.integers(0, 1000).map(lambda part: Fraction(part, 1000))
    check = Health(
        probe,
        port=draw(st.integers(1, 65535)) if probe.has_port or probe is ProbeKind.EXEC else None,
        interface=draw(st.sampled_from(["p1", "1e3"])),
        netns=draw(st.none() | NAMES),
        path=draw(st.sampled_from(["/", '/a?b="c"#\\'])),
        host=draw(st.sampled_from([None, "a.example:80", "[2001:db8::1]"])),
        status=draw(st.sampled_from([(200, 399), (204, 204)])),
        body=draw(text),
        ca_file=draw(st.sampled_from([None, "/a b/é.pem"])),
        server_name=draw(st.sampled_from([None, "null"])),
        command=draw(COMMANDS),
        query=draw(st.sampled_from(["example.org", "_x.no."])),
        send=draw(text),
        expect=draw(text),
        interval_ms=interval,
        fast_interval_ms=fast,
        timeout_ms=timeout,
        rise=draw(st.integers(1, 100)),
        fall=draw(st.integers(1, 100)),
        jitter=draw(parts),
        ramp_ms=draw(st.none() | st.integers(1, 3_600_000)),
        initial=draw(st.sampled_from(Initial)),
        max_down=draw(parts),
        on_all_down=draw(st.sampled_from(AllDown)),
    )
    return None if probe is ProbeKind.NONE else check


@st.composite
def services(draw: st.DrawFn, *, index: int) -> Service:
    """`index` keeps the VIPs of several services apart."""
    v4, v6 = IPv4Address(0xC0000200 + index), IPv6Address((0x20010DB8 << 96) + index)
    net4, net6 = IPv4Network((0x0A000000 + (index << 8), 24)), IPv6Network((0x20010DB9 << 96, 32 + index))
    forms: list[tuple[Vip, ...]] = [(v4,), (v6,), (v4, v6), (v6, v4), (net4,), (v6, net4), (net6, v4)]
    vips = draw(st.sampled_from(forms))
    protocol = draw(st.none() | st.sampled_from(Protocol))
    edges = sorted(draw(st.sets(st.integers(0, 65535), max_size=6)))
    ports = tuple(PortRange(first, last) for first, last in zip(edges[::2], edges[1::2], strict=False))
    macs = draw(st.lists(MACS, min_size=1, max_size=4, unique=True))
    health = draw(checks())
    has_arp = health is not None and health.probe is ProbeKind.ARP
    unchanged = draw(st.sampled_from((None,) if has_arp else (None, None, 0)))
    weights, addresses = [draw(decimals()) for _ in macs], [draw(ADDRESSES) for _ in macs]
    names = draw(st.lists(NAMES, min_size=len(macs), max_size=len(macs), unique=True))
    # NAT answers as one IPv4 VIP, and no two services have one server.
    nat = draw(st.none() | NATS) if vips == (v4,) and unchanged is None else None
    has_ports = protocol is not None and protocol.has_ports
    has_one_port = has_ports and len(ports) == 1 and len(ports[0]) == 1
    l4_ports = [draw(st.none() | st.integers(1, 65535)) if has_one_port else None for _ in macs]
    if nat is not None:
        addresses = [IPv4Address(f"172.16.{index}.{i}") for i, _ in enumerate(macs)]
        if health is not None and draw(st.booleans()) and has_ports and any(each.first for each in ports):
            health = replace(health, port=None)

    def hop_of(i: int, mac: Mac) -> NextHop:
        if i == unchanged:
            return Unchanged(draw(EGRESS))
        port = draw(EGRESS)
        return Direct(mac, port) if nat is None else Translated(mac, port, addresses[i], l4_ports[i])

    return Service(
        name=f"{draw(NAMES)}-{index}",
        claim=Claim(frozenset(map(family_of, vips)), vips, protocol, ports if protocol and protocol.has_ports else ()),
        backends=tuple(
            Backend(name, hop_of(i, mac), weight, address, is_backup=draw(st.booleans()))
            for i, (name, mac, weight, address) in enumerate(zip(names, macs, weights, addresses, strict=True))
        ),
        key=draw(bits(protocol)),
        tolerance=draw(st.sampled_from([Fraction(1), Fraction(1, 4), Fraction(7, 16), Fraction(123456789, 10**9)])),
        max_flows=draw(st.none() | st.integers(4, 64)),
        vip_mac=draw(st.none() | MACS),
        source_mac=draw(st.none() | MACS),
        churn=draw(st.sampled_from(Churn)),
        health=health,
        agent_check=draw(
            st.none()
            if None in addresses
            else st.none() | st.builds(AgentCheck, st.integers(1, 65535), st.sampled_from(["", "web\n"]))
        ),
        notify=draw(st.none() | st.builds(Notify, COMMANDS, st.sampled_from([1, 1500, 3_600_000]))),
        nat=nat,
    )


@st.composite
def balancers(draw: st.DrawFn) -> Balancer:
    uplinks = Uplinks(
        bridge=draw(st.sampled_from(["ovsbr1", "br-int", "0x1", "true"])),
        ingress=draw(st.sampled_from([("p0",), ("1e9",), ("null",)])),
        egress=draw(EGRESS),
        other_traffic=draw(st.sampled_from(OtherTraffic)),
        datapath_id=draw(st.none() | st.integers(1, 2**64 - 1)),
    )
    return Balancer(uplinks, tuple(draw(services(index=index)) for index in range(draw(st.integers(0, 3)))))


@given(balancers() | balancers().flatmap(moved_behind_tunnels))
def test_read_back(balancer: Balancer) -> None:
    text = render_config(balancer)
    assert parse_config(text, file="c.yaml") == balancer
    assert parse_config(render_json(config_tree(balancer)), file="c.json") == balancer
    assert render_config(parse_config(text, file="c.yaml")) == text


@pytest.mark.parametrize("name", template_names())
def test_templates_keep_their_meaning(name: str) -> None:
    balancer = parse_config(read_template(name), file=name)
    assert parse_config(render_config(balancer), file=name) == balancer


OF_PORT = {"key": BlockKey(KeyField.SOURCE_PORT), "claim": Claim(frozenset({Family.IPV6}), (), Protocol.UDP)}


@pytest.mark.parametrize("change", [{"tolerance": Fraction(1, 3)}, {"claim": Claim(frozenset(Family))}, OF_PORT])
def test_balancers_that_no_config_expresses(change: dict[str, object]) -> None:
    backend = Backend("a", Direct(Mac(2 << 40), "p1"), Fraction(1))
    service = Service(**{"name": "web", "claim": Claim(frozenset({Family.IPV4})), "backends": (backend,), **change})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"no config can say|no decimal form"):
        render_config(Balancer(Uplinks("br0", ("p0",), "p1", OtherTraffic.DROP), (service,)))


Tree = dict[str, Any]


def written(value: Any) -> str:
    """A tree as YAML in the form of JSON; numbers as they were written."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)}: {written(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    return value.text if isinstance(value, Number) else json.dumps(value)


@given(balancers(), st.data())
def test_it_does_not_matter_in_which_file_a_service_stands_and_which_keys_stand_in_the_defaults(
    balancer: Balancer, data: st.DataObject
) -> None:
    """A key that all services have in common, or all backends, may stand in `defaults`."""
    root: Any = compose(render_config(balancer), file="c.yaml").root
    services: list[Tree] = root["services"]
    backends = [backend for service in services for backend in service["backends"]]
    defaults: dict[str, Tree] = {"services": {}, "backends": {}}
    for kind, trees, own in (("services", services, {"name", "backends"}), ("backends", backends, {"name", "address"})):
        for key in sorted({*(trees[0] if trees else ())} - own):
            if all(key in tree and tree[key] == trees[0][key] for tree in trees) and data.draw(st.booleans()):
                defaults[kind][key] = trees[0][key]
                for tree in trees:
                    del tree[key]
    count = data.draw(st.integers(1, 4))
    files: dict[str, Tree] = {f"{number}.yaml": {"services": []} for number in range(count)}
    for number in range(1, count):
        # Each file is included by one before it.
        parent = files[f"{data.draw(st.integers(0, number - 1))}.yaml"]
        parent.setdefault("include", []).append(f"{number}.yaml")
    for service in services:
        files[f"{data.draw(st.integers(0, count - 1))}.yaml"]["services"].append(service)
    files["my.yaml"] = {**root, "services": [], "include": "0.yaml", "defaults": defaults}
    with TemporaryDirectory() as name:
        for file, tree in files.items():
            Path(name, file).write_text(written(tree))
        found = load_config(Path(name, "my.yaml"))
    assert found.uplinks == balancer.uplinks
    assert sorted(found.services, key=lambda s: s.name) == sorted(balancer.services, key=lambda s: s.name)


VIPS: tuple[Vip, ...] = tuple(
    map(vip_of, ("192.0.2.1", "192.0.2.2", "192.0.2.0/31", "192.0.2.0/30", "2001:db8::1", "2001:db8::/64"))
)
SEVERAL = [IPv4Address("192.0.2.0") + n for n in range(5)] + [IPv6Address("2001:db8::") + n for n in range(3)]


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
@example([Claim(frozenset({Family.IPV4}), VIPS[:1], Protocol.TCP, (PortRange(*ends),)) for ends in ((1, 5), (3, 4))])
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


@given(claims(), claims())
def test_claims_clash_over_packets_that_both_hold_by_prefixes_of_one_length(one: Claim, other: Claim) -> None:
    def lengths(address: IPAddress, protocol: int, port: int) -> list[int | None]:
        packet = Packet("p0", type(address)(1), address, protocol, dport=port)
        return [claim.prefix_length(address) if is_claimed(claim, packet) else None for claim in (one, other)]

    found = [lengths(address, *rest) for address in SEVERAL for rest in product((1, 6, 17, 47, 58, 132), range(14))]
    both = [(a, b) for a, b in found if a is not None and b is not None]
    # What every destination is for is no prefix that another one is inside of.
    assert one.overlaps(other) is any(a == b or not a or not b for a, b in both)


TEMPLATES = tuple(map(read_template, template_names()))

# Pieces that a mutation puts into a valid config: signs of YAML, words of the config, values at the edge.
SIGNS = ("\n", "  ", "- ", ": ", "# ", *"[]{},&*!|>%@`'\"?~\t\0", "\ufeff", "\u2028", "---", "...", "<<: ", "''")
NUMBERS = "0 -1 1e30 .nan .inf 65535 65536 0x10 5% 1000% 0.1 1e-400 53-52 [0,1,2]"
WORDS = "null true yes auto udp icmp pin normal p0 p1 02:00:5e:10:00:02 2001:db8::1"
KEYS = "vip name mac weight ports bits backends services bridge"
NAMES_OF_KEYS = "version switch bridge services name vip ports match bits backends x"
PIECES = st.sampled_from(
    (*SIGNS, *NUMBERS.split(), *WORDS.split(), *(f"{key}: " for key in KEYS.split()), "{a: b}", "[]")
)


_A_KEY = st.sampled_from(NAMES_OF_KEYS.split())
# JSON is YAML: shapes that are right in form and wrong in content.
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | PIECES.filter(str.isalnum),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_A_KEY, inner, max_size=5),
    max_leaves=20,
).map(json.dumps)
DAMAGED = st.sampled_from(TEMPLATES).flatmap(lambda text: damaged(text, PIECES, longest=12))


@given(st.text() | st.binary(max_size=400) | st.lists(PIECES, max_size=40).map("".join) | DAMAGED | VALUES)
@example("\r")
@example("a: \ud800")
@example("? ")
@example("- &a *a")
def test_any_text_is_a_config_or_findings(text: str | bytes) -> None:
    try:
        parse_config(text, file="c.yaml")
    except ConfigError as error:
        found = error.findings
    else:
        return
    assert found
    assert all(each.line >= 1 and each.column >= 1 and each.message for each in found)

"""What `render_config` writes is read back as the same Balancer, in one form only."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Network, IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.switch_tunnels import moved_behind_tunnels
from xenoovs.model.address import Family, IPAddress, Mac, family_of
from xenoovs.model.balancer import (
    AgentCheck,
    AllDown,
    Backend,
    Balancer,
    BlockKey,
    Churn,
    Claim,
    Health,
    Initial,
    KeyField,
    Nat,
    Notify,
    OtherTraffic,
    PortRange,
    ProbeKind,
    Protocol,
    Service,
    Uplinks,
    usual_positions,
)
from xenoovs.model.emit import render_config
from xenoovs.model.load import parse_config
from xenoovs.model.next_hop import Direct, NextHop, Translated, Unchanged
from xenoovs.model.templates import read_template, template_names

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
    forms: list[tuple[IPAddress, ...]] = [(v4,), (v6,), (v4, v6), (v6, v4)]
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
            Backend(
                name,
                hop_of(i, mac),
                weight,
                address,
                is_backup=draw(st.booleans()),
            )
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
@settings(max_examples=300, deadline=None)
def test_read_back(balancer: Balancer) -> None:
    text = render_config(balancer)
    assert parse_config(text, file="c.yaml") == balancer
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

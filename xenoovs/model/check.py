"""Checks values of a config against each other: in a service, between services, and for the weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from xenoovs.display import decimal, percent_rounded_up
from xenoovs.errors import counted, worded
from xenoovs.model.address import IPNetwork, Mac, family_of, prefix_of
from xenoovs.model.balancer import (
    MAX_KEY_BITS,
    NO_QUERY,
    AgentCheck,
    Balancer,
    Health,
    KeyField,
    Nat,
    OtherTraffic,
    ProbeKind,
    Protocol,
    ServiceMode,
    Uplinks,
    first_port,
)
from xenoovs.model.claims import check_between, family_label
from xenoovs.model.schema import BackendForm, FileForm, Given, ServiceForm
from xenoovs.model.tunnel_rules import check_own_addresses, check_remotes, check_tunnelled_backends, check_tunnels
from xenoovs.model.values import HIGHEST_BIT, KeyPath, MatchField, Remark, repeated
from xenoovs.partition.solve import first_feasible_width, least_tolerance

# What must hold between the values of one service.


def check_service(service: ServiceForm, path: KeyPath, switch: Uplinks) -> Iterator[Remark]:
    """Check one service, and its backends with the ports of the bridge."""
    for check in (_check_vips, _check_ports, _check_key, _check_bits, _check_vip_mac, _check_backend_names):
        yield from check(service, path)
    yield from _check_backend_macs(service, path, default_egress=switch.egress)
    yield from _check_backend_ports(service, path, switch)
    yield from _check_dsr(service, path) if service.mode is ServiceMode.DSR else _check_nat(service, path, switch)
    yield from _check_weights(service, path)


def _check_vips(service: ServiceForm, path: KeyPath) -> Iterator[Remark]:
    families = service.families
    for index, _ in repeated(service.vip):
        message = f"{service.vip[index]} is listed twice; list each address once"
        yield Remark((*path, "vip", index), message)
    for index, vip in enumerate(service.vip):
        if family_of(vip) not in families:
            yield Remark(
                (*path, "vip", index),
                f"{vip} is IPv{vip.version}, but match.field is {service.match.field.value}; "
                f"write `field: {MatchField.SOURCE_ADDRESS.value}`",
            )
    nets = [vip for vip in service.vip if isinstance(vip, IPNetwork)]
    for index, vip in enumerate(service.vip):
        first, length = prefix_of(vip)
        around = next((net for net in nets if net.prefixlen < length and first in net), None)
        if around is not None:
            yield Remark((*path, "vip", index), f"{vip} is in {around}, which the service has anyhow; leave it out")


def _check_ports(service: ServiceForm, path: KeyPath) -> Iterator[Remark]:
    if service.ports and service.protocol is None:
        yield Remark((*path, "ports"), "ports need a protocol; add `protocol: tcp`, udp or sctp")
    if service.ports and service.protocol is Protocol.ICMP:
        yield Remark((*path, "ports"), "icmp has no ports; leave the key out")
    ordered = sorted((ports, index) for index, ports in enumerate(service.ports))
    for (one, _), (other, index) in pairwise(ordered):
        if one.overlaps(other):
            yield Remark((*path, "ports", index), f"{other} overlaps {one}; list each port once")


def _check_key(service: ServiceForm, path: KeyPath) -> Iterator[Remark]:
    key, protocol = service.match.field.key, service.protocol
    if key.needs_ports and (protocol is None or not protocol.has_ports):
        yield Remark(
            (*path, "match", "field"),
            f"{key.value} needs a protocol with ports{'' if protocol is None else f', and {protocol.value} has none'}; "
            f"write `protocol: udp`, tcp or sctp in the service, or `field: {MatchField.SOURCE_ADDRESS.value}` here",
        )


def _check_bits(service: ServiceForm, path: KeyPath) -> Iterator[Remark]:
    if not isinstance(service.match.bits, tuple):
        return
    key = service.match.field.key
    family = min(service.families, key=key.width)
    highest = min(key.width(family) - 1, HIGHEST_BIT)
    what = f"an {family_label(family)} address" if key is KeyField.SOURCE_ADDRESS else f"the {key.label}"
    for index, position in enumerate(service.match.bits):
        if position >= key.width(family):
            yield Remark((*path, "match", "bits", index), f"bit {position} is outside {what}; write 0 to {highest}")
        elif position > highest:
            yield Remark(
                (*path, "match", "bits", index),
                f"bit {position} is one of the first 16 of an IPv6 address, which ovs-ofctl cannot match under a mask; "
                f"write 0 to {highest}",
            )


def _check_vip_mac(service: ServiceForm, path: KeyPath) -> Iterator[Remark]:
    if service.vip_mac is not None and not service.vip:
        yield Remark((*path, "vip_mac"), f"{service.vip_mac} has no address to answer for; add `vip:` or leave it out")
    if service.rewrite_source_mac is True and service.vip_mac is None:
        yield Remark((*path, "rewrite_source_mac"), "true means vip_mac, which is missing; add it or write a MAC here")


def _check_backend_names(service: ServiceForm, path: KeyPath) -> Iterator[Remark]:
    for index, other in repeated(backend.name for backend in service.backends):
        message = f"'{service.backends[index].name}' is already backends[{other}]; name each once"
        yield Remark((*path, "backends", index, "name"), message)


def _check_backend_macs(service: ServiceForm, path: KeyPath, *, default_egress: str) -> Iterator[Remark]:
    """Find backends with the same MAC on one port: they would be one server with two weights."""
    first: dict[tuple[object, object], int] = {}
    for index, backend in enumerate(service.backends):
        port = backend.egress or default_egress
        key = backend.mac or backend.address
        if service.mode is ServiceMode.NAT and backend.address is not None:
            # Servers behind one router have its MAC; `_check_nat` compares their addresses.
            continue
        place = port, backend.remote, backend.key, service.vlan if backend.vlan is None else backend.vlan
        if key is None:
            yield Remark(
                (*path, "backends", index), "a backend needs `mac:`, or `address:` by which its MAC can be found"
            )
            continue
        other = first.setdefault((key, place), index)
        if other != index:
            name, what = service.backends[other].name, "address" if backend.mac is None else "mac"
            yield Remark(
                (*path, "backends", index, what),
                f"{key} is already backend {name} on port {port}; "
                f"write the {what if backend.mac is None else 'MAC'} of this server, or one backend with both weights",
            )


def _check_weights(service: ServiceForm, path: KeyPath) -> Iterator[Remark]:
    # Backends with a weight that share the clients: those that are no backups, then the backups.
    pools = [[b for b in service.backends if b.backup is backup and b.weight] for backup in (False, True)]
    active = max(map(len, pools))
    if active == 0:
        yield Remark((*path, "backends"), "every weight is 0; give at least one backend a weight above 0")
    if service.max_flows is not None and service.max_flows < active:
        yield Remark(
            (*path, "max_flows"),
            f"{service.max_flows} cannot serve {active} backends with a weight, of which each needs a flow; "
            f"write at least {active}",
        )
    for pool in filter(None, pools):
        yield from _check_pool(service, pool, path)


# What must hold for what `xenoovs agent` does with one service.


def check_health(
    service: ServiceForm, health: Health | None, path: KeyPath, *, defaults: Given, for_lab: bool
) -> Iterator[Remark]:
    """Check keys against each other, and find backends that cannot be probed."""
    here = (*path, "health")
    if health is None:
        if service.health and "probe" not in {**defaults, **service.health}:
            yield Remark(here, "no probe is chosen; add `probe: tcp` or another one, or leave the keys out")
        return
    yield from _check_times(health, here)
    has_port = health.port is not None or first_port(service.ports) is not None
    if health.probe.has_port and not has_port:
        yield Remark(here, f"probe {health.probe.value} needs a port and the service has none; add `port:`")
    if health.probe is ProbeKind.ARP and health.interface is None and not for_lab:
        yield Remark(here, "probe arp needs the device to ask by; add `interface:`")
    if health.probe is ProbeKind.DNS and health.query == NO_QUERY:
        yield Remark(here, "probe dns needs a name to ask for; add `query: example.org`")
    if health.probe is ProbeKind.EXEC and not health.command:
        yield Remark(here, "probe exec needs a program; add `command: [/usr/bin/check]`")
    if health.insecure and health.ca_file is not None:
        yield Remark((*here, "insecure"), "any certificate will do, so ca_file has no use; leave out one of them")
    yield from _check_addresses(service, path, health.probe, for_lab=for_lab)


def _check_times(health: Health, here: KeyPath) -> Iterator[Remark]:
    if health.timeout_ms > health.interval_ms:
        yield Remark(
            (*here, "timeout"),
            f"{health.timeout_ms} ms are longer than the interval of {health.interval_ms} ms; "
            "a probe must end before the next one starts",
        )
    if health.fast_interval_ms > health.interval_ms:
        yield Remark(
            (*here, "fast_interval"),
            f"{health.fast_interval_ms} ms are longer than the interval of {health.interval_ms} ms",
        )


def _check_addresses(service: ServiceForm, path: KeyPath, probe: ProbeKind, *, for_lab: bool) -> Iterator[Remark]:
    if probe is ProbeKind.EXEC:
        return
    needs_address = not for_lab and not (probe is ProbeKind.ARP and any(vip.version == 4 for vip in service.vip))
    for index, backend in enumerate(service.backends):
        here = (*path, "backends", index)
        if probe is ProbeKind.ARP and not isinstance(backend.mac, Mac):
            yield Remark(here, "probe arp asks whether a MAC answers; add `mac:`, or use an icmp probe")
        if backend.address is None and needs_address:
            yield Remark(here, f"probe {probe.value} needs the server's own address; add `address:`")
        elif backend.address is not None and backend.address.version == 6 and probe is ProbeKind.ARP:
            yield Remark((*here, "address"), f"{backend.address} is IPv6, which has no ARP; use an icmp probe")


def check_agent(service: ServiceForm, found: AgentCheck | None, path: KeyPath, *, for_lab: bool) -> Iterator[Remark]:
    """Find an agent without a port, and servers without the address at which it listens."""
    if found is None:
        if service.agent_check:
            yield Remark((*path, "agent_check"), "the agent has no port; add `port: 9707`")
        return
    if found.timeout_ms > found.interval_ms:
        yield Remark(
            (*path, "agent_check"),
            f"the timeout of {found.timeout_ms} ms is longer than the interval of {found.interval_ms} ms; a request "
            "must end before the next one starts",
        )
    if for_lab:
        return
    for index, backend in enumerate(service.backends):
        if backend.address is None:
            yield Remark((*path, "backends", index), "agent_check needs the server's own address; add `address:`")


# What must hold between a service and the switch.


def check_switch(switch: Uplinks) -> Iterator[Remark]:
    """Check the bridge's own ports."""
    named = [(("ingress", index), port) for index, port in enumerate(switch.ingress)] + [(("egress",), switch.egress)]
    for path, port in named:
        if port == switch.bridge:
            yield Remark(("switch", *path), _own_port(port))
    for index, _ in repeated(switch.ingress):
        message = f"port {switch.ingress[index]} is listed twice; list each port once"
        yield Remark(("switch", "ingress", index), message)
    if switch.egress in switch.ingress and switch.egress != switch.bridge:
        yield Remark(
            ("switch", "egress"),
            f"{switch.egress} is an ingress port too; clients enter by one port and backends are behind another",
        )
    if switch.depth is not None and switch.failover is None:
        yield Remark(
            ("switch", "depth"), "without `failover` there are no groups; add `failover: in_switch`, or leave it out"
        )
    if switch.other_traffic is OtherTraffic.PASSTHROUGH and len(set(switch.ingress)) > 1:
        yield Remark(
            ("switch", "other_traffic"),
            f"passthrough with {len(switch.ingress)} ingress ports does not say by which of them a reply leaves; "
            "write `other_traffic: normal`",
        )


def _own_port(bridge: str) -> str:
    return f"{bridge} is the bridge's own port, through which only this host is reached; name another port of it"


def _check_backend_ports(service: ServiceForm, path: KeyPath, switch: Uplinks) -> Iterator[Remark]:
    """Find backends at ingress ports: OpenFlow drops a packet to the port it came from (OpenFlow 1.4.1, 7.2.1,
    OFPP_IN_PORT)."""
    for index, backend in enumerate(service.backends):
        here = (*path, "backends", index, "egress")
        if backend.egress == switch.bridge:
            yield Remark(here, _own_port(switch.bridge))
        elif backend.egress in switch.ingress:
            yield Remark(
                here,
                f"{backend.egress} is an ingress port; a bridge does not send packets back where they entered, so put "
                "the backend behind another port",
            )


# Whether the bits of a service can meet its weights at all; the solver itself is left to the compiler.


def _check_pool(service: ServiceForm, pool: Sequence[BackendForm], path: KeyPath) -> Iterator[Remark]:
    weights, width = [backend.weight for backend in pool], service.key.max_width
    classes, label = counted(1 << width, "class", "classes"), service.match.field.key.label
    if len(weights) > 1 << width:
        yield Remark(
            (*path, "match", "bits"),
            f"{counted(width, 'bit')} of the {label} {worded(width, 'makes', 'make')} {classes} of clients for "
            f"{len(weights)} backends with a weight; use at least {counted((len(weights) - 1).bit_length(), 'bit')}",
        )
    elif service.max_flows is None and first_feasible_width(weights, service.tolerance, width) is None:
        yield Remark((*path, "tolerance"), _out_of_reach(service, pool, width))


def _out_of_reach(service: ServiceForm, pool: Sequence[BackendForm], width: int) -> str:
    least = least_tolerance([backend.weight for backend in pool], width)
    smallest = min(pool, key=lambda backend: backend.weight)
    tolerance, label = decimal(service.tolerance * 100), service.match.field.key.label
    problem = f"{tolerance}% cannot be met with {counted(width, 'bit')} of the {label}"
    remedies = [f"raise the smallest weight (backend {smallest.name}) or set it to 0"]
    if width < MAX_KEY_BITS:
        remedies.append("use more bits")
    if least is None or least > 1:
        return f"{problem}, nor can any tolerance up to 100%; {', or '.join(remedies)}"
    return f"{problem}; write {percent_rounded_up(least)}, the lowest possible, or {', or '.join(remedies)}"


def check_parts(
    config: FileForm, balancer: Balancer, *, for_lab: bool = False, groups: Sequence[frozenset[str]] = ()
) -> Iterator[Remark]:
    """Find every mistake that two or more right values make together. `for_lab`, `groups`: as in check_config."""
    switch, tunnels, services = config.switch, config.switch_tunnels, tuple(enumerate(config.services))
    yield from check_switch(switch)
    for (i, service), made in zip(services, balancer.services, strict=True):
        here: KeyPath = ("services", i)
        yield from check_tunnelled_backends(service, here, switch=switch, tunnels=tunnels)
        yield from check_service(service, here, switch)
        yield from check_health(service, made.health, here, defaults=config.health, for_lab=for_lab)
        if service.notify and made.notify is None:
            yield Remark((*here, "notify"), "no program is named; add `command: [/usr/local/bin/page-me]`")
        yield from check_agent(service, made.agent_check, here, for_lab=for_lab)
    yield from check_between(enumerate(balancer.services), groups)
    yield from check_remotes(services, tunnels)
    yield from check_own_addresses(balancer.services, config.tunnels)
    yield from check_tunnels(switch, config.tunnels)


# Services with destination NAT, and without it.


def _check_nat(service: ServiceForm, path: KeyPath, switch: Uplinks) -> Iterator[Remark]:
    if len(switch.ingress) != 1:
        yield Remark(
            (*path, "mode"),
            f"nat with {len(switch.ingress)} ingress ports does not say by which of them an answer leaves; write one "
            "port in `ingress:` of the switch, or `mode: dsr`",
        )
    yield from _check_vip(service, path)
    for index, backend in enumerate(service.backends):
        yield from _check_backend(service, backend, (*path, "backends", index))
    ends = ((each.address, each.port, each.vlan) if each.address else None for each in service.backends)
    for index, other in repeated(ends):
        backend = service.backends[index]
        endpoint = f"{backend.address}" if backend.port is None else f"{backend.address}:{backend.port}"
        yield Remark(
            (*path, "backends", index, "address"),
            f"{endpoint} is already backend {service.backends[other].name}; write the address of this server, or one "
            "backend with both weights",
        )


def _check_dsr(service: ServiceForm, path: KeyPath) -> Iterator[Remark]:
    if service.nat not in (None, Nat()):
        yield Remark((*path, "nat"), "the service does no NAT; add `mode: nat`, or leave the key out")
    for index, backend in enumerate(service.backends):
        if backend.port is not None:
            yield Remark(
                (*path, "backends", index, "port"),
                "packets keep their destination port without NAT; add `mode: nat` to the service, or leave the key out",
            )


def _check_vip(service: ServiceForm, path: KeyPath) -> Iterator[Remark]:
    if len(service.vip) != 1:
        listed, here = (counted(len(service.vip), "VIP"), (*path, "vip")) if service.vip else ("none", path)
        yield Remark(
            here,
            f"mode nat writes the VIP into what backends send, so it needs exactly one, not {listed}; write one `vip:` "
            "here, and a service for each other one",
        )
    for index, vip in enumerate(service.vip):
        if vip.version != 4:
            yield Remark((*path, "vip", index), f"{vip} is IPv6, which mode nat cannot write; use `mode: dsr`")
        elif isinstance(vip, IPNetwork):
            yield Remark(
                (*path, "vip", index),
                f"{vip} is {vip.num_addresses} addresses, and nothing in what a backend sends says which of them the "
                "client used; write one address, or use `mode: dsr`",
            )


def _check_backend(service: ServiceForm, backend: BackendForm, here: KeyPath) -> Iterator[Remark]:
    if backend.address is None:
        yield Remark(here, "mode nat sends packets to the server's own address; add `address:`")
    elif backend.address.version != 4:
        yield Remark((*here, "address"), f"{backend.address} is IPv6, and mode nat is for IPv4; write the IPv4 address")
    if backend.mac == "unchanged":
        yield Remark((*here, "mac"), "mode nat needs the MAC of the server or of its router; write it or leave it out")
    if backend.vlan is not None and service.vlan is None:
        yield Remark(
            (*here, "vlan"),
            "what the server sends gets the tag of the clients' frames, which the service does not name; add `vlan:` "
            "or `vlan: untagged` to the service",
        )
    if backend.port is not None and [*map(len, service.ports)] != [1]:
        yield Remark(
            (*here, "port"),
            "the way back cannot tell by one port of the server which port of the VIP it is for; write exactly one "
            "port in `ports:` of the service, or leave this key out",
        )

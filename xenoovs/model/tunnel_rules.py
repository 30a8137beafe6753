"""Tunnels of hosts and of Open vSwitch in a config: what must hold between their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from xenoovs.errors import counted
from xenoovs.model.address import Mac
from xenoovs.model.balancer import Protocol, Returns, Service, ServiceMode, Uplinks
from xenoovs.model.claims import check_names
from xenoovs.model.next_hop import remote_of_port
from xenoovs.model.schema import BackendForm, ServiceForm
from xenoovs.model.tunnel import (
    REFLECTED_PORT,
    Discover,
    HostTunnel,
    Ipsec,
    PathSelector,
    Reflect,
    SwitchTunnel,
    TunnelPorts,
    TunnelType,
)
from xenoovs.model.values import OTHER, KeyPath, Remark, repeated
from xenoovs.openflow.flow import MAX_PORT_NAME


def check_tunnels(switch: Uplinks, tunnels: Sequence[HostTunnel | SwitchTunnel]) -> Iterator[Remark]:
    """Find mistakes that two or more right values of tunnels make together."""
    yield from check_names("tunnels", enumerate(tunnels))
    of_switch = {index: tunnel for index, tunnel in enumerate(tunnels) if isinstance(tunnel, SwitchTunnel)}
    of_hosts = {index: tunnel for index, tunnel in enumerate(tunnels) if isinstance(tunnel, HostTunnel)}
    yield from _check_switch_tunnels(switch, of_switch)
    for index, tunnel in of_hosts.items():
        here = ("tunnels", index)
        yield from _check_ports(switch, tunnel, here)
        yield from _check_paths(switch, tunnel, here)
        yield from _check_remotes(tunnel, here)
        yield from _check_probe(tunnel, here)
    yield from _check_between(of_hosts)


def check_own_addresses(services: Iterable[Service], tunnels: Iterable[HostTunnel | SwitchTunnel]) -> Iterator[Remark]:
    """Find services that would get the packets which come to this host's end of a tunnel."""
    for (i, service), tunnel in product(enumerate(services), tuple(tunnels)):
        claim, port = service.claim, tunnel.dst_port
        has_port = not claim.ports or any(port in ports for ports in claim.ports)
        is_protocol = claim.protocol is None or (bool(port) and claim.protocol is Protocol.UDP)
        local = tunnel.local
        if claim.vips and is_protocol and has_port and local and claim.prefix_length(local) is not None:
            yield Remark(
                ("services", i, "vip"),
                f"{local} is this host's end of {tunnel.name}: what comes by the tunnel would go to the service; leave "
                "the address out, or write `protocol` and `ports` without it",
            )


def _check_ports(switch: Uplinks, tunnel: HostTunnel, here: KeyPath) -> Iterator[Remark]:
    if tunnel.host_port in switch.ingress:
        yield Remark(
            (*here, "host_port"),
            f"{tunnel.host_port} is an ingress port, by which packets of the fabric enter; name the port that the host "
            "is behind",
        )
    for key, port in (("host_port", tunnel.host_port), ("probe", tunnel.probe.port if tunnel.probe else None)):
        if port == switch.bridge:
            path = (*here, key) if key == "host_port" else (*here, key, "port")
            yield Remark(path, f"{port} is the bridge's own port; name another port of it")
    if tunnel.probe is not None and tunnel.probe.port in (*switch.ingress, switch.egress, tunnel.host_port):
        yield Remark(
            (*here, "probe", "port"),
            f"{tunnel.probe.port} carries other packets too; add an internal port: "
            f"`ovs-vsctl add-port {switch.bridge} xoar0 -- set interface xoar0 type=internal; ip link set xoar0 up`",
        )


def _check_paths(switch: Uplinks, tunnel: HostTunnel, here: KeyPath) -> Iterator[Remark]:
    paths, path = tunnel.paths, (*here, "paths")
    by = paths.by.value
    for key, selector, is_given in (
        ("ports", PathSelector.SOURCE_PORT, bool(paths.ports)),
        ("discover", PathSelector.SOURCE_PORT, paths.discover is not None),
        ("uplinks", PathSelector.UPLINK, bool(paths.uplinks)),
    ):
        if is_given and paths.by is not selector:
            yield Remark((*path, key), f"paths by {by} have no {key}; write `by: {selector.value}`, or leave it out")
    match paths.by:
        case PathSelector.SOURCE_PORT:
            yield from _check_source_ports(tunnel, path)
        case PathSelector.UPLINK:
            yield from _check_uplinks(switch, tunnel, path)
        case PathSelector.ADDRESS:
            for index, remote in enumerate(tunnel.remotes):
                if not remote.aliases:
                    message = f"{remote.name} has one address, and so one path; add `aliases:` with its other ones"
                    yield Remark((*here, "remotes", index), message)


def _check_source_ports(tunnel: HostTunnel, path: KeyPath) -> Iterator[Remark]:
    paths = tunnel.paths
    if paths.discover is Discover.LIST and not paths.ports:
        yield Remark((*path, "discover"), "no port is listed; add `ports: [50001, 50002]`")
    if paths.ports and paths.discover is not Discover.LIST:
        yield Remark((*path, "ports"), "the ports are listed, so nothing is to be found; write `discover: list`")
    if len(set(paths.ports)) < len(paths.ports):
        yield Remark((*path, "ports"), "a port is listed twice; list each one once")
    count = paths.count
    if count > tunnel.blocks:
        least = 1 << (count - 1).bit_length()
        yield Remark(
            (*path, "ports" if paths.ports else "count"),
            f"{counted(tunnel.blocks, 'block')} cannot be on {count} paths; write `blocks: {least}` or fewer paths",
        )


def _check_uplinks(switch: Uplinks, tunnel: HostTunnel, path: KeyPath) -> Iterator[Remark]:
    uplinks = tunnel.paths.uplinks
    if not uplinks:
        yield Remark(path, "no uplink is named; add `uplinks: [p0, p1]`")
    for index, port in enumerate(uplinks):
        if port in uplinks[:index]:
            yield Remark((*path, "uplinks", index), f"{port} is listed twice; list each port once")
        elif port not in switch.ingress:
            yield Remark(
                (*path, "uplinks", index),
                f"{port} is no ingress port, so that nothing that comes back by it is known; add it to `ingress`",
            )


def _check_remotes(tunnel: HostTunnel, here: KeyPath) -> Iterator[Remark]:
    for index, _ in repeated(remote.name for remote in tunnel.remotes):
        name = tunnel.remotes[index].name
        yield Remark((*here, "remotes", index, "name"), f"'{name}' is used twice; name each remote once")
    addresses = {tunnel.local}
    for index, remote in enumerate(tunnel.remotes):
        path = (*here, "remotes", index)
        for key, address in (("address", remote.address), *(("aliases", alias) for alias in remote.aliases)):
            if address in addresses or address in tunnel.aliases:
                yield Remark((*path, key), f"{address} is already an end of this tunnel; write each address once")
            addresses.add(address)
        if remote.aliases and tunnel.paths.by is not PathSelector.ADDRESS:
            by = tunnel.paths.by.value
            yield Remark((*path, "aliases"), f"paths by {by} use one address; write `by: address`, or leave it out")


def _check_probe(tunnel: HostTunnel, here: KeyPath) -> Iterator[Remark]:
    probe = tunnel.probe
    if probe is None:
        return
    if tunnel.reflect is not Reflect.OFF and not probe.tos:
        yield Remark(
            (*here, "probe", "tos"),
            "the reflector would send packets of the tunnel back to their senders, as most have TOS 0; write one that "
            "no host writes, such as 0x08 or 0x20",
        )
    if tunnel.dst_port == REFLECTED_PORT:
        yield Remark((*here, "dst_port"), f"{REFLECTED_PORT} is the port of answers to probes; use another port")


def _check_between(tunnels: Mapping[int, HostTunnel]) -> Iterator[Remark]:
    packets, answers, senders = dict[object, int](), dict[object, int](), dict[object, int]()
    for index, tunnel in tunnels.items():
        here = ("tunnels", index)
        for number, remote in enumerate(tunnel.remotes):
            other = packets.setdefault((tunnel.host_port, remote.address, tunnel.dst_port), index)
            if other != index:
                message = f"packets for {remote.address} are those of {OTHER} already; list the remote once"
                yield Remark((*here, "remotes", number), message, other=("tunnels", other))
        other = answers.setdefault(tunnel.local, index)
        if other != index and _answering(tunnels[other]) != _answering(tunnel):
            message = f"{tunnel.local} answers probes as {OTHER} says; write the same `probe` and `reflect` in both"
            yield Remark((*here, "local"), message, other=("tunnels", other))
        if tunnel.probe is not None:
            other = senders.setdefault((tunnel.probe.port, tunnel.dst_port), index)
            if other != index and _leaving(tunnels[other]) != _leaving(tunnel):
                message = f"probes from {tunnel.probe.port} leave as those of {OTHER}; use another internal port"
                yield Remark((*here, "probe", "port"), message, other=("tunnels", other))


def _answering(tunnel: HostTunnel) -> object:
    probe = tunnel.probe
    return None if probe is None else (probe.port, probe.tos, tunnel.reflect)


def _leaving(tunnel: HostTunnel) -> object:
    is_by_uplink = tunnel.paths.by is PathSelector.UPLINK
    return tuple(tunnel.paths.uplinks) if is_by_uplink else None


# Tunnels of the switch.


Tunnels = Mapping[str, SwitchTunnel]

_SUFFIX = "-c0a84d0b"
"""What a port for one remote has behind the name of its tunnel."""
_LONGEST_NAME = MAX_PORT_NAME - len(_SUFFIX)


def _check_switch_tunnels(switch: Uplinks, tunnels: Mapping[int, SwitchTunnel]) -> Iterator[Remark]:
    shared, listening = dict[object, int](), dict[int, tuple[int, TunnelType]]()
    for index, tunnel in tunnels.items():
        here = ("tunnels", index)
        yield from _check_name(switch, tunnel, here)
        yield from _check_key(tunnel.type, tunnel.key, here)
        if tunnel.type is TunnelType.GRE and tunnel.dst_port:
            yield Remark((*here, "dst_port"), "gre is no UDP and has no port; leave the key out")
        if tunnel.ipsec is not None:
            yield from _check_ipsec(tunnel, tunnel.ipsec, here)
        if tunnel.bfd is not None and tunnel.ports is TunnelPorts.SHARED:
            message = "BFD watches one remote by the port that leads to it alone; write `ports: each`"
            yield Remark((*here, "ports"), message)
        if tunnel.ports is TunnelPorts.SHARED:
            other = shared.setdefault((tunnel.type, tunnel.local, tunnel.dst_port), index)
            if other != index:
                yield Remark(
                    here,
                    f"{OTHER} is a shared {tunnel.type.value} port of {tunnel.local} already, and Open vSwitch has "
                    "one; let backends name that tunnel with a `key` of their own, or write `ports: each`",
                    other=("tunnels", other),
                )
        first, kind = listening.setdefault(tunnel.dst_port, (index, tunnel.type))
        if tunnel.dst_port and kind is not tunnel.type:
            # Its device is bound to this port at all addresses (geneve_socket_create() and vxlan_sock_add() of Linux).
            yield Remark(
                here if tunnel.dst_port == tunnel.type.dst_port else (*here, "dst_port"),
                f"{OTHER} receives {kind.value} at UDP port {tunnel.dst_port}, and a port has one type; write another "
                "`dst_port` at both ends",
                other=("tunnels", first),
            )


def check_remotes(services: Iterable[tuple[int, ServiceForm]], tunnels: Tunnels) -> Iterator[Remark]:
    """Find remotes to which two tunnels lead that Open vSwitch cannot tell apart by what arrives. It refuses a second
    port with the same addresses, and gives what a remote sends to the port that names the remote (tnl_port_add() and
    tnl_find() of ofproto/tunnel.c)."""
    owners = dict[object, tuple[str, KeyPath]]()
    for number, service in services:
        for index, backend in enumerate(service.backends):
            tunnel = tunnels.get(backend.egress or "")
            if tunnel is None or backend.remote is None:
                continue
            path: KeyPath = ("services", number, "backends", index)
            identity = (tunnel.type, tunnel.local, tunnel.dst_port, backend.remote)
            owner, other = owners.setdefault(identity, (tunnel.name, path))
            if owner != tunnel.name:
                yield Remark(
                    (*path, "remote"),
                    f"{OTHER} is at {backend.remote} of {owner}, which is {tunnel.type.value} from {tunnel.local} too: "
                    f"Open vSwitch has one port for what comes from there; use {owner} here, with a `key` of its own",
                    other=other,
                )


def _check_name(switch: Uplinks, tunnel: SwitchTunnel, here: KeyPath) -> Iterator[Remark]:
    name, path = tunnel.name, (*here, "name")
    if name == switch.bridge or name in switch.ingress:
        yield Remark(path, f"{name} is another port of the bridge; a tunnel has a port of its own")
    if name == switch.egress:
        yield Remark(
            ("switch", "egress"),
            f"{name} is a tunnel, which says nothing about the remote of other traffic; name the port of the wire",
        )
    if remote_of_port(name) is not None:
        yield Remark(path, f"the end of {name} means the address of a remote; write a name without it")
    elif tunnel.ports is TunnelPorts.EACH and len(name.encode()) > _LONGEST_NAME:
        yield Remark(
            path,
            f"{name} is too long for ports such as {name}{_SUFFIX}, as names have at most {MAX_PORT_NAME} bytes; write "
            f"at most {_LONGEST_NAME}",
        )


def _check_key(kind: TunnelType, key: int | None, here: KeyPath) -> Iterator[Remark]:
    if key is not None and key >> kind.key_bits:
        yield Remark((*here, "key"), f"{key} does not fit the {kind.key_bits} bits of a VNI; write at most 16777215")


def _check_ipsec(tunnel: SwitchTunnel, ipsec: Ipsec, here: KeyPath) -> Iterator[Remark]:
    if tunnel.ports is TunnelPorts.SHARED:
        yield Remark((*here, "ports"), "IPsec needs a port for each remote, which has its address; write `ports: each`")
    usual = tunnel.type.dst_port
    if usual and tunnel.dst_port != usual:
        # They are text in transp_tmpl of ipsec/ovs-monitor-ipsec.in (Open vSwitch 3.1), whatever the interface says.
        yield Remark(
            (*here, "dst_port"),
            f"ovs-monitor-ipsec encrypts {tunnel.type.value} to port {usual} alone, so packets to {tunnel.dst_port} "
            "would leave unencrypted; leave the key out",
        )
    named = [key for key in ("psk_file", "remote_cert", "remote_name") if getattr(ipsec, key) is not None]
    if len(named) != 1:
        what = f"{' and '.join(named)} are too many" if named else "nothing says how remotes are known"
        yield Remark((*here, "ipsec"), f"{what}; write one of psk_file, remote_cert, remote_name")


def check_tunnelled_backends(
    service: ServiceForm, path: KeyPath, *, switch: Uplinks, tunnels: Tunnels
) -> Iterator[Remark]:
    """Find backends that do not fit their tunnel, and returns by the switch that cannot be. `tunnels`: by name."""
    named = f"such as {min(tunnels)}" if tunnels else "with an entry of `tunnels` that has no `host_port`"
    for index, backend in enumerate(service.backends):
        here, tunnel = (*path, "backends", index), tunnels.get(backend.egress or "")
        if tunnel is None:
            for key in ("remote", "key"):
                if getattr(backend, key) is not None:
                    yield Remark((*here, key), f"{backend.name} is behind no tunnel; name one as `egress`, {named}")
        elif service.mode is ServiceMode.NAT:
            yield Remark(
                (*here, "egress"), f"{tunnel.name} is a tunnel, through which there is no NAT; use `mode: dsr`"
            )
        elif service.vlan or backend.vlan is not None:
            yield Remark(
                here,
                f"{tunnel.name} is a tunnel, in which frames would keep their tag; write `vlan: untagged` in the "
                "service and none here",
            )
        else:
            yield from _check_backend(backend, tunnel, here)
    if service.returns is Returns.SWITCH:
        yield from _check_returns(service, switch, tunnels, (*path, "return"))


def _check_backend(backend: BackendForm, tunnel: SwitchTunnel, here: KeyPath) -> Iterator[Remark]:
    if backend.remote is None:
        yield Remark(here, f"{tunnel.name} is a tunnel; add `remote:`, the address of this backend's end")
    elif backend.remote == tunnel.local:
        yield Remark((*here, "remote"), f"{backend.remote} is our own end of {tunnel.name}; write that of the backend")
    if backend.key is None and tunnel.key is None:
        yield Remark(here, f"neither {backend.name} nor {tunnel.name} has a key; add `key: 5001` to one of them")
    yield from _check_key(tunnel.type, backend.key, here)
    if not isinstance(backend.mac, Mac):
        why = "only its own MAC is taken in at the end of a tunnel" if backend.mac else "no ARP goes through a tunnel"
        yield Remark((*here, "mac") if backend.mac else here, f"{why}; write the MAC of its device there")


def _check_returns(service: ServiceForm, switch: Uplinks, tunnels: Tunnels, here: KeyPath) -> Iterator[Remark]:
    if not service.vip:
        yield Remark(here, "without a VIP nothing says which packets of a tunnel are answers; add `vip:`")
    if len(set(switch.ingress)) > 1:
        yield Remark(
            here,
            f"{len(switch.ingress)} ingress ports do not say by which of them answers leave; write `return: direct`",
        )
    if all(backend.egress not in tunnels for backend in service.backends):
        yield Remark(here, "no backend is behind a tunnel of Open vSwitch; leave the key out")

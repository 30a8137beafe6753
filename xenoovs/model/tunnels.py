"""Tunnels of hosts in a config: what must hold between their values, and the model that they make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xenoovs.errors import counted
from xenoovs.model.balancer import Uplinks
from xenoovs.model.switch_tunnel import SwitchTunnel
from xenoovs.model.switch_tunnels import check_switch_tunnels
from xenoovs.model.tunnel import REFLECTED_PORT, Discover, HostTunnel, PathSelector, Reflect
from xenoovs.model.values import OTHER, KeyPath, Remark

NumberedTunnel = tuple[int, HostTunnel]
AnyTunnel = tuple[int, HostTunnel | SwitchTunnel]


def check_tunnels(switch: Uplinks, tunnels: Iterable[AnyTunnel]) -> Iterator[Remark]:
    """Find mistakes that two or more right values of tunnels make together."""
    every = tuple(tunnels)
    yield from _check_names(every)
    yield from check_switch_tunnels(switch, ((i, one) for i, one in every if isinstance(one, SwitchTunnel)))
    numbered = tuple((index, tunnel) for index, tunnel in every if isinstance(tunnel, HostTunnel))
    for index, tunnel in numbered:
        here = ("tunnels", index)
        yield from _check_ports(switch, tunnel, here)
        yield from _check_paths(switch, tunnel, here)
        yield from _check_remotes(tunnel, here)
        yield from _check_probe(tunnel, here)
    yield from _check_between(numbered)


def _check_names(tunnels: tuple[AnyTunnel, ...]) -> Iterator[Remark]:
    names = dict[str, int]()
    for index, tunnel in tunnels:
        other = names.setdefault(tunnel.name, index)
        if other != index:
            path, message = ("tunnels", index, "name"), f"'{tunnel.name}' is already {OTHER}; name each once"
            yield Remark(path, message, other=_at(other))


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
        yield Remark(
            (*path, "ports" if paths.ports else "count"),
            f"{counted(tunnel.blocks, 'block')} cannot be on {count} paths; write `blocks: {_power(count)}` or fewer "
            "paths",
        )


def _power(number: int) -> int:
    """Return the least power of two that is not below a number."""
    return 1 << (number - 1).bit_length()


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
    names, addresses = set[str](), {tunnel.local}
    for index, remote in enumerate(tunnel.remotes):
        path = (*here, "remotes", index)
        if remote.name in names:
            yield Remark((*path, "name"), f"'{remote.name}' is used twice; name each remote once")
        names.add(remote.name)
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


def _check_between(tunnels: tuple[NumberedTunnel, ...]) -> Iterator[Remark]:
    packets, answers, senders = dict[object, int](), dict[object, int](), dict[object, int]()
    by_index = dict(tunnels)
    for index, tunnel in tunnels:
        here = ("tunnels", index)
        for number, remote in enumerate(tunnel.remotes):
            other = packets.setdefault((tunnel.host_port, remote.address, tunnel.dst_port), index)
            if other != index:
                message = f"packets for {remote.address} are those of {OTHER} already; list the remote once"
                yield Remark((*here, "remotes", number), message, other=_at(other))
        other = answers.setdefault(tunnel.local, index)
        if other != index and _answering(by_index[other]) != _answering(tunnel):
            message = f"{tunnel.local} answers probes as {OTHER} says; write the same `probe` and `reflect` in both"
            yield Remark((*here, "local"), message, other=_at(other))
        if tunnel.probe is not None:
            other = senders.setdefault((tunnel.probe.port, tunnel.dst_port), index)
            if other != index and _leaving(by_index[other]) != _leaving(tunnel):
                message = f"probes from {tunnel.probe.port} leave as those of {OTHER}; use another internal port"
                yield Remark((*here, "probe", "port"), message, other=_at(other))


def _at(index: int) -> KeyPath:
    return ("tunnels", index)


def _answering(tunnel: HostTunnel) -> object:
    probe = tunnel.probe
    return None if probe is None else (probe.port, probe.tos, tunnel.reflect)


def _leaving(tunnel: HostTunnel) -> object:
    is_by_uplink = tunnel.paths.by is PathSelector.UPLINK
    return tuple(tunnel.paths.uplinks) if is_by_uplink else None

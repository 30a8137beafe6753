"""Remotes as services: the clients are the host's packets to a remote, the backends are the paths that lead there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from xenoovs.model.address import Family, PortRange
from xenoovs.model.balancer import Backend, Balancer, BlockKey, Claim, KeyField, Protocol, RemoteName, Service
from xenoovs.model.next_hop import NextHop, SourcePort, ToAddress, Unchanged
from xenoovs.model.tunnel import DYNAMIC_PORTS, LINUX_SOURCE_PORTS, Discover, HostTunnel, PathSelector, Remote

_EVEN = Fraction(1, 1 << 16)
"""A tolerance that only equal shares meet."""


def service_name(tunnel: HostTunnel, remote: Remote) -> str:
    """Return the name of the service of a remote: `rack7/b`."""
    return f"{tunnel.name}/{remote.name}"


def remotes_of(balancer: Balancer) -> Iterator[tuple[HostTunnel, Remote, Service]]:
    """Yield every remote with its tunnel and its service, in the order of the config."""
    found = dict(balancer.source_ports)
    for tunnel in balancer.tunnels:
        for remote in tunnel.remotes:
            ports = found.get((tunnel.name, remote.name), ())
            yield tunnel, remote, _service(balancer.uplinks.ingress[0], tunnel, remote, ports)


def every_service(balancer: Balancer) -> tuple[Service, ...]:
    """Return the services of clients, then those of remotes."""
    return (*balancer.services, *(service for _, _, service in remotes_of(balancer)))


def with_source_ports(balancer: Balancer, found: Mapping[RemoteName, tuple[int, ...]]) -> Balancer:
    """Return the balancer with the source ports of paths that were found, in the order of the paths. Those of remotes
    that `found` lacks stay as they are."""
    known = dict(balancer.source_ports) | dict(found)
    return replace(balancer, source_ports=tuple(sorted(known.items()))) if found else balancer


def unknown_paths(balancer: Balancer) -> tuple[RemoteName, ...]:
    """Return the remotes of which the source port of some path is not known yet."""
    return tuple(
        (tunnel.name, remote.name)
        for tunnel, remote, service in remotes_of(balancer)
        if not all(path.next_hop.is_known for path in service.backends)
    )


def any_source_ports(tunnel: HostTunnel, remote: Remote) -> tuple[int, ...]:
    """Return source ports for paths without discovery: the same at each call, others for each pair of hosts."""
    from hashlib import blake2s

    chosen = dict[int, None]()
    number = 0
    while len(chosen) < tunnel.paths.count:
        digest = blake2s(f"{tunnel.local} {remote.address} {number}".encode(), digest_size=8).digest()
        chosen[DYNAMIC_PORTS.first + int.from_bytes(digest, "big") % len(DYNAMIC_PORTS)] = None
        number += 1
    return tuple(chosen)


def probe_source_ports(tunnel: HostTunnel) -> tuple[int, ...]:
    """Return the source port of the probes of each path by uplink, by which the bridge knows the uplink."""
    return tuple(DYNAMIC_PORTS.first + number for number, _ in enumerate(tunnel.paths.uplinks))


def even_tolerance(paths: int, blocks: int) -> Fraction:
    """Return the least tolerance with which `blocks` blocks give `paths` paths equal shares."""
    least = blocks // paths
    most = least + bool(blocks % paths)
    return max(Fraction(most * paths, blocks) - 1, 1 - Fraction(least * paths, blocks), _EVEN)


def _service(uplink: str, tunnel: HostTunnel, remote: Remote, found: tuple[int, ...]) -> Service:
    backends = tuple(
        Backend(name, hop, Fraction(int(hop.is_known))) for name, hop in _paths(uplink, tunnel, remote, found)
    )
    known = sum(1 for backend in backends if backend.weight)
    ports, families = (PortRange(tunnel.dst_port, tunnel.dst_port),), frozenset({Family.IPV4})
    return Service(
        name=service_name(tunnel, remote),
        claim=Claim(families, (remote.address,), Protocol.UDP, ports, in_port=tunnel.host_port),
        backends=backends,
        key=BlockKey(KeyField.SOURCE_PORT, width=tunnel.blocks.bit_length() - 1),
        tolerance=even_tolerance(max(known, 1), tunnel.blocks),
        announced=False,
        is_remote=True,
        rewritten_ports=(tunnel.source_ports or LINUX_SOURCE_PORTS)
        if tunnel.paths.by is PathSelector.SOURCE_PORT
        else None,
    )


def _paths(uplink: str, tunnel: HostTunnel, remote: Remote, found: tuple[int, ...]) -> Iterator[tuple[str, NextHop]]:
    paths = tunnel.paths
    match paths.by:
        case PathSelector.SOURCE_PORT:
            # What was found before the config listed ports counts no more.
            ports = found if paths.discover is Discover.TTL else paths.ports
            if paths.discover is Discover.NONE:
                ports = any_source_ports(tunnel, remote)
            ports = (*ports, *(0,) * paths.count)[: paths.count]
            yield from ((f"p{n}", SourcePort(port, uplink)) for n, port in enumerate(ports, start=1))
        case PathSelector.UPLINK:
            yield from ((port, Unchanged(port)) for port in paths.uplinks)
        case PathSelector.ADDRESS:
            addresses = (remote.address, *remote.aliases)
            yield from ((f"p{n}", ToAddress(address, uplink)) for n, address in enumerate(addresses, start=1))

"""Reads the facts of the host about tunnels of Open vSwitch: routes, addresses, neighbours, IPsec."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.datapath.ike_log import READ_LOG, IkeFailure, parse_ike_log
from xenoovs.datapath.ipsec import (
    POLICIES,
    STATES,
    IpsecState,
    RouteTo,
    address_text,
    parse_associations,
    parse_policies,
)
from xenoovs.datapath.megaflow import parse_value
from xenoovs.datapath.outer import Encapsulation
from xenoovs.datapath.tunnel_facts import Neighbour, TunnelEnd, TunnelFacts
from xenoovs.errors import CommandMissing, CommandTimeout, SwitchError, SystemFailure
from xenoovs.regex import ASCII, MULTILINE, regex
from xenoovs.switch.appctl import Appctl
from xenoovs.switch.devices import NEIGHBOURS, parse_neighbours
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.netns import Netns, Row, json_of
from xenoovs.switch.process import try_run
from xenoovs.switch.tape import asked, is_replaying

MAX_REMOTES = 256
"""Most tunnel ends that are checked; each takes some milliseconds."""

_CACHED = regex(r"^([0-9a-f.:]+)\s+((?:[0-9a-f]{2}:){5}[0-9a-f]{2})\s+\S+", MULTILINE | ASCII)
_LOG_TIMEOUT_S = 10.0
_MONITOR = "ovs-monitor-ipsec"
_DAEMONS = ("charon", "charon-systemd", "pluto")


_RESOLVING_S = 4.0
"""The kernel asks for 3 s: mcast_solicit times retrans_time_ms (arp(7))."""
_LOOK_AGAIN_S = 0.5


def read_next_hops(place: Netns, remotes: Iterable[str]) -> TunnelFacts:
    """Return the routes to remotes, and the neighbours. Never raises.

    An INCOMPLETE entry is resolved soon, or it fails. With steady traffic the kernel retries at once, so that a failing
    entry mostly looks the same. So it is read again until it is resolved, and FAILED if it never is.
    """
    routes = {remote: read_route(place, remote) for remote in dict.fromkeys(remotes)}
    hops = frozenset(facts.gateway or remote for remote, facts in routes.items() if not isinstance(facts, Unknown))
    neighbours, asked_s = _neighbours(place), 0.0
    while waiting := [hop for hop in hops if (found := neighbours.get(hop)) and found.state == "INCOMPLETE"]:
        if asked_s >= _RESOLVING_S:
            neighbours |= {hop: replace(neighbours[hop], state="FAILED") for hop in waiting}
            break
        if not is_replaying():
            time.sleep(_LOOK_AGAIN_S)
        asked_s += _LOOK_AGAIN_S
        neighbours = _neighbours(place)
    return TunnelFacts((), routes, neighbours=neighbours)


def _neighbours(place: Netns) -> dict[str, Neighbour]:
    found = place.read(NEIGHBOURS, parse_neighbours)
    return {} if isinstance(found, Unknown) else {each.address: each for each in found}


def read_tunnel_facts(endpoint: Endpoint, place: Netns, ends: Iterable[TunnelEnd]) -> TunnelFacts:
    """Return the facts about the first 256 ends. Never raises."""
    listed = tuple(ends)[:MAX_REMOTES]
    addresses = place.read(("ip", "-j", "address", "show"), parse_addresses_by_device)
    return replace(
        read_next_hops(place, (end.remote for end in listed)),
        ends=listed,
        addresses={} if isinstance(addresses, Unknown) else addresses,
        cached=_cached(endpoint) if any(end.is_userspace for end in listed) else {},
        ipsec=read_ipsec(place, (end.outer for end in listed)),
        programs=running_programs(),
        ike_failures=_ike_failures() if any(end.is_encrypted for end in listed) else {},
    )


def _ike_failures() -> dict[str, IkeFailure]:
    """Return why the IKE daemon made no SAs; empty if its log is not in the journal of this host."""
    try:
        return parse_ike_log(try_run(READ_LOG, timeout_s=_LOG_TIMEOUT_S).stdout)
    except (CommandMissing, CommandTimeout, SystemFailure):
        return {}


def _cached(endpoint: Endpoint) -> dict[str, str]:
    """Return the neighbours that ovs-vswitchd caches for tunnels (lib/tnl-neigh-cache.c)."""
    try:
        return parse_cache(Appctl(endpoint).run("tnl/neigh/show"))
    except SwitchError:
        return {}


def parse_cache(text: str) -> dict[str, str]:
    """Parse the answer of `ovs-appctl tnl/neigh/show`: address -> MAC."""
    return {found[1]: found[2] for found in _CACHED.finditer(text)}


@json_of("ip -j address show")
def parse_addresses_by_device(links: list[Row]) -> dict[str, tuple[str, ...]]:
    return {
        row["ifname"]: tuple(info["local"] for info in row.get("addr_info", ()) if "local" in info)
        for row in links
        if "ifname" in row
    }


def running_programs(root: Path = Path("/proc")) -> frozenset[str]:
    """Return the IPsec programs that run on this host: the monitor, charon, pluto."""
    # What else runs here, with which words, is no matter of a record.
    return frozenset((asked(("programs", "of", "IPsec"), lambda: "\n".join(_running_programs(root))) or "").split())


def _running_programs(root: Path) -> list[str]:
    found = set[str]()
    for process in root.glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        names = {Path(word.decode(errors="replace")).name for word in words[:3] if word}
        found |= {name for name in (_MONITOR, *_DAEMONS) if name in names}
    return sorted(found)


def read_route(place: Netns, address: str) -> Fact[RouteTo]:
    """Return the route to an address; Unknown if there is none."""
    return place.read(("ip", "-j", "route", "get", address), parse_route)


@json_of("ip -j route get")
def parse_route(rows: list[Row]) -> Fact[RouteTo]:
    """Return the route in the answer of `ip -j route get ADDRESS` (print_route() of ip/iproute.c)."""
    row = next((row for row in rows if "dst" in row), None)
    if row is None or row.get("type") in ("unreachable", "blackhole", "prohibit"):
        return Unknown("there is no route to it")
    source = row.get("prefsrc")
    return RouteTo(
        device=str(row["dev"]),
        source=None if source is None else parse_value(source, 128 if ":" in source else 32),
        gateway=row.get("gateway") or row.get("via", {}).get("host"),
        mtu=next((int(metric["mtu"]) for metric in row.get("metrics", []) if "mtu" in metric), None),
        is_local=row.get("type") == "local",
    )


# IPsec of the kernel by ip-xfrm(8): what must leave encrypted, and who encrypts it.


def read_ipsec(place: Netns, outers: Iterable[Encapsulation]) -> Fact[IpsecState]:
    """Return policies, SAs and the routes to the first 256 remotes; only policies if none needs IPsec."""
    policies = place.read(POLICIES, parse_policies)
    if isinstance(policies, Unknown):
        return policies
    if not any(policy.requires for policy in policies):
        return IpsecState(policies)
    associations = place.read(STATES, parse_associations)
    if isinstance(associations, Unknown):
        return associations
    remotes = dict.fromkeys(address_text(outer.remote, is_ipv6=outer.is_ipv6) for outer in outers)
    routes = {remote: read_route(place, remote) for remote in list(remotes)[:MAX_REMOTES]}
    known = {remote: route for remote, route in routes.items() if not isinstance(route, Unknown)}
    return IpsecState(policies, associations, known)

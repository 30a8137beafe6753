"""IPsec of the kernel by ip-xfrm(8): what must leave encrypted, and who encrypts it."""

from __future__ import annotations

from collections.abc import Iterable

from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.datapath.ipsec import (
    POLICIES,
    STATES,
    IpsecState,
    address_text,
    parse_associations,
    parse_policies,
)
from xenoovs.datapath.outer import Encapsulation
from xenoovs.switch.netns import Netns
from xenoovs.switch.routes import read_route

_MAX_ROUTES = 256
"""Remotes whose route is asked for, some milliseconds each."""


def read_ipsec(place: Netns, outers: Iterable[Encapsulation]) -> Fact[IpsecState]:
    """Return policies, SAs and the routes to remotes; without a policy that needs IPsec, neither SAs nor routes.

    Args:
        place: where the devices are.
        outers: tunnels; routes of the first 256 remotes are read.
    """
    policies = place.read(POLICIES, parse_policies)
    if isinstance(policies, Unknown):
        return policies
    if not any(policy.direction == "out" and policy.requires for policy in policies):
        return IpsecState(policies)
    associations = place.read(STATES, parse_associations)
    if isinstance(associations, Unknown):
        return associations
    remotes = dict.fromkeys(address_text(outer.remote, is_ipv6=outer.is_ipv6) for outer in outers)
    routes = {remote: read_route(place, remote) for remote in list(remotes)[:_MAX_ROUTES]}
    known = {remote: route for remote, route in routes.items() if not isinstance(route, Unknown)}
    return IpsecState(policies, associations, known)

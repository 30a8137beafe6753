"""Owners of blocks and the backends of a config: the next hop of an owner, and who is who after a config change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from xenoovs.decision.blocks import Owner
from xenoovs.decision.decision import Decision
from xenoovs.decision.transition import Transition
from xenoovs.model.balancer import Balancer
from xenoovs.model.ids import service_ids
from xenoovs.model.next_hop import NextHop, parse_next_hop
from xenoovs.model.service import Service

NextHops = Mapping[Owner, NextHop]


def next_hops(service: Service) -> dict[Owner, NextHop]:
    """Return the next hops of a service's backends; those without one yet are left out."""
    return {backend.name: backend.next_hop for backend in service.backends if backend.next_hop.is_known}


def next_hop_of(owner: Owner, hops: NextHops) -> NextHop | None:
    """Return how packets reach an owner; None for a name that `hops` lacks."""
    found = hops.get(owner)
    if found is not None:
        return found
    try:
        return parse_next_hop(owner)
    except ValueError:
        return None


def owner_of(hop: NextHop, owners: Mapping[NextHop, Owner]) -> Owner:
    """Return the backend that has a next hop, or the next hop itself as text. `owners`: inverse of `next_hops`."""
    return owners.get(hop, str(hop))


def follow(
    decision: Decision, transition: Transition, *, before: Balancer, after: Balancer
) -> tuple[Decision, Transition]:
    """Return both under the names that owners have in another config, so that blocks stay where they are.

    A next hop makes a backend what it is: names that two backends exchange move no client. A backend that was found by
    its address is what answers there, and one with a new next hop in place of one that is gone is the same backend.
    """
    if before is after:
        return decision, transition
    ids = service_ids(service.claim for service in after.services)
    old = {service.claim: service for service in before.services}
    names = {
        ids[service.claim]: _names(old[service.claim], service) for service in after.services if service.claim in old
    }
    services = {
        i: replace(found, home=found.home.renamed(names.get(i, {})), active=found.active.renamed(names.get(i, {})))
        for i, found in decision.services
    }
    moves = {
        i: tuple(replace(move, old=names.get(i, {}).get(move.old, move.old)) for move in found)
        for i, found in transition.services
    }
    return Decision.of(services, version=decision.version), Transition.of(moves)


def _names(before: Service, after: Service) -> dict[Owner, Owner]:
    """Return the new names of the owners of one service whose names change."""
    old, new = next_hops(before), next_hops(after)
    owners = {hop: name for name, hop in new.items()}
    configured = {backend.name: backend for backend in after.backends}
    found = dict[Owner, Owner]()
    for backend in before.backends:
        hop = old.get(backend.name)
        if hop is None:
            continue
        heir = configured.get(backend.name)
        is_followed = heir is not None and backend.follows and heir.follows and backend.address == heir.address
        is_new = heir is not None and hop not in owners and new.get(backend.name) not in old.values()
        if not (is_followed or is_new):
            found[backend.name] = owner_of(hop, owners)
    return {name: owner for name, owner in found.items() if name != owner}

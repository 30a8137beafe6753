"""What is left of run-time overrides when the config changes: a three-way merge, key by key. Pure.

The three are the config when an override was set (its `configured` weight), the config now, and the override. Where the
first two differ, whoever edited the file meant just this weight: the file wins, for this backend only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from xenoovs.agent.snapshot import Override
from xenoovs.model.backend import Backend
from xenoovs.model.balancer import Balancer
from xenoovs.model.service import Service

T = TypeVar("T", Service, Backend)


@dataclass(frozen=True, slots=True)
class Ended:
    """An override that the config has ended, and why."""

    override: Override
    reason: str


@dataclass(frozen=True, slots=True)
class Merged:
    """`kept`: under their names in the new config."""

    kept: tuple[Override, ...]
    ended: tuple[Ended, ...]


def merge(overrides: Iterable[Override], new: Balancer, *, old: Balancer | None = None) -> Merged:
    """Overrides under another config. `old`: the one before, where it is known, to follow what was only renamed."""
    kept, ended = list[Override](), list[Ended]()
    for override in overrides:
        found = _find(override, new, old)
        if found is None:
            ended.append(Ended(override, "the config does not have it any more"))
        elif found.configured != override.configured:
            ended.append(Ended(override, "the config gives it another weight now"))
        else:
            kept.append(found)
    return Merged(tuple(kept), tuple(ended))


def merge_back(
    now: Iterable[Override], tried: Merged, *, before: Iterable[Override], configs: tuple[Balancer, Balancer]
) -> Merged:
    """Overrides when a config is taken back: those of `before`, but for what an operator has set or ended since.

    tried: what was left of them by the config that is taken back. configs: that one, and the one that holds again.
    """
    left, there = ({(one.service, one.backend): one for one in some} for some in (tried.kept, now))
    since = {names for names in left.keys() | there.keys() if left.get(names) != there.get(names)}
    found = merge((there[names] for names in sorted(since & there.keys())), configs[1], old=configs[0])
    stays = (one for one in before if (one.service, one.backend) not in since)
    return Merged(tuple(sorted((*stays, *found.kept), key=lambda one: (one.service, one.backend))), found.ended)


def _find(override: Override, new: Balancer, old: Balancer | None) -> Override | None:
    """The override under its names in `new`, with the weight that it has there."""
    was = None if old is None else _named(old.services, override.service)
    service = _named(new.services, override.service)
    if service is None and was is not None:
        service = next((one for one in new.services if one.claim == was.claim), None)
    if service is None:
        return None
    backend = _named(service.backends, override.backend)
    had = None if was is None else _named(was.backends, override.backend)
    if backend is None and had is not None:
        backend = next((one for one in service.backends if _server(one) == _server(had)), None)
    if backend is None:
        return None
    return replace(override, service=service.name, backend=backend.name, configured=backend.weight)


def _server(backend: Backend) -> object:
    return (backend.address, backend.next_hop.ports) if backend.follows else backend.next_hop


def _named(among: Iterable[T], name: str) -> T | None:
    return next((one for one in among if one.name == name), None)

"""What the store of a fleet has of services, as a config and the decision for it, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any, TypeVar

from xenoovs.decision.decision import Decision, ServiceDecision, Stored
from xenoovs.errors import ConfigError, StoredServiceUnusable
from xenoovs.model.balancer import Balancer, Service, claim_text, service_ids
from xenoovs.model.claims import Claimant, check_between
from xenoovs.model.fleet import join, read_services
from xenoovs.model.include import ConfigSources
from xenoovs.model.values import MAX_SERVICES
from xenoovs.partition.block import spread
from xenoovs.store.view import StoredService

_DIGEST_DIGITS = 16

T = TypeVar("T")


class Memo:
    """Results of pure functions by name, used again while the arguments are equal. `read`: services of texts so far."""

    def __init__(self) -> None:
        self.read: dict[str, Service] = {}
        self._last: dict[Callable[..., Any], dict[str, tuple[tuple[object, ...], Any]]] = {}
        self._parts: dict[str, Memo] = {}

    def part(self, name: str) -> Memo:
        """Return the memo of results under the same names that are kept apart, such as those of another config."""
        return self._parts.setdefault(name, Memo())

    def each(self, function: Callable[..., T], arguments: Mapping[str, tuple[object, ...]]) -> dict[str, T]:
        """Return the results by name; other names are dropped. `function`: of a module; each has one set of names."""
        last = self._last.get(function, {})
        found = dict[str, tuple[tuple[object, ...], T]]()
        for name, given in arguments.items():
            before = last.get(name)
            # With the newest arguments: the next ones are mostly the very same, which is seen at once.
            found[name] = given, before[1] if before is not None and before[0] == given else function(*given)
        self._last[function] = found
        return {name: result for name, (_, result) in found.items()}


IN_USE, ROLLED_OUT = "in use", "rolled out"
"""The two configs of a fleet: parts of a memo."""
_MAX_READ = 4 * MAX_SERVICES
"""So many services are remembered; then all are forgotten, and read once more."""

Problem = StoredServiceUnusable | ConfigError
"""Why a row of the store cannot be used."""


def stored_services(
    rows: Iterable[StoredService], memo: Memo, results: Memo
) -> tuple[dict[str, tuple[Service, ServiceDecision]], list[Problem]]:
    """Return the services of the store by name, and why some rows cannot be used. Such a row affects no other one.
    `results`: of the decisions for these rows."""
    rows, problems = sorted(rows, key=lambda each: each.name), list[Problem]()
    new = {row.name: row.config for row in rows if row.config not in memo.read}
    if len(memo.read) + len(new) > _MAX_READ:
        memo.read.clear()
        new = {row.name: row.config for row in rows}
    try:
        found = read_services(new) if new else {}
    except ConfigError:
        found = {name: service for name, text in new.items() for service in _read_alone(name, text, problems)}
    memo.read |= {new[name]: service for name, service in found.items()}
    decided = results.each(_decision_or_problem, {row.name: (row, memo.read.get(row.config)) for row in rows})
    problems += [each for each in decided.values() if isinstance(each, StoredServiceUnusable)]
    usable = {name: each for name, each in decided.items() if isinstance(each, ServiceDecision)}
    services = {row.name: _named(memo.read[row.config], row.name) for row in rows if row.name in usable}
    return {name: (service, usable[name]) for name, service in services.items()}, problems


def _named(service: Service, row: str) -> Service:
    """Return a service under the name of its row, which is another one for a site."""
    return service if service.name == row else replace(service, name=row)


def _read_alone(name: str, text: str, problems: list[Problem]) -> Iterable[Service]:
    try:
        return read_services({name: text}).values()
    except ConfigError as problem:
        problems.append(problem)
        return ()


def _decision_or_problem(
    stored: StoredService, service: Service | None
) -> ServiceDecision | StoredServiceUnusable | None:
    try:
        return None if service is None else _decision_of(stored, service)
    except StoredServiceUnusable as problem:
        return problem


class ViewReader:
    """Reads the services of a DPU from successive views, and parses only what is new: a thousand take a second."""

    def __init__(self) -> None:
        self._local: tuple[str | bytes, str] | None = None
        self._texts: Mapping[str, str] = {}
        self._balancer: Balancer | None = None
        self._memo = Memo()

    def read(
        self, services: Iterable[StoredService], local: str | bytes, *, file: str, sources: ConfigSources | None = None
    ) -> tuple[Balancer, Stored]:
        """Return the config of one DPU, and what is decided for each service. `local`: as of `model.fleet.join`. Raises
        ConfigError: services and file make no config; StoredServiceUnusable: blocks do not fit their service."""
        rows = sorted(services, key=lambda each: each.name)
        texts = {row.name: row.config for row in rows}
        balancer = self._updated(texts, (local, file), sources) or join(local, texts, file=file, sources=sources)
        self._local, self._texts, self._balancer = (local, file), texts, balancer
        pairs = zip(rows, balancer.services, strict=True)
        return balancer, self._memo.each(_decision_of, {service.name: (row, service) for row, service in pairs})

    def _updated(
        self, texts: Mapping[str, str], local: tuple[str | bytes, str], sources: ConfigSources | None
    ) -> Balancer | None:
        """Return the last config with the services of these texts; None: all are to be read."""
        last = self._balancer
        if last is None or self._local != local or not 0 < len(texts) <= MAX_SERVICES:
            return None
        before = dict(zip(self._texts, last.services, strict=True))
        new = {name: text for name, text in texts.items() if self._texts.get(name) != text}
        read = dict[str, Service]()
        if new:
            try:
                joined = join(local[0], new, file=local[1], sources=sources)
            except ConfigError:
                return None  # All of them, for all findings.
            read = dict(zip(new, joined.services, strict=True))
        services = {name: read.get(name) or before[name] for name in texts}
        if not new and texts.keys() == before.keys():
            return last
        is_compared = all(
            name in before and Claimant.of(before[name]) == Claimant.of(service) for name, service in read.items()
        )
        if not is_compared and any(check_between(enumerate(map(Claimant.of, services.values())))):
            return None
        return replace(last, services=tuple(services.values()))


def decision_of(balancer: Balancer, stored: Stored) -> Decision:
    """Return what is stored as a decision about the services of a config."""
    ids = service_ids(service.claim for service in balancer.services)
    return Decision.of({ids[service.claim]: stored[service.name] for service in balancer.services})


def digest(service: str, decision: ServiceDecision) -> str:
    """Return what two DPUs share exactly if they send the same clients of a service to the same backends. It is the
    start of the SHA-256 of lines of value, mask and backend, so it does not depend on how blocks are written as
    prefixes, but on the bits of packets that flows match."""
    rows = sorted((*spread(block, decision.key.positions), owner) for block, owner in decision.active.rows)
    lines = (f"{value:#x}/{mask:#x} {owner}\n" for value, mask, owner in rows)
    return sha256(f"{service}\n{''.join(lines)}".encode()).hexdigest()[:_DIGEST_DIGITS]


def _decision_of(stored: StoredService, service: Service) -> ServiceDecision:
    """Raises StoredServiceUnusable."""
    if stored.service != service.name:
        raise StoredServiceUnusable(service=stored.name, reason=f"its config is that of {service.name}")
    if stored.claim != claim_text(service.claim):
        raise StoredServiceUnusable(service=stored.name, reason=f"its config is not for {stored.claim}")
    names = {backend.name for backend in service.backends}
    for blocks in (stored.home, stored.active):
        if unknown := sorted(blocks.owners - names):
            raise StoredServiceUnusable(
                service=stored.name, reason=f"it has blocks of {unknown[0]}, but no such backend"
            )
        if blocks.depth > service.key.max_width:
            reason = f"a block has {blocks.depth} bits, but the service {service.key.max_width}"
            raise StoredServiceUnusable(service=stored.name, reason=reason)
    # All are down, and packets are dropped.
    is_dropped = service.health is not None and not stored.active.rows
    if not (stored.active.is_complete or is_dropped) or not stored.home.is_complete:
        raise StoredServiceUnusable(service=stored.name, reason="its blocks are not all clients")
    return ServiceDecision(service.key, stored.home, stored.active)

"""What the store of a fleet has of services, as a config and the decision for it, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, TypeVar

from xenoovs.decision.decision import Decision, ServiceDecision, Stored
from xenoovs.errors import ConfigError, StoredServiceUnusable
from xenoovs.model.balancer import Balancer, Service, claim_text, service_ids
from xenoovs.model.claims import Claimant, check_between
from xenoovs.model.fleet import join, neutral_file, tunnel_names
from xenoovs.model.include import ConfigSources
from xenoovs.model.values import MAX_SERVICES
from xenoovs.partition.block import spread
from xenoovs.store.view import StoredService

_DIGEST_DIGITS = 16

T = TypeVar("T")


class ResultMemory:
    """Results of pure functions by name, such as that of a service, used again while the arguments are equal."""

    def __init__(self) -> None:
        self._last: dict[Callable[..., Any], dict[str, tuple[tuple[object, ...], Any]]] = {}

    def each(self, function: Callable[..., T], arguments: Mapping[str, tuple[object, ...]]) -> dict[str, T]:
        """Return the results by name. Raises what the function raises.

        Args:
            function: One of a module. Each has one set of names.
            arguments: By name. Entries under other names are dropped.
        """
        last = self._last.get(function, {})
        found = dict[str, tuple[tuple[object, ...], T]]()
        for name, given in arguments.items():
            before = last.get(name)
            # With the newest arguments: the next ones are mostly the very same, which is seen at once.
            found[name] = given, before[1] if before is not None and before[0] == given else function(*given)
        self._last[function] = found
        return {name: result for name, (_, result) in found.items()}


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read last. local: the file of the DPU, and its name. texts, services: by the names of the texts."""

    local: tuple[str | bytes, str]
    texts: Mapping[str, str]
    services: Mapping[str, Service]
    balancer: Balancer


class ConfigReader:
    """Reads one set of texts of services after the other, and of each only what is new.

    A thousand services take a second to read, and most changes are of one of them.
    """

    def __init__(self, beside: ConfigReader | None = None) -> None:
        """Begin without services. `beside`: another reader, which has mostly read the same ones."""
        self._last: _Read | None = None
        self._beside = beside
        self._memory = ResultMemory()

    def read(
        self,
        texts: Mapping[str, str],
        local: str | bytes | None = None,
        *,
        file: str = "the fleet",
        sources: ConfigSources | None = None,
    ) -> Balancer:
        """Return the config of one DPU, or of none. Raises ConfigError: The services and the file make no config.

        Args:
            texts: By the names of the services, in the order of the config.
            local: The file of the DPU, its name and its sources, as of `model.fleet.join`; None: no DPU, with ports
                and tunnels as the fleet names them.
        """
        if local is None:
            tunnels = self._memory.each(tunnel_names, {name: (name, text) for name, text in texts.items()})
            local = neutral_file(frozenset[str]().union(*tunnels.values()))
        balancer = self._updated(texts, local, file, sources) or join(local, texts, file=file, sources=sources)
        self._last = _Read((local, file), texts, dict(zip(texts, balancer.services, strict=True)), balancer)
        return balancer

    def _updated(
        self, texts: Mapping[str, str], local: str | bytes, file: str, sources: ConfigSources | None
    ) -> Balancer | None:
        """Return the last config with the services of these texts; None: all are to be read."""
        readers = (self, self._beside)
        known = [each._last for each in readers if each and each._last and each._last.local == (local, file)]
        if not known or not 0 < len(texts) <= MAX_SERVICES:
            return None
        last, found = known[0], {name: _known(name, text, known) for name, text in texts.items()}
        new = {name: texts[name] for name, service in found.items() if service is None}
        if new:
            try:
                found |= dict(zip(new, join(local, new, file=file, sources=sources).services, strict=True))
            except ConfigError:
                return None  # All of them, for all findings.
        services = {name: service for name, service in found.items() if service is not None}
        if list(services.items()) == list(last.services.items()):
            return last.balancer
        is_compared = all(_is_for_others_as(last.services.get(name), service) for name, service in services.items())
        if not is_compared and any(check_between(enumerate(map(Claimant.of, services.values())))):
            return None
        return replace(last.balancer, services=tuple(services.values()))


def _known(name: str, text: str, known: Iterable[_Read]) -> Service | None:
    """Return the service that was read from a text under a name; None: none was."""
    return next((each.services[name] for each in known if each.texts.get(name) == text), None)


def _is_for_others_as(old: Service | None, new: Service) -> bool:
    """Return whether a service takes from others what it took before. `old`: None: it is new."""
    return old is new or (old is not None and Claimant.of(old) == Claimant.of(new))


class ViewReader:
    """Reads one view of the store after the other, and of each only what is new."""

    def __init__(self, config: ConfigReader | None = None) -> None:
        """Begin without a view. `config`: reads its services; None: one of its own."""
        self._config, self._memory = config or ConfigReader(), ResultMemory()

    def read(
        self,
        services: Iterable[StoredService],
        local: str | bytes | None = None,
        *,
        file: str = "the fleet",
        sources: ConfigSources | None = None,
    ) -> tuple[Balancer, Stored]:
        """Return the config of one DPU, or of none, and what is decided for each of its services.

        Args:
            services: Of one view of the store.
            local: The file of the DPU, its name and its sources, as of `ConfigReader.read`.

        Raises:
            ConfigError: The services and the file make no config.
            StoredServiceUnusable: Blocks do not fit their service.
        """
        rows = sorted(services, key=lambda each: each.name)
        balancer = self._config.read({row.name: row.config for row in rows}, local, file=file, sources=sources)
        pairs = zip(rows, balancer.services, strict=True)
        return balancer, self._memory.each(_decision_of, {row.name: (row, service) for row, service in pairs})


def decision_of(balancer: Balancer, stored: Stored) -> Decision:
    """Return what is stored as a decision about the services of a config."""
    ids = service_ids(service.claim for service in balancer.services)
    return Decision.of({ids[service.claim]: stored[service.name] for service in balancer.services})


def digest(service: str, decision: ServiceDecision) -> str:
    """Return what two DPUs share exactly if they send the same clients of a service to the same backends.

    It is the start of the SHA-256 of lines of value, mask and backend, so it does not depend on how blocks are written
    as prefixes, but on the bits of packets that flows match.
    """
    rows = sorted((*spread(block, decision.key.positions), owner) for block, owner in decision.active.rows)
    lines = (f"{value:#x}/{mask:#x} {owner}\n" for value, mask, owner in rows)
    return sha256(f"{service}\n{''.join(lines)}".encode()).hexdigest()[:_DIGEST_DIGITS]


def _decision_of(stored: StoredService, service: Service) -> ServiceDecision:
    """Raises StoredServiceUnusable."""
    if stored.name != service.name:
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

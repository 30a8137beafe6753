"""Samples of the metrics, read off a snapshot. Each function is the reader of the metrics that name it in `table`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xenoovs import __version__
from xenoovs.agent.metrics.metric import Reader, Sample
from xenoovs.agent.rates import nic_share
from xenoovs.agent.snapshot import BackendView, BlockView, Counted, ServiceView, Snapshot, Traffic


def whole(number: Callable[[Snapshot], float | None]) -> Reader:
    """One number of the agent as a whole; none is no sample."""

    def read(snapshot: Snapshot) -> Iterator[Sample]:
        value = number(snapshot)
        if value is not None:
            yield (), float(value)

    return read


def per_service(number: Callable[[ServiceView], float | None]) -> Reader:
    """One number of each service."""

    def read(snapshot: Snapshot) -> Iterator[Sample]:
        for service in snapshot.services:
            value = number(service)
            if value is not None:
                yield (service.name,), float(value)

    return read


def per_backend(number: Callable[[BackendView], float | None]) -> Reader:
    """One number of each backend of each service."""

    def read(snapshot: Snapshot) -> Iterator[Sample]:
        for service in snapshot.services:
            for backend in service.backends:
                value = number(backend)
                if value is not None:
                    yield (service.name, backend.name), float(value)

    return read


def per_path(
    hardware: Callable[[Traffic], int], software: Callable[[Traffic], int], *, unknown: Callable[[Counted], int]
) -> Reader:
    """Two numbers of each backend, what the NIC forwarded and what software did; or one, where nobody can tell."""

    def read(snapshot: Snapshot) -> Iterator[Sample]:
        for service in snapshot.services:
            for backend in service.backends:
                if backend.traffic is not None:
                    yield (service.name, backend.name, "hardware"), hardware(backend.traffic)
                    yield (service.name, backend.name, "software"), software(backend.traffic)
                if backend.counted is not None:
                    yield (service.name, backend.name, "unknown"), unknown(backend.counted)

    return read


def build_info(_: Snapshot) -> Iterator[Sample]:
    yield (__version__,), 1.0


def config_info(snapshot: Snapshot) -> Iterator[Sample]:
    yield (snapshot.config_digest, snapshot.config_path, snapshot.bridge), 1.0


def error_info(snapshot: Snapshot) -> Iterator[Sample]:
    if snapshot.last_error:
        yield (snapshot.last_error,), 1.0
    for problem in dict.fromkeys(snapshot.problems):
        yield (problem,), 1.0


def ports(snapshot: Snapshot) -> Iterator[Sample]:
    for port in snapshot.ports or ():
        yield (port.name,), float(port.ofport is not None and port.link_up is not False)


def states(snapshot: Snapshot) -> Iterator[Sample]:
    for service in snapshot.services:
        for backend in service.backends:
            yield (service.name, backend.name, backend.state.value), 1.0


def blocks_by_verdict(snapshot: Snapshot) -> Iterator[Sample]:
    if snapshot.verified_s is None:
        return
    for service in snapshot.services:
        for backend in service.backends:
            for verdict, count in backend.blocks.items():
                yield (service.name, backend.name, verdict.value), count


def offload_ratio(service: ServiceView) -> float | None:
    """Of the packets between the last two looks, 0..1, those that the NIC forwarded."""
    return nic_share(backend.rate for backend in service.backends if backend.rate is not None)


def block_verdicts(snapshot: Snapshot, blocks: Callable[[str], tuple[BlockView, ...]]) -> Iterator[Sample]:
    for service in snapshot.services:
        for block in blocks(service.name):
            if block.verdict is not None:
                labels = (service.name, block.backend, f"{block.value:#x}", f"{block.mask:#x}", block.verdict.value)
                yield labels, 1.0

"""The rows and totals that `status`, `top` and the page show of a snapshot, as numbers and as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xenoovs.display import decimal, duration, percent, quantity, span
from xenoovs.errors import counted
from xenoovs.show.agent import BackendState, BackendView, ServiceView, Snapshot, hw_share
from xenoovs.show.paths import PathState, RemoteView


@dataclass(frozen=True, slots=True)
class BackendRow:
    """One backend.

    Attributes:
        service: Its service.
        backend: It.
        now_s: When the snapshot was taken.
        service_pps: Packets a second of all backends of the service.
    """

    service: ServiceView
    backend: BackendView
    now_s: float
    service_pps: float

    @property
    def names(self) -> tuple[str, str]:
        return self.service.name, self.backend.name

    @property
    def traffic_share(self) -> float | None:
        """Return its share of the packets of its service, by rates; None: there were none."""
        rate = self.backend.rate
        return None if rate is None or not self.service_pps else rate.pps / self.service_pps

    @property
    def hw_share(self) -> float | None:
        """Return the share of its packets in hardware, by rates; None: there were none, or it is unknown."""
        return hw_share(() if self.backend.rate is None else (self.backend.rate,))

    @property
    def software_pps(self) -> float:
        """Return the packets a second that are not known to be in hardware; -1 without rates."""
        rate = self.backend.rate
        return -1.0 if rate is None else rate.pps - (rate.hw_pps or 0.0)

    @property
    def state(self) -> str:
        """Return its state, and whether it is held in service, in a slow start, or a backup, or what its agent says."""
        backend = self.backend
        more = " (held)" if backend.is_held else " (ramp)" if backend.ramp is not None else ""
        if backend.agent is not None and backend.agent.state in ("drain", "down", "maint"):
            more = f" (agent: {backend.agent.state})"
        more = more or (" (backup)" if backend.is_backup else "")
        return backend.state.value + more

    @property
    def since(self) -> str:
        """Return for how long it has had its state."""
        return duration(None if self.backend.since_s is None else self.now_s - self.backend.since_s)

    @property
    def last_change(self) -> str:
        """Return how long ago it changed, and why; `-`: not since the agent started."""
        backend = self.backend
        if backend.last_change_s is None:
            return "-"
        return f"{duration(self.now_s - backend.last_change_s)} ago: {backend.last_change}"

    @property
    def weight(self) -> str:
        """Return its weight in use; with that of the config where they differ."""
        used, configured = decimal(self.backend.weight_in_use), decimal(self.backend.weight)
        return used if used == configured else f"{used}/{configured}"

    @property
    def target(self) -> str:
        return percent(self.backend.target_share)

    @property
    def share(self) -> str:
        return percent(self.backend.share)

    @property
    def traffic(self) -> str:
        return percent(self.traffic_share)

    @property
    def pps(self) -> str:
        return quantity(None if self.backend.rate is None else self.backend.rate.pps)

    @property
    def bps(self) -> str:
        return quantity(None if self.backend.rate is None else self.backend.rate.bps)

    @property
    def in_hw(self) -> str:
        return percent(self.hw_share)

    @property
    def probe(self) -> str:
        """Return the result of the last probe; `-` without one."""
        reason, latency_s = self.backend.reason or "-", self.backend.probe_latency_s
        return reason if latency_s is None else f"{reason}, {span(latency_s)}"


def backend_rows(snapshot: Snapshot) -> Iterator[BackendRow]:
    """Yield all backends in the order of the config."""
    for service in snapshot.services:
        yield from service_rows(service, snapshot.now_s)


def service_rows(service: ServiceView, now_s: float) -> Iterator[BackendRow]:
    """Yield the backends of one service in the order of the config."""
    pps = sum(backend.rate.pps for backend in service.backends if backend.rate is not None)
    return (BackendRow(service, backend, now_s, pps) for backend in service.backends)


def service_facts(service: ServiceView) -> Iterator[str]:
    """Yield what is known of a service beside its backends."""
    share = hw_share(backend.rate for backend in service.backends if backend.rate is not None)
    if share is not None:
        yield f"{percent(share)} in hardware"
    if service.megaflows_predicted is not None:
        seen = "-" if service.megaflows_seen is None else service.megaflows_seen
        yield f"megaflows {seen}/{service.megaflows_predicted}"
    if service.draining:
        yield f"{counted(service.draining, 'block')} draining"


@dataclass(frozen=True, slots=True)
class RemoteRow:
    """One remote of a tunnel, as text.

    Attributes:
        paths: Good paths of all.
        state: `good`, or what its worst paths are; `unknown` if none answers.
        blocks: On each path, in their order.
        excess: The largest excess of a path that answers.
        moves: Blocks moved so far.
        last_move: How long ago, and which; `-`: none.
    """

    name: str
    paths: str
    state: str
    blocks: str
    excess: str
    moves: str
    last_move: str

    @property
    def cells(self) -> list[str]:
        """All of it, in the order of REMOTE_HEADERS."""
        return [self.name, self.state, self.paths, self.blocks, self.excess, self.moves, self.last_move]


REMOTE_HEADERS = ("REMOTE", "STATE", "GOOD", "BLOCKS", "EXCESS", "MOVES", "LAST MOVE")


def remote_rows(snapshot: Snapshot) -> Iterator[RemoteRow]:
    """Yield all remotes in the order of the config."""
    return (_remote_row(remote, snapshot.now_s) for remote in snapshot.remotes)


def _remote_row(remote: RemoteView, now_s: float) -> RemoteRow:
    worst = next(
        (s for s in (PathState.FAILED, PathState.BAD, PathState.UNKNOWN) if remote.paths_in(s)), PathState.GOOD
    )
    excesses = [
        path.excess_s for path in remote.paths if path.excess_s is not None and path.state is not PathState.FAILED
    ]
    ago = "" if remote.last_move_s is None else f"{duration(now_s - remote.last_move_s)} ago: "
    return RemoteRow(
        name=remote.name,
        paths=f"{len(remote.paths_in(PathState.GOOD))}/{len(remote.paths)}",
        state=(PathState.UNKNOWN if remote.problem else worst).value,
        blocks="/".join(str(path.blocks) for path in remote.paths) or "-",
        excess=span(max(excesses)) if excesses else "-",
        moves=str(sum(remote.moves.values())),
        last_move=f"{ago}{remote.last_move}" or "-",
    )


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all backends, as text; `-` where there is nothing to sum.

    Attributes:
        in_hw: Share of the packets in hardware.
        pps: Packets a second.
        bps: Bits a second.
        up: Backends that are up, of those with a health check.
        sampled: Age of the last offload sample.
    """

    in_hw: str
    pps: str
    bps: str
    up: str
    sampled: str


def totals_of(snapshot: Snapshot) -> Totals:
    """Return the sums over all backends."""
    backends = [backend for service in snapshot.services for backend in service.backends]
    rates = [backend.rate for backend in backends if backend.rate is not None]
    states = [backend.state for backend in backends]
    up, down = states.count(BackendState.UP), states.count(BackendState.DOWN)
    return Totals(
        in_hw=percent(hw_share(rates)),
        pps=quantity(sum(rate.pps for rate in rates) if rates else None),
        bps=quantity(sum(rate.bps for rate in rates) if rates else None),
        up=f"{up}/{up + down}" if up + down else "-",
        sampled=duration(None if snapshot.sampled_s is None else snapshot.now_s - snapshot.sampled_s),
    )

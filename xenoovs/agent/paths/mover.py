"""The loop of adaptive routing: probes all remotes of an agent, decides about their blocks, and moves them.

A move changes the desired state, as any other change, and starts an urgent round. So no round reverts a move, a pause
holds it back, and it works with and without a controller.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heapreplace
from itertools import count

from xenoovs.agent.paths.decide import DECIDE_S, BlockShift, Placement, after_shifts
from xenoovs.agent.paths.devices import Devices, Frame, NextHopMacs, OpenPort
from xenoovs.agent.paths.frame import parse_answer, parse_quote, parse_returned
from xenoovs.agent.paths.remote import ProbedPath, ProbedRemote, blocks_of, paths_of
from xenoovs.agent.paths.search import AFTER_FAILURE_S, Lookout, SourcePorts, is_sought
from xenoovs.agent.state import AgentState, BlocksPlaced
from xenoovs.agent.state_store import StateStore
from xenoovs.decision.decision import Blocks
from xenoovs.engine.engine import Engine
from xenoovs.model.balancer import Balancer, service_ids
from xenoovs.model.remote import every_service, remotes_of
from xenoovs.model.tunnel import HostTunnel

_LEAST_SLEEP_S = 0.0005


class Mover:
    """Adaptive routing of one agent, in parallel to its rounds. `remotes`: by the names of their services."""

    def __init__(
        self,
        store: StateStore,
        engine: Engine,
        source_ports: SourcePorts,
        open_port: OpenPort,
        *,
        is_deciding: Callable[[], bool],
        request_round: Callable[[], None],
    ) -> None:
        """Bind it to the parts of an agent. `open_port`: opens a packet socket in the namespace of the bridge's
        devices. `is_deciding`: returns whether this agent decides about the bridge, and not another controller."""
        self.remotes: dict[str, ProbedRemote] = {}
        self.devices, self.macs, self.pace = Devices(open_port), NextHopMacs(open_port), ProbeBudget()
        self.lookout = Lookout(self.devices, self.gateway, source_ports, request_round)
        self._store, self._engine, self._is_deciding = store, engine, is_deciding
        self._seen: Balancer | None = None
        self._followed: object = None
        self._due: list[tuple[float, str]] = []
        self._decide_s = 0.0
        self._numbers: dict[int, ProbedRemote] = {}
        self._tunnel_ports = set[int]()
        self._next_number = count(1)

    @property
    def state(self) -> AgentState:
        return self._store.state

    @property
    def now_s(self) -> float:
        """Return the time on the agent's clock."""
        return self._store.now_s()

    async def run(self) -> None:
        """Probe and decide until cancelled."""
        try:
            while True:
                pause_s = self._step()
                await asyncio.sleep(max(_LEAST_SLEEP_S, pause_s))
        finally:
            await self.lookout.stop()
            self.devices.keep(())
            self.macs.close()

    def placement(self, remote: ProbedRemote) -> Placement | None:
        """Return the current or pending placement of a remote's blocks; None if there is none for these paths."""
        decided = self._engine.decided
        if decided is None or not remote.paths:
            return None
        service, names = remote.service, [path.name for path in remote.paths]
        # Sorted by id. With a hundred remotes this is called 2,000 times a second.
        index = bisect_left(decided.services, (remote.service_id,), key=lambda pair: pair[:1])
        if index == len(decided.services) or decided.services[index][0] != remote.service_id:
            return None
        found = decided.services[index][1]
        owners, home = remote.owners(self.state.placed.get(service.name, found.active)), remote.owners(found.home)
        if owners is None or home is None:
            return None
        pin = self.state.runtime.pins.get(service.name)
        return Placement(owners, home, tuple(pin not in names or name == pin for name in names))

    def discover(self, service: str) -> bool:
        """Search for the paths of a probed remote soon. Return whether the config requests such searches."""
        is_requested = is_sought(self.remotes[service].tunnel)
        if is_requested:
            self.lookout.request(service)
        return is_requested

    def interval_s(self, remote: ProbedRemote) -> float:
        """Return the time between two rounds of probes to a remote."""
        return remote.probe.interval_ms / 1000 * self.pace.factor

    def gateway(self, remote: ProbedRemote) -> bytes | None:
        """Return the MAC to which probes of a remote are sent, 6 bytes; None if it is not known yet."""
        configured = remote.probe.gateway
        if configured is not None:
            return configured.value.to_bytes(6, "big")
        tunnel = remote.tunnel
        return self.macs.find(tunnel.host_port, remote.remote.address, tunnel_port=tunnel.dst_port)

    def _place(self, service: str, blocks: Blocks | None) -> None:
        self._store.dispatch(BlocksPlaced(service, blocks))

    def _step(self) -> float:
        now_s = self.now_s
        self._follow(now_s)
        begun_s = time.thread_time()
        for frame in self.devices.received(now_s):
            self._receive(frame)
        probes = sum(self._probe_due(now_s))
        self.pace.measured(probes=probes, busy_s=time.thread_time() - begun_s)
        if now_s >= self._decide_s:
            self._decide_s = now_s + DECIDE_S
            self.macs.listen()
            self.lookout.look(self.remotes, now_s)
            if self.state.placed and not self._is_deciding():
                # The controller that decides now may move them, and they must stay there when this one is master again.
                for name in tuple(self.state.placed):
                    self._place(name, None)
            for remote in self.remotes.values():
                self._decide(remote, now_s)
        next_s = min(self._decide_s, self._due[0][0]) if self._due else self._decide_s
        return next_s - self.now_s

    def _follow(self, now_s: float) -> None:
        """Probe the remotes of the config on the bridge. Remotes with the same paths as before keep their records."""
        balancer = self._engine.balancer
        if balancer is None or balancer is self._seen:
            return
        self._seen = balancer
        # Claims are compared too, because the ids of services depend on all claims.
        claims = tuple(service.claim for service in balancer.services)
        what = balancer.tunnels, balancer.source_ports, balancer.uplinks, claims
        if what == self._followed:
            return
        self._followed, before, self.remotes = what, self.remotes, {}
        ids = service_ids(service.claim for service in every_service(balancer))
        for tunnel, remote, service in remotes_of(balancer):
            if tunnel.probe is None:
                continue
            paths, old = paths_of(tunnel, remote, service), before.get(service.name)
            # When remotes of a tunnel are added or removed, the others keep their records.
            alone = replace(tunnel, remotes=(remote,))
            if old is not None and (old.tunnel, old.paths) == (alone, paths):
                probed = old
            else:
                # Numbers are not reused, because answers for former remotes may still arrive.
                probed = ProbedRemote(next(self._next_number), alone, remote, service, paths)
                # The routers are known from the search that found these paths; the next search is a minute later.
                probed.note_hops(old.hops if old is not None and old.remote.address == remote.address else {})
                if old is not None and _units(old.tunnel, old.paths) != _units(tunnel, paths):
                    self._place(service.name, None)
            probed.identify(ids[service.claim])
            self.remotes[service.name] = probed
        for name in (before.keys() - self.remotes.keys()) & self.state.placed.keys():
            self._place(name, None)
        self._numbers = {remote.number: remote for remote in self.remotes.values()}
        self._tunnel_ports = {remote.tunnel.dst_port for remote in self.remotes.values()}
        self.devices.keep({remote.probe.port for remote in self.remotes.values()})
        self.macs.keep({(remote.tunnel.host_port, remote.remote.address) for remote in self.remotes.values()})
        probed_ones = [remote for remote in self.remotes.values() if remote.paths]
        self.pace.plan((len(remote.paths), remote.probe.interval_ms / 1000) for remote in probed_ones)
        # Spread over an interval, so that remotes are not all probed at the same time.
        parts = ((number / len(probed_ones), remote) for number, remote in enumerate(probed_ones))
        self._due = [(now_s + part * self.interval_s(remote), remote.service.name) for part, remote in parts]
        heapify(self._due)

    def _receive(self, frame: Frame) -> None:
        answer = parse_answer(frame.data)
        if answer is not None:
            remote = self._numbers.get(answer.token.remote)
            if remote is not None:
                remote.rounds.answered(answer, received_us=frame.received_us)
            return
        for port in self._tunnel_ports:
            if (quote := parse_quote(frame.data, tunnel_port=port)) is not None:
                self.lookout.quoted(quote)
                return
        if ends := parse_returned(frame.data):
            for remote in self.remotes.values():
                remote.note_returned(ends)

    def _probe_due(self, now_s: float) -> Iterator[int]:
        """Send the rounds of probes that are due, and yield the probes of each. Missed rounds are not made up for."""
        while self._due and self._due[0][0] <= now_s:
            due_s, name = self._due[0]
            remote = self.remotes[name]
            interval_s = self.interval_s(remote)
            next_s = due_s + interval_s
            heapreplace(self._due, (next_s if next_s > now_s else now_s + interval_s, name))
            remote.count_rounds()
            yield self._probe(remote, now_s)

    def _probe(self, remote: ProbedRemote, now_s: float) -> int:
        gateway, device = self.gateway(remote), remote.probe.port
        port = self.devices.port(device, now_s)
        if port is None or gateway is None:
            remote.count_silence()
            return 0
        try:
            remote.send_round(port, gateway)
        except OSError as error:
            self.devices.failed(device, error, now_s)
            return 0
        return len(remote.paths)

    def _decide(self, remote: ProbedRemote, now_s: float) -> None:
        before, tunnel = remote.verdict, remote.tunnel
        if remote.record.is_silent and remote.probe.gateway is None:
            self.macs.renew(tunnel.host_port, remote.remote.address, tunnel_port=tunnel.dst_port, now_s=now_s)
        placement = self.placement(remote)
        found = remote.decide(placement, is_paused=self.state.runtime.are_moves_paused, now_s=now_s)
        if remote.log_states(before):
            self.lookout.request(remote.service.name, at_s=now_s + AFTER_FAILURE_S)
        if found and placement is not None:
            self._move(remote, placement, found, now_s)
        else:
            remote.log_restored()

    def _move(self, remote: ProbedRemote, placement: Placement, found: tuple[BlockShift, ...], now_s: float) -> None:
        if not self._is_deciding():
            return
        remote.note_moves(found, now_s=now_s)
        names = [path.name for path in remote.paths]
        self._place(remote.service.name, blocks_of(after_shifts(placement.owners, found), names))


def _units(tunnel: HostTunnel, paths: Sequence[ProbedPath]) -> tuple[int, list[str]]:
    """Return the number of blocks and the names of paths, for which a placement is valid."""
    return tunnel.blocks, [path.name for path in paths]


# How often remotes are probed: as configured, if that is within the limits.


PROBES_PER_S = 20_000
"""Limit of one agent, for all remotes together: 11 Mbit/s in each direction."""

MAX_SHARE = 0.3
"""Part of a processor that probes may take, which they share with the rest of the agent."""

_BATCH = 200
"""Number of probes that are measured together, because answers are read later than probes are sent."""

_NEW_PART = 0.25
"""Weight of the newest batch in the cost of a probe."""


class ProbeBudget:
    """Extends the intervals of all remotes by one factor, to keep within the limits of probes and of processor time."""

    def __init__(self) -> None:
        self.cost_s = 0.0
        self._configured_per_s = 0.0
        self._probes, self._busy_s = 0, 0.0

    def plan(self, rounds: Iterable[tuple[int, float]]) -> None:
        """Set the configured rate. `rounds`: for each remote the probes of a round, and the seconds to the next."""
        self._configured_per_s = sum(probes / interval_s for probes, interval_s in rounds)

    def measured(self, *, probes: int, busy_s: float) -> None:
        """Count probes, and the processor time of sending them and of reading answers. The time of decisions is not
        counted, because it does not depend on the number of probes."""
        self._probes, self._busy_s = self._probes + probes, self._busy_s + busy_s
        if self._probes >= _BATCH:
            cost_s = self._busy_s / self._probes
            self.cost_s = cost_s if not self.cost_s else self.cost_s + _NEW_PART * (cost_s - self.cost_s)
            self._probes, self._busy_s = 0, 0.0

    @property
    def factor(self) -> float:
        """Return how many times intervals are longer than configured, 1 or more."""
        rate = self._configured_per_s
        return max(1.0, rate / PROBES_PER_S, rate * self.cost_s / MAX_SHARE)

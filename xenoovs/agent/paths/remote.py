"""One remote that is probed: its rounds, their results, and where its blocks are."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address
from random import Random

from xenoovs.agent.paths.decide import (
    BlockShift,
    PathVerdict,
    Placement,
    RemoteVerdict,
    judge,
    limit_us,
    moved,
    shifts,
)
from xenoovs.agent.paths.devices import ProbePort, now_us
from xenoovs.agent.paths.frame import Addresses, payload, probe_head
from xenoovs.agent.paths.score import LOSS_WINDOW, PathRecord, Record, Rounds, WaysBack
from xenoovs.dataclass import dataclass
from xenoovs.decision.decision import Blocks
from xenoovs.display import percent, span
from xenoovs.errors import counted
from xenoovs.log import info, warn
from xenoovs.model.balancer import RemoteName, Service
from xenoovs.model.next_hop import SourcePort, ToAddress
from xenoovs.model.remote import probe_source_ports
from xenoovs.model.tunnel import DYNAMIC_PORTS, HostTunnel, PathProbe, PathSelector, Reflect, Remote
from xenoovs.partition.block import Block
from xenoovs.show.paths import MoveReason, PathState

_ONE_PORT = DYNAMIC_PORTS.first
"""Source port of all probes whose path is selected by their address."""

_REMEMBERED = 4
"""Number of cached block placements: those at home, and the current ones; and of cached heads of probes, by the way
back."""

_CHANCE = Random()  # noqa: S311 - it balances load


@dataclass(frozen=True, slots=True)
class ProbedPath:
    """A path, with the source port and address of its probes. `name`: of its backend."""

    name: str
    source_port: int
    address: IPv4Address


LastMove = tuple[str, float | None]
"""The last move of blocks as text for operators, and when, UTC."""
NO_MOVE: LastMove = "", None


class ProbedRemote:
    """The rounds, scores and blocks of one remote. For one thread.

    Attributes:
        service_id: Of its service on the bridge.
        moves: Blocks that moved, by reason.
        shifted: The last move of each block, and when (UTC), by the number of the block.
        hops: The known routers of each path, as text, by its source port.
        returned: Number of the host's packets that the remote's reflector returned as if they were probes.
    """

    def __init__(
        self, number: int, tunnel: HostTunnel, remote: Remote, service: Service, paths: Sequence[ProbedPath]
    ) -> None:
        """Begin without rounds. `number`: identifies answers of this remote, 32 bits."""
        if tunnel.probe is None:
            raise ValueError(f"tunnel {tunnel.name} is not probed")
        self.number, self.tunnel, self.remote, self.service = number, tunnel, remote, service
        self.service_id = 0
        self._owners: dict[int, tuple[Blocks, tuple[int, ...] | None]] = {}
        self.probe: PathProbe = tunnel.probe
        self.paths = tuple(paths)
        # `reflect: l2` leaves the addresses of a probe as they are.
        source = tunnel.local if tunnel.reflect is Reflect.L2 else remote.address
        self.rounds = Rounds(number, source, timeout_us=tunnel.probe.timeout_ms * 1000)
        self.record, self.verdict = Record((PathRecord(),) * len(paths)), RemoteVerdict((PathVerdict(),) * len(paths))
        self.moves = Counter[str]()
        self.last_move = NO_MOVE
        self.departures: dict[str, LastMove] = {}
        self.shifted: dict[int, tuple[BlockShift, float]] = {}
        self.hops: dict[int, str] = {}
        self._restored, self.returned = Counter[str](), 0
        self._heads = lru_cache(maxsize=_REMEMBERED)(self._made_heads)
        self._decided_rounds = 0
        self._ways_back, self._way = tuple(tunnel.probe.ways_back), WaysBack(len(tunnel.probe.ways_back))

    @property
    def name(self) -> RemoteName:
        return self.tunnel.name, self.remote.name

    @property
    def source_ports(self) -> tuple[int, ...]:
        """Return the source ports of the paths that are selected by it, 0 for an unknown one."""
        hops = (backend.next_hop for backend in self.service.backends)
        return tuple(hop.source_port for hop in hops if isinstance(hop, SourcePort))

    @property
    def way_back_tos(self) -> int:
        """Return the type of service of the next round, which selects the way back of the answers."""
        return self._ways_back[self._way.number]

    @property
    def margin_us(self) -> float:
        """Return how much slower than the best one a path may be, in microseconds."""
        return self.record.auto_margin_us if self.tunnel.margin_us is None else float(self.tunnel.margin_us)

    def owners(self, blocks: Blocks) -> tuple[int, ...] | None:
        """Return what `owners_of` returns for these paths; the last few results are cached."""
        known = self._owners.get(id(blocks))
        if known is None or known[0] is not blocks:
            if len(self._owners) > _REMEMBERED:
                self._owners.clear()
            known = blocks, owners_of(blocks, [path.name for path in self.paths], self.tunnel.blocks)
            self._owners[id(blocks)] = known
        return known[1]

    def send_round(self, port: ProbePort, gateway: bytes) -> None:
        """Send one probe on each path, in random order. Raises OSError if the device does not exist.

        A round that cannot be sent completely counts as one without answers, so that no path is blamed for it.
        """
        heads = self._heads(port.mac, gateway, self.way_back_tos)
        self.rounds.begin(len(self.paths), tos=self.way_back_tos, now_us=now_us())
        for index in _CHANCE.sample(range(len(self.paths)), len(self.paths)):
            nonce = int.from_bytes(os.urandom(8), "big")
            token = self.rounds.token(nonce=nonce)
            try:
                sent_us = port.send(heads[index] + payload(token))
            except OSError:
                self._abandon_round()
                raise
            if sent_us is None:
                self._abandon_round()
                return
            self.rounds.sent(token, index, sent_us=sent_us)

    def _abandon_round(self) -> None:
        self.rounds.abandon()
        self.count_silence()

    def count_rounds(self) -> None:
        """Add finished rounds to the record, and switch to the next way back if this one loses answers. The way back
        can be a dead or lossy path of the fabric too: then all paths lose answers, and none is to blame."""
        for tos, answers in self.rounds.finished(now_us=now_us()):
            by_this_way = tos == self.way_back_tos
            if not by_this_way and all(answer is None for answer in answers):
                # The round was sent before the change of the way back.
                continue
            self.record = self.record.after(answers, is_calm=self.verdict.is_calm)
            if by_this_way:
                self._way.count_round(self.record)

    def count_silence(self) -> None:
        """Count a round that could not be sent as one without answers."""
        self.record = self.record.after((None,) * len(self.paths))

    def decide(self, placement: Placement | None, *, is_paused: bool, now_s: float) -> tuple[BlockShift, ...]:
        """Judge the paths after new rounds, and return the moves. `placement`: None if the bridge has no blocks yet."""
        if self.record.rounds == self._decided_rounds:
            return ()
        self._decided_rounds = self.record.rounds
        self.verdict = judge(self.verdict, self.record, margin_us=self.tunnel.margin_us, now_s=now_s)
        if placement is None or is_paused:
            return ()
        return self.planned(placement, now_s=now_s)

    def planned(self, placement: Placement, *, now_s: float) -> tuple[BlockShift, ...]:
        """Return the moves of blocks by the current states of the paths."""
        return shifts(self.verdict, self.record, placement, _CHANCE, now_s=now_s)

    def note_moves(self, found: Sequence[BlockShift], *, now_s: float) -> None:
        """Record the moves, hold their blocks for a while, and log them by path."""
        self.verdict = moved(self.verdict, found, now_s)
        self.moves.update(shift.reason.value for shift in found)
        names, parts, utc_s = [path.name for path in self.paths], list[str](), time.time()
        self.shifted |= {shift.block: (shift, utc_s) for shift in found}
        for (old, reason), blocks in Counter((shift.old, shift.reason) for shift in found).items():
            targets = sorted({names[shift.new] for shift in found if (shift.old, shift.reason) == (old, reason)})
            if reason is not MoveReason.RESTORED:
                facts = {"blocks": blocks, "path": names[old], "to": ",".join(targets), "reason": reason.value}
                info("blocks moved", remote=self.service.name, **facts)
            parts.append(f"{counted(blocks, 'block')} {names[old]} to {', '.join(targets)}: {reason.value}")
            figures = self._departure_text(old, reason)
            text = f"{counted(blocks, 'block')} left to {', '.join(targets)}: {reason.value}"
            self.departures[names[old]] = (f"{text} ({figures})" if figures else text), utc_s
        # Blocks are restored a few in each decision, and logged together.
        self._restored.update(names[shift.new] for shift in found if shift.reason is MoveReason.RESTORED)
        self.last_move = "; ".join(parts), utc_s

    def log_restored(self) -> None:
        """Log the blocks that were restored, when no more are."""
        for path, blocks in self._restored.items():
            info("blocks came back", remote=self.service.name, path=path, blocks=blocks)
        self._restored.clear()

    def log_states(self, before: RemoteVerdict) -> bool:
        """Log paths whose state has changed since `before`. Return whether one has failed."""
        after, name = self.verdict, self.service.name
        states = [path.state for path in after.paths]
        was_unknown = any(path.state is PathState.UNKNOWN for path in before.paths)
        if states and all(state is PathState.UNKNOWN for state in states):
            if not was_unknown:
                warn("remote does not answer; its blocks stay", remote=name, rounds=self.record.silent_rounds)
            return False
        has_failed = False
        rows = zip(self.paths, before.paths, after.paths, self.record.paths, strict=True)
        for index, (path, old, new, record) in enumerate(rows):
            if old.state is new.state:
                continue
            score = "-" if record.score is None else span(record.score / 1e6)
            if new.state is PathState.FAILED:
                has_failed = True
                warn("path failed", remote=name, path=path.name, lost_in_row=record.lost_in_row)
            elif new.state is PathState.BAD and new.is_lossy:
                warn("path is lossy", remote=name, path=path.name, lost=percent(self.record.loss(index)))
            elif new.state is PathState.BAD:
                warn("path is congested", remote=name, path=path.name, excess=score, margin=span(self.margin_us / 1e6))
            elif new.state is PathState.GOOD:
                info("path is good", remote=name, path=path.name, excess=score, was=old.state.value)
        return has_failed

    def _departure_text(self, path: int, reason: MoveReason) -> str:
        """Return the measurements that make blocks leave a path; empty if there are none."""
        record = self.record.paths[path]
        match reason:
            case MoveReason.FAILED:
                return f"{record.lost_in_row} probes in a row were lost"
            case MoveReason.CONGESTED:
                return f"its answers were {self.late_text(record.score)}"
            case MoveReason.LOSSY:
                return f"{self.lost_text(path)} were lost, more than on other paths"
            case MoveReason.RESTORED | MoveReason.OPERATOR:
                return ""

    def note_hops(self, hops: Mapping[int, str]) -> None:
        """Record the routers of paths, as text, by their source ports."""
        self.hops.update(hops)

    def lost_text(self, path: int) -> str:
        """Return a text with the part of a path's last probes that was lost. `path`: index."""
        return f"{percent(self.record.loss(path))} of its last {LOSS_WINDOW} probes"

    def late_text(self, score_us: float | None) -> str:
        """Return a text with the lateness of answers, and its limit."""
        score = "-" if score_us is None else span(score_us / 1e6)
        limit = limit_us(self.record, margin_us=self.tunnel.margin_us)
        return f"{score} later than the fastest, and {span(limit / 1e6)} is the limit"

    def note_returned(self, ends: Collection[IPv4Address]) -> None:
        """Count a packet of the host between these two addresses if the reflector of this remote has returned it."""
        self.returned += self.remote.address in ends

    def identify(self, service_id: int) -> None:
        self.service_id = service_id

    def addresses(self, source_mac: bytes, gateway: bytes, path: IPv4Address, tos: int) -> Addresses:
        """Return the addresses in the probes of a path. `path`: its address."""
        return Addresses(source_mac, gateway, self.tunnel.local, path, self.tunnel.dst_port, tos)

    def _made_heads(self, mac: bytes, gateway: bytes, tos: int) -> tuple[bytes, ...]:
        each_path = ((self.addresses(mac, gateway, each.address, tos), each.source_port) for each in self.paths)
        return tuple(probe_head(addresses, source_port) for addresses, source_port in each_path)


def owners_of(blocks: Blocks, paths: Sequence[str], count: int) -> tuple[int, ...] | None:
    """Return the path (index) of each of `count` blocks, a power of two; None if a block has another path."""
    numbers = {name: number for number, name in enumerate(paths)}
    found: list[int | None] = [None] * count
    for block, owner in blocks.rows:
        if 1 << block.depth > count:
            return None
        for value in range(block.value, count, 1 << block.depth):
            found[value] = numbers.get(owner)
    whole = [owner for owner in found if owner is not None]
    return tuple(whole) if len(whole) == count else None


def blocks_of(owners: Sequence[int], paths: Sequence[str]) -> Blocks:
    """Return the blocks of these owners, with the fewest flows; the inverse of `owners_of`."""
    depth = len(owners).bit_length() - 1
    return Blocks.of((Block(value, depth), paths[owner]) for value, owner in enumerate(owners))


def paths_of(tunnel: HostTunnel, remote: Remote, service: Service) -> tuple[ProbedPath, ...]:
    """Return the known paths of a remote, for probes."""
    by_uplink = iter(probe_source_ports(tunnel)) if tunnel.paths.by is PathSelector.UPLINK else iter(())
    found = list[ProbedPath]()
    for backend in service.backends:
        match backend.next_hop:
            case SourcePort(source_port):
                if source_port:
                    found.append(ProbedPath(backend.name, source_port, remote.address))
            case ToAddress(address):
                found.append(ProbedPath(backend.name, _ONE_PORT, address))
            case _:
                found.append(ProbedPath(backend.name, next(by_uplink), remote.address))
    return tuple(found)

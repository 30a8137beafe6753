"""The loop of adaptive routing with an agent that only records requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from itertools import count
from struct import unpack
from typing import Any

import pytest

from tests.tunnels import TUNNEL, tunnelled
from xenoovs.agent.paths.frame import Addresses, Answer, Token, checksum, payload, probe_head
from xenoovs.agent.paths.lookout import Lookout
from xenoovs.agent.paths.mover import Mover
from xenoovs.agent.paths.port import Frame
from xenoovs.agent.paths.ports import SourcePorts
from xenoovs.agent.paths.remote import ProbedRemote, blocks_of
from xenoovs.agent.state import Runtime
from xenoovs.decision.decide import decide
from xenoovs.decision.decision import Blocks, Decision, DesiredState
from xenoovs.model.address import Mac
from xenoovs.model.balancer import Balancer
from xenoovs.model.tunnel import REFLECTED_PORT, Discover, HostTunnel, PathProbe, Paths, PathSelector, Remote

_PROBE = PathProbe("xoar0", gateway=Mac(0x02005E1000FE))
_PATHS = Paths(PathSelector.SOURCE_PORT, 4, Discover.LIST, (50_001, 50_002, 50_003, 50_004))


@dataclass
class _Agent:
    """The interface of an agent that the mover uses. Only the test advances the time."""

    balancer: Balancer
    now_s: float = 100.0
    placed: dict[str, Blocks] = field(default_factory=dict)
    decided: Decision = field(default_factory=Decision)
    runtime: Runtime = field(default_factory=Runtime)
    is_deciding: bool = True

    def __post_init__(self) -> None:
        self.follow(self.balancer)

    @property
    def engine(self) -> _Agent:
        return self

    @property
    def clock(self) -> Any:
        return _Clock(self)

    @property
    def state(self) -> _Agent:
        return self

    def follow(self, balancer: Balancer) -> None:
        """Make a round with this config."""
        self.balancer = balancer
        self.decided = decide(self.decided, DesiredState(balancer, placed=self.placed))

    def place(self, service: str, blocks: Blocks | None) -> None:
        others = {name: value for name, value in self.placed.items() if name != service}
        self.placed = others if blocks is None else others | {service: blocks}


@dataclass
class _Clock:
    agent: _Agent

    def now_s(self) -> float:
        return self.agent.now_s


class _Port:
    """A packet socket without a device. `room`: frames until its queue is full; `error`: what it fails with then."""

    room: int | None = None
    error: OSError | None = None

    def __init__(self, device: str, *, is_listener: bool = False) -> None:
        self.device, self.is_listener, self.mac = device, is_listener, bytes(6)
        self.sent, self.is_closed = list[bytes](), False

    def send(self, frame: bytes) -> float | None:
        if self.room is not None and len(self.sent) >= self.room:
            if self.error is not None:
                raise self.error
            return None
        self.sent.append(frame)
        return 0.0

    def received(self) -> Iterator[Frame]:
        return iter(())

    def close(self) -> None:
        self.is_closed = True


def _tunnel(name: str, address: str, **changes: Any) -> HostTunnel:
    given = {"probe": _PROBE, "paths": _PATHS, **changes}
    return replace(TUNNEL, name=name, remotes=(Remote("b", IPv4Address(address)),), **given)


def _with(*tunnels: HostTunnel) -> Balancer:
    return replace(tunnelled(), tunnels=tunnels)


def _mover(agent: _Agent) -> tuple[Mover, list[_Port]]:
    opened = list[_Port]()

    def open_port(device: str, *, is_listener: bool = False) -> _Port:
        opened.append(_Port(device, is_listener=is_listener))
        return opened[-1]

    return Mover(agent, SourcePorts(), open_port), opened  # type: ignore[arg-type]


ONE, TWO, THREE = (_tunnel(f"rack{n}", f"192.168.201.{n}") for n in (1, 2, 3))


def test_a_tunnel_before_others_takes_none_of_their_numbers() -> None:
    """Its answers were counted for the remote with the same number, so it counted as silent for ever."""
    agent = _Agent(_with(TWO))
    mover, _ = _mover(agent)
    for tunnels in ((TWO,), (ONE, TWO), (TWO,), (TWO, THREE), (THREE,)):
        agent.follow(_with(*tunnels))
        mover._step()
        assert len({remote.number for remote in mover.remotes.values()}) == len(mover._numbers) == len(tunnels)


def test_a_round_that_changes_no_tunnel_leaves_the_times_of_probes_alone() -> None:
    """Each round of the agent, so each move, restarted the spread of all remotes over an interval."""
    agent = _Agent(_with(ONE, TWO, THREE))
    mover, _ = _mover(agent)
    mover._step()
    agent.now_s += 0.004
    mover._step()
    due = list(mover._due)
    agent.follow(replace(agent.balancer))
    mover._follow(agent.now_s)
    assert mover._due == due


def test_a_late_remote_gets_one_round_and_not_two() -> None:
    agent = _Agent(_with(ONE))
    mover, opened = _mover(agent)
    mover._step()
    (port,) = opened
    assert len(port.sent) == 4
    agent.now_s += 5.0
    mover._step()
    assert len(port.sent) == 8


def test_fewer_blocks_after_a_move_leave_a_remote_movable() -> None:
    """The stored placement had too many blocks for the new config, so its blocks stayed unknown."""
    agent = _Agent(_with(ONE))
    mover, _ = _mover(agent)
    mover._step()
    agent.place("rack1/b", blocks_of((1, *(0,) * 63), ["p1", "p2", "p3", "p4"]))
    agent.follow(_with(replace(ONE, blocks=16)))
    mover._step()
    agent.follow(replace(agent.balancer))
    placement = mover.placement(mover.remotes["rack1/b"])
    assert placement is not None
    assert len(placement.owners) == 16


def test_a_remote_that_comes_back_to_the_config_begins_without_its_former_blocks() -> None:
    agent = _Agent(_with(ONE, TWO))
    mover, _ = _mover(agent)
    mover._step()
    agent.place("rack1/b", blocks_of((1,) * 64, ["p1", "p2", "p3", "p4"]))
    agent.follow(_with(TWO))
    mover._step()
    assert agent.placed == {}


def test_remotes_at_the_end_of_the_config_are_searched_while_searches_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """With silent routers the first 17 of 100 remotes were due again before the others had their turn."""
    searched = list[str]()

    async def search(_lookout: Lookout, _search: object, remote: ProbedRemote, _now_s: float) -> None:
        searched.append(remote.tunnel.name)

    async def three_minutes() -> None:
        for _ in range(40):
            mover.lookout.look(agent.now_s)
            await asyncio.sleep(0)
            agent.now_s += 4.5

    monkeypatch.setattr(Lookout, "_run", search)
    sought = Paths(PathSelector.SOURCE_PORT, 4, Discover.TTL)
    names = [f"rack{n}" for n in range(30)]
    agent = _Agent(_with(*(_tunnel(name, f"192.168.201.{n}", paths=sought) for n, name in enumerate(names, start=1))))
    mover, _ = _mover(agent)
    mover._follow(agent.now_s)
    asyncio.run(three_minutes())
    assert set(searched) == set(names)


def test_an_agent_that_is_master_again_reverts_no_move_of_the_other_one() -> None:
    """It restored its own last placement, which moved clients."""
    agent = _Agent(_with(ONE))
    mover, _ = _mover(agent)
    mover._step()
    agent.place("rack1/b", blocks_of((1,) * 64, ["p1", "p2", "p3", "p4"]))
    agent.is_deciding = False
    agent.now_s += 1.0
    mover._step()
    assert agent.placed == {}


def test_a_remote_that_comes_leaves_the_records_of_the_others_in_its_tunnel() -> None:
    """A change of one remote dropped the scores of all remotes of its tunnel, so none was judged for a while."""
    b, c = (Remote(name, IPv4Address(f"192.168.201.{n}")) for n, name in enumerate("bc", start=1))
    tunnel = _tunnel("rack1", "192.168.201.1")
    agent = _Agent(_with(tunnel))
    mover, _ = _mover(agent)
    mover._step()
    before = mover.remotes["rack1/b"]
    agent.follow(_with(replace(tunnel, remotes=(c, b))))
    mover._step()
    assert mover.remotes["rack1/b"] is before
    assert [*mover.remotes] == ["rack1/c", "rack1/b"]
    agent.follow(_with(replace(tunnel, remotes=(c, replace(b, address=IPv4Address("192.168.201.9"))))))
    mover._step()
    assert mover.remotes["rack1/b"] is not before


@pytest.mark.parametrize("error", [None, OSError(6, "No such device")])
def test_a_round_that_cannot_be_sent_whole_is_lost_on_no_path(error: OSError | None) -> None:
    """Paths whose probes were not sent counted as lost, so they failed while the first ones answered."""
    agent = _Agent(_with(ONE))
    mover, opened = _mover(agent)
    mover._step()
    (remote,) = mover.remotes.values()
    opened[0].room, opened[0].error = 6, error
    agent.now_s += 0.01
    mover._step()
    assert len(opened[0].sent) == 6
    assert remote.record.silent_rounds == 1
    assert remote.rounds.finished(now_us=0.0) is not None
    finished = [*remote.rounds.finished(now_us=float("inf"))]
    assert [done.answers for done in finished] == [(None,) * 4]
    assert [path.lost for path in remote.record.paths] == [0] * 4


def test_a_failed_search_does_not_keep_the_sockets_of_an_agent_open_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def search(*_: object) -> None:
        raise ValueError("a bug")

    async def run_and_end() -> None:
        mover.lookout.look(agent.now_s)
        await asyncio.sleep(0)
        await mover.lookout.stop()

    monkeypatch.setattr(Lookout, "_run", search)
    agent = _Agent(_with(_tunnel("rack1", "192.168.201.1", paths=Paths(PathSelector.SOURCE_PORT, 4, Discover.TTL))))
    mover, _ = _mover(agent)
    mover._follow(agent.now_s)
    asyncio.run(run_and_end())


def test_packets_of_the_host_that_a_reflector_returns_are_counted_for_their_remote() -> None:
    agent = _Agent(_with(ONE, TWO))
    mover, _ = _mover(agent)
    mover._step()
    one = IPv4Address("192.168.201.1")
    ends = Addresses(bytes(6), bytes(6), one, TUNNEL.local, REFLECTED_PORT, 0x20)
    probe = probe_head(ends, REFLECTED_PORT)
    of_host = bytearray(probe + bytes(50))
    of_host[16:18] = (len(of_host) - 14).to_bytes(2, "big")
    of_host[24:26] = bytes(2)
    of_host[24:26] = checksum(bytes(of_host[14:34])).to_bytes(2, "big")
    of_host[46:49] = (42).to_bytes(3, "big")
    mover._receive(Frame(bytes(of_host), 0.0))
    mover._receive(Frame(probe + payload(Token(999, 1, 1)), 0.0))
    assert [remote.returned for remote in mover.remotes.values()] == [1, 0]


def test_what_decisions_cost_makes_no_interval_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 remotes were probed only every five seconds, because decisions counted as the cost of probes."""
    cpu_s = [0.0]
    monkeypatch.setattr("xenoovs.agent.paths.mover.time.thread_time", lambda: cpu_s[0])
    agent = _Agent(_with(ONE))
    mover, _ = _mover(agent)
    decide_s = mover._decide

    def slow(remote: ProbedRemote, now_s: float) -> None:
        cpu_s[0] += 1.0
        decide_s(remote, now_s)

    monkeypatch.setattr(mover, "_decide", slow)
    for _ in range(300):
        mover._step()
        agent.now_s += 0.01
    assert cpu_s[0] > 10
    assert mover.pace.factor == 1.0


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes each time that the clock is read, so that each round is over when the next one begins."""
    seconds = count()
    monkeypatch.setattr("xenoovs.agent.paths.remote.now_us", lambda: next(seconds) * 1e6)


def _answered_round(remote: ProbedRemote, port: _Port, paths: tuple[int, ...]) -> int:
    """Send a round of which these paths answer; return the TOS of its probes."""
    port.sent.clear()
    remote.send_round(port, bytes(6))  # type: ignore[arg-type]
    for frame in port.sent:
        token = Token(*unpack("!IIQ", frame[-16:]))
        if int.from_bytes(frame[34:36], "big") - 50_001 in paths:
            assert remote.rounds.answered(Answer(token, remote.remote.address, frame[15]), received_us=100.0)
    remote.count_rounds()
    return port.sent[0][15]


@pytest.mark.usefixtures("late")
def test_a_dead_way_back_is_left_before_the_paths_are_unknown() -> None:
    agent = _Agent(_with(ONE))
    mover, _ = _mover(agent)
    mover._follow(agent.now_s)
    (remote,) = mover.remotes.values()
    port = _Port("xoar0")
    assert [_answered_round(remote, port, ()) for _ in range(12)] == [0x20] * 4 + [0x24] * 4 + [0x2C] * 4
    assert not remote.record.is_silent
    # The last way answers, and is kept.
    assert [_answered_round(remote, port, (0, 1, 3)) for _ in range(9)] == [0x34] * 9
    agent.now_s += 1.0
    remote.decide(None, is_paused=False, now_s=agent.now_s)
    assert [path.state.value for path in remote.verdict.paths] == ["good", "good", "failed", "good"]


@pytest.mark.usefixtures("late")
def test_a_remote_that_answers_by_no_way_is_unknown() -> None:
    agent = _Agent(_with(ONE))
    mover, _ = _mover(agent)
    mover._follow(agent.now_s)
    (remote,) = mover.remotes.values()
    port = _Port("xoar0")
    tried = [_answered_round(remote, port, ()) for _ in range(16)]
    assert tried == [0x20] * 4 + [0x24] * 4 + [0x2C] * 4 + [0x34] * 4
    assert remote.record.is_silent
    assert _answered_round(remote, port, ()) == 0x20

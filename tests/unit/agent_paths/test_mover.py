"""The loop of adaptive routing beside an agent that only remembers what it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from typing import Any

import pytest

from tests.tunnels import TUNNEL, tunnelled
from xenoovs.agent.paths.lookout import Lookout
from xenoovs.agent.paths.mover import Mover
from xenoovs.agent.paths.port import Frame
from xenoovs.agent.paths.ports import SourcePorts
from xenoovs.agent.paths.remote import ProbedRemote, blocks_of
from xenoovs.agent.snapshot import Runtime
from xenoovs.decision.decide import decide
from xenoovs.decision.decision import Blocks, Decision, DesiredState
from xenoovs.model.address import Mac
from xenoovs.model.balancer import Balancer
from xenoovs.model.tunnel import Discover, HostTunnel, PathProbe, Paths, PathSelector, Remote

_PROBE = PathProbe("xoar0", gateway=Mac(0x02005E1000FE))
_PATHS = Paths(PathSelector.SOURCE_PORT, 4, Discover.LIST, (50_001, 50_002, 50_003, 50_004))


@dataclass
class _Agent:
    """What the mover asks of an agent. Time stands still until a test moves it."""

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
    """A packet socket without a device."""

    def __init__(self, device: str, *, is_listener: bool = False) -> None:
        self.device, self.is_listener, self.mac = device, is_listener, bytes(6)
        self.sent, self.is_closed = list[bytes](), False

    def send(self, frame: bytes) -> float:
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
    """Its answers were counted for the remote with the same number, and it looked silent for ever."""
    agent = _Agent(_with(TWO))
    mover, _ = _mover(agent)
    for tunnels in ((TWO,), (ONE, TWO), (TWO,), (TWO, THREE), (THREE,)):
        agent.follow(_with(*tunnels))
        mover._step()
        assert len({remote.number for remote in mover.remotes.values()}) == len(mover._numbers) == len(tunnels)


def test_a_round_that_changes_no_tunnel_leaves_the_times_of_probes_alone() -> None:
    """Each round of the agent, so each move, began the spread of all remotes over an interval anew."""
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
    """What was placed had too many blocks for the new config, so that its blocks were never known again."""
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
    """Its own last placement came back with it, and clients with it."""
    agent = _Agent(_with(ONE))
    mover, _ = _mover(agent)
    mover._step()
    agent.place("rack1/b", blocks_of((1,) * 64, ["p1", "p2", "p3", "p4"]))
    agent.is_deciding = False
    agent.now_s += 1.0
    mover._step()
    assert agent.placed == {}

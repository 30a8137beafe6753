"""Adaptive routing: decisions about blocks, ports on different paths, answers, and the loop with its sockets."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from itertools import count, product
from random import Random
from struct import unpack
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.path_rounds import Sender, always
from tests.probe_frames import ADDRESSES, TOKEN, answer_to, quote_of
from tests.tunnels import TUNNEL, tunnelled
from xenoovs.agent.control.handlers import PinRequest
from xenoovs.agent.control.schemas import parse_request
from xenoovs.agent.paths.devices import Devices, Frame, NextHopMacs, ProbePort
from xenoovs.agent.paths.frame import (
    Addresses,
    Answer,
    Quote,
    Search,
    Token,
    TtlProbe,
    hops_text,
    in_places,
    parse_answer,
    parse_next_hop_mac,
    parse_quote,
    payload,
    probe_head,
)
from xenoovs.agent.paths.mover import MAX_SHARE, PROBES_PER_S, Mover, ProbeBudget
from xenoovs.agent.paths.remote import ProbedRemote, blocks_of
from xenoovs.agent.paths.score import Rounds
from xenoovs.agent.paths.search import Lookout, SourcePorts
from xenoovs.agent.state import BlocksPlaced, Runtime
from xenoovs.decision.decide import decide
from xenoovs.decision.decision import Blocks, Decision, DesiredState
from xenoovs.model.address import Mac, checksum
from xenoovs.model.balancer import Balancer
from xenoovs.model.tunnel import REFLECTED_PORT, Discover, HostTunnel, PathProbe, Paths, PathSelector, Remote
from xenoovs.show.paths import MoveReason

CLEAR, FULL = 400.0, 20_400.0
ALL_CLEAR, ONE_FULL = always(*[CLEAR] * 4), always(CLEAR, FULL, CLEAR, CLEAR)


def calm(**options: Any) -> Sender:
    """A sender after a second in which all paths were clear."""
    return Sender(**options).run(1.0, ALL_CLEAR)


class Fabric:
    """Answers of four paths beside random loss: of path 1 on the way out, and of the ways back (all, or the first)."""

    def __init__(
        self, sender: Sender, seed: int, *, out: float = 0.0, back: float = 0.0, every_way: bool = False
    ) -> None:
        self._sender, self._random = sender, Random(seed)
        self._out, self._back, self._every_way = out, back, every_way

    def __call__(self, _now_s: float) -> list[float | None]:
        back = self._back if self._every_way or self._sender.ways.number == 0 else 0.0
        out = (0.0, self._out, 0.0, 0.0)
        return [None if self._random.random() < 1 - (1 - lost) * (1 - back) else CLEAR for lost in out]


LOSSES = (0.1, 0.3, 0.6)


@pytest.mark.parametrize("every_way", [False, True], ids=["one way back", "all ways back"])
@pytest.mark.parametrize("loss", LOSSES)
def test_bug_loss_on_ways_back_moved_blocks(loss: float, every_way: bool) -> None:
    for seed in range(3):
        sender = calm(seed=seed)
        sender.run(60.0, Fabric(sender, seed, back=loss, every_way=every_way))
        assert not sender.shifts
        assert every_way or sender.ways.number == 1


@pytest.mark.parametrize(("back", "every_way"), [(0.0, False), *product(LOSSES, (False, True))])
@pytest.mark.parametrize("out", LOSSES)
def test_a_path_that_loses_packets_on_the_way_out_is_left_once(out: float, back: float, *, every_way: bool) -> None:
    """Loss on all ways back may hide it for a while: then blocks come back, within the budget of a minute."""
    sender = calm()
    sender.run(60.0, Fabric(sender, 1, out=out, back=back, every_way=every_way))
    assert {shift.reason for _, shift in sender.shifts} <= {MoveReason.LOSSY, MoveReason.FAILED, MoveReason.RESTORED}
    assert len(sender.shifts) <= 64
    if not every_way:
        assert len(sender.shifts) == 16
        assert sender.counts[1] == 0
    sender.run(10.0, ALL_CLEAR)
    assert sender.counts == [16] * 4


def test_a_remote_moves_no_more_blocks_in_a_minute_than_it_has() -> None:
    sender, chance = Sender(), Random(1)
    sender.run(1.0, ALL_CLEAR)
    for _ in range(240):
        slow = chance.randrange(4)
        sender.run(0.5, always(*(FULL if path == slow else CLEAR for path in range(4))))
    times = [at_s for at_s, shift in sender.shifts]
    assert len(times) > 64
    assert all(sum(at_s <= each < at_s + 60 for each in times) <= 64 for at_s in times)
    counts = sender.counts
    sender.run(0.5, always(CLEAR, None, CLEAR, CLEAR))
    assert counts[1]
    assert sender.counts[1] == 0


def test_the_automatic_margin_follows_the_noise_of_calm_rounds() -> None:
    quiet = Sender(margin_us=None).run(2.0, always(CLEAR, CLEAR + 3, CLEAR + 1, CLEAR + 2))
    assert quiet.record.auto_margin_us == 20.0
    noisy = Sender(margin_us=None).run(
        2.0, lambda now_s: [CLEAR + (round(now_s * 100) * 7 + path * 5) % 11 * 20.0 for path in range(4)]
    )
    assert noisy.record.auto_margin_us > 200.0
    margin_us = noisy.record.auto_margin_us
    noisy.run(2.0, ONE_FULL)
    assert noisy.counts[1] == 0
    assert noisy.record.auto_margin_us <= margin_us
    assert replace(noisy.record, deviations=()).auto_margin_us == 20.0


REMOTE = IPv4Address("192.168.200.1")
LEAF, FAR_LEAF = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
PORTS = tuple(Random(1).sample(range(49_152, 65_536), 48))


def spine(port: int, paths: int = 4) -> IPv4Address:
    return IPv4Address(f"10.0.1.{1 + port % paths}")


def router(probe: TtlProbe, paths: int = 4) -> IPv4Address:
    return {1: LEAF, 2: spine(probe.source_port, paths), 3: FAR_LEAF}[probe.ttl]


def asked(answers: Callable[[TtlProbe], bool], *, tries: int = 1, ports: tuple[int, ...] = PORTS) -> Search:
    search = Search(REMOTE, ports, count(1))
    for _ in range(tries):
        for probe in search.probes():
            if answers(probe):
                search.quoted(Quote(router(probe), REMOTE, probe.source_port, probe.ident))
    return search


def test_one_port_of_each_path_is_found_and_no_more_also_from_routers_that_limit_icmp_to_six_answers() -> None:
    left = dict.fromkeys((LEAF, FAR_LEAF, *(IPv4Address(f"10.0.1.{n}") for n in range(1, 5))), 6)

    def limited(probe: TtlProbe) -> bool:
        left[router(probe)] -= 1
        return left[router(probe)] >= 0

    for search, wanted in ((asked(lambda _: True), 4), (asked(lambda _: True), 8), (asked(limited), 4)):
        assert sorted(map(spine, search.differing(wanted))) == [IPv4Address(f"10.0.1.{n}") for n in range(1, 5)]


def test_missing_answers_make_no_path_of_their_own() -> None:
    """Three agents that started at once found 6 to 11 paths instead of four, because routers limit ICMP."""
    for seed in range(50):
        chance = Random(seed)
        found = asked(lambda _, chance=chance: chance.random() < 0.3, tries=4).differing(8)  # type: ignore[misc]
        assert len(found) <= 4
        assert len(set(map(spine, found))) == len(found)


def test_silent_routers_give_no_ports_and_no_duplicates_and_are_asked_again_alone() -> None:
    silent = asked(lambda _: False, tries=4, ports=PORTS[:4])
    assert (silent.differing(4), silent.same(PORTS[:4])) == ((), ())
    partly = asked(lambda probe: probe.ttl != 2, ports=PORTS[:4])
    assert (partly.has_gap, partly.same(PORTS[:4]), {probe.ttl for probe in partly.probes()}) == (True, (), {2})
    whole = asked(lambda _: True, ports=PORTS[:4])
    assert (whole.has_gap, [*whole.probes()]) == (False, [])


def test_forged_quotes_do_not_count() -> None:
    search = Search(REMOTE, PORTS, count(1))
    probe = next(search.probes())
    assert not search.quoted(Quote(LEAF, REMOTE, probe.source_port, 60_000))
    assert not search.quoted(Quote(LEAF, IPv4Address("192.0.2.1"), probe.source_port, probe.ident))
    assert not search.quoted(Quote(LEAF, REMOTE, 1, probe.ident))
    assert search.quoted(Quote(LEAF, REMOTE, probe.source_port, probe.ident))


def test_ports_in_use_that_share_a_path_are_reported_and_the_others_stay() -> None:
    one, other = (port for port in PORTS if port % 4 == 0), (port for port in PORTS if port % 4 == 1)
    in_use = next(one), next(other), next(one)
    assert asked(lambda _: True, ports=in_use).same(in_use) == (in_use[2],)
    found = asked(lambda _: True).differing(4, keep=in_use[:2])
    assert found[:2] == in_use[:2]
    assert len(set(map(spine, found))) == 4


def test_routers_are_shown_in_order() -> None:
    assert (hops_text({1: LEAF, 3: FAR_LEAF}), hops_text({})) == ("10.0.0.1,*,10.0.0.2", "")


@pytest.mark.parametrize(
    ("before", "found", "after"),
    [
        ((1, 2, 3, 4), (1, 3, 4, 9), (1, 9, 3, 4)),
        ((1, 2, 3, 4), (1, 3, 4), (1, 0, 3, 4)),
        ((1, 0, 3, 4), (1, 3, 4, 9), (1, 9, 3, 4)),
        ((0, 0, 0), (5, 6), (5, 6, 0)),
        ((), (5, 6), (5, 6)),
    ],
    ids=["one is replaced", "one has none", "one is found again", "first ones", "no names"],
)
def test_a_port_that_changes_leaves_the_others_under_their_names(
    before: tuple[int, ...], found: tuple[int, ...], after: tuple[int, ...]
) -> None:
    """Blocks are placed by path names: all blocks after the second path changed their source port too."""
    assert in_places(before, found) == after


def begun(*sent_us: float) -> tuple[Rounds, list[Token]]:
    """A round whose probes, one a path, were sent at these times; the time-out is 60 ms."""
    rounds = Rounds(7, REMOTE, timeout_us=60_000)
    rounds.begin(len(sent_us), tos=0x24, now_us=sent_us[0])
    tokens = []
    for path, at_us in enumerate(sent_us):
        tokens.append(rounds.token(nonce=1000 + path))
        rounds.sent(tokens[-1], path, sent_us=at_us)
    return rounds, tokens


OTHER = IPv4Address("192.168.200.9")
# When probes were sent; answers: to which, whether it counts, what differs, when; what is known when; forged.
Received = tuple[int, bool, dict[str, Any], float]
PAIRED: dict[str, tuple[list[float], list[Received], float, list[object], int]] = {
    "in any order": ([0, 10], [(1, True, {}, 910), (0, True, {}, 500)], 1000, [(500, 900)], 0),
    "not over before the time-out": ([0, 10], [(0, True, {}, 500)], 60_010, [], 0),
    "over after the time-out": ([0, 10], [(0, True, {}, 500)], 60_011, [(500, None)], 0),
    "a repeated answer": ([0, 10], [(0, True, {}, 500), (0, False, {}, 501)], 60_011, [(500, None)], 0),
    "another nonce, then the true one": ([0], [(0, False, {"nonce": 1}, 5), (0, True, {}, 9)], 600, [(9,)], 1),
    "another address": ([0], [(0, False, {"source": OTHER}, 5)], 600, [], 1),
    "a probe that was never sent": ([0], [(0, False, {"sequence": 99}, 5)], 600, [], 1),
    "a late answer that is read in time": ([0], [(0, True, {}, 60_001)], 0, [(None,)], 0),
    "a late reader": ([0], [(0, True, {}, 400)], 9_000_000, [(400,)], 0),
    "an answer before its probe, as the clock was set back": ([1e6], [(0, True, {}, 400)], 1e6, [(None,)], 0),
}


@pytest.mark.parametrize("name", PAIRED)
def test_answers_are_paired_with_their_probes(name: str) -> None:
    sent_us, received, now_us, answers, forged = PAIRED[name]
    rounds, tokens = begun(*sent_us)
    for path, is_counted, changes, at_us in received:
        of_token = {name: value for name, value in changes.items() if name != "source"}
        found = Answer(replace(tokens[path], **of_token), changes.get("source", REMOTE), 0x20)
        assert rounds.answered(found, received_us=at_us) == is_counted
    assert [found for _, found in rounds.finished(now_us=now_us)] == answers
    assert rounds.forged == forged
    assert forged or rounds.tos == (0x20, 0x24)
    # A round that is over leaves no state.
    assert not answers or not rounds.answered(Answer(tokens[0], REMOTE, 0x20), received_us=now_us)


@pytest.mark.parametrize(("remotes", "factor"), [(0, 1.0), (50, 1.0), (100, 2.0)])
def test_many_remotes_are_probed_less_often_to_keep_the_budget(remotes: int, factor: float) -> None:
    pace = ProbeBudget()
    pace.plan([(4, 0.01)] * remotes)
    pace.measured(probes=0, busy_s=0.1)
    assert pace.factor == factor
    assert remotes * 4 / (0.01 * pace.factor) <= PROBES_PER_S


def test_bug_no_path_was_judged_after_the_clock_was_set_back_until_it_had_caught_up() -> None:
    """By an hour, while one path was dead: the open round seemed to have an hour left, and later ones waited for it."""
    rounds, _ = begun(3_600e6)
    rounds.begin(1, tos=0x24, now_us=0)
    rounds.sent(rounds.token(nonce=1), 0, sent_us=0)
    assert [found for _, found in rounds.finished(now_us=60_001)] == [(None,), (None,)]


def test_a_slow_machine_keeps_its_part_of_the_processor() -> None:
    pace = ProbeBudget()
    pace.plan([(4, 0.01)] * 100)
    for _ in range(200):
        pace.measured(probes=4, busy_s=4 * 100e-6)
    assert 100 * 4 / (0.01 * pace.factor) * 100e-6 == pytest.approx(MAX_SHARE)


def test_few_probes_beside_many_decisions_do_not_seem_to_cost_more_each() -> None:
    """Decisions about 100 remotes counted as the cost of probes, so fewer probes led to ever fewer probes."""
    pace = ProbeBudget()
    pace.plan([(4, 0.01)] * 100)
    pace.measured(probes=0, busy_s=1e-3)
    assert pace.factor == 2.0
    for _ in range(500):
        pace.measured(probes=4, busy_s=4 * 10e-6)
        pace.measured(probes=0, busy_s=4 * 20e-6)
    assert pace.cost_s == pytest.approx(30e-6, rel=0.2)


PROBE = probe_head(ADDRESSES, 50_001) + payload(TOKEN)


def test_a_probe_has_66_bytes_and_the_tos_of_the_data() -> None:
    assert (len(PROBE), PROBE[15], checksum(PROBE[14:34])) == (66, 0x20, 0)
    assert unpack("!HH", PROBE[34:38]) == (50_001, 4789)
    geneve = probe_head(replace(ADDRESSES, tunnel_port=6081), 50_001)
    assert geneve[42:46] == bytes.fromhex("00006558")


def test_an_answer_carries_what_was_sent_and_nothing_else_is_one() -> None:
    whole = answer_to(PROBE)
    assert parse_answer(whole) == Answer(TOKEN, ADDRESSES.remote, 0x20)
    fragment = bytearray(whole)
    fragment[21], fragment[24:26] = 1, bytes(2)
    fragment[24:26] = checksum(bytes(fragment[14:34])).to_bytes(2, "big")
    for other in (PROBE, bytes(fragment), *(whole[:size] for size in range(66))):
        assert parse_answer(other) is None


def test_a_router_quotes_the_source_port_and_at_least_the_udp_header() -> None:
    frame = probe_head(ADDRESSES, 50_001, ttl=1, ident=77) + payload(TOKEN)
    quote, expected = quote_of(frame, "10.0.0.1"), Quote(IPv4Address("10.0.0.1"), ADDRESSES.remote, 50_001, 77)
    assert parse_quote(quote, tunnel_port=4789) == expected
    assert parse_quote(quote_of(frame, "10.0.0.1", size=28), tunnel_port=4789) == expected
    assert parse_quote(quote_of(frame, "10.0.0.1", size=27), tunnel_port=4789) is None
    assert parse_quote(quote, tunnel_port=6081) is None
    assert parse_quote(quote[:-1] + bytes([quote[-1] ^ 1]), tunnel_port=4789) is None


def test_only_packets_of_the_tunnel_teach_the_next_hop() -> None:
    assert parse_next_hop_mac(PROBE, ADDRESSES.remote, tunnel_port=4789) == ADDRESSES.gateway_mac
    assert parse_next_hop_mac(PROBE, ADDRESSES.local, tunnel_port=4789) is None
    assert parse_next_hop_mac(PROBE, ADDRESSES.remote, tunnel_port=6081) is None
    assert parse_next_hop_mac(b"\xff" * 6 + PROBE[6:], ADDRESSES.remote, tunnel_port=4789) is None


_QUOTE = quote_of(probe_head(ADDRESSES, 50_001, ttl=2) + payload(Token(0, 0, 0)), "10.0.0.1")

CHANGED = st.builds(
    lambda frame, at, value, size: (frame[:at] + bytes([value]) + frame[at + 1 :])[:size],
    st.sampled_from([answer_to(PROBE), _QUOTE]),
    st.integers(0, 80),
    st.integers(0, 255),
    st.integers(0, 100),
)


@given(st.binary(max_size=200) | CHANGED)
def test_any_bytes_and_frames_with_a_changed_byte_are_read_without_an_error(data: bytes) -> None:
    parse_answer(data), parse_quote(data, tunnel_port=4789)
    parse_next_hop_mac(data, ADDRESSES.remote, tunnel_port=4789)


LOCAL = IPv4Address("192.168.200.2")
OLD, NEW = bytes.fromhex("02005e100001"), bytes.fromhex("02005e100002")


def _sent(gateway: bytes) -> bytes:
    return probe_head(Addresses(bytes(6), gateway, LOCAL, REMOTE, 4789, 0), 50_000) + payload(Token(1, 1, 1))


class _Port:
    """A packet socket without a device. `room`: frames until its queue is full; `error`: what it fails with then."""

    room: int | None = None
    error: OSError | None = None

    def __init__(self, device: str, *, is_listener: bool = False) -> None:
        self.device, self.is_listener, self.mac = device, is_listener, bytes(6)
        self.sent, self.frames, self.is_closed = list[bytes](), list[bytes](), False

    def send(self, frame: bytes) -> float | None:
        if self.room is not None and len(self.sent) >= self.room:
            if self.error is not None:
                raise self.error
            return None
        self.sent.append(frame)
        return 0.0

    def received(self) -> Iterator[Frame]:
        found, self.frames = self.frames, []
        return (Frame(data, 0.0) for data in found)

    def close(self) -> None:
        self.is_closed = True


class _Ports(list[_Port]):
    """All that were opened."""

    def open(self, device: str, *, is_listener: bool = False) -> Any:
        self.append(_Port(device, is_listener=is_listener))
        return self[-1]


def test_the_mac_of_a_router_that_was_replaced_is_learned_again() -> None:
    """Probes went to the old router until the agent's restart, so the remote counted as silent."""
    opened = _Ports()
    macs = NextHopMacs(opened.open)
    assert macs.find("pf0hpf", REMOTE, tunnel_port=4789) is None
    macs.listen()
    opened[0].frames = [b"", _sent(OLD)]
    macs.listen()
    assert opened[0].is_closed
    for now_s in (100.0, 101.0):
        macs.renew("pf0hpf", REMOTE, tunnel_port=4789, now_s=now_s)
        assert macs.find("pf0hpf", REMOTE, tunnel_port=4789) == OLD
    macs.listen()
    opened[1].frames = [_sent(NEW)]
    macs.listen()
    assert macs.find("pf0hpf", REMOTE, tunnel_port=4789) == NEW
    assert opened[1].is_closed
    macs.renew("pf0hpf", REMOTE, tunnel_port=4789, now_s=105.0)
    macs.listen()
    assert len(opened) == 2


def test_sockets_for_remotes_and_ports_that_the_config_lacks_are_closed() -> None:
    """The socket that listened for a remote stayed open and read every frame of the host."""
    opened = _Ports()
    macs, devices = NextHopMacs(opened.open), Devices(opened.open)
    macs.find("pf0hpf", REMOTE, tunnel_port=4789)
    macs.listen()
    macs.keep(())
    macs.listen()
    for device in ("xoar0", "xoar1"):
        devices.port(device, 0.0)
    devices.keep({"xoar1"})
    assert [port.is_closed for port in opened] == [True, True, False]


class _Socket:
    """A packet socket that refuses all frames for one reason."""

    def __init__(self, number: int) -> None:
        self._number = number

    def getsockname(self) -> tuple[object, ...]:
        return "lo", 0, 0, 1, bytes(6)

    def send(self, _frame: bytes) -> int:
        raise OSError(self._number, os.strerror(self._number))


def test_a_full_queue_sends_no_probe_and_keeps_the_socket_and_a_device_that_is_gone_ends_it() -> None:
    """ENOBUFS closed the socket, so all paths counted as silent until it was open again."""

    def send(number: int) -> float | None:
        with patch("xenoovs.agent.paths.devices._open", lambda *_: _Socket(number)):
            return ProbePort("lo").send(b"")

    assert send(errno.EAGAIN) is send(errno.ENOBUFS) is None
    with pytest.raises(OSError, match=os.strerror(errno.ENXIO)):
        send(errno.ENXIO)


def test_a_path_by_uplink_can_be_pinned_whatever_its_port_is_called() -> None:
    assert parse_request(b'{"remote": "rack7/b", "path": "p0@x"}', PinRequest).path == "p0@x"


_PROBE = PathProbe("xoar0", gateway=Mac(0x02005E1000FE))
_PATHS = Paths(PathSelector.SOURCE_PORT, 4, Discover.LIST, (50_001, 50_002, 50_003, 50_004))
_SOUGHT = Paths(PathSelector.SOURCE_PORT, 4, Discover.TTL)


@dataclass
class _Agent:
    """The interface of an agent that the mover uses. Only the test advances the time."""

    balancer: Balancer
    time_s: float = 100.0
    placed: dict[str, Blocks] = field(default_factory=dict)
    decided: Decision = field(default_factory=Decision)
    runtime: Runtime = field(default_factory=Runtime)
    is_deciding: bool = True

    def __post_init__(self) -> None:
        self.follow(self.balancer)

    @property
    def state(self) -> _Agent:
        """It is also its state and its engine, which the mover asks for a decision."""
        return self

    engine = state

    def now_s(self) -> float:
        return self.time_s

    def follow(self, balancer: Balancer) -> None:
        """Make a round with this config."""
        self.balancer = balancer
        self.decided = decide(self.decided, DesiredState(balancer, placed=self.placed))

    def dispatch(self, event: BlocksPlaced) -> None:
        others = {name: value for name, value in self.placed.items() if name != event.service}
        self.placed = others if event.blocks is None else others | {event.service: event.blocks}


def _tunnel(name: str, address: str, **changes: Any) -> HostTunnel:
    given = {"probe": _PROBE, "paths": _PATHS, **changes}
    return replace(TUNNEL, name=name, remotes=(Remote("b", IPv4Address(address)),), **given)


def _with(*tunnels: HostTunnel) -> Balancer:
    return replace(tunnelled(), tunnels=tunnels)


def _followed(*tunnels: HostTunnel) -> tuple[_Agent, Mover, _Ports]:
    """An agent with these tunnels, and a mover that has not begun."""
    agent, opened = _Agent(_with(*tunnels)), _Ports()
    parts: Any = agent
    decides = lambda: agent.is_deciding  # noqa: E731
    mover = Mover(parts, parts, SourcePorts(), opened.open, is_deciding=decides, request_round=lambda: None)
    mover._follow(agent.time_s)
    return agent, mover, opened


def _begun(*tunnels: HostTunnel) -> tuple[_Agent, Mover, _Ports]:
    """After the first step."""
    agent, mover, opened = _followed(*tunnels)
    mover._step()
    return agent, mover, opened


ONE, TWO, THREE = (_tunnel(f"rack{n}", f"192.168.201.{n}") for n in (1, 2, 3))


def test_a_tunnel_before_others_takes_none_of_their_numbers() -> None:
    """Its answers were counted for the remote with the same number, so it counted as silent for ever."""
    agent, mover, _ = _followed(TWO)
    for tunnels in ((TWO,), (ONE, TWO), (TWO,), (TWO, THREE), (THREE,)):
        agent.follow(_with(*tunnels))
        mover._step()
        assert len({remote.number for remote in mover.remotes.values()}) == len(mover._numbers) == len(tunnels)


def test_a_round_that_changes_no_tunnel_leaves_the_times_of_probes_alone() -> None:
    """Each round of the agent, so each move, restarted the spread of all remotes over an interval."""
    agent, mover, _ = _begun(ONE, TWO, THREE)
    agent.time_s += 0.004
    mover._step()
    due = list(mover._due)
    agent.follow(replace(agent.balancer))
    mover._follow(agent.time_s)
    assert mover._due == due


def test_a_late_remote_gets_one_round_and_not_two() -> None:
    agent, mover, opened = _begun(ONE)
    (port,) = opened
    assert len(port.sent) == 4
    agent.time_s += 5.0
    mover._step()
    assert len(port.sent) == 8


def test_fewer_blocks_after_a_move_leave_a_remote_movable() -> None:
    """The stored placement had too many blocks for the new config, so its blocks stayed unknown."""
    agent, mover, _ = _begun(ONE)
    agent.dispatch(BlocksPlaced("rack1/b", blocks_of((1, *(0,) * 63), ["p1", "p2", "p3", "p4"])))
    agent.follow(_with(replace(ONE, blocks=16)))
    mover._step()
    agent.follow(replace(agent.balancer))
    placement = mover.placement(mover.remotes["rack1/b"])
    assert placement is not None
    assert len(placement.owners) == 16


@pytest.mark.parametrize("is_master", [True, False])
def test_blocks_of_a_remote_that_is_removed_and_of_an_agent_that_stands_by_are_forgotten(*, is_master: bool) -> None:
    """An agent that was master again restored its own last placement, which moved clients."""
    agent, mover, _ = _begun(ONE, TWO)
    agent.dispatch(BlocksPlaced("rack1/b", blocks_of((1,) * 64, ["p1", "p2", "p3", "p4"])))
    if is_master:
        agent.follow(_with(TWO))
    agent.is_deciding = is_master
    agent.time_s += 1.0
    mover._step()
    assert agent.placed == {}


def test_remotes_at_the_end_of_the_config_are_searched_while_searches_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """With silent routers the first 17 of 100 remotes were due again before the others had their turn."""
    searched = list[str]()

    async def search(_lookout: Lookout, _search: object, remote: ProbedRemote, _now_s: float) -> None:
        searched.append(remote.tunnel.name)

    async def three_minutes() -> None:
        for _ in range(40):
            mover.lookout.look(mover.remotes, agent.time_s)
            await asyncio.sleep(0)
            agent.time_s += 4.5

    monkeypatch.setattr(Lookout, "_run", search)
    names = [f"rack{n}" for n in range(30)]
    tunnels = (_tunnel(name, f"192.168.201.{n}", paths=_SOUGHT) for n, name in enumerate(names, start=1))
    agent, mover, _ = _followed(*tunnels)
    asyncio.run(three_minutes())
    assert set(searched) == set(names)


def test_a_remote_that_comes_leaves_the_records_of_the_others_in_its_tunnel() -> None:
    """A change of one remote dropped the scores of all remotes of its tunnel, so none was judged for a while."""
    b, c = (Remote(name, IPv4Address(f"192.168.201.{n}")) for n, name in enumerate("bc", start=1))
    tunnel = _tunnel("rack1", "192.168.201.1")
    agent, mover, _ = _begun(tunnel)
    before = mover.remotes["rack1/b"]
    agent.follow(_with(replace(tunnel, remotes=(c, b))))
    mover._step()
    assert mover.remotes["rack1/b"] is before
    assert [*mover.remotes] == ["rack1/c", "rack1/b"]
    agent.follow(_with(replace(tunnel, remotes=(c, replace(b, address=IPv4Address("192.168.201.9"))))))
    mover._step()
    assert mover.remotes["rack1/b"] is not before


def test_bug_the_routers_of_a_path_were_unknown_for_a_minute_after_its_source_port_was_found() -> None:
    agent, mover, _ = _begun(ONE)
    (before,) = mover.remotes.values()
    before.hops[50_001] = "10.0.1.1"
    (remote,) = ONE.remotes
    for address, hops in ((remote.address, {50_001: "10.0.1.1"}), (IPv4Address("192.168.201.9"), {})):
        agent.follow(_with(replace(ONE, margin_us=77, remotes=(replace(remote, address=address),))))
        mover._step()
        (after,) = mover.remotes.values()
        assert after is not before
        assert after.hops == hops


@pytest.mark.parametrize("error", [None, OSError(6, "No such device")])
def test_a_round_that_cannot_be_sent_whole_is_lost_on_no_path(error: OSError | None) -> None:
    """Paths whose probes were not sent counted as lost, so they failed while the first ones answered."""
    agent, mover, opened = _begun(ONE)
    (remote,) = mover.remotes.values()
    opened[0].room, opened[0].error = 6, error
    agent.time_s += 0.01
    mover._step()
    assert len(opened[0].sent) == 6
    assert remote.record.silent_rounds == 1
    assert remote.rounds.finished(now_us=0.0) is not None
    finished = [*remote.rounds.finished(now_us=float("inf"))]
    assert [answers for _, answers in finished] == [(None,) * 4]
    assert [path.lost for path in remote.record.paths] == [0] * 4


def test_a_failed_search_does_not_keep_the_sockets_of_an_agent_open_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def search(*_: object) -> None:
        raise ValueError("a bug")

    async def run_and_end() -> None:
        mover.lookout.look(mover.remotes, agent.time_s)
        await asyncio.sleep(0)
        await mover.lookout.stop()

    monkeypatch.setattr(Lookout, "_run", search)
    agent, mover, _ = _followed(replace(ONE, paths=_SOUGHT))
    asyncio.run(run_and_end())


def test_the_times_of_searches_are_forgotten_with_their_remotes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lookout, "_sender", lambda *_: None)
    first, second = (replace(each, paths=_SOUGHT) for each in (ONE, TWO))
    agent, mover, _ = _begun(first, second)
    mover.discover("rack1/b")
    agent.follow(_with(second))
    agent.time_s += 1.0
    mover._step()
    assert (set(mover.lookout._due_s), set(mover.lookout._more_s)) == ({"rack2/b"}, set[str]())


def test_packets_of_the_host_that_a_reflector_returns_are_counted_for_their_remote() -> None:
    _, mover, _ = _begun(ONE, TWO)
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
    agent, mover, _ = _followed(ONE)
    decide_s = mover._decide

    def slow(remote: ProbedRemote, now_s: float) -> None:
        cpu_s[0] += 1.0
        decide_s(remote, now_s)

    monkeypatch.setattr(mover, "_decide", slow)
    for _ in range(300):
        mover._step()
        agent.time_s += 0.01
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


ONE_WAY_A_QUARTER = [0x20] * 4 + [0x24] * 4 + [0x2C] * 4 + [0x34] * 4


@pytest.mark.usefixtures("late")
def test_a_dead_way_back_is_left_before_the_paths_are_unknown_and_they_are_if_none_answers() -> None:
    agent, mover, _ = _followed(ONE, TWO)
    remote, silent = mover.remotes.values()
    port = _Port("xoar0")
    assert [_answered_round(remote, port, ()) for _ in range(12)] == ONE_WAY_A_QUARTER[:12]
    assert not remote.record.is_silent
    # The last way answers, and is kept.
    assert [_answered_round(remote, port, (0, 1, 3)) for _ in range(9)] == [0x34] * 9
    remote.decide(None, is_paused=False, now_s=agent.time_s + 1.0)
    assert [path.state.value for path in remote.verdict.paths] == ["good", "good", "failed", "good"]
    assert [_answered_round(silent, port, ()) for _ in range(16)] == ONE_WAY_A_QUARTER
    assert silent.record.is_silent
    assert _answered_round(silent, port, ()) == 0x20


def test_a_silent_round_by_an_earlier_way_back_counts_for_no_way(monkeypatch: pytest.MonkeyPatch) -> None:
    times_us = [0.0]
    monkeypatch.setattr("xenoovs.agent.paths.remote.now_us", lambda: times_us[-1])
    _, mover, _ = _followed(ONE)
    (remote,) = mover.remotes.values()
    for times in range(6):
        times_us.append(1000.0 * times)
        remote.send_round(_Port("xoar0"), bytes(6))  # type: ignore[arg-type]
    times_us.append(1e9)
    remote.count_rounds()
    # Four silent rounds change the way; two more were sent by the way before.
    assert (remote.record.rounds, remote.way_back_tos) == (4, 0x24)

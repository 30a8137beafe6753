"""Adaptive routing: decisions about blocks, ports on different paths, pairing of answers, and the budget of probes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address
from itertools import count, product
from random import Random
from typing import Any

import pytest

from tests.path_rounds import AnswersAt, Sender, always
from xenoovs.agent.paths.decide import MAX_RESTORE_S, RESTORE_S, MoveReason, Placement
from xenoovs.agent.paths.frame import Answer, Quote, Search, Token, TtlProbe, hops_text, in_places
from xenoovs.agent.paths.mover import MAX_SHARE, PROBES_PER_S, ProbeBudget
from xenoovs.agent.paths.score import UNKNOWN_AFTER, Rounds
from xenoovs.show.paths import PathState

CLEAR, FULL = 400.0, 20_400.0
ALL_CLEAR, ONE_FULL = always(*[CLEAR] * 4), always(CLEAR, FULL, CLEAR, CLEAR)


def calm(**options: Any) -> Sender:
    """A sender after a second in which all paths were clear."""
    return Sender(**options).run(1.0, ALL_CLEAR)


def test_half_of_the_blocks_leave_in_each_decision() -> None:
    sender = calm().run(1.0, ONE_FULL)
    by_decision = Counter(at_s for at_s, _ in sender.shifts)
    assert [by_decision[at_s] for at_s in sorted(by_decision)] == [8, 4, 2, 1, 1]


def test_the_remote_is_unknown_after_16_rounds_without_answers_and_nothing_moves() -> None:
    sender = calm()
    sender.run((UNKNOWN_AFTER - 1) * 0.01, always(None, None, None, None))
    sender.decide()
    assert {path.state for path in sender.verdict.paths} == {PathState.GOOD}
    sender.run(0.01, always(None, None, None, None))
    sender.decide()
    assert {path.state for path in sender.verdict.paths} == {PathState.UNKNOWN}
    sender.run(5.0, always(None, None, None, None))
    assert not sender.shifts


QUIET: dict[str, AnswersAt] = {
    "equally bad paths": always(FULL, FULL + 900, FULL, FULL + 400),
    "seven lost probes in a row": lambda now_s: (CLEAR, None if 2.0 < now_s < 2.075 else CLEAR, CLEAR, CLEAR),
}


@pytest.mark.parametrize("name", QUIET)
def test_what_moves_nothing(name: str) -> None:
    assert not calm().run(3.0, QUIET[name]).shifts


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


@pytest.mark.parametrize("dead", [(2,), (1, 2), (0, 1, 2)], ids=["one", "two", "three"])
def test_dead_paths_are_left_at_once_in_a_quarter_of_a_second(dead: tuple[int, ...]) -> None:
    sender = calm().run(0.25, lambda _now_s: [None if path in dead else CLEAR for path in range(4)])
    assert Counter(shift.reason for _, shift in sender.shifts) == {MoveReason.FAILED: 16 * len(dead)}
    assert len({at_s for at_s, _ in sender.shifts}) == 1
    assert {path for path, each in enumerate(sender.verdict.paths) if each.state is PathState.FAILED} == {*dead}
    assert not any(sender.counts[path] for path in dead)


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


def test_blocks_come_home_after_the_path_was_good_for_a_second() -> None:
    sender = calm().run(1.0, ONE_FULL)
    left = len(sender.shifts)
    sender.run(RESTORE_S - 0.1, ALL_CLEAR)
    assert len(sender.shifts) == left
    sender.run(3.0, ALL_CLEAR)
    assert sender.placement.owners == sender.placement.home
    assert {shift.reason for _, shift in sender.shifts[left:]} == {MoveReason.RESTORED}
    assert len(sender.shifts) == 32


def test_the_wait_is_doubled_for_a_path_that_turns_bad_when_blocks_come_back_until_it_stays_good() -> None:
    sender = calm()
    waits = []
    for _ in range(8):
        # An elephant for which there is room only while we have no blocks there.
        sender.run(1.0, ONE_FULL)
        waits.append(sender.verdict.paths[1].restore_s)
        sender.run(waits[-1] + 1.0, ALL_CLEAR)
    assert waits == [RESTORE_S, 2.0, 4.0, 8.0, 16.0, 32.0, MAX_RESTORE_S, MAX_RESTORE_S]
    # Ten good seconds after blocks came back, the next wait is the first one again.
    sender.run(15.0, ALL_CLEAR).run(1.0, ONE_FULL)
    assert sender.verdict.paths[1].restore_s == RESTORE_S


def test_an_operators_path_keeps_all_blocks_also_if_it_is_bad() -> None:
    sender = calm()
    placement = sender.placement
    sender.placement = Placement(placement.owners, placement.home, (False, True, False, False))
    sender.run(1.0, ONE_FULL)
    assert sender.counts == [0, 64, 0, 0]
    assert {shift.reason for _, shift in sender.shifts} == {MoveReason.OPERATOR}


def test_a_restart_moves_nothing_although_blocks_are_away_from_home() -> None:
    before = calm().run(1.0, ONE_FULL)
    restarted = Sender()
    restarted.placement = before.placement
    restarted.run(1.0, ONE_FULL)
    assert not restarted.shifts


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
    assert (silent.has_answers, silent.differing(4), silent.same(PORTS[:4])) == (False, (), ())
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
        tokens.append(rounds.probe(path, nonce=1000 + path))
        rounds.sent(tokens[-1], sent_us=at_us)
    return rounds, tokens


OTHER = IPv4Address("192.168.200.9")
# When probes were sent; answers: to which, whether it counts, what differs, when; what is known when; forged and late.
Received = tuple[int, bool, dict[str, Any], float]
PAIRED: dict[str, tuple[list[float], list[Received], float, list[object], tuple[int, int]]] = {
    "in any order": ([0, 10], [(1, True, {}, 910), (0, True, {}, 500)], 1000, [(500, 900)], (0, 0)),
    "not over before the time-out": ([0, 10], [(0, True, {}, 500)], 60_010, [], (0, 0)),
    "over after the time-out": ([0, 10], [(0, True, {}, 500)], 60_011, [(500, None)], (0, 0)),
    "a repeated answer": ([0, 10], [(0, True, {}, 500), (0, False, {}, 501)], 60_011, [(500, None)], (0, 1)),
    "another nonce, then the true one": ([0], [(0, False, {"nonce": 1}, 5), (0, True, {}, 9)], 600, [(9,)], (1, 0)),
    "another address": ([0], [(0, False, {"source": OTHER}, 5)], 600, [], (1, 0)),
    "a probe that was never sent": ([0], [(0, False, {"sequence": 99}, 5)], 600, [], (1, 0)),
    "a late answer that is read in time": ([0], [(0, True, {}, 60_001)], 0, [(None,)], (0, 0)),
    "a late reader": ([0], [(0, True, {}, 400)], 9_000_000, [(400,)], (0, 0)),
    "an answer before its probe, as the clock was set back": ([1e6], [(0, True, {}, 400)], 1e6, [(None,)], (0, 0)),
}


@pytest.mark.parametrize("name", PAIRED)
def test_answers_are_paired_with_their_probes(name: str) -> None:
    sent_us, received, now_us, answers, counts = PAIRED[name]
    rounds, tokens = begun(*sent_us)
    for path, is_counted, changes, at_us in received:
        of_token = {name: value for name, value in changes.items() if name != "source"}
        found = Answer(replace(tokens[path], **of_token), changes.get("source", REMOTE), 0x20)
        assert rounds.answered(found, received_us=at_us) == is_counted
    assert [found for _, found in rounds.finished(now_us=now_us)] == answers
    assert (rounds.forged, rounds.late) == counts
    assert counts[0] or rounds.tos == (0x20, 0x24)
    # A round that is over leaves no state.
    assert not answers or not rounds.answered(Answer(tokens[0], REMOTE, 0x20), received_us=now_us)


@pytest.mark.parametrize(("remotes", "factor"), [(0, 1.0), (50, 1.0), (100, 2.0)])
def test_many_remotes_are_probed_less_often_to_keep_the_budget(remotes: int, factor: float) -> None:
    pace = ProbeBudget()
    pace.plan([(4, 0.01)] * remotes)
    pace.measured(probes=0, busy_s=0.1)
    assert pace.factor == factor
    assert remotes * 4 / (0.01 * pace.factor) <= PROBES_PER_S


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

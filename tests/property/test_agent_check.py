"""Any line that a server advertises is read or refused in one sentence; small changes of a load move no clients."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from xenoovs.agent.agent_check import UNADVERTISED, Administration, Advertised, AgentReply, parse_reply, with_reply

MIN_CHANGE = Fraction(1, 10)
WORDS = st.sampled_from(["up", "down", "fail", "stopped", "ready", "drain", "maint", "75%", "0%", "UP", "maxconn:30"])
PERCENTS = st.integers(0, 200)


@given(st.text() | st.lists(WORDS | st.text(max_size=8), max_size=4).map(" ".join))
@example("up, 50% # all is well")
@example("١٢%")
def test_any_line_is_a_reply_or_one_sentence(line: str) -> None:
    try:
        reply, problem = parse_reply(line), ""
    except ValueError as error:
        reply, problem = AgentReply(), str(error)
    assert problem.isprintable()
    assert len(problem) < 300
    assert reply.weight is None or 0 <= reply.weight <= 10


@given(PERCENTS, st.sampled_from([" ", ",", "\t", ", "]), st.permutations(["drain", "up"]))
def test_words_come_in_any_order(percent: int, gap: str, words: list[str]) -> None:
    found = parse_reply(gap.join([*words, f"{percent}%"]))
    assert found == AgentReply(Fraction(percent, 100), Administration.DRAIN, is_up=True)


def after(before: Advertised, *percents: int) -> Advertised:
    for percent in percents:
        line = f"{percent}%"
        before = with_reply(before, parse_reply(line), line, min_change=MIN_CHANGE)
    return before


@given(st.integers(10, 100), st.lists(st.integers(-9, 9), max_size=30))
def test_a_load_that_changes_a_little_changes_no_weight(start: int, steps: list[int]) -> None:
    first = after(UNADVERTISED, start)
    assert first.part == Fraction(start, 100)
    noise = [percent for step in steps if (percent := start + step) not in (0, 100)]
    assert after(first, *noise).part == first.part


@given(st.lists(PERCENTS, min_size=1, max_size=20), PERCENTS)
def test_a_lasting_load_takes_effect_almost_completely(history: list[int], last: int) -> None:
    found = after(UNADVERTISED, *history, last, last, last).part
    assert abs(found - Fraction(last, 100)) < MIN_CHANGE
    assert last not in (0, 100) or found == Fraction(last, 100)


@given(PERCENTS.filter(bool), PERCENTS.filter(bool), st.integers(1, 20))
def test_a_load_that_goes_to_and_fro_moves_clients_once_at_most(low: int, high: int, times: int) -> None:
    weights = []
    found = UNADVERTISED
    for percent in [low, high] * times:
        found = after(found, percent)
        weights.append(found.part)
    assert len({*weights}) == 1


@given(st.lists(st.lists(WORDS, max_size=3, unique=True).map(" ".join), max_size=12))
def test_only_ready_and_up_end_what_drain_maint_and_down_began(lines: list[str]) -> None:
    found = UNADVERTISED
    administration, is_up = Administration.READY, True
    for line in lines:
        try:
            reply = parse_reply(line)
        except ValueError:
            continue
        found = with_reply(found, reply, line, min_change=MIN_CHANGE)
        administration = reply.administration or administration
        is_up = is_up if reply.is_up is None else reply.is_up
    assert (found.administration, found.is_up) == (administration, is_up)
    assert found.is_away == (administration is Administration.MAINT or not is_up)
    assert administration is not Administration.DRAIN or found.part == 0

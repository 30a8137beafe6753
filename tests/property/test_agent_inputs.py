"""What an agent is given: replies of servers, overrides beside a changed file, requests and saved states."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.strategies import JSON
from tests.unit import balancer as small
from xenoovs.agent.agent_check import UNADVERTISED, Administration, Advertised, with_reply
from xenoovs.agent.control.handlers import BackendRequest, EmptyRequest, WeightRequest
from xenoovs.agent.control.schemas import parse_request
from xenoovs.agent.overrides import merge
from xenoovs.agent.runtime_file import parse_runtime, render_runtime
from xenoovs.errors import RequestRefused
from xenoovs.model.balancer import Balancer
from xenoovs.show.snapshot import Override

MIN_CHANGE = Fraction(1, 10)
WORDS = st.sampled_from(["up", "down", "fail", "stopped", "ready", "drain", "maint", "75%", "0%", "UP", "maxconn:30"])
PERCENTS = st.integers(0, 200)


@given(st.text() | st.lists(WORDS | st.text(max_size=8), max_size=4).map(" ".join))
@example("up, 50% # all is well")
@example("١٢%")
def test_any_line_is_a_reply_or_one_sentence(line: str) -> None:
    try:
        found, problem = with_reply(UNADVERTISED, line, min_change=MIN_CHANGE), ""
    except ValueError as error:
        found, problem = UNADVERTISED, str(error)
    assert problem.isprintable()
    assert len(problem) < 300
    assert 0 <= found.weight <= 10


@given(PERCENTS, st.sampled_from([" ", ",", "\t", ", "]), st.permutations(["drain", "up"]))
def test_words_come_in_any_order(percent: int, gap: str, words: list[str]) -> None:
    line = gap.join([*words, f"{percent}%"])
    found = with_reply(UNADVERTISED, line, min_change=MIN_CHANGE)
    assert found == Advertised(Fraction(percent, 100), Administration.DRAIN, is_up=True, reply=line)


def after(before: Advertised, *percents: int) -> Advertised:
    for percent in percents:
        before = with_reply(before, f"{percent}%", min_change=MIN_CHANGE)
    return before


@given(st.integers(10, 100), st.lists(st.integers(-9, 9), max_size=30))
def test_a_load_that_changes_a_little_changes_no_weight(start: int, steps: list[int]) -> None:
    noise = [percent for step in steps if (percent := start + step) not in (0, 100)]
    assert after(UNADVERTISED, start, *noise).part == Fraction(start, 100)


@given(st.lists(PERCENTS, min_size=1, max_size=20), PERCENTS)
def test_a_lasting_load_takes_effect_almost_completely(history: list[int], last: int) -> None:
    found = after(UNADVERTISED, *history, last, last, last).part
    assert abs(found - Fraction(last, 100)) < MIN_CHANGE
    assert last not in (0, 100) or found == Fraction(last, 100)


@given(PERCENTS.filter(bool), PERCENTS.filter(bool), st.integers(1, 20))
def test_a_load_that_goes_to_and_fro_moves_clients_once_at_most(low: int, high: int, times: int) -> None:
    loads = [low, high] * times
    assert len({after(UNADVERTISED, *loads[:count]).part for count in range(1, len(loads) + 1)}) == 1


@given(st.lists(st.lists(WORDS, max_size=3, unique=True).map(" ".join), max_size=12))
def test_only_ready_and_up_end_what_drain_maint_and_down_began(lines: list[str]) -> None:
    found = UNADVERTISED
    administration, is_up = Administration.READY, True
    for line in lines:
        try:
            found = with_reply(found, line, min_change=MIN_CHANGE)
        except ValueError:
            continue
        words = line.lower().split()
        administration = next((each for each in Administration if each.value in words), administration)
        is_up = "up" in words or (is_up and not {"down", "fail", "stopped"}.intersection(words))
    assert (found.administration, found.is_up) == (administration, is_up)
    assert found.is_away == (administration is Administration.MAINT or not is_up)
    assert administration is not Administration.DRAIN or found.part == 0


BACKENDS = 4
Weights = st.lists(st.integers(0, 3), min_size=BACKENDS, max_size=BACKENDS)
Chosen = st.dictionaries(st.integers(0, BACKENDS - 1), st.integers(0, 9))


def of(weights: list[int]) -> Balancer:
    return small.balancer(small.service(small.claim(), *weights))


def overrides(weights: list[int], chosen: dict[int, int]) -> tuple[Override, ...]:
    return tuple(
        Override("s", f"b{i}", Fraction(weight), 0.0, Fraction(weights[i])) for i, weight in sorted(chosen.items())
    )


@given(Weights, Weights, Chosen, st.permutations(range(BACKENDS)), st.data())
def test_exactly_the_changed_keys_end_whatever_the_order_and_the_names(
    old: list[int], new: list[int], chosen: dict[int, int], order: list[int], data: st.DataObject
) -> None:
    """A backend that is removed takes its override along. Maintenance stays, with the weight of the new config."""
    is_away, before = data.draw(st.booleans()), overrides(old, chosen)
    if is_away:
        before = tuple(replace(one, weight=one.configured, is_maintenance=True) for one in before)
    left = order[: data.draw(st.integers(1, BACKENDS))]
    (service,) = of(new).services
    renamed = tuple(replace(service.backends[i], name=f"new{i}") for i in left)
    changed = replace(of(new), services=(replace(service, name="other", backends=renamed),))
    merged = merge(before, changed, old=of(old))
    stays = {i for i in chosen if i in left and (is_away or old[i] == new[i])}
    assert {(o.service, o.backend, o.weight) for o in merged.remaining} == {
        ("other", f"new{i}", Fraction(new[i] if is_away else chosen[i])) for i in stays
    }
    assert {ended.backend for ended, _ in merged.ended} == {f"b{i}" for i in {*chosen} - stays}


@given(Weights, Weights, Chosen)
def test_without_the_old_config_weights_that_differ_from_those_of_then_end(
    old: list[int], new: list[int], chosen: dict[int, int]
) -> None:
    before = overrides(old, chosen)
    merged = merge(before, of(new), old=None)
    assert merged.remaining == tuple(o for o in before if old[int(o.backend[1:])] == new[int(o.backend[1:])])
    assert {ended for ended, _ in merged.ended} == set(before) - set(merged.remaining)


KINDS = (BackendRequest, WeightRequest, EmptyRequest)
Keys = st.sampled_from(["service", "backend", "weight", "version", "paused", "overrides", "more"])
Documents = (st.dictionaries(Keys, JSON) | JSON).map(lambda value: json.dumps(value).encode())


@given(st.binary() | Documents)
@example(b"[" * 100_000)
@example(b'{"weight": 1e99999999999}')
@example(b'{"weight": ' + b"9" * 5000 + b"}")
def test_requests(data: bytes) -> None:
    for kind in KINDS:
        with suppress(RequestRefused):
            assert isinstance(parse_request(data, kind), kind)


@given(st.binary() | Documents)
@example(b"[" * 100_000)
def test_states(data: bytes) -> None:
    try:
        runtime = parse_runtime(data)
    except ValueError:
        return
    assert parse_runtime(render_runtime(runtime).encode()) == runtime


@pytest.mark.parametrize("weight", [0, 7, 0.5, 0.000000001, 1000000000])
def test_good_weights(weight: float) -> None:
    data = json.dumps({"service": "s", "backend": "b", "weight": weight}).encode()
    assert float(parse_request(data, WeightRequest).weight) == weight

"""A backend that serves no clients has none to move: neither its drain nor the end of the drain moves any."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import only
from tests.property.agent_world import AgentWorld, Rules
from tests.unit import balancer as small
from xenoovs.decision.decide import decide, undisturbed
from xenoovs.decision.decision import Decision, DesiredState, moved
from xenoovs.model.balancer import AllDown, Churn, Service


@dataclass(frozen=True, slots=True)
class Case:
    """A service of which some backends are dead. `history`: earlier dead backends; `drained`: the drained one."""

    service: Service
    history: tuple[frozenset[str], ...]
    dead: frozenset[str]
    drained: str


@st.composite
def cases(draw: st.DrawFn) -> Case:
    weights = draw(st.lists(st.integers(1, 9), min_size=2, max_size=8))
    tolerance = draw(st.sampled_from([Fraction(1, 100), Fraction(1, 20), Fraction(1, 4)]))
    plain, churn = small.service(small.claim(), *weights), draw(st.sampled_from(list(Churn)))
    service = replace(plain, tolerance=tolerance, churn=churn)
    names = [backend.name for backend in service.backends]
    away = st.frozensets(st.sampled_from(names), min_size=1, max_size=len(names) - 1)
    dead = draw(away)
    return Case(service, tuple(draw(st.lists(away, max_size=2))), dead, draw(st.sampled_from(sorted(dead))))


def with_weight(service: Service, name: str, weight: int) -> Service:
    backends = tuple(replace(b, weight=Fraction(weight)) if b.name == name else b for b in service.backends)
    return replace(service, backends=backends)


def desired(service: Service, dead: frozenset[str]) -> DesiredState:
    return DesiredState(small.balancer(service), {service.name: dead})


def moved_between(before: Decision, after: Decision) -> Fraction:
    return moved(only(before), only(after))


def begun(case: Case) -> tuple[Decision, Decision]:
    """The decision while all were well, and the one while some are dead."""
    well = decide(Decision(), desired(case.service, frozenset()))
    dead = well
    for away in (*case.history, case.dead):
        dead = decide(dead, desired(case.service, away))
    return well, dead


@given(cases())
def test_neither_the_drain_of_dead_backends_nor_its_reset_moves_a_client(case: Case) -> None:
    """Of all of them in turn, from the one that is drained first."""
    well, dead = begun(case)
    service, drained = case.service, dead
    for name in (case.drained, *sorted(case.dead - {case.drained})):
        service = with_weight(service, name, 0)
        drained = decide(drained, desired(service, case.dead))
        assert moved_between(dead, drained) == 0
        if name == case.drained:
            assert decide(drained, desired(case.service, case.dead)) == dead
    assert decide(drained, desired(case.service, frozenset())) == well


@given(cases())
def test_a_drained_backend_that_answers_again_gets_no_clients_until_the_reset(case: Case) -> None:
    well, dead = begun(case)
    service = with_weight(case.service, case.drained, 0)
    drained = decide(dead, desired(service, case.dead))
    answers = decide(drained, desired(service, case.dead - {case.drained}))
    assert moved_between(drained, answers) == 0
    others = decide(drained, desired(service, frozenset()))
    assert case.drained not in only(others).active.owners
    assert decide(others, desired(case.service, frozenset())) == well


@given(cases())
def test_a_caller_without_health_checks_drains_a_dead_backend_and_moves_no_client(case: Case) -> None:
    """`xenoovs apply` of a config with weight 0, and then of the one of before."""
    _, dead = begun(case)
    drained_config = DesiredState(small.balancer(with_weight(case.service, case.drained, 0)))
    drained = decide(dead, undisturbed(dead, drained_config))
    assert moved_between(dead, drained) == 0
    assert decide(drained, undisturbed(drained, DesiredState(small.balancer(case.service)))) == dead


@given(cases(), st.integers(1, 9))
def test_what_remains_after_another_change_meets_the_weights(case: Case, weight: int) -> None:
    """Only while nothing else changes does a drained backend keep its home: then the weights alone decide."""
    _, dead = begun(case)
    service = with_weight(case.service, case.drained, 0)
    drained = decide(dead, desired(service, case.dead))
    other = next(b for b in service.backends if b.name != case.drained)
    changed = with_weight(service, other.name, weight)
    assert_weights_met(changed, decide(drained, desired(changed, frozenset())))


def assert_weights_met(service: Service, decision: Decision) -> None:
    shares, total = only(decision).active.shares(), sum(service.weights)
    for backend in service.backends:
        target = backend.weight / total
        assert abs(shares.get(backend.name, Fraction(0)) - target) <= service.tolerance * target


def test_bug_the_home_of_a_drained_backend_left_another_one_with_too_many_clients() -> None:
    """The other backends had the right proportions, but one of them had too large a share of all clients."""
    service = replace(small.service(small.claim(), 4, 1, 1, 2, 3, 9), tolerance=Fraction(1, 4))
    _, dead = begun(Case(service, (), frozenset({"b1"}), "b1"))
    changed = with_weight(with_weight(service, "b1", 0), "b0", 6)
    assert_weights_met(changed, decide(dead, desired(changed, frozenset())))


@given(cases())
def test_the_removal_of_the_only_dead_backend_moves_no_client(case: Case) -> None:
    """From the config, as a drain."""
    well = decide(Decision(), desired(case.service, frozenset()))
    dead = decide(well, desired(case.service, frozenset({case.drained})))
    left = tuple(b for b in case.service.backends if b.name != case.drained)
    removed = decide(dead, desired(replace(case.service, backends=left), frozenset()))
    assert moved_between(dead, removed) == 0


def test_a_restarted_agent_moves_no_client_of_a_backend_that_is_drained_and_answers() -> None:
    """The bridge holds no health state for the service in which it is drained."""
    rules = Rules(max_down=Fraction(1), on_all_down=AllDown.KEEP, ramp_ms=None, is_pinning=False)
    world = AgentWorld(rules.balancer((1, 1, 1, 1), (1, 1, 1, 1)))
    world.run(5)
    well = world.ours()
    world.dead = {1}
    world.run(10)
    world.set_weight(0, 1, 0)
    world.run(5)
    world.dead = set()
    world.run(10)
    drained = world.ours()
    bundles = len(world.switch.applied)
    world.start_agent()
    world.run(10)
    assert (world.ours(), len(world.switch.applied)) == (drained, bundles)
    world.set_weight(0, 1, None)
    world.run(10)
    assert world.ours() == well

"""What `xenoovs status` ends with, and how what is wrong is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.snapshots import NOW_S, snapshot, web
from xenoovs.agent.conditions import headline, is_as_desired, troubles, unanswered
from xenoovs.agent.snapshot import BackendState, PortView, ServiceView, Snapshot


def texts(shown: Snapshot) -> list[str]:
    return [words for words, _ in troubles(shown)]


def with_backends(*backends: tuple[BackendState, float, bool]) -> ServiceView:
    """A service whose backends have this state, this share of the addresses, and are out or not."""
    first = web().backends[0]
    made = (replace(first, state=state, share=share, is_ejected=out) for state, share, out in backends)
    return replace(web(), backends=tuple(made))


def of(service: ServiceView) -> Snapshot:
    return replace(snapshot(), services=(service,))


UP, DOWN, UNCHECKED = BackendState.UP, BackendState.DOWN, BackendState.UNCHECKED
ALL_KEPT = with_backends((DOWN, 0.5, False), (DOWN, 0.5, False))
DROPPED = with_backends((DOWN, 0.0, True), (DOWN, 0.0, True))
ONE_KEPT = with_backends((DOWN, 0.0, True), (DOWN, 0.25, False), (UP, 0.75, False))
MOVED = with_backends((DOWN, 0.0, True), (UP, 1.0, False))


def test_all_is_well() -> None:
    assert (is_as_desired(snapshot()), texts(snapshot()), headline(snapshot())) == (True, [], ("as configured", "good"))


@pytest.mark.parametrize(
    ("service", "share", "words"),
    [
        (ALL_KEPT, 1.0, "service web: no backend answers; its clients stay where they are"),
        (DROPPED, 1.0, "service web: no backend has clients; its packets are dropped"),
        (ONE_KEPT, 0.25, "service web: 25% of its clients have a backend that does not answer"),
    ],
)
def test_clients_that_nobody_answers_are_a_difference(service: ServiceView, share: float, words: str) -> None:
    assert unanswered(service) == share
    assert (is_as_desired(of(service)), texts(of(service))) == (False, [words])
    assert headline(of(service)) == ("clients without a working backend", "bad")


THIRDS = with_backends(*[(UP, 1 / 3, False)] * 3)


@pytest.mark.parametrize("service", [MOVED, THIRDS, with_backends((UNCHECKED, 1.0, False))])
def test_a_backend_that_is_down_is_no_difference_once_its_clients_have_others(service: ServiceView) -> None:
    assert (is_as_desired(of(service)), texts(of(service)), unanswered(service)) == (True, [], 0)


DIFFERS = {
    "a port without link": ({"ports": (PortView("p1", 2, link_up=False),)}, "port p1 has no link"),
    "a port that is gone": ({"ports": (PortView("p1", None, link_up=None),)}, "it is not on the bridge"),
    "a database that does not answer": (
        {"ports": None, "ports_problem": "cannot reach Open vSwitch at unix:/run/db.sock: connection refused"},
        "port and link state unavailable: cannot reach Open vSwitch at unix:/run/db.sock: connection refused",
    ),
    "an error": ({"last_error": "bridge ovsbr1 is not there"}, "bridge ovsbr1 is not there"),
    "changes held back": ({"is_paused": True, "pending_flow_mods": 3}, "3 flow-mods are pending"),
    "a refused config": (
        {"config_problem": "c.yaml:3:1: services is missing", "candidate": "0f1e2d3c4b5a"},
        "config 0f1e2d3c4b5a is rejected, 0123456789ab stays in use: c.yaml:3:1: services is missing",
    ),
    "a config file that is gone": (
        {"config_problem": "c.yaml: no such file"},
        "the newest config is rejected, 0123456789ab stays in use: c.yaml: no such file",
    ),
    "a config still to be tried": (
        {"candidate": "0f1e2d3c4b5a"},
        "config 0f1e2d3c4b5a is pending, 0123456789ab is in use",
    ),
}


@pytest.mark.parametrize("name", DIFFERS)
def test_what_differs_is_named(name: str) -> None:
    facts, words = DIFFERS[name]
    shown = replace(snapshot(), **facts)  # type: ignore[arg-type]
    assert not is_as_desired(shown)
    assert any(words in line for line in texts(shown))
    assert headline(shown)[1] != "good"


def test_a_change_that_waits_is_named_with_its_time_and_is_no_difference() -> None:
    waits = replace(snapshot(), confirm_by_s=NOW_S + 25, rolls_back_to="99887766aabb")
    words = "run `xenoovs confirm` within 25s, or config 0123456789ab is rolled back to 99887766aabb"
    assert (texts(waits), is_as_desired(waits), headline(waits)) == ([words], True, ("confirmation pending", "warn"))


def test_a_pause_that_holds_nothing_back_is_no_difference() -> None:
    assert is_as_desired(replace(snapshot(), is_paused=True))


def test_a_database_that_was_not_asked_yet_is_no_difference() -> None:
    unasked = replace(snapshot(), ports=None)
    assert (is_as_desired(unasked), texts(unasked), headline(unasked)) == (True, [], ("as configured", "good"))


def test_before_the_first_round_it_is_not_as_desired() -> None:
    starting = replace(snapshot(), services=(DROPPED,), last_round_s=None)
    words = "starting: the bridge has not been compared with the config yet"
    assert (is_as_desired(starting), texts(starting), headline(starting)) == (False, [words], ("starting", "warn"))


def test_of_many_services_a_few_are_named() -> None:
    many = replace(snapshot(), services=tuple(replace(ALL_KEPT, name=f"s{number}") for number in range(8)))
    assert (len(texts(many)), texts(many)[-1]) == (6, "3 more services have clients whose backend does not answer")

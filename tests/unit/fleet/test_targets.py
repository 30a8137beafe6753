"""Targets of votes: their names, those that are lost in a roll-out, and what operators read about them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from tests.fleet_support import EMPTY, given, settled
from tests.switch_tunnels import behind_tunnels
from xenoovs.fleet.health import (
    TargetState,
    Votes,
    followed,
    max_unfit,
    next_unfit,
    target_of,
    targets_of,
)
from xenoovs.fleet.plan import Availability, Memo
from xenoovs.fleet.rollout import lost_targets
from xenoovs.fleet.snapshot import TargetRow, target_problems, target_rows
from xenoovs.model.load import parse_config
from xenoovs.store.view import Dpu, DpuStatus, FleetOverride, FleetView, IntentState, Watch

NAMES = frozenset(f"d{n}" for n in range(5))
TARGETS = [f"192.0.2.{n}/tcp/80" for n in range(1, 5)]
CONFIG = """\
version: 1
switch: {bridge: fleet, ingress: [ingress], egress: egress}
health: {probe: tcp, port: 80}
services:
  - name: web
    vip: 203.0.113.1
    protocol: tcp
    ports: [80]
    backends:
      - {name: b1, mac: 02:00:5e:10:00:01, address: 192.0.2.1, weight: 1}
      - {name: b2, mac: 02:00:5e:10:00:02, address: 192.0.2.2, weight: 1}
      - {name: b3, mac: 02:00:5e:10:00:03, address: 192.0.2.3, weight: 1}
      - {name: b4, mac: 02:00:5e:10:00:04, address: 192.0.2.4, weight: 1}
"""


@pytest.mark.parametrize(
    ("health", "target"),
    [
        ("{probe: tcp, port: 80}", "192.0.2.1/tcp/80"),
        ("{probe: tcp, port: 80, max_down: 100%, ramp: 5s}", "192.0.2.1/tcp/80"),
        ("{probe: icmp}", "192.0.2.1/icmp/-"),
        ("{probe: tcp}", "192.0.2.1/tcp/80"),
        ("{probe: exec, command: [/bin/true]}", None),
    ],
)
def test_targets_have_a_name_for_people(health: str, target: str | None) -> None:
    service = parse_config(CONFIG.replace("{probe: tcp, port: 80}", health), file="x").services[0]
    assert target_of(service, service.backends[0]) == target


def test_bug_a_remote_that_only_bfd_watches_had_no_votes() -> None:
    """It kept its clients on all DPUs after its death; a single agent leaves it."""
    (service,) = behind_tunnels().services
    assert [target_of(service, each) for each in service.backends] == [
        "192.168.77.11/bfd/5001",
        "192.168.77.12/bfd/5002",
    ]
    names = [each.name for each in service.backends]
    for down, out in (names[:1], names[:1]), (names, []):
        votes = {service.name: dict.fromkeys(down, 1.0)}
        found = followed(Availability(), behind_tunnels(), votes, known={}, now_s=1.0)
        assert [*found.ejected.get(service.name, ())] == out


def test_a_held_backend_that_came_up_and_goes_down_anew_between_two_decisions_is_ejected() -> None:
    history, balancer = Availability(), parse_config(CONFIG, file="x")
    for down, out in ({"b1": 1.0, "b2": 1.0, "b3": 2.0}, {"b1", "b2"}), ({"b3": 7.0}, {"b3"}):
        history = followed(history, balancer, {"web": down}, known={}, now_s=8.0)
        assert history.ejected == {"web": out}


def test_services_share_a_target_if_they_probe_in_the_same_way() -> None:
    http = CONFIG.replace("probe: tcp", "probe: http")
    second = http[http.index("  - name: web") :].replace("name: web", "name: api").replace("113.1", "113.2")
    third = second.replace("name: api", "name: shop").replace("113.2", "113.3")
    third = third.replace("    protocol", "    health: {path: /ready}\n    protocol")
    found = targets_of(parse_config(http + second + third, file="x").services, Memo())
    assert found["192.0.2.1/http/80"] == (("web", "b1"), ("api", "b1"))
    (other,) = (target for target, names in found.items() if ("shop", "b1") in names)
    assert other.startswith("192.0.2.1/http/80/")


def view() -> FleetView:
    made = settled(given(EMPTY, CONFIG))
    watches = {target: Watch(target, NAMES, is_down=False, since_ms=1000, generation=1) for target in TARGETS}
    return replace(made, watches=watches, dpus={name: Dpu(name, frozenset()) for name in NAMES})


def test_many_problems_are_counted_and_unknown_reports_are_none() -> None:
    down = TargetRow("", (), TargetState.DOWN, 60.0, Votes(NAMES, frozenset(), frozenset()))
    problems = target_problems(replace(down, target=str(number)) for number in range(30))
    assert len(problems) == 11
    assert problems[-1] == "20 more targets in trouble; JSON has all"
    assert target_rows(view(), None, now_s=61.0) == []


def lost(down: frozenset[str], before: frozenset[str], overrides: dict[tuple[str, str], FleetOverride]) -> set[str]:
    """Return which of these backends end a roll-out, of which some were down before."""
    dpus = {name: Dpu(name, frozenset(), wave=1) for name in NAMES}
    wave = settled(
        given(replace(view(), dpus=dpus), CONFIG.replace("4, weight: 1", "4, weight: 2"), IntentState.ROLLING)
    )
    targets = {backend: f"192.0.2.{backend[1:]}/tcp/80" for backend in down | before}
    dead = frozenset(targets[each] for each in down)
    intent = replace(wave.intents[2], down_before=frozenset(targets[each] for each in before))
    watches = {target: replace(each, is_down=target in dead) for target, each in wave.watches.items()}
    staged = replace(wave.staged["web"], groups=frozenset({"east", "west"}))
    after = replace(
        wave, intents={**wave.intents, 2: intent}, watches=watches, overrides=overrides, staged={"web": staged}
    )
    votes = {name: DpuStatus(name, voted=wave.generation, down=dead) for name in NAMES}
    return {f"b{target.split('/')[0][-1]}" for target in lost_targets(after, votes)}


@drawn(*(st.frozensets(st.sampled_from(["b1", "b2", "b3", "b4"])) for _ in range(3)))
def test_exactly_the_needed_backends_that_are_down_and_were_not_end_a_roll_out(
    before: frozenset[str], now: frozenset[str], drained: frozenset[str]
) -> None:
    overrides = {("web", name): FleetOverride("web", name, Fraction(0), Fraction(1), "", 0) for name in drained}
    assert lost(now, before, overrides) == now - before - drained


@pytest.mark.parametrize(("drained", "is_needed"), [("", True), ("east", True), ("west", True), ("east,west", False)])
def test_bug_a_backend_that_is_drained_in_each_group_of_its_site_ended_a_roll_out(
    drained: str, *, is_needed: bool
) -> None:
    """By the store before the controller has divided the site."""
    override = FleetOverride("", "b2", Fraction(0), Fraction(1), "", 0)
    overrides = {(f"web@{group}", "b2"): override for group in drained.split(",")}
    assert (lost(frozenset({"b2"}), frozenset(), overrides) == {"b2"}) is is_needed


@pytest.mark.parametrize(("dpus", "most"), [(0, 0), (1, 0), (2, 1), (3, 1), (9, 2), (10, 3), (1000, 300)])
def test_at_most_three_of_ten_dpus_and_never_all_are_unfit(dpus: int, most: int) -> None:
    assert max_unfit(dpus) == most
    names = [f"d{number}" for number in range(dpus)]
    fleet = replace(EMPTY, dpus={name: Dpu(name, frozenset()) for name in names})
    assert len(next_unfit(fleet, {name: DpuStatus(name, is_fit=False) for name in names})) == most
    assert next_unfit(fleet, None) == {}

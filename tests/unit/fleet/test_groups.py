"""Groups of DPUs: which DPU serves which services, which DPUs a roll-out concerns, and mistakes in a config."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.command_line import SMALL_CONFIG
from tests.fleet_support import EMPTY, committed, given, settled
from xenoovs.errors import ConfigError
from xenoovs.fleet.plan import concerned, next_change, next_wave, parse_intent, with_intent
from xenoovs.fleet.rollout import next_step, planned_waves
from xenoovs.model.load import parse_config
from xenoovs.store.view import Changes, Dpu, DpuStatus, FleetView, IntentState

WEB = """\
  - name: web
    groups: [edge]
    vip: 10.3.10.80
    protocol: tcp
    ports: [80]
    backends:
      - {name: web1, mac: 02:00:5e:10:00:12, weight: 1}
      - {name: web2, mac: 02:00:5e:10:00:13, weight: 1}
"""
BOTH = SMALL_CONFIG + WEB
DPUS = {
    "dpu1": Dpu("dpu1", frozenset()),
    "dpu2": Dpu("dpu2", frozenset({"edge"})),
    "dpu3": Dpu("dpu3", frozenset({"core", "edge"})),
}


def fleet(text: str = BOTH) -> FleetView:
    return settled(given(replace(EMPTY, dpus=DPUS), text))


def served(view: FleetView, dpu: str) -> list[str]:
    return sorted(view.of_dpu(dpu).services)


def test_a_dpu_serves_the_services_of_its_groups_and_those_without() -> None:
    view = fleet()
    assert [served(view, dpu) for dpu in (*DPUS, "unknown")] == [["dns"], ["dns", "web"], ["dns", "web"], ["dns"]]
    assert next_change(view).is_empty
    core = settled(given(view, BOTH.replace("[edge]", "core")))
    assert [served(core, dpu) for dpu in DPUS] == [["dns"], ["dns"], ["dns", "web"]]
    # No client moves between backends by it.
    assert core.services["web"].active == view.services["web"].active
    # What a DPU installs has itself alone, and is the same when it is read again, as from its cache.
    own = view.of_dpu("dpu2")
    assert (own.dpus, own.of_dpu("dpu2")) == ({"dpu2": DPUS["dpu2"]}, own)


def test_a_change_of_groups_is_a_step_of_the_plan() -> None:
    view, text = fleet(), BOTH.replace("[edge]", "[core]")
    (step,) = with_intent(view, text, parse_intent(text, file="my.yaml")).steps
    assert (step.name, step.blocks, step.clients) == ("web", 0, Fraction(0))
    assert (step.old_groups, step.groups) == (frozenset({"edge"}), frozenset({"core"}))
    (gone,) = with_intent(view, SMALL_CONFIG, parse_intent(SMALL_CONFIG, file="my.yaml")).steps
    assert (gone.kind, gone.old_groups, gone.groups) == ("removed", frozenset({"edge"}), frozenset())


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (BOTH.replace("name: web2, mac: 02:00:5e:10:00:13", "name: web2, mac: 02:00:5e:10:00:14"), "dpu2 dpu3"),
        (BOTH.replace("weight: 30", "weight: 50"), "dpu1 dpu2 dpu3"),
        (BOTH.replace("[edge]", "[core]"), "dpu2 dpu3"),
        (SMALL_CONFIG, "dpu2 dpu3"),
        (BOTH.replace("    groups: [edge]\n", ""), "dpu1 dpu2 dpu3"),
    ],
    ids=["of a group", "of all", "groups", "removed", "no groups"],
)
def test_a_roll_out_concerns_the_dpus_that_serve_what_changes(text: str, names: str) -> None:
    view = fleet()
    change = with_intent(view, text, parse_intent(text, file="my.yaml"))
    assert sorted(concerned(view, change.changes)) == names.split()
    # Canaries that do not serve it would try nothing.
    canary = planned_waves(concerned(view, change.changes), at_once=9)
    view = committed(view, Changes(dpus=canary))
    assert list(canary) == [names.split()[0]]
    view = settled(given(view, text, IntentState.ROLLING, soak_s=1))
    assert (view.wave, sorted(view.concerned)) == (1, names.split())
    # An error of a DPU that serves nothing of it does not count.
    reports = {name: DpuStatus(name, applied=view.generation) for name in names.split()}
    reports.setdefault("dpu1", DpuStatus("dpu1", error="another matter"))
    assert next_wave(view) == 3
    for _ in range(2):
        step = next_step(view, reports, watched_s=1)
        assert (step.reason, step.silent) == ("", ())
        assert step.changes is not None
        view = settled(committed(view, step.changes))
        reports = {name: replace(each, applied=view.generation) for name, each in reports.items()}
    assert (view.wave, view.intents[2].state) == (0, IntentState.CURRENT)


def test_a_roll_out_that_concerns_no_dpu_is_current_at_once() -> None:
    view = settled(given(fleet(), BOTH + WEB.replace("edge", "lab").replace("web", "lab").replace("10.80", "10.81")))
    view = settled(given(view, BOTH, IntentState.ROLLING, soak_s=1))
    assert (view.wave, view.intents[3].state, sorted(view.services)) == (0, IntentState.CURRENT, ["dns", "web"])


def test_mistakes_of_groups_are_found_at_their_place() -> None:
    for given_groups, path, message in (
        ("[]", "services[1].groups", "an empty list says nothing; .* leave it out"),
        ("[edge, -x]", r"services[1].groups[1]", "'-x' is not a name"),
        ("7", "services[1].groups", "not text"),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            parse_intent(BOTH.replace("[edge]", given_groups), file="my.yaml")
        (finding,) = caught.value.findings
        assert (finding.line, finding.path) == (12, path)
    # With other mistakes of the file.
    with pytest.raises(ConfigError) as caught:
        parse_intent(BOTH.replace("[edge]", "[]").replace("10.3.10.80", "x"), file="my.yaml")
    assert len(caught.value.findings) == 2


def test_groups_are_for_the_config_of_a_fleet() -> None:
    with pytest.raises(ConfigError, match="`groups` is for the config of a fleet"):
        parse_config(BOTH, file="my.yaml")
    with pytest.raises(ConfigError, match="write `groups` in each service"):
        parse_intent("defaults: {services: {groups: [edge]}}\n" + SMALL_CONFIG, file="my.yaml")

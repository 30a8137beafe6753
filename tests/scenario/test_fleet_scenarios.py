"""Runs every file of tests/scenario/fleet: what operators do to a fleet, and what each DPU has then.

Keys of a step: `config`, `roll_out` (in waves, of which the first begins), `dpu` (NAME: [GROUPS]), `forced_dpu` (that
nobody has checked), `down` (the backends that votes eject), `drain`, `weight` and `reset` (of `backend`, perhaps in a
`group`) happen; `refused` (a part of the sentence, and nothing changes), `moved` (percent of the clients, by service
and groups), `has` (percent by DPU and backend; null: the DPU has no such service), `as_switched` (its groups, with the
ports of `down` dead, had done the same), `rows`, `targets` (whose DPUs probe them, and whether it is `staged` or begins
as `down`) and `contested` (DPUs) must be true.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fleet_support import EMPTY, committed, given, settled
from xenoovs.decision.decide import successions
from xenoovs.decision.decision import Blocks, owners_of
from xenoovs.errors import ConfigError, FleetRefused
from xenoovs.fleet.health import fleet_targets, targets_of
from xenoovs.fleet.plan import (
    IN_USE,
    Availability,
    Memo,
    ViewReader,
    configs_of,
    next_change,
    parse_intent,
    require_groups,
    with_intent,
    with_override,
)
from xenoovs.model.fleet import NEUTRAL
from xenoovs.model.values import site_name
from xenoovs.store.view import Changes, Dpu, FleetView, IntentState

SCENARIOS = sorted((Path(__file__).parent / "fleet").glob("*.yaml"))
SERVICE = {"vip": "192.0.2.80", "protocol": "tcp", "ports": [80]}


def text_of(services: Mapping[str, Any], switch: Mapping[str, Any]) -> str:
    """A config: services by name, of which a backend is its name and keys. `switch`: further keys of it."""
    listed = []
    for name, service in services.items():
        backends = [
            {"name": each, "mac": f"02:00:5e:10:00:{int(each[1:]):02x}", "address": f"192.0.2.{each[1:]}", "weight": 1}
            | (keys or {})
            for each, keys in service["backends"].items()
        ]
        listed.append({"name": name, **SERVICE, **service, "backends": backends})
    return json.dumps({"version": 1, "switch": {"ingress": ["in"], "egress": "out", **switch}, "services": listed})


def after(view: FleetView, step: Mapping[str, Any], switch: Mapping[str, Any]) -> FleetView:
    """The view after what a step does. Raises as the command."""
    match step:
        case {"down": names}:
            ejected = Availability({"web": frozenset(names)} if names else {})
            return committed(view, next_change(view, {IN_USE: ejected}).changes)
        case {"config": services} | {"roll_out": services}:
            text = text_of(services, switch)
            parse_intent(text, file="services.yaml")
            change = with_intent(view, text)
            moved = {f"{s.name} {','.join(sorted(s.groups))}".strip(): round(100 * s.clients) for s in change.steps}
            assert moved == step.get("moved", moved)
            return given(view, text, IntentState.ROLLING if "roll_out" in step else IntentState.STAGED)
        case {"dpu": dpus}:
            for name, groups in dpus.items():
                dpu = Dpu(name, frozenset(groups), wave=2)
                require_groups(view, dpu)
                view = committed(view, Changes(dpus={name: dpu}))
            return view
        case {"forced_dpu": dpus}:
            return committed(view, Changes(dpus={name: Dpu(name, frozenset(of)) for name, of in dpus.items()}))
    verb, words = next((verb, step[verb]) for verb in ("drain", "weight", "reset") if verb in step)
    service, backend = words["backend"].split("/")
    name = site_name(service, words.get("group", "")), backend
    weight = {"drain": Fraction(0), "reset": None}.get(verb, Fraction(words.get("weight", 0)))
    made = with_override(view, name, weight, author="", now_ms=0)
    return committed(view, Changes(overrides={name: None if weight is None else made}))


def has(view: FleetView, dpu: str) -> dict[str, dict[str, int]]:
    """The share of each backend on a DPU, in percent, as its agent reads it."""
    _, stored = ViewReader().read(view.of_dpu(dpu).services.values(), NEUTRAL, file="local")
    return {
        name: {owner: round(100 * share) for owner, share in each.active.shares().items()}
        for name, each in stored.items()
    }


def switched(view: FleetView, dpu: str, dead: list[str]) -> Blocks:
    """Who has which clients by the groups of a DPU."""
    balancer, stored = ViewReader().read(view.of_dpu(dpu).services.values(), NEUTRAL, file="local")
    rows = successions(balancer.services[0], stored["web"], depth=4, out=(), closed=()).rows
    return Blocks.of((block, next(one for one in owners_of(owners) if one not in dead)) for block, owners in rows)


def targets(view: FleetView) -> dict[str, list[str]]:
    configs = configs_of(view, Memo())
    probed = {name: targets_of(each.balancer.services, Memo()) for name, each in configs.items()}
    found = fleet_targets(configs, probed, view)
    facts = {name: ["staged"] * each.is_staged + ["down"] * each.begins_down for name, each in found.items()}
    return {name.split("/")[0].split(".")[-1]: sorted(each.groups) + facts[name] for name, each in found.items()}


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    scenario = yaml.safe_load(path.read_text())
    dpus = {name: Dpu(name, frozenset(groups), wave=2) for name, groups in scenario["dpus"].items()}
    view, switch = replace(EMPTY, dpus=dpus), scenario.get("switch", {})
    for step in scenario["steps"]:
        if "refused" in step:
            with pytest.raises((FleetRefused, ConfigError), match=step["refused"]):
                after(view, step, switch)
            continue
        wanted = switched(view, dpu, step["down"]) if (dpu := step.get("as_switched")) else None
        view = after(view, step, switch)
        if wanted is not None:
            assert switched(view, dpu, []) == wanted, step
        view = view if "down" in step else settled(view)
        for name, wanted in step.get("has", {}).items():
            assert has(view, name).get("web") == wanted, (step, name)
        assert sorted(view.services) == step.get("rows", sorted(view.services))
        if "targets" in step:
            assert {name: each for name, each in targets(view).items() if name in step["targets"]} == step["targets"]
        assert sorted(next_change(view).contested) == step.get("contested", [])

"""A shortened run of the completion experiment: counts, never times."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.ovs.dummy import ofctl
from tests.ovs.lab_support import fabric_fixture
from tests.patience import eventually
from xenoovs.agent.control.client import Client
from xenoovs.lab.fabric.status import fabric_machines, state_of
from xenoovs.lab.fabric_topology import FabricShape
from xenoovs.lab.host import processes_in
from xenoovs.lab.lab import FabricLab
from xenoovs.measure.completion import CompletionCase, Scene, completion_experiment
from xenoovs.measure.fabric_bed import (
    FabricBed,
    RoutingDesign,
    dying_spine,
    elephant,
    open_fabric_bed,
    prepared,
    running_design,
)

FLOWS, BYTES = 10, 20_000
FOREIGN = "cookie=0x77, priority=7,in_port=p0 actions=drop"


lab = fabric_fixture("fct", FabricShape())


def _measured(lab: FabricLab, scene: Scene, design: RoutingDesign) -> dict[str, Any]:
    with open_fabric_bed(lab.name) as bed, prepared(bed, txrehash=False):
        experiment = completion_experiment(bed, (), repeats=1, txrehash=False, seed=1)
        return dict(experiment.measure(scene.point(design), {}).values)


@pytest.mark.parametrize(
    ("design", "case"),
    [
        (RoutingDesign.ECMP, CompletionCase.ELEPHANT),
        (RoutingDesign.DOCA_AR, CompletionCase.LATER),
        *(
            pytest.param(design, case, marks=pytest.mark.long)
            for design in (RoutingDesign.ECMP, RoutingDesign.DOCA_AR)
            for case in (CompletionCase.ALONE, CompletionCase.REVERSE)
        ),
    ],
)
def test_every_flow_ends_by_every_design(lab: FabricLab, design: RoutingDesign, case: CompletionCase) -> None:
    values = _measured(lab, Scene(case, FLOWS, BYTES, 0.0 if case is CompletionCase.ALONE else 1.2), design)
    assert (values["flows"], values["completed"]) == (FLOWS, FLOWS)
    assert len(values["flow_s"]) == FLOWS
    assert values["completion_s"] == max(values["flow_s"])
    assert values["disturbed_path"] in (1, 2, 3, 4)
    if design is RoutingDesign.DOCA_AR:
        # Flows that share one of the 64 source ports of the host are one for the DPU; each of those has four probes.
        assert 1 <= values["probed"] <= FLOWS
        assert values["probes"] == 4 * values["probed"]


def test_blocks_leave_a_congested_path_and_none_is_lost(lab: FabricLab) -> None:
    with open_fabric_bed(lab.name) as bed, prepared(bed, txrehash=False):
        with (
            running_design(bed, RoutingDesign.BLOCKS) as running,
            elephant(bed, 2, load=2.0, is_reverse=False) as begin,
        ):
            running.begin()
            assert running.values(0.0)["blocks"] == 64
            begin(0.0)
            eventually(lambda: running.values(0.0)["least_blocks"] == 0, "a path has no block")
            values: dict[str, Any] = {**running.values(0.0)}
        assert values["blocks"] == 64
        by_reason = values["moves_by_reason"]
        # A path has 16 of them; a starved machine may move some back and forth.
        assert sum(by_reason.values()) == values["moves"] >= 16
        assert by_reason["congested"] >= 16
    # Those of Open vSwitch: the agent has ended.
    assert len(processes_in(lab.fabric.namespace("dpua1"))) == 2


def test_blocks_leave_a_dead_path(lab: FabricLab) -> None:
    with open_fabric_bed(lab.name) as bed, prepared(bed, txrehash=False):
        blocks = [_blocks_without_spine(bed, path) for path in bed.spines]
    # One spine may carry the answers of all probes: without it nothing is known, and nothing moves.
    assert sorted(blocks)[:3] == [0, 0, 0]
    assert sorted(blocks)[3] in (0, 16)
    assert state_of(fabric_machines(lab)) == "up"


def _blocks_without_spine(bed: FabricBed, path: int) -> int:
    """Return how many blocks are on the emptiest path when a spine has died: 0, or 16 where no path is heard of."""
    with running_design(bed, RoutingDesign.BLOCKS) as running, dying_spine(bed, path) as die:
        agent, silent_since = Client(bed.agent_socket(bed.senders[0])), [0]
        die(time.monotonic())

        def has_reacted() -> bool:
            (remote,) = agent.ask("paths")["remotes"]
            if not remote["is_unknown"]:
                silent_since[0] = remote["rounds"]
            is_silent: bool = remote["rounds"] > silent_since[0] + 100
            return is_silent or not min(path["blocks"] for path in remote["paths"])

        eventually(has_reacted, "a path has no block, or no path answers")
        least = running.values(0.0)["least_blocks"]
        assert isinstance(least, int)
        return least


def test_a_dead_spine_forwards_again_afterwards(lab: FabricLab) -> None:
    values = _measured(lab, Scene(CompletionCase.DEAD, 2, 1_000, 0.0), RoutingDesign.ECMP)
    assert values["flows"] == 2
    assert state_of(fabric_machines(lab)) == "up"


def test_the_bridges_have_their_own_flows_again(lab: FabricLab) -> None:
    ovs = lab.ovs("dpua1")
    ofctl(ovs, "add-flow", "ovsbr1", FOREIGN)
    before = _flows(lab)
    _measured(lab, Scene(CompletionCase.ALONE, 1, 1_000, 0.0), RoutingDesign.DOCA_AR)
    assert _flows(lab) == before
    assert "cookie=0x77" in before


def _flows(lab: FabricLab) -> str:
    return ofctl(lab.ovs("dpua1"), "--no-stats", "--names", "dump-flows", "ovsbr1")

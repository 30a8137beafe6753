"""Votes of five DPUs in two racks, with real probes: a rack that is cut off moves nobody, a dead backend does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.ovs.fleets import FleetServers, running_fleet, wait_for_agents
from tests.ovs.test_fleet_health import ADDRESSES, CONFIG, Backends, all_alike, down, namespace, ready, witnesses
from tests.patience import eventually
from xenoovs.switch.process import run

pytestmark = pytest.mark.ovs

RACKS = {"left": ("dpu1", "dpu2", "dpu3"), "right": ("dpu4", "dpu5")}


@pytest.fixture
def racks() -> Iterator[dict[str, Backends]]:
    """What the DPUs of each rack reach: backends in a network namespace of the rack."""
    with ExitStack() as stack:
        made = dict[str, Backends]()
        for name in RACKS:
            netns = stack.enter_context(namespace(f"xo-{name}-{os.getpid()}"))
            made[name] = Backends(netns)
            stack.callback(made[name].close_all)
            for address in ADDRESSES:
                run(["ip", "-n", netns, "address", "add", f"{address}/32", "dev", "lo"])
                made[name].open(address)
        yield made


@pytest.fixture
def store(tmp_path: Path, xenoovs: CommandLine, racks: dict[str, Backends]) -> Iterator[FleetServers]:
    config = tmp_path / "services.yaml"
    config.write_text(CONFIG)
    with running_fleet(tmp_path, xenoovs, dpus=5) as made:
        for rack, names in RACKS.items():
            for dpu in (each for each in made.dpus if each.name in names):
                assert made.fleet("set-dpu", dpu.name, "--rack", rack).status == 0
                # It waits for a config, so it has not probed yet.
                dpu.kill()
                dpu.netns = racks[rack].netns
                dpu.start()
        eventually(lambda: made.fleet("apply", config, "--now", "--yes").status == 0, "the first config")
        wait_for_agents(made)
        eventually(lambda: bool(witnesses(made)) and all(map(is_balanced, witnesses(made).values())), "the witnesses")
        eventually(made.is_well, "the first config")
        yield made


def is_balanced(names: list[str]) -> bool:
    """Whether these are four witnesses, two of each rack: with three of five, one rack would decide alone."""
    return sorted(rack for rack, members in RACKS.items() for name in names if name in members) == sorted(
        [*RACKS, *RACKS]
    )


def test_a_rack_that_is_cut_off_moves_nobody_and_a_backend_that_dies_for_both_racks_does(
    store: FleetServers, racks: dict[str, Backends]
) -> None:
    before = store.dpus[0].blocks()
    racks["left"].close_all()
    eventually(lambda: store.fleet("status").out.count("no quorum") >= len(ADDRESSES), "the votes of the left rack")
    # Its DPUs are most of the fleet: the checks are the more likely fault, and only one of them may withdraw.
    eventually(lambda: any(ready(dpu)[0] == 503 for dpu in store.dpus[:3]), "a DPU that withdraws")
    assert sum(ready(dpu)[0] == 503 for dpu in store.dpus) <= 1
    assert down(store) == []
    assert all(dpu.blocks() == before for dpu in store.dpus)

    racks["right"].close(ADDRESSES[1])
    eventually(lambda: all_alike(store, without="02:00:5e:10:00:02"), "the ejection, by both racks")
    assert down(store) == [ADDRESSES[1]]

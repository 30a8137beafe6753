"""What the store of a fleet holds of services: groups of DPUs, on two DPUs, each an Open vSwitch of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine
from tests.ovs.fleets import FleetDpu, FleetServers, running_fleet, wait_for_agents
from tests.patience import eventually

pytestmark = pytest.mark.ovs

WEB = """\
  - name: web
    groups: edge
    vip: 10.3.10.80
    protocol: tcp
    ports: [80]
    backends:
      - {name: web1, mac: 02:00:5e:10:00:12, weight: 1}
      - {name: web2, mac: 02:00:5e:10:00:13, weight: 1}
"""


@pytest.fixture
def store(tmp_path: Path, xenoovs: CommandLine) -> Iterator[FleetServers]:
    with running_fleet(tmp_path, xenoovs) as made:
        apply(made, SMALL_CONFIG)
        wait_for_agents(made)
        yield made


def apply(store: FleetServers, text: str) -> str:
    file = store.directory.parent / "services.yaml"
    file.write_text(text)
    said = store.fleet("apply", file, "--now", "--yes")
    assert said.status == 0, said.out + said.err
    return said.out + said.err


def has_web(dpu: FleetDpu) -> bool:
    return any("02:00:5e:10:00:12" in line for line in dpu.blocks())


def test_a_dpu_serves_the_services_of_its_groups(store: FleetServers) -> None:
    one, two = store.dpus
    said = apply(store, SMALL_CONFIG + WEB)
    assert "no DPU is in the group edge, so none has web" in said
    assert (has_web(one), has_web(two), store.is_well()) == (False, False, True)

    said_of = store.fleet("set-dpu", "dpu2", "--groups", "edge")
    assert (said_of.status, said_of.out) == (0, "dpu2: groups edge, rack none, wave 3\n")
    eventually(lambda: has_web(two) and store.is_well(), "the service of its group")
    assert (has_web(one), store.fleet("diff").status) == (False, 0)

    # A change of the group concerns its DPU alone, and all DPUs have the generation.
    file = store.directory.parent / "services.yaml"
    file.write_text((SMALL_CONFIG + WEB).replace("weight: 1}", "weight: 2}", 1))
    planned = store.fleet("plan", file)
    assert [line.split() for line in planned.out.splitlines()[-3:]] == [
        ["GROUP", "DPUS", "SERVICES"],
        ["all", "2", "1"],
        ["edge", "1", "1"],
    ]
    before = one.blocks(), two.blocks()
    said_of = store.fleet("apply", file, "--yes", "--soak", "1s")
    assert said_of.status == 0, said_of.out + said_of.err
    assert "wave 1: dpu2; watched for" in said_of.out
    assert "applied by 2 of 2 DPUs" in said_of.out
    assert (one.blocks() == before[0], two.blocks() == before[1]) == (True, False)

    # The saved view has the groups too: without the store, it boots with the services of its group.
    flows = two.blocks()
    eventually(lambda: b"web2" in two.cache.read_bytes(), "the saved view")
    store.stop()
    two.stop()
    two.bridge.add_flows("delete\n")
    two.start()
    eventually(lambda: two.blocks() == flows, "the flows of the saved view")
    store.start()
    eventually(store.is_well, "the store")
    assert two.blocks() == flows

    # Once forgotten, it keeps its groups, and still follows.
    assert store.fleet("forget", "dpu2").status == 0
    assert store.fleet("drain", "dns", "fips2").status == 0
    eventually(lambda: not any("02:00:5e:10:00:02" in line for line in two.blocks()), "the drain")
    assert has_web(two)
    said_of = store.fleet("add-dpu", "dpu2", "--groups", "edeg")
    assert "no service is for the group edeg yet (did you mean edge?)" in said_of.err
    eventually(lambda: not has_web(two), "another group")

"""What keeps a wave from passing: megaflows of a canary that its NIC does not take."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine, finish, start
from tests.ovs.dummy import udp_packet
from tests.ovs.fleets import FleetDpu, FleetServers, flow_changes, running_fleet, wait_for_agents
from tests.ovs.test_fleet_waves import MORE
from tests.patience import eventually

pytestmark = pytest.mark.ovs

SOURCES = [f"198.51.100.{number}" for number in range(64)]

# The dummy datapath has no hardware: this one holds all megaflows that no line of `refused` names.
NIC = """\
#!/bin/sh
case "$*" in
*dpctl/dump-flows*) {appctl} "$@" | sed -f {rules} ;;
*) exec {appctl} "$@" ;;
esac
"""


class SimulatedNic:
    """A NIC of one DPU, as its agent sees it in dumps of megaflows."""

    def __init__(self, directory: Path, dpu: FleetDpu) -> None:
        directory.mkdir()
        self._rules = directory / "rules"
        program = directory / "ovs-appctl"
        program.write_text(NIC.format(appctl=shutil.which("ovs-appctl"), rules=self._rules))
        program.chmod(0o755)
        dpu.env["PATH"] = f"{directory}:{os.environ['PATH']}"
        self.refuse("")

    def refuse(self, mac: str) -> None:
        """Take all megaflows but those to this MAC."""
        takes = "s/dp:ovs/offloaded:yes, dp:tc/"
        text = f"/dst={mac}/!{takes}\n" if mac else f"{takes}\n"
        new = self._rules.with_suffix(".new")
        new.write_text(text)
        new.replace(self._rules)


def status_of(store: FleetServers, name: str) -> dict[str, Any]:
    dpus = json.loads(store.fleet("status", "-o", "json").out)["dpus"]
    return next(dpu for dpu in dpus if dpu["name"] == name)


def send(dpu: FleetDpu) -> None:
    dpu.bridge.send("p0", [udp_packet(source) for source in SOURCES])


@pytest.fixture
def store(tmp_path: Path, xenoovs: CommandLine) -> Iterator[FleetServers]:
    with running_fleet(tmp_path, xenoovs) as made:
        yield made


def test_a_canary_whose_nic_refuses_flows_is_taken_back_and_other_dpus_see_no_flow_mod(
    store: FleetServers, tmp_path: Path
) -> None:
    one, two = store.dpus
    nic = SimulatedNic(tmp_path / "nic", one)
    first, config = tmp_path / "first.yaml", tmp_path / "services.yaml"
    first.write_text(SMALL_CONFIG)
    config.write_text(MORE)
    assert store.fleet("apply", first, "--now", "--yes").status == 0
    wait_for_agents(store)
    for dpu in store.dpus:
        send(dpu)
        # Its first sample is reported at once.
        dpu.stop()
        dpu.start()
    eventually(lambda: status_of(store, "dpu1")["hw_share"] == 1, "the verdicts of dpu1")
    eventually(lambda: status_of(store, "dpu2")["verdicts"].keys() == {"SW"}, "the verdicts of dpu2")
    before = one.blocks(), two.blocks()

    nic.refuse("02:00:5e:10:00:04")
    with flow_changes(two, tmp_path / "changes") as changes:
        before_it = changes.read_text()
        # A problem ends the wave long before.
        applying = start("fleet", "apply", config, "--yes", "--soak", "10m", "--directory", store.directory)
        eventually(lambda: one.blocks() != before[0], "the canary")
        send(one)
        said = finish(applying)
        assert said.status == 1, said.out + said.err
        assert "refused: wave 1: dpu1: " in said.err
        assert "of its megaflows are in hardware, 100% before" in said.err
        assert "xenoovs why" in said.err
        eventually(store.is_well, "the way back")
        assert (one.blocks(), two.blocks()) == before
        assert changes.read_text() == before_it

    # The same config passes with a NIC that takes it; dpu2, which has no hardware offload, is not in its way.
    nic.refuse("")
    said = store.fleet("apply", config, "--yes", "--soak", "1s")
    assert said.status == 0, said.out + said.err
    assert one.blocks() == two.blocks() != before[0]

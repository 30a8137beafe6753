"""Roll-outs in waves on two DPUs, each an Open vSwitch of its own: dpu1 is the canary."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, start
from tests.ovs.fleets import FleetServers, flow_changes
from tests.patience import eventually

MORE = SMALL_CONFIG + "      - {name: fips4, mac: 02:00:5e:10:00:04, weight: 30, egress: hosts}\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config with a third backend, which the fleet does not have yet."""
    path = tmp_path / "more.yaml"
    path.write_text(MORE)
    return path


def test_a_canary_with_an_error_is_taken_back_and_other_dpus_see_no_flow_mod(
    store: FleetServers, config: Path, tmp_path: Path
) -> None:
    one, two = store.dpus
    one.config.write_text(one.config.read_text().replace("hosts: p2", "hosts: p9"))
    before = one.blocks(), two.blocks()
    with flow_changes(two, tmp_path / "changes") as changes:
        told = changes.read_text()
        said = store.fleet("apply", config, "--yes", "--soak", "2s")
        assert said.status == 1, said.out + said.err
        assert "wave 1: dpu1; watched for 2" in said.out
        assert "refused: wave 1: dpu1: " in said.err
        assert "p9" in said.err
        eventually(store.is_well, "the way back")
        assert (one.blocks(), two.blocks()) == before
        assert (store.intents(), changes.read_text()) == (["refused", "current"], told)

        # The canary can have it now, and has it alone until the wave has passed.
        one.config.write_text(one.config.read_text().replace("hosts: p9", "hosts: p2"))
        said = store.fleet("apply", config, "--yes", "--soak", "1s")
        assert said.status == 0, said.out + said.err
        assert [line.split(";")[0] for line in said.out.splitlines() if line.startswith("wave ")] == [
            "wave 1: dpu1",
            "wave 3: dpu2",
        ]
        assert one.blocks() == two.blocks() != before[0]
        assert store.intents() == ["current", "refused", "past"]
        eventually(lambda: changes.read_text() != told, "the changes of the last wave")


def test_a_roll_out_outlives_ctrl_c_and_its_controller_and_stop_takes_it_back(
    store: FleetServers, config: Path
) -> None:
    one, two = store.dpus
    before = one.blocks()
    waiting = start("fleet", "apply", config, "--yes", "--soak", "1h", "--directory", store.directory)
    eventually(lambda: waiting.poll() is not None or one.blocks() != before, "the canary")
    assert waiting.poll() is None, waiting.communicate()
    waiting.send_signal(signal.SIGINT)
    _, text = waiting.communicate()
    assert "the controller goes on with the roll-out of config 2" in text

    store.end_controller()
    store.start_controller()
    assert (one.blocks() != before, two.blocks()) == (True, before)
    assert store.fleet("stop").status == 0
    eventually(lambda: one.blocks() == before and store.is_well(), "the way back")
    assert store.intents() == ["refused", "current"]

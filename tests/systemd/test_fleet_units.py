"""The units of a fleet under a real systemd: servers of the store, relay, controller, and an agent that is a member."""

from __future__ import annotations

import re

import pytest

from tests.systemd.story import FLEET_UNITS, StepOutput
from xenoovs.openflow.text import parse_dump

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(0)]

StepOutputs = dict[str, StepOutput]
_NOTHING = StepOutput(0, "", "")


def shown(answer: StepOutput) -> dict[str, str]:
    """What `systemctl show` prints for each unit, in the order of their names."""
    return dict(line.split(" ", 1) for line in answer.stdout.splitlines())


def flows(answer: StepOutput) -> set[str]:
    return {str(seen.flow) for seen in parse_dump(answer.stdout)}


def servers(answer: StepOutput) -> set[str]:
    return set(re.findall(r"02:00:5e:10:00:0\d", answer.stdout))


def test_systemd_finds_nothing_wrong_in_the_units(outputs: StepOutputs) -> None:
    assert outputs["verify of the fleet"] == _NOTHING


def test_enable_now_ends_when_all_serve(outputs: StepOutputs) -> None:
    assert outputs["fleet begins"] == _NOTHING
    assert shown(outputs["fleet begun"]) == dict.fromkeys(FLEET_UNITS, "ActiveState=active NRestarts=0")


def test_only_root_can_write_to_the_store(outputs: StepOutputs) -> None:
    directory, *sockets = outputs["files of the fleet"].stdout.splitlines()
    assert directory == "drwx------ root:root /var/lib/xenoovs/fleet"
    assert len(sockets) == 2
    assert all(line.startswith("srwx------ root:root") for line in sockets)


def test_an_agent_by_unit_installs_what_the_controller_by_unit_wrote(outputs: StepOutputs) -> None:
    assert outputs["fleet apply"].stdout.splitlines()[-1].endswith("applied by 1 of 1 DPU")
    assert servers(outputs["flows of the fleet"]) == {"02:00:5e:10:00:02", "02:00:5e:10:00:03"}


def test_the_unit_lets_the_controller_serve_its_page(outputs: StepOutputs) -> None:
    assert "xenoovs_fleet_active 1.0" in outputs["metrics of the fleet"].stdout


def test_killed_they_start_again_and_the_fleet_goes_on(outputs: StepOutputs) -> None:
    assert flows(outputs["flows while the fleet was away"]) == flows(outputs["flows of the fleet"])
    assert outputs["fleet drain"].stdout.splitlines()[-1].endswith("applied by 1 of 1 DPU")
    assert servers(outputs["flows after the drain"]) == {"02:00:5e:10:00:02"}


def test_stopped_they_end_well_and_the_agent_goes_on(outputs: StepOutputs) -> None:
    assert outputs["fleet stops"] == _NOTHING
    assert shown(outputs["fleet stopped"]) == dict.fromkeys(FLEET_UNITS, "ActiveState=inactive Result=success")
    for stopped in ("stopped xenoovs", "stopped xenoovs_state", "stopped relay"):
        assert stopped in outputs["journal of the stop"].stdout.splitlines()
    active, _, rest = outputs["agent without a store"].stdout.partition("\n")
    assert active == "active"
    assert flows(StepOutput(0, rest, "")) == flows(outputs["flows after the drain"])

"""The agent as a service of a real systemd, with Debian's Open vSwitch, installed as in docs/how-to/agent.md."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.systemd.config import ANSWERED, LATE, SILENT, WEIGHED
from tests.systemd.documented import exposure
from tests.systemd.story import VIP_LATE, WATCHDOG_S, StepOutput
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import parse_dump

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(0)]

StepOutputs = dict[str, StepOutput]
_NOTHING = StepOutput(0, "", "")


def shown(answer: StepOutput) -> dict[str, str]:
    """`systemctl show` as a mapping."""
    return dict(line.split("=", 1) for line in answer.stdout.splitlines())


def flows(answer: StepOutput) -> dict[Flow, float]:
    """Of a dump, with the seconds since each was installed."""
    return {seen.flow: seen.duration_s for seen in parse_dump(answer.stdout)}


def states(answer: StepOutput) -> dict[str, set[str]]:
    """States of backends by service."""
    services: list[Any] = json.loads(answer.stdout)["snapshot"]["services"]
    return {service["name"]: {backend["state"] for backend in service["backends"]} for service in services}


def weights(answer: StepOutput) -> list[float]:
    """Of the backends of WEIGHED, in use."""
    services: list[Any] = json.loads(answer.stdout)["snapshot"]["services"]
    [backends] = [service["backends"] for service in services if service["name"] == WEIGHED]
    return [backend["weight_in_use"] for backend in backends]


def events(outputs: StepOutputs) -> list[tuple[str, dict[str, Any]]]:
    """Return what the agent wrote to the journal: priority (syslog(3)) and event."""
    lines = [json.loads(line) for line in outputs["journal"].stdout.splitlines()]
    return [(line["PRIORITY"], json.loads(line["MESSAGE"])) for line in lines if line["MESSAGE"].startswith("{")]


def test_systemd_finds_nothing_wrong_in_the_unit(outputs: StepOutputs) -> None:
    assert outputs["verify"] == _NOTHING


def test_its_exposure_is_as_documented(outputs: StepOutputs) -> None:
    *_, last = outputs["exposure"].stdout.splitlines()
    assert re.findall(r"\d+\.\d \w+", last) == re.findall(r"\d+\.\d \w+", exposure()) != []


def test_it_starts_and_reports_why_it_is_not_ready_while_open_vswitch_is_missing(outputs: StepOutputs) -> None:
    assert shown(outputs["while Open vSwitch is missing"]) == {"ActiveState": "activating", "SubState": "start"}
    assert "cannot reach Open vSwitch" in outputs["status text without Open vSwitch"].stdout


def test_it_is_active_when_the_flows_are_there_and_not_before(outputs: StepOutputs) -> None:
    """A service that is ordered after it finds all of them; `enable --now` has waited too."""
    assert shown(outputs["begun"]) == {"ActiveState": "active", "SubState": "running", "NRestarts": "0"}
    assert vips(outputs["flows when active"]) == {f"192.0.2.{i}" for i in range(1, len(ANSWERED) + 2)}
    assert outputs["install log"].stdout.splitlines()[-1] == "enabled"
    assert 'Status: "bridge ovsbr1 is as config ' in outputs["status of systemd"].stdout


def vips(answer: StepOutput) -> set[str]:
    return set(re.findall(r"nw_dst=([\d.]+)", answer.stdout))


@pytest.mark.parametrize("service", ANSWERED)
def test_it_may_send_probes_of_each_kind(outputs: StepOutputs, service: str) -> None:
    assert states(outputs["status"])[service] == {"up"}


def test_a_probe_that_is_refused_fails(outputs: StepOutputs) -> None:
    assert states(outputs["status"])[SILENT] == {"down"}


def test_it_may_probe_from_a_namespace_that_is_younger_than_itself(outputs: StepOutputs) -> None:
    assert states(outputs["status after restarts"])[LATE] == {"up"}


def test_only_root_may_read_its_files(outputs: StepOutputs) -> None:
    assert outputs["files"].stdout.splitlines() == [
        "drwx------ root:root /run/xenoovs",
        "srw------- root:root /run/xenoovs/ovsbr1.sock",
        "drwx------ root:root /var/lib/xenoovs",
    ]
    assert outputs["runtime file"].stdout == "-rw------- root:root /var/lib/xenoovs/ovsbr1.json\n"


def test_a_reload_reads_the_config(outputs: StepOutputs) -> None:
    assert outputs["reload"] == _NOTHING
    assert VIP_LATE in vips(outputs["flows after reload"])


def test_a_reload_of_garbage_ends_and_changes_nothing(outputs: StepOutputs) -> None:
    assert outputs["reload of garbage"] == _NOTHING
    assert shown(outputs["after garbage"]) == {"ActiveState": "active", "NRestarts": "0"}
    assert {level for level, event in events(outputs) if "the last good one stays" in event["event"]} == {"4"}


def test_one_that_hangs_is_restarted_and_the_flows_stay(outputs: StepOutputs) -> None:
    assert outputs["restarted 1"].exit_code == 0
    assert f"Watchdog timeout (limit {WATCHDOG_S}s)!" in outputs["journal"].stdout
    assert_untouched(outputs["flows before it hangs"], outputs["flows after it hung"])


def test_one_that_was_killed_is_restarted_and_the_flows_stay(outputs: StepOutputs) -> None:
    assert outputs["restarted 2"].exit_code == 0
    assert_untouched(outputs["flows before it hangs"], outputs["flows after a crash"])


def assert_untouched(before: StepOutput, after: StepOutput) -> None:
    """Assert that the flows are the same, and that none was installed again."""
    old, new = flows(before), flows(after)
    assert new.keys() == old.keys() != set()
    assert all(new[flow] > old[flow] for flow in old)


def test_weights_set_at_run_time_outlive_restarts(outputs: StepOutputs) -> None:
    assert outputs["weigh"].exit_code == 0
    assert weights(outputs["status"]) == [1, 1]
    assert weights(outputs["status after restarts"]) == [1, 7]


def test_the_flows_are_back_after_a_restart_of_open_vswitch(outputs: StepOutputs) -> None:
    assert (
        flows(outputs["flows after a restart of Open vSwitch"]).keys() == flows(outputs["flows after a crash"]).keys()
    )
    assert outputs["agent after"] == outputs["agent before"]


def test_the_journal_has_events_with_their_levels(outputs: StepOutputs) -> None:
    assert {event["level"]: level for level, event in events(outputs)} == {"info": "6", "warning": "4"}


def test_it_stops_and_the_flows_stay(outputs: StepOutputs) -> None:
    assert outputs["stop"] == _NOTHING
    assert shown(outputs["stopped"]) == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"}
    assert_untouched(outputs["flows before it ends"], outputs["flows after it ended"])
    assert "ovsbr1.sock" not in outputs["sockets after it ended"].stdout


def test_systemd_restarts_it_without_a_limit(outputs: StepOutputs) -> None:
    """Eight failures within a second: with systemd's defaults it would stop after five."""
    assert outputs["recovered"].stdout.splitlines()[-1] == "active"


def test_vips_stay_or_go_when_the_unit_is_stopped(outputs: StepOutputs) -> None:
    assert "192.0.2.1 dev xo-ovsbr1" in outputs["routes of keep"].stdout
    assert outputs["withdraw"] == _NOTHING
    assert outputs["routes of withdraw"] == _NOTHING

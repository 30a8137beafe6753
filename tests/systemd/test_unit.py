"""The agent as a service of a real systemd, with Debian's Open vSwitch, installed as in docs/how-to/agent.md."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.systemd.config import ANSWERED, AWAY, CA, CHECK, INSIDE, LATE, SERVER, SERVER_NAME, SILENT, WEIGHED, config
from tests.systemd.install import AGENT_PAGE, block_with
from tests.systemd.machine import AGENT, BRIDGE, CONFIG, FLOWS, NOTHING, WATCHDOG_S, Machine, until
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import parse_dump

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(0)]

_REPOSITORY = Path(__file__).parents[2]
_OVERRIDE = f"/etc/systemd/system/{AGENT}.service.d/override.conf"
# As `systemctl edit` would make it.
_DROP_IN = f"""\
[Service]
WatchdogSec={WATCHDOG_S}s
ExecStart=
ExecStart=/opt/xenoovs/bin/xenoovs agent {CONFIG} --log json --allow-exec
"""
_FAILING = "[Service]\nExecStart=\nExecStart=/bin/false\nRestartSec=100ms\n"
_VIP_LATE = f"192.0.2.{len(ANSWERED) + 2}"
"""Of the service that comes with a reload."""


def test_the_agent_from_its_installation_to_its_end(machine: Machine, tmp_path: Path) -> None:
    _prepare(machine, tmp_path)
    it_reports_why_it_is_not_ready_while_open_vswitch_is_missing(machine)
    it_is_active_when_the_flows_are_there_and_not_before(machine)
    it_may_send_probes_of_each_kind(machine)
    a_reload_reads_the_config_and_one_of_garbage_changes_nothing(machine)
    only_root_may_read_its_files(machine)
    one_that_hangs_or_was_killed_is_restarted_and_the_flows_stay(machine)
    the_flows_are_back_after_a_restart_of_open_vswitch(machine)
    the_journal_has_events_with_their_levels(machine)
    it_stops_and_the_flows_stay(machine)
    systemd_restarts_it_without_a_limit(machine)
    vips_stay_or_go_when_the_unit_is_stopped(machine)


def _prepare(machine: Machine, directory: Path) -> None:
    authority = trustme.CA()
    server = directory / "server.pem"
    authority.issue_cert(SERVER_NAME).private_key_and_cert_chain_pem.write_to_path(server)
    machine.write(CA, authority.cert_pem.bytes().decode())
    machine.write(CHECK, f'#!/bin/sh\n[ "$1 $XENOOVS_ADDRESS" = "--quick {SERVER}" ]\n', mode="0755")
    machine.write(
        "/etc/systemd/system/servers.service",
        "[Service]\nType=notify\n"
        f"NetworkNamespacePath=/run/netns/{AWAY}\n"
        f"Environment=PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={_REPOSITORY}\n"
        f"ExecStart={sys.executable} -P -m tests.systemd.guest.servers {server} {INSIDE[AWAY]}\n",
    )
    machine.write(
        "/etc/systemd/system/follower.service",
        f"[Unit]\nRequires={AGENT}.service\nAfter={AGENT}.service\n"
        f"[Service]\nType=oneshot\nExecStart=/bin/sh -c '{FLOWS} >/run/flows-when-active'\n",
    )
    machine.write(_OVERRIDE, _DROP_IN)
    machine.must("systemctl daemon-reload; systemctl start servers")
    machine.write(CONFIG, config())


def _flows(machine: Machine) -> dict[Flow, float]:
    """The flows of the bridge, with the seconds since each was installed."""
    return {seen.flow: seen.duration_s for seen in parse_dump(machine.must(FLOWS))}


def _vips(text: str) -> set[str]:
    return set(re.findall(r"nw_dst=([\d.]+)", text))


def _services(machine: Machine) -> dict[str, list[Any]]:
    """The backends of each service that `status` shows."""
    snapshot = json.loads(machine.run("xenoovs status -o json").stdout)["snapshot"]
    return {service["name"]: service["backends"] for service in snapshot["services"]}


def _states(machine: Machine) -> dict[str, set[str]]:
    return {name: {backend["state"] for backend in backends} for name, backends in _services(machine).items()}


def _weights(machine: Machine) -> list[float]:
    """Of the backends of WEIGHED, in use."""
    return [backend["weight_in_use"] for backend in _services(machine)[WEIGHED]]


def _journal(machine: Machine) -> list[tuple[str, str]]:
    """Return what systemd and the agent wrote: priority (syslog(3)) and message."""
    text = machine.must(f"journalctl -u {AGENT} -o json --output-fields=PRIORITY,MESSAGE")
    return [(line["PRIORITY"], line["MESSAGE"]) for line in map(json.loads, text.splitlines())]


def _assert_untouched(before: dict[Flow, float], after: dict[Flow, float]) -> None:
    """Assert that the flows are the same, and that none was installed again."""
    assert after.keys() == before.keys() != set()
    assert all(after[flow] > before[flow] for flow in before)


def it_reports_why_it_is_not_ready_while_open_vswitch_is_missing(machine: Machine) -> None:
    # `enable --now` ends when the agent is ready, for which it needs a bridge.
    machine.must(f"( {block_with('enable --now')} ) >/run/install.log 2>&1 & echo begun")
    said = machine.must(until(f"systemctl show -p StatusText {AGENT} | grep 'Open vSwitch'"))
    assert "cannot reach Open vSwitch" in said
    assert machine.shown(AGENT, "ActiveState", "SubState") == {"ActiveState": "activating", "SubState": "start"}
    assert machine.say(f"systemd-analyze verify {AGENT}.service") == NOTHING
    *_, last = machine.must(
        "systemd-analyze security --offline=true /etc/systemd/system/xenoovs-agent.service"
    ).splitlines()
    [documented] = [line for line in AGENT_PAGE.read_text().splitlines() if "Overall exposure level" in line]
    assert re.findall(r"\d+\.\d \w+", last) == re.findall(r"\d+\.\d \w+", documented) != []


def it_is_active_when_the_flows_are_there_and_not_before(machine: Machine) -> None:
    """A service that is ordered after it finds all of them; `enable --now` has waited too."""
    machine.must(f"systemctl start openvswitch-switch; {BRIDGE}; systemctl start follower")
    begun = {"ActiveState": "active", "SubState": "running", "NRestarts": "0"}
    assert machine.shown(AGENT, *begun) == begun
    assert _vips(machine.must("cat /run/flows-when-active")) == {f"192.0.2.{i}" for i in range(1, len(ANSWERED) + 2)}
    assert machine.must(f"cat /run/install.log; systemctl is-enabled {AGENT}").splitlines()[-1] == "enabled"
    assert 'Status: "bridge ovsbr1 is as config ' in machine.must(f"systemctl status {AGENT}")


def it_may_send_probes_of_each_kind(machine: Machine) -> None:
    assert _states(machine) == {**{service: {"up"} for service in ANSWERED}, SILENT: {"down"}}
    assert _weights(machine) == [1, 1]


def a_reload_reads_the_config_and_one_of_garbage_changes_nothing(machine: Machine) -> None:
    machine.must(f"ip netns add {LATE}; ip -n {LATE} addr add {INSIDE[LATE]}/32 dev lo; ip -n {LATE} link set lo up")
    machine.write(CONFIG, config(weight=3, late=True))
    assert machine.say(f"systemctl reload {AGENT}") == NOTHING
    # systemctl before 253 may return before the agent has begun to read.
    machine.must(until(f"{FLOWS} | grep nw_dst={_VIP_LATE}"))
    machine.write(CONFIG, "garbage")
    assert machine.say(f"systemctl reload {AGENT}") == NOTHING
    machine.must(until(f"journalctl -u {AGENT} | grep -q 'the last good one stays'"))
    machine.must(until(f"systemctl show -p ActiveState {AGENT} | grep -q =active"))
    assert machine.shown(AGENT, "ActiveState", "NRestarts") == {"ActiveState": "active", "NRestarts": "0"}
    machine.write(CONFIG, config(weight=3, late=True))


def only_root_may_read_its_files(machine: Machine) -> None:
    files = "/run/xenoovs /run/xenoovs/ovsbr1.sock /var/lib/xenoovs"
    assert machine.must(f"stat -c '%A %U:%G %n' {files}").splitlines() == [
        "drwx------ root:root /run/xenoovs",
        "srw------- root:root /run/xenoovs/ovsbr1.sock",
        "drwx------ root:root /var/lib/xenoovs",
    ]
    machine.must(f"xenoovs weight {WEIGHED} web2 7")
    runtime = machine.must("stat -c '%A %U:%G %n' /var/lib/xenoovs/ovsbr1.json")
    assert runtime == "-rw------- root:root /var/lib/xenoovs/ovsbr1.json\n"


def one_that_hangs_or_was_killed_is_restarted_and_the_flows_stay(machine: Machine) -> None:
    before = _flows(machine)
    for times, signal in enumerate(("STOP", "KILL"), start=1):
        machine.must(f"systemctl kill --kill-whom=main --signal={signal} {AGENT}")
        is_again = f'[ "$(systemctl show --value -p NRestarts {AGENT})" = {times} ]'
        machine.must(until(f"{is_again} && systemctl -q is-active {AGENT}"))
        _assert_untouched(before, _flows(machine))
    assert f"Watchdog timeout (limit {WATCHDOG_S}s)!" in str(_journal(machine))


def the_flows_are_back_after_a_restart_of_open_vswitch(machine: Machine) -> None:
    flows, process = _flows(machine), machine.shown(AGENT, "MainPID", "NRestarts")
    lines = len(machine.must(FLOWS).splitlines())
    machine.must("systemctl restart openvswitch-switch")
    machine.must(until(f"[ $({FLOWS} | wc -l) = {lines} ]"))
    assert _flows(machine).keys() == flows.keys()
    assert machine.shown(AGENT, "MainPID", "NRestarts") == process
    # A namespace that is younger than the agent, and a weight that is older.
    assert _states(machine)[LATE] == {"up"}
    assert _weights(machine) == [1, 7]


def the_journal_has_events_with_their_levels(machine: Machine) -> None:
    events = [(level, json.loads(message)) for level, message in _journal(machine) if message.startswith("{")]
    assert {event["level"]: level for level, event in events} == {"info": "6", "warning": "4"}
    assert {level for level, event in events if "the last good one stays" in event["event"]} == {"4"}


def it_stops_and_the_flows_stay(machine: Machine) -> None:
    before = _flows(machine)
    assert machine.say(f"systemctl stop {AGENT}") == NOTHING
    stopped = {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"}
    assert machine.shown(AGENT, *stopped) == stopped
    _assert_untouched(before, _flows(machine))
    assert "ovsbr1.sock" not in machine.run("ls /run/xenoovs").stdout


def systemd_restarts_it_without_a_limit(machine: Machine) -> None:
    """Eight failures within a second: with systemd's defaults it would stop after five."""
    failing = _OVERRIDE.replace("override", "zz-failing")
    machine.write(failing, _FAILING)
    machine.must(f"systemctl daemon-reload; systemctl start --no-block {AGENT}")
    machine.must(until(f"[ $(systemctl show --value -p NRestarts {AGENT}) -ge 8 ]"))
    machine.must(f"rm {failing}; systemctl daemon-reload")
    assert machine.must(until(f"systemctl is-active {AGENT}")).splitlines()[-1] == "active"


def vips_stay_or_go_when_the_unit_is_stopped(machine: Machine) -> None:
    """With the unit as it is; then with the documented drop-in for `withdraw`."""
    routes = "ip route show proto 120"
    is_set = until(f"{routes} | grep -q 192.0.2.1")
    machine.write(CONFIG, config(weight=3, late=True, on_agent_exit="keep"))
    machine.must(f"systemctl reload {AGENT}; {is_set}; systemctl stop {AGENT}")
    assert "192.0.2.1 dev xo-ovsbr1" in machine.must(routes)
    page = AGENT_PAGE.with_name("announce-a-vip.md").read_text()
    [drop_in] = re.findall(r"^```ini\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    machine.write(_OVERRIDE.replace("override", "tun"), drop_in)
    machine.write(CONFIG, config(weight=3, late=True, on_agent_exit="withdraw"))
    machine.must(f"systemctl daemon-reload; systemctl start {AGENT}")
    machine.must(until("ip -d link show xo-ovsbr1 | grep -q tun"))
    machine.must(is_set)
    assert machine.say(f"systemctl stop {AGENT}") == NOTHING
    assert machine.say(routes) == NOTHING

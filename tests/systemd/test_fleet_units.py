"""The units of a fleet under a real systemd: servers of the store, relay, controller, and an agent that is a member."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.systemd.config import MAC
from tests.systemd.machine import AGENT, BRIDGE, CONFIG, FLOWS, NOTHING, WATCHDOG_S, Machine, until
from xenoovs.openflow.text import parse_dump

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(0)]

_UNITS = (
    "xenoovs-fleet-server@xenoovs",
    "xenoovs-fleet-server@xenoovs_state",
    "xenoovs-fleet-relay",
    "xenoovs-fleet-controller",
)
_OPTIONS = """\
RELAY_OPTIONS=--from unix:/var/lib/xenoovs/fleet/xenoovs.sock
CONTROLLER_OPTIONS=--web 127.0.0.1:8080
"""
_ASK_METRICS = (
    "exec 3<>/dev/tcp/127.0.0.1/8080; "
    "printf 'GET /metrics HTTP/1.1\\r\\nHost: 127.0.0.1:8080\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
)
_OTHER_MAC = "02:00:5e:10:00:03"
_OF_DPU = "version: 1\nswitch: {bridge: ovsbr1, ingress: [p0], egress: p1}\n"
_MEMBER = f"""\
[Service]
WatchdogSec={WATCHDOG_S}s
ExecStart=
ExecStart=/opt/xenoovs/bin/xenoovs agent {CONFIG} --log json --dpu dpu1 \\
  --fleet tcp:127.0.0.1:6662 --fleet-state unix:/var/lib/xenoovs/fleet/xenoovs_state.sock
"""
_SERVICES = f"""\
version: 1
switch: {{ingress: [in], egress: out}}
services:
  - name: web
    vip: 192.0.2.80
    backends:
      - {{name: web1, mac: {MAC}, weight: 1}}
      - {{name: web2, mac: "{_OTHER_MAC}", weight: 1}}
"""


def test_a_fleet_from_enable_to_stop(machine: Machine) -> None:
    _make_a_new_dpu(machine)
    enable_now_ends_when_all_serve(machine)
    only_root_can_write_to_the_store(machine)
    an_agent_by_unit_installs_what_the_controller_by_unit_wrote(machine)
    killed_they_start_again_and_the_fleet_goes_on(machine)
    stopped_they_end_well_and_the_agent_goes_on(machine)


def _make_a_new_dpu(machine: Machine) -> None:
    """The agent becomes a DPU of a fleet whose units are on this one host."""
    units, templates = "/etc/systemd/system", "/opt/xenoovs/lib/python3*/site-packages/xenoovs/templates"
    machine.must(f"systemctl start openvswitch-switch; {BRIDGE}")
    machine.must(f"cp {templates}/xenoovs-*.service {units}; ln -s /opt/xenoovs/bin/xenoovs /usr/local/bin")
    machine.write(f"{units}/{AGENT}.service.d/override.conf", _MEMBER)
    machine.write("/etc/xenoovs/fleet.env", _OPTIONS)
    machine.write("/etc/xenoovs/services.yaml", _SERVICES)
    machine.write(CONFIG, _OF_DPU)
    machine.must("systemctl daemon-reload; xenoovs fleet init")


def _flows(machine: Machine) -> set[str]:
    return {str(seen.flow) for seen in parse_dump(machine.must(FLOWS))}


def _servers(machine: Machine) -> set[str]:
    return set(re.findall(r"02:00:5e:10:00:0\d", machine.must(FLOWS)))


def enable_now_ends_when_all_serve(machine: Machine) -> None:
    assert machine.say(f"systemd-analyze verify {' '.join(f'{unit}.service' for unit in _UNITS)}") == NOTHING
    assert machine.say(f"systemctl enable --now {' '.join(_UNITS)} 2>/dev/null") == NOTHING
    begun = {"ActiveState": "active", "NRestarts": "0"}
    assert [machine.shown(unit, *begun) for unit in _UNITS] == [begun] * len(_UNITS)


def only_root_can_write_to_the_store(machine: Machine) -> None:
    files = "/var/lib/xenoovs/fleet /var/lib/xenoovs/fleet/*.sock"
    directory, *sockets = machine.must(f"stat -c '%A %U:%G %n' {files}").splitlines()
    assert directory == "drwx------ root:root /var/lib/xenoovs/fleet"
    assert len(sockets) == 2
    assert all(line.startswith("srwx------ root:root") for line in sockets)


def an_agent_by_unit_installs_what_the_controller_by_unit_wrote(machine: Machine) -> None:
    machine.must(f"systemctl start --no-block {AGENT}; xenoovs fleet add-dpu dpu1")
    applied = machine.must("xenoovs fleet apply /etc/xenoovs/services.yaml --now --yes --timeout 15m")
    assert applied.splitlines()[-1].endswith("applied by 1 of 1 DPU")
    machine.must(until(f"systemctl -q is-active {AGENT}"))
    assert _servers(machine) == {MAC, _OTHER_MAC}
    assert "xenoovs_fleet_active 1.0" in machine.must(f"bash -c {shlex.quote(_ASK_METRICS)}")


def killed_they_start_again_and_the_fleet_goes_on(machine: Machine) -> None:
    before = _flows(machine)
    machine.must(f"systemctl kill --signal=KILL {' '.join(_UNITS)}")
    for unit in _UNITS:
        is_again = f'[ "$(systemctl show --value -p NRestarts {unit})" -ge 1 ]'
        machine.must(until(f"{is_again} && systemctl -q is-active {unit}"))
    assert _flows(machine) == before
    drained = machine.must("xenoovs fleet drain web web2 --yes --timeout 15m")
    assert drained.splitlines()[-1].endswith("applied by 1 of 1 DPU")
    assert _servers(machine) == {MAC}


def stopped_they_end_well_and_the_agent_goes_on(machine: Machine) -> None:
    before = _flows(machine)
    assert machine.say("; ".join(f"systemctl stop {unit}" for unit in reversed(_UNITS))) == NOTHING
    stopped = {"ActiveState": "inactive", "Result": "success"}
    assert [machine.shown(unit, *stopped) for unit in _UNITS] == [stopped] * len(_UNITS)
    journal = machine.must("journalctl -o cat -u 'xenoovs-fleet-*'").splitlines()
    assert {"stopped xenoovs", "stopped xenoovs_state", "stopped relay"} <= {*journal}
    assert machine.must(f"systemctl is-active {AGENT}") == "active\n"
    assert _flows(machine) == before

"""The life of the units, from their installation to their end: runs each command and records its output."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

import trustme

from tests.systemd.config import ANSWERED, AWAY, CA, CHECK, INSIDE, LATE, MAC, SERVER, SERVER_NAME, WEIGHED, config
from tests.systemd.documented import block_with, tun_drop_in
from tests.systemd.machine import Machine

UNIT = "xenoovs-agent"
CONFIG = "/etc/xenoovs/config.yaml"
WATCHDOG_S = 20
"""Replaces the 120 s of the unit, for which the test would wait."""

# Far longer than any step takes, as the machine shares its processors.
_TIMEOUT_S = 900.0
_REPOSITORY = Path(__file__).parents[2]
_FLOWS = "ovs-ofctl -O OpenFlow14 --no-names --sort dump-flows ovsbr1"

_NETWORK = f"""\
for port in p0 p1; do ip link add $port up type veth peer name $port-far; ip link set $port-far up; done
ip netns add {AWAY}
ip link add near type veth peer name far netns {AWAY}
ip addr add 198.51.100.1/24 dev near
ip link set near up
ip -n {AWAY} addr add {SERVER}/24 dev far
ip -n {AWAY} link set far address {MAC}
ip -n {AWAY} addr add {INSIDE[AWAY]}/32 dev lo
for device in lo far; do ip -n {AWAY} link set $device up; done
"""

_BRIDGE = (
    "ovs-vsctl add-br ovsbr1 -- add-port ovsbr1 p0 -- add-port ovsbr1 p1 "
    "-- set bridge ovsbr1 datapath_type=netdev fail_mode=secure"
)

# As `systemctl edit` would make it.
_DROP_IN = f"""\
[Service]
WatchdogSec={WATCHDOG_S}s
ExecStart=
ExecStart=/opt/xenoovs/bin/xenoovs agent {CONFIG} --log json --allow-exec
"""

VIP_LATE = f"192.0.2.{len(ANSWERED) + 2}"
"""Of the service that comes with a reload."""

_TEMPLATES = "/opt/xenoovs/lib/python3*/site-packages/xenoovs/templates"
FLEET_UNITS = (
    "xenoovs-fleet-server@xenoovs",
    "xenoovs-fleet-server@xenoovs_state",
    "xenoovs-fleet-relay",
    "xenoovs-fleet-controller",
)
_FLEET_OPTIONS = """\
RELAY_OPTIONS=--from unix:/var/lib/xenoovs/fleet/xenoovs.sock
CONTROLLER_OPTIONS=--web 127.0.0.1:8080
"""
_ASK_METRICS = (
    "exec 3<>/dev/tcp/127.0.0.1/8080; "
    "printf 'GET /metrics HTTP/1.1\\r\\nHost: 127.0.0.1:8080\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
)
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
      - {{name: web2, mac: "02:00:5e:10:00:03", weight: 1}}
"""

_FAILING = "[Service]\nExecStart=\nExecStart=/bin/false\nRestartSec=100ms\n"


@dataclass(frozen=True, slots=True)
class StepOutput:
    """The output of one step."""

    exit_code: int
    stdout: str
    stderr: str


@dataclass(slots=True)
class Story:
    """`outputs`: by step."""

    machine: Machine
    directory: Path
    outputs: dict[str, StepOutput] = field(default_factory=dict)

    def run(self) -> dict[str, StepOutput]:
        """Run all steps and return their outputs by name."""
        self._prepare()
        self._install()
        self._open_vswitch_comes()
        self._reload()
        self._hang()
        self._crash()
        self._open_vswitch_restarts()
        self._read_journal()
        self._stop()
        self._fail()
        self._announce()
        self._fleet_begins()
        self._fleet_crashes()
        self._fleet_stops()
        return self.outputs

    def _prepare(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.directory / "ca.pem")
        server = self.directory / "server.pem"
        authority.issue_cert(SERVER_NAME).private_key_and_cert_chain_pem.write_to_path(server)
        self._must(_NETWORK)
        self._write(f"{CONFIG}.example", "")
        self._must(f"cp {shlex.quote(str(self.directory / 'ca.pem'))} {CA}")
        self._write(CHECK, f'#!/bin/sh\n[ "$1 $XENOOVS_ADDRESS" = "--quick {SERVER}" ]\n', mode="0755")
        self._write(
            "/etc/systemd/system/servers.service",
            "[Service]\nType=notify\n"
            f"NetworkNamespacePath=/run/netns/{AWAY}\n"
            f"Environment=PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={_REPOSITORY}\n"
            f"ExecStart={sys.executable} -P -m tests.systemd.guest.servers {server} {INSIDE[AWAY]}\n",
        )
        self._write(
            "/etc/systemd/system/follower.service",
            f"[Unit]\nRequires={UNIT}.service\nAfter={UNIT}.service\n"
            f"[Service]\nType=oneshot\nExecStart=/bin/sh -c '{_FLOWS} >/run/flows-when-active'\n",
        )
        self._write(f"/etc/systemd/system/{UNIT}.service.d/override.conf", _DROP_IN)
        self._must("systemctl daemon-reload; systemctl start servers")

    def _install(self) -> None:
        self._write(CONFIG, config())
        # `enable --now` ends when the agent is ready, for which it needs a bridge.
        self._must(f"( {block_with('enable --now')} ) >/run/install.log 2>&1 & echo begun")
        self._say(
            "status text without Open vSwitch", _until(f"systemctl show -p StatusText {UNIT} | grep 'Open vSwitch'")
        )
        self._say("while Open vSwitch is missing", _show("ActiveState", "SubState"))
        self._say("verify", f"systemd-analyze verify {UNIT}.service")

    def _open_vswitch_comes(self) -> None:
        self._must("systemctl start openvswitch-switch")
        self._must(_BRIDGE)
        self._say("begin", "systemctl start follower")
        self._say("begun", _show("ActiveState", "SubState", "NRestarts"))
        self._say("flows when active", "cat /run/flows-when-active")
        self._say("install log", "cat /run/install.log; systemctl is-enabled " + UNIT)
        self._say("status of systemd", f"systemctl status {UNIT}")
        self._say("status", "xenoovs status -o json")
        self._say("files", "stat -c '%A %U:%G %n' /run/xenoovs /run/xenoovs/ovsbr1.sock /var/lib/xenoovs")

    def _reload(self) -> None:
        self._must(f"ip netns add {LATE}; ip -n {LATE} addr add {INSIDE[LATE]}/32 dev lo; ip -n {LATE} link set lo up")
        self._write(CONFIG, config(weight=3, late=True))
        self._say("reload", f"systemctl reload {UNIT}")
        # systemctl before 253 may return before the agent has begun to read.
        self._say("flows after reload", f"{_until(f'{_FLOWS} | grep nw_dst={VIP_LATE}')}; {_FLOWS}")
        self._write(CONFIG, "garbage")
        self._say("reload of garbage", f"systemctl reload {UNIT}")
        self._must(_until(f"journalctl -u {UNIT} | grep -q 'the last good one stays'"))
        self._must(_until(f"systemctl show -p ActiveState {UNIT} | grep -q =active"))
        self._say("after garbage", _show("ActiveState", "NRestarts"))
        self._say("weigh", f"xenoovs weight {WEIGHED} web2 7")
        self._say("runtime file", "stat -c '%A %U:%G %n' /var/lib/xenoovs/ovsbr1.json")
        self._write(CONFIG, config(weight=3, late=True))

    def _hang(self) -> None:
        self._say("flows before it hangs", _FLOWS)
        self._must(f"systemctl kill --kill-whom=main --signal=STOP {UNIT}")
        self._restarted(1)
        self._say("flows after it hung", _FLOWS)

    def _crash(self) -> None:
        self._must(f"systemctl kill --kill-whom=main --signal=KILL {UNIT}")
        self._restarted(2)
        self._say("flows after a crash", _FLOWS)

    def _restarted(self, times: int) -> None:
        again = f'[ "$(systemctl show --value -p NRestarts {UNIT})" = {times} ] && systemctl -q is-active {UNIT}'
        self._say(f"restarted {times}", _until(again))

    def _open_vswitch_restarts(self) -> None:
        self._say("agent before", _show("MainPID", "NRestarts"))
        self._must("systemctl restart openvswitch-switch")
        as_before = f"[ $({_FLOWS} | wc -l) = {len(self.outputs['flows after a crash'].stdout.splitlines())} ]"
        self._say("flows after a restart of Open vSwitch", f"{_until(as_before)}; {_FLOWS}")
        self._say("agent after", _show("MainPID", "NRestarts"))
        self._say("status after restarts", "xenoovs status -o json")

    def _read_journal(self) -> None:
        self._say("journal", f"journalctl -u {UNIT} -o json --output-fields=PRIORITY,MESSAGE,SYSLOG_IDENTIFIER")
        self._say("exposure", "systemd-analyze security --offline=true /etc/systemd/system/xenoovs-agent.service")

    def _stop(self) -> None:
        self._say("flows before it ends", _FLOWS)
        self._say("stop", f"systemctl stop {UNIT}")
        self._say("stopped", _show("ActiveState", "Result", "ExecMainStatus"))
        self._say("flows after it ended", _FLOWS)
        self._say("sockets after it ended", "ls /run/xenoovs")

    def _fail(self) -> None:
        self._write(f"/etc/systemd/system/{UNIT}.service.d/zz-failing.conf", _FAILING)
        self._must(f"systemctl daemon-reload; systemctl start --no-block {UNIT}")
        self._must(_until(f"[ $(systemctl show --value -p NRestarts {UNIT}) -ge 8 ]"))
        self._must(f"rm /etc/systemd/system/{UNIT}.service.d/zz-failing.conf; systemctl daemon-reload")
        self._say("recovered", _until(f"systemctl is-active {UNIT}"))

    def _announce(self) -> None:
        """Announce VIPs with the unit as it is, then with the documented drop-in for `withdraw`."""
        routes, is_set = "ip route show proto 120", _until("ip route show proto 120 | grep -q 192.0.2.1")
        self._write(CONFIG, config(weight=3, late=True, on_agent_exit="keep"))
        self._must(f"systemctl reload {UNIT}; {is_set}; systemctl stop {UNIT}")
        self._say("routes of keep", routes)
        self._write(f"/etc/systemd/system/{UNIT}.service.d/tun.conf", tun_drop_in())
        self._write(CONFIG, config(weight=3, late=True, on_agent_exit="withdraw"))
        self._must(f"systemctl daemon-reload; systemctl start {UNIT}")
        self._must(_until("ip -d link show xo-ovsbr1 | grep -q tun"))
        self._must(is_set)
        self._say("withdraw", f"systemctl stop {UNIT}")
        self._say("routes of withdraw", routes)

    def _fleet_begins(self) -> None:
        """Start the units of a fleet on this one host, whose agent becomes a DPU of it and has no past."""
        self._must(f"systemctl stop {UNIT}; rm -rf /etc/systemd/system/{UNIT}.service.d /var/lib/xenoovs")
        self._must(f"ovs-vsctl del-br ovsbr1; {_BRIDGE}")
        self._must(f"cp {_TEMPLATES}/xenoovs-fleet-*.service /etc/systemd/system; systemctl daemon-reload")
        self._write("/etc/xenoovs/fleet.env", _FLEET_OPTIONS)
        self._say(
            "verify of the fleet", f"systemd-analyze verify {' '.join(f'{unit}.service' for unit in FLEET_UNITS)}"
        )
        self._must("xenoovs fleet init")
        self._say("fleet begins", f"systemctl enable --now {' '.join(FLEET_UNITS)} 2>/dev/null")
        self._say("fleet begun", _show_fleet("ActiveState", "NRestarts"))
        self._say("files of the fleet", "stat -c '%A %U:%G %n' /var/lib/xenoovs/fleet /var/lib/xenoovs/fleet/*.sock")
        self._write("/etc/xenoovs/services.yaml", _SERVICES)
        self._write(CONFIG, _OF_DPU)
        self._write(f"/etc/systemd/system/{UNIT}.service.d/override.conf", _MEMBER)
        self._must(f"systemctl daemon-reload; systemctl start --no-block {UNIT}; xenoovs fleet add-dpu dpu1")
        self._say("fleet apply", "xenoovs fleet apply /etc/xenoovs/services.yaml --now --yes --timeout 15m")
        self._must(_until(f"systemctl -q is-active {UNIT}"))
        self._say("flows of the fleet", _FLOWS)
        self._say("metrics of the fleet", f"bash -c {shlex.quote(_ASK_METRICS)}")

    def _fleet_crashes(self) -> None:
        self._must(f"systemctl kill --signal=KILL {' '.join(FLEET_UNITS)}")
        for unit in FLEET_UNITS:
            again = f'[ "$(systemctl show --value -p NRestarts {unit})" -ge 1 ] && systemctl -q is-active {unit}'
            self._must(_until(again))
        self._say("flows while the fleet was away", _FLOWS)
        self._say("fleet drain", "xenoovs fleet drain web web2 --yes --timeout 15m")
        self._say("flows after the drain", _FLOWS)

    def _fleet_stops(self) -> None:
        self._say("fleet stops", "; ".join(f"systemctl stop {unit}" for unit in reversed(FLEET_UNITS)))
        self._say("fleet stopped", _show_fleet("ActiveState", "Result"))
        self._say("journal of the stop", "journalctl -o cat -u 'xenoovs-fleet-*'")
        self._say("agent without a store", f"systemctl is-active {UNIT}; {_FLOWS}")

    def _write(self, path: str, text: str, *, mode: str = "0644") -> None:
        request = f"mkdir -p {Path(path).parent}; cat >{path}; chmod {mode} {path}"
        self._must(request, stdin=text)

    def _must(self, script: str, *, stdin: str = "") -> None:
        answer = self._run(script, stdin)
        assert answer.exit_code == 0, f"{script}\n{answer.stdout}{answer.stderr}"

    def _say(self, step: str, script: str) -> None:
        self.outputs[step] = self._run(script, "")

    def _run(self, script: str, stdin: str) -> StepOutput:
        done = self.machine.run(script, stdin=stdin, timeout_s=_TIMEOUT_S)
        return StepOutput(done.returncode, done.stdout, done.stderr)


def _until(condition: str) -> str:
    return f"until {condition}; do sleep 0.1; done"


def _show(*properties: str) -> str:
    return f"systemctl show -p {','.join(properties)} {UNIT}"


def _show_fleet(*properties: str) -> str:
    return "; ".join(
        f"systemctl show -p {','.join(properties)} {unit} | sort | xargs echo {unit}" for unit in FLEET_UNITS
    )

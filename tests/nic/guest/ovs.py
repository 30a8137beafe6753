"""A real Open vSwitch with the kernel's datapath, private to the guest."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.nic.guest import nic
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, stop_process
from xenoovs.switch.endpoint import connected_to
from xenoovs.switch.process import run, try_run

BRIDGE = "ovsbr1"


@dataclass(frozen=True, slots=True)
class TunnelPort:
    """A port `name` of Open vSwitch whose flows name the remote. `device`: of the kernel (lib/netdev-vport.c)."""

    name: str
    device: str


TUNNELS = {
    "geneve": TunnelPort("gnv0", "genev_sys_6081"),
    "vxlan": TunnelPort("vxl0", "vxlan_sys_4789"),
    "gre": TunnelPort("gre0", "gre_sys"),
}
"""By type, as in the table Interface."""

KEEPS_IDLE = "max-revalidator=4000"
"""A setting with which idle megaflows outlive a change of flows on a busy machine. After a dump that took half of
max-revalidator, Open vSwitch deletes those with few packets rather than translate them again (should_revalidate of
ofproto/ofproto-dpif-upcall.c); the least rate is 1 a second (min-revalidate-pps, ovs-vswitchd.conf.db(5) of 3.1)."""

_START_TIMEOUT_S = 300.0


def start_ovs(directory: Path, *, hw_offload: str, settings: Sequence[str] = ()) -> PrivateOvs:
    """Start a new OVS with `other_config:hw-offload` as given. `settings`: more of other_config, as `key=value`.

    Megaflows stay for an hour, as long as flows do not change (`KEEPS_IDLE`).
    """
    wanted = ("max-idle=3600000", f"hw-offload={hw_offload}", *settings)
    return start_private_ovs(directory, datapath=Datapath.KERNEL, settings=wanted)


def appctl(ovs: PrivateOvs, command: str, *arguments: str, timeout_s: float) -> str:
    """What `ovs-appctl COMMAND ARGUMENTS` prints. Starting a program takes this machine as long as several requests.

    JSON-RPC 1.0 (lib/unixctl.c). Raises RuntimeError when ovs-vswitchd answers with an error.
    """
    pid = (ovs.directory / "ovs-vswitchd.pid").read_text().strip()
    text = b""
    with connected_to(str(ovs.directory / f"ovs-vswitchd.{pid}.ctl"), timeout_s) as connection:
        connection.sendall(json.dumps({"id": 0, "method": command, "params": arguments}).encode())
        while True:
            data = connection.recv(1 << 20)
            if not data:
                raise RuntimeError(f"{command}: ovs-vswitchd has closed the connection")
            text += data
            # Only the end of the object makes it complete.
            if data.endswith(b"}"):
                with suppress(ValueError):
                    answer = json.loads(text)
                    break
    if answer["error"] is not None:
        raise RuntimeError(f"{command}: {answer['error']}")
    return str(answer["result"])


def end_vswitchd(ovs: PrivateOvs) -> None:
    """By `ovs-appctl exit`, as the service's own scripts do it (ovs-ctl(8)); returns when it is gone."""
    pid = ovs.pids()[0]
    ovs.appctl("exit")
    deadline = time.monotonic() + _START_TIMEOUT_S
    while pid in ovs.pids():
        if time.monotonic() > deadline:
            raise RuntimeError(f"ovs-vswitchd has not ended within {_START_TIMEOUT_S:.0f} s")
        time.sleep(0.05)


def add_bridge(ovs: PrivateOvs, ports: Sequence[str], *, tunnels: Sequence[str] = ()) -> None:
    """The bridge `ovsbr1` in fail mode secure, with `ports` as OpenFlow ports 1, 2, ...; then those of TUNNELS."""
    added = [word for i, port in enumerate(ports, 1) for word in _add_port(port, ofport=i)]
    for kind in tunnels:
        name = TUNNELS[kind].name
        added += ["--", "add-port", BRIDGE, name, "--", "set", "interface", name, f"type={kind}"]
        added += ["options:remote_ip=flow", "options:key=flow"]
    ovs.vsctl("add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "fail_mode=secure", *added, timeout_s=_START_TIMEOUT_S)
    if "geneve" in tunnels:
        option = "{class=0xffee,type=1,len=4}->tun_metadata0"
        run(["ovs-ofctl", "-O", "OpenFlow14", "add-tlv-map", management(ovs), option], env=ovs.env)


def stop_ovs(ovs: PrivateOvs) -> None:
    """Remove the bridge and with it all TC rules; stop the daemons; the next OVS finds no datapath."""
    ovs.vsctl("--if-exists", "del-br", BRIDGE, timeout_s=_START_TIMEOUT_S)
    deadline = time.monotonic() + _START_TIMEOUT_S
    while nic.rules() and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in ovs.pids():
        stop_process(pid)
    try_run(["ovs-dpctl", "del-dp", "ovs-system"], env=ovs.env)


def add_flows(ovs: PrivateOvs, text: str) -> None:
    """Install flows in one bundle."""
    argv = ["ovs-ofctl", "-O", "OpenFlow14", "--bundle", "add-flows", management(ovs), "-"]
    run(argv, stdin=text, env=ovs.env, timeout_s=_START_TIMEOUT_S)


def management(ovs: PrivateOvs) -> str:
    """The OpenFlow socket of the bridge, as ovs-ofctl(8) takes it."""
    return f"unix:{ovs.directory / BRIDGE}.mgmt"


def log(ovs: PrivateOvs) -> list[str]:
    """The lines of ovs-vswitchd's log so far."""
    return (ovs.directory / "ovs-vswitchd.log").read_text().splitlines()


def _add_port(port: str, *, ofport: int) -> list[str]:
    return ["--", "add-port", BRIDGE, port, "--", "set", "interface", port, f"ofport_request={ofport}"]

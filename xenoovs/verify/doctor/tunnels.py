"""Checks of tunnels: what adaptive routing needs of the remotes, the fabric and the host."""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.datapath.fact import Unknown
from xenoovs.errors import counted
from xenoovs.model.tunnel import LINUX_SOURCE_PORTS
from xenoovs.verify.doctor.check import CheckResult, DoctorCase, Fix, HostCheck, vsctl

_ANSWERS = HostCheck("reflector answers", "without answers nothing is known of the paths, and no block moves")
_PROBE_PORT = HostCheck("probe port", "the agent sends probes and receives answers by it")
_HOST_TOS = HostCheck("TOS of host", "the reflector sends packets with the TOS of probes back, so the remote gets none")
_TOS = HostCheck("TOS kept", "a fabric with classes would queue probes elsewhere than data")
_PORTS = HostCheck("source ports of host", "a path by source port costs one megaflow for each port that the host uses")


def check_probe_ports(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that the agent's internal port is on the bridge and up."""
    required = case.required
    if required is None or case.database is None:
        return
    for port in dict.fromkeys(tunnel.probe_port for tunnel in required.tunnels if tunnel.probe_port is not None):
        up = ("ip", "link", "set", "dev", port, "up")
        found, home = case.interface(port), case.database.bridge_of(port)
        if found is None or home is None or home.name != required.bridge:
            where = "on no bridge" if home is None else f"on bridge {home.name}"
            add = vsctl("add-port", required.bridge, port, "--", "set", "interface", port, "type=internal")
            yield _PROBE_PORT.wrong(where, port, Fix((add, up), is_safe=True) if home is None else None)
        elif found.ofport is None:
            yield _PROBE_PORT.wrong(f"does not work: {found.error or 'it has no number'}", port)
        elif found.type != "internal":
            yield _PROBE_PORT.wrong(f"of type {found.type}, not internal", port)
        elif isinstance(device := case.device(port), Unknown):
            yield _PROBE_PORT.unknown(device.reason, port)
        else:
            yield _PROBE_PORT.judge(device.is_up, "up" if device.is_up else "down", port, Fix((up,), is_safe=True))


def check_reflectors(case: DoctorCase) -> Iterator[CheckResult]:
    """Check by the agent's probes that each remote answers, and with which TOS."""
    for tunnel in () if case.required is None else case.required.tunnels:
        if isinstance(tunnel.remotes, Unknown):
            yield _ANSWERS.unknown(tunnel.remotes.reason, tunnel.name)
            continue
        for remote in tunnel.remotes:
            if remote.problem:
                yield _ANSWERS.wrong(remote.problem, remote.name)
                continue
            if remote.tos is None:
                yield _ANSWERS.unknown("there was no answer yet", remote.name)
                continue
            yield _ANSWERS.ok("by some path at least", remote.name)
            seen = f"{remote.tos:#04x} came back"
            sent = "as it was sent" if remote.tos == remote.tos_sent else f"{remote.tos_sent:#04x} was sent"
            yield _TOS.judge(remote.tos == remote.tos_sent, f"{seen}, {sent}", remote.name)
            if remote.returned:
                came = f"{counted(remote.returned, 'packet')} of the host came back; choose another `tos` at both ends"
                yield _HOST_TOS.wrong(came, remote.name)
            else:
                yield _HOST_TOS.ok("no packet of the host came back", remote.name)


def check_source_ports(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that the config says which source ports the host uses, where they cost megaflows."""
    for tunnel in () if case.required is None else case.required.tunnels:
        if tunnel.has_source_ports:
            yield _PORTS.ok("bounded by `source_ports` in the config", tunnel.name)
        elif tunnel.has_source_ports is not None:
            count = LINUX_SOURCE_PORTS.last - LINUX_SOURCE_PORTS.first + 1
            why = f"`source_ports` is not in the config: up to {count} megaflows a remote"
            yield _PORTS.unknown(f"{why}; make the host's device with `srcport MIN MAX` (ip-link(8))", tunnel.name)

"""Checks of tunnels: what adaptive routing needs of the remotes, the fabric and the host."""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.datapath.host import Unknown
from xenoovs.model.tunnel import LINUX_SOURCE_PORTS
from xenoovs.verify.doctor.check import CheckResult, DoctorCase, HostCheck

_ANSWERS = HostCheck("reflector answers", "without answers nothing is known of the paths, and no block moves")
_TOS = HostCheck("TOS kept", "a fabric with classes would queue probes elsewhere than data")
_PORTS = HostCheck("source ports of host", "a path by source port costs one megaflow for each port that the host uses")


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


def check_source_ports(case: DoctorCase) -> Iterator[CheckResult]:
    """Check that the config says which source ports the host uses, where they cost megaflows."""
    for tunnel in () if case.required is None else case.required.tunnels:
        if tunnel.has_source_ports:
            yield _PORTS.ok("bounded by `source_ports` in the config", tunnel.name)
        elif tunnel.has_source_ports is not None:
            count = LINUX_SOURCE_PORTS.last - LINUX_SOURCE_PORTS.first + 1
            why = f"`source_ports` is not in the config: up to {count} megaflows a remote"
            yield _PORTS.unknown(f"{why}; make the host's device with `srcport MIN MAX` (ip-link(8))", tunnel.name)

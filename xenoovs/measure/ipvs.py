"""Linux's own balancer on the dpu: IPVS with direct routing, beside the designs on Open vSwitch.

All packets of the service go to the bridge's own device by one flow. There the kernel's IPVS chooses a backend by the
hash of Maglev over the client's address, and sends the packet to it from the device of its route.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from xenoovs.compile.program import compile_config
from xenoovs.errors import CommandMissing, MeasureError
from xenoovs.measure.bed import Bed
from xenoovs.measure.design_flows import Design, DesignProgram, marked, whole_weights
from xenoovs.model.address import Family, address_in, parse_mac
from xenoovs.model.balancer import Protocol
from xenoovs.openflow.flow import LOCAL, Field, Output, SetField

_SCHEDULER = "mh"
"""Maglev hashing: clients stay with their backend without memory, as with blocks (ipvsadm(8))."""

_FLAGS = {Protocol.UDP: "-u", Protocol.TCP: "-t"}


def why_no_ipvs(bed: Bed) -> str | None:
    """Return why the dpu cannot balance with IPVS; None: it can."""
    dpu, service = bed.dpu, bed.service
    dpu.try_run("modprobe", "-q", "-a", "ip_vs", "ip_vs_mh")
    if dpu.try_run("test", "-e", "/proc/net/ip_vs").exit_code != 0:
        return f"the kernel of {dpu.place.name} has no ip_vs"
    try:
        dpu.run("ipvsadm", "--version")
    except CommandMissing as missing:
        return f"{missing.program} is not on {dpu.place.name}; on Debian: `apt-get install {missing.package}`"
    if service.claim.protocol not in _FLAGS or not service.claim.ports or not service.claim.vips_of(Family.IPV4):
        return f"service {service.name} needs `vip` (IPv4), `protocol: udp` or tcp, and `ports` for it"
    if missing_addresses := [one.name for one in service.backends if one.weight and one.address is None]:
        return f"it needs an address of {missing_addresses[0]}: add `address` to that backend"
    return None


def ipvs_program(bed: Bed) -> DesignProgram:
    """Return the flows that lead the packets of the service to the bridge's own device. Raises MeasureError."""
    bridge = bed.balancer.uplinks.bridge
    text = bed.dpu.run("cat", f"/sys/class/net/{bridge}/address").stdout.strip()
    if not re.fullmatch(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", text):
        raise MeasureError(f"the device {bridge} on {bed.dpu.place.name} has no MAC: {text!r}")
    actions = (SetField(Field.DL_DST, parse_mac(text).value), Output(LOCAL))
    program = compile_config(replace(bed.balancer, services=(bed.service,)))
    to_kernel = (replace(flow, actions=actions) for service in program.services for flow in service.classify)
    return DesignProgram(Design.IPVS, (), tuple(map(marked, (*program.shared, *to_kernel))))


@contextmanager
def running_ipvs(bed: Bed) -> Iterator[None]:
    """Let the kernel of the dpu balance the service; all is removed at the end, whatever ends it."""
    dpu, service, bridge = bed.dpu, bed.service, bed.balancer.uplinks.bridge
    protocol, vip = service.claim.protocol, address_in(service.claim.vips_of(Family.IPV4)[0])
    assert protocol is not None  # noqa: S101 - `why_no_ipvs` has checked it
    weights = whole_weights(service)
    with ExitStack() as stack:
        # The ports of the service: IPVS has no ranges.
        for port in (ports.first for ports in service.claim.ports):
            virtual = (_FLAGS[protocol], f"{vip}:{port}")
            stack.enter_context(dpu.undone_at_end("sh", "-c", 'ipvsadm -D "$@" 2>/dev/null; true', "sh", *virtual))
            dpu.run("ipvsadm", "-A", *virtual, "-s", _SCHEDULER)
            for backend in service.backends:
                if backend.name in weights:
                    real = ("-r", f"{backend.address}:{port}", "-g", "-w", str(weights[backend.name]))
                    dpu.run("ipvsadm", "-a", *virtual, *real)
        undo = 'ip address del "$1" dev "$2" 2>/dev/null; true'
        stack.enter_context(dpu.undone_at_end("sh", "-c", undo, "sh", f"{vip}/32", bridge))
        dpu.run("ip", "link", "set", "dev", bridge, "up")
        dpu.run("ip", "address", "replace", f"{vip}/32", "dev", bridge)
        yield

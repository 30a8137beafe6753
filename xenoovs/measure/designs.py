"""The experiments that compare designs, and ways to backends, under the same load."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace

from xenoovs.compile.program import compile_config
from xenoovs.errors import CommandFailed, CommandMissing, MeasureError
from xenoovs.lab.topology import client_net, used_addresses
from xenoovs.measure.bed import Bed, bridge_flows, restored_flows
from xenoovs.measure.design_flows import (
    CONNTRACK_ZONE,
    OPENFLOW_DESIGNS,
    Design,
    DesignProgram,
    design_program,
    marked,
    whole_weights,
)
from xenoovs.measure.forwarding import LOAD_TIMES, arrival_times, forget_megaflows, forwarded_load
from xenoovs.measure.frames import LoadProfile, new_clients
from xenoovs.measure.load import LoadBench, load_bench
from xenoovs.measure.samples import BedKind, Plain, Point
from xenoovs.measure.schedule import Basis, Experiment, Measurement
from xenoovs.model.address import Family, parse_mac
from xenoovs.model.balancer import Balancer, Protocol, Service
from xenoovs.model.next_hop import NextHop
from xenoovs.model.packet import own_addresses
from xenoovs.model.tunnel import remote_end_of
from xenoovs.openflow.flow import LOCAL, Field, Output, SetField

CLIENTS = (10, 1_000, 100_000)
_QUICK_CLIENTS = (10, 100_000)
"""Fewer, so that all designs in a lab fit into a minute."""

_FRAME_BYTES = 64
_OFCTL = ("ovs-ofctl", "-O", "OpenFlow15")


def designs_profile(bed: Bed, *, clients: int, seed: int) -> LoadProfile:
    """Return the load of an experiment, with client addresses from the whole net of clients."""
    profile = bed.profile(clients=clients, seed=seed)
    return replace(profile, net=client_net(profile.family, used_addresses(bed.balancer)))


def designs_experiment(bench: LoadBench, *, quick: bool, seed: int, repeats: int) -> Experiment:
    """Return the experiment: every design with every number of clients. Raises what `design_program` raises.

    Its option `why_no_ipvs` is the reason why IPVS is left out; empty if it is measured.
    """
    bed, counted = bench.bed, _QUICK_CLIENTS if quick else CLIENTS
    times = LOAD_TIMES[bed.kind, quick]
    only = replace(bed.balancer, services=(bed.service,))
    programs: dict[Design, DesignProgram] = {design: design_program(only, design) for design in OPENFLOW_DESIGNS}
    why_not = why_no_ipvs(bed)
    if why_not is None:
        programs[Design.IPVS] = ipvs_program(bed)
    size = max(_FRAME_BYTES, designs_profile(bed, clients=1, seed=seed).shortest_bytes)

    def prepare() -> Basis:
        for clients in counted:
            bench.generator.prepare(designs_profile(bed, clients=clients, seed=seed), frame_bytes=size)
        return {}

    def measure(point: Point, _basis: Basis) -> Measurement:
        program = programs[Design(point["design"])]
        profile = designs_profile(bed, clients=int(point["clients"]), seed=seed)
        with _installed(bed, program), running_ipvs(bed) if program.design is Design.IPVS else nullcontext():
            bench.announce_backends()
            values, suspect = forwarded_load(bench, profile, frame_bytes=size, times=times)
            if bed.kind is not BedKind.MACHINES:
                newcomers = new_clients(profile, times.newcomers)
                values["first_packet_us"], lost = arrival_times(bed, profile, newcomers, frame_bytes=size)
                suspect += [f"{lost} first packets of new clients were lost"] if lost else []
            _check_unchanged(bed, program)
        return Measurement(values, tuple(suspect))

    points: list[Point] = [{"design": design.value, "clients": clients} for clients in counted for design in programs]
    options: dict[str, Plain] = {"counted_s": times.counted_s, "why_no_ipvs": why_not or ""}
    point_s = times.warm_up_s + times.counted_s + 1.0
    return Experiment("designs", points, repeats, point_s, measure, options, prepare)


# The flows of a design on the bridge of a bed, during one measurement.


@contextmanager
def _installed(bed: Bed, program: DesignProgram) -> Iterator[None]:
    """Replace all flows of the bridge; restore them at the end, even if killed."""
    dpu, bridge = bed.dpu, bed.balancer.uplinks.bridge
    numbers = [found[0] for group in program.groups if (found := re.match(r"group_id=\d+", group))]
    remove = "; ".join(shlex.join([*_OFCTL, "del-groups", bridge, number]) for number in numbers) or "true"
    with dpu.undone_at_end("sh", "-c", remove), restored_flows(bed):
        try:
            if program.groups:
                groups = "".join(f"{group}\n" for group in program.groups)
                dpu.run(*_OFCTL, "--names", "add-groups", bridge, "-", stdin=groups)
            dpu.run(*_OFCTL, "--names", "--bundle", "replace-flows", bridge, "-", stdin=program.text)
        except CommandFailed as failed:
            raise MeasureError(
                f"{bridge} does not take the flows of {program.design.value}: {failed.stderr.strip()}"
            ) from None
        forget_megaflows(dpu)
        yield
    if program.design is Design.CONNTRACK:
        dpu.try_run("ovs-appctl", "dpctl/flush-conntrack", f"zone={CONNTRACK_ZONE}")


def _check_unchanged(bed: Bed, program: DesignProgram) -> None:
    """Raise MeasureError if another program has changed the flows during the measurement."""
    there = list(filter(str.strip, bridge_flows(bed).splitlines()))
    if program.design is not Design.LEARN and len(there) != len(program.flows):
        raise MeasureError(
            f"another program changed the flows of {bed.balancer.uplinks.bridge} while they were measured: stop its "
            "agent or controller"
        )


# The balancer of Linux on the dpu: IPVS with direct routing. One flow sends all packets of the service to the bridge's
# own device. There the kernel chooses a backend by Maglev hashing of the client's address, and routes the packet to it.

_SCHEDULER = "mh"
"""Maglev hashing: client affinity without connection state, as with blocks (ipvsadm(8))."""

_FLAGS = {Protocol.UDP: "-u", Protocol.TCP: "-t"}


def why_no_ipvs(bed: Bed) -> str | None:
    """Return why the dpu cannot balance with IPVS; None if it can."""
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
    """Return the flows that send the service's packets to the bridge's own device. Raises MeasureError."""
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
    """Configure IPVS on the dpu for the service; remove it at the end, even if killed."""
    dpu, service, bridge = bed.dpu, bed.service, bed.balancer.uplinks.bridge
    protocol, vip = service.claim.protocol, own_addresses(service, Family.IPV4, bed.balancer.services)[0]
    assert protocol is not None  # noqa: S101 - `why_no_ipvs` has checked it
    weights = whole_weights(service)
    with ExitStack() as stack:
        # IPVS has no port ranges: the first port of each.
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


# The experiment that compares ways to backends: the same load to services behind a port, behind tunnels, and with NAT.
# It uses the installed flows, so it needs a config with a service for each way. It shows what encapsulation or
# translation costs the switch: CPU time that offloading frees for applications.

DIRECT, NAT = "direct", "nat"
"""Ways without a tunnel. The name of a tunnel is its type, with `+ipsec` if it is encrypted."""

_WAYS_FRAME_BYTES = (64, 1024)
_WAYS_CLIENTS = 1000


def way_of(service: Service, balancer: Balancer) -> str:
    """Return the name of the way to a service's backends; if there are several, all names."""
    if service.nat is not None:
        return NAT
    return " and ".join(dict.fromkeys(_way(backend.next_hop, balancer) for backend in service.backends))


def _way(hop: NextHop, balancer: Balancer) -> str:
    end = remote_end_of(hop, balancer.switch_tunnels)
    if end is None:
        return DIRECT
    return f"{end.tunnel.type.value}{'' if end.tunnel.ipsec is None else '+ipsec'}"


def next_hops_experiment(bed: Bed, *, quick: bool, seed: int, repeats: int) -> Experiment:
    """Return the experiment for a bed. Raises MeasureError if the config has fewer than two services to compare."""
    times = LOAD_TIMES[bed.kind, quick]
    beds = {one.name: replace(bed, service=one) for one in bed.balancer.services if _is_measured(bed, one)}
    if len(beds) < 2:
        raise MeasureError(
            f"{bed.name} has one service that UDP can be sent to; write a config with one for each way to compare, as "
            "`xenoovs new next-hops` prints"
        )

    def measure(point: Point, _basis: Basis) -> Measurement:
        bed = beds[str(point["service"])]
        profile = bed.profile(clients=_WAYS_CLIENTS, seed=seed)
        frame_bytes = max(int(point["frame_bytes"]), profile.shortest_bytes)
        with load_bench(bed, profile) as bench:
            bench.generator.prepare(profile, frame_bytes=frame_bytes)
            bench.announce_backends()
            forget_megaflows(bed.dpu)
            values, suspect = forwarded_load(bench, profile, frame_bytes=frame_bytes, times=times)
        return Measurement(values, tuple(suspect))

    points: list[Point] = [
        {"service": name, "way": way_of(one.service, one.balancer), "frame_bytes": size}
        for size in _WAYS_FRAME_BYTES
        for name, one in beds.items()
    ]
    options: dict[str, Plain] = {"counted_s": times.counted_s, "clients": _WAYS_CLIENTS}
    return Experiment("next-hops", points, repeats, times.warm_up_s + times.counted_s + 2.0, measure, options)


def _is_measured(bed: Bed, service: Service) -> bool:
    """Return whether a service serves UDP, and all its backends are on the bed."""
    return service.name in bed.stations and service.claim.protocol in (None, Protocol.UDP)

"""`xenoovs measure compare`: designs, ways to backends, and numbers of entries, under the same load."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import cast

import click

from xenoovs.compile.encoding import deliver
from xenoovs.compile.program import compile_config
from xenoovs.display import percent, quantity, span
from xenoovs.errors import CommandFailed, CommandMissing, MeasureError
from xenoovs.lab.topology import client_net, used_addresses
from xenoovs.measure.bed import Bed, add_flows, added_flows, bridge_flows, restored_flows
from xenoovs.measure.bench import (
    LOAD_TIMES,
    LoadBench,
    arrival_times,
    forget_megaflows,
    forwarded_load,
    load_bench,
    rule_times,
)
from xenoovs.measure.counters import megaflow_totals, read_counts
from xenoovs.measure.design_flows import (
    CONNTRACK_ZONE,
    OPENFLOW_DESIGNS,
    Design,
    DesignProgram,
    bucket_weights,
    design_program,
    marked,
)
from xenoovs.measure.frames import LoadProfile, client_bits, new_clients, sources
from xenoovs.measure.run import (
    Basis,
    Experiment,
    MeasureSettings,
    PointTable,
    in_nic,
    mean_of,
    measure_options,
    microseconds,
    repeats_option,
)
from xenoovs.measure.samples import BedKind, Measurement, Plain, Point, RecordedRun, Value
from xenoovs.model.address import Family, parse_mac
from xenoovs.model.balancer import Balancer, Protocol, Service
from xenoovs.model.next_hop import NextHop
from xenoovs.model.packet import own_addresses
from xenoovs.model.tunnel import remote_end_of
from xenoovs.openflow.flow import LOCAL, Field, Output, SetField
from xenoovs.openflow.text import render_actions
from xenoovs.terminal.options import yes_option
from xenoovs.terminal.output import confirm, echo

CLIENTS = (10, 1_000, 100_000)
_QUICK_CLIENTS = (10, 100_000)
"""Fewer, so that all designs in a lab fit into a minute."""

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
    size = designs_profile(bed, clients=1, seed=seed).shortest_bytes

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
    bridge = bed.balancer.uplinks.bridge
    there = list(filter(str.strip, bridge_flows(bed.dpu, bridge).splitlines()))
    if program.design is not Design.LEARN and len(there) != len(program.flows):
        raise MeasureError(
            f"another program changed the flows of {bridge} while they were measured: stop its agent or controller"
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
    weights = bucket_weights(service)
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


KINDS = ("blocks", "clients", "five-tuples")
MOST_ENTRIES = 1 << 16
"""Half as many as the net of clients has addresses."""

_COOKIE = 0x656E7472 << 32
"""ASCII "entr". Its owner is foreign to xenoovs, so agents do not change these flows."""

_ENTRIES_A_S = 20_000.0
"""Assumed lower limit of the upcall rate; sets the warm-up, in which a load makes its entries."""

_FEW_SHARE = 0.95
_NEWCOMERS = 20
_UPDATE_PPS, _UPDATE_S = 2000.0, 3.0
_POLL_S, _LONGEST_S = 0.02, 60.0


def entry_flows(bed: Bed, profile: LoadProfile, kind: str, *, turn: int = 0) -> Iterator[str]:
    """Yield a flow for each client of a load, for `ovs-ofctl add-flows`. Another `turn` gives each another backend."""
    family, service = profile.family, bed.service
    protocol, source, vip = ("udp", "nw_src", "nw_dst") if family is Family.IPV4 else ("udp6", "ipv6_src", "ipv6_dst")
    bits = client_bits(profile)[: (profile.clients - 1).bit_length()]
    mask = type(profile.vip)(sum(1 << bit for bit in bits))
    actions = [render_actions(deliver(backend.next_hop, service.source_mac)) for backend in service.backends]
    for number, (address, port) in enumerate(sources(profile)):
        match = f"{protocol},in_port={bed.balancer.uplinks.ingress[0]},{vip}={profile.vip}"
        if kind == "blocks":
            match += f",{source}={type(address)(int(address) & int(mask))}/{mask}"
        else:
            match += f",{source}={address}"
        if kind == "five-tuples":
            match += f",tp_src={port},tp_dst={profile.port}"
        yield f"{match},actions={actions[(number + turn) % len(actions)]}"


def entries_experiment(bench: LoadBench, *, quick: bool, seed: int, repeats: int) -> Experiment:
    """Return the experiment: packet rate, CPU time and single packets with many active entries."""
    bed = bench.bed
    usual = LOAD_TIMES[bed.kind, quick]

    def measure(point: Point, _basis: Basis) -> Measurement:
        entries, kind = int(point["entries"]), str(point["kind"])
        profile = designs_profile(bed, clients=entries, seed=seed)
        size = profile.shortest_bytes
        times = replace(usual, warm_up_s=usual.warm_up_s + entries / _ENTRIES_A_S)
        bench.generator.prepare(profile, frame_bytes=size)
        with added_flows(bed, _COOKIE, entry_flows(bed, profile, kind)):
            bench.announce_backends()
            forget_megaflows(bed.dpu)
            values, suspect = forwarded_load(bench, profile, frame_bytes=size, times=times)
            if bed.kind is not BedKind.MACHINES:
                known = sources(profile)[: times.newcomers]
                values["packet_us"], _ = arrival_times(bed, profile, known, frame_bytes=size)
        return Measurement(values, (*suspect, *_too_few(values, entries)))

    counts = _fitting(bed, (1, 256, 16_384) if quick else (4**power for power in range(9)))
    points: list[Point] = [{"kind": kind, "entries": count} for count in counts for kind in KINDS]
    point_s, options = usual.warm_up_s + usual.counted_s + 3.0, {"counted_s": usual.counted_s}
    return Experiment("entries", points, repeats, point_s, measure, options)


def insert_experiment(bench: LoadBench, *, quick: bool, seed: int, repeats: int) -> Experiment:
    """Return the experiment on new entries: first packet, rule, entries per second, and a change of all under load."""
    bed = bench.bed

    def measure(point: Point, _basis: Basis) -> Measurement:
        profile = designs_profile(bed, clients=int(point["entries"]), seed=seed)
        size, values = profile.shortest_bytes, dict[str, Value]()
        with_new = replace(profile, clients=profile.clients + 2 * _NEWCOMERS)
        bench.generator.prepare(profile, frame_bytes=size)
        with added_flows(bed, _COOKIE, entry_flows(bed, with_new, "clients")):
            bench.announce_backends()
            forget_megaflows(bed.dpu)
            if bed.kind is not BedKind.MACHINES:
                newcomers = new_clients(profile, 2 * _NEWCOMERS)
                values["first_packet_us"], _ = arrival_times(bed, profile, newcomers[::2], frame_bytes=size)
                values["rule_us"] = rule_times(bed, profile, newcomers[1::2], frame_bytes=size)
                forget_megaflows(bed.dpu)
            values |= _inserted(bench, profile, size)
            changed, doubts = _updated(bench, profile, with_new, size)
        return Measurement(values | changed, (*_too_few(values, profile.clients), *doubts))

    points = [{"entries": count} for count in _fitting(bed, (256, 4096) if quick else (256, 4096, 16_384))]
    return Experiment("insert", points, repeats, 12.0, measure)


def _inserted(bench: LoadBench, profile: LoadProfile, size: int) -> dict[str, Value]:
    """Send packets of all clients repeatedly, as a busy switch loses some, and measure the growth of megaflows."""
    seen, bed = list[tuple[float, int, int]](), bench.bed
    rate = float(MOST_ENTRIES)
    running = bench.generator.start(profile, frame_bytes=size, offered_pps=rate, seconds_s=_LONGEST_S)
    end_s = time.monotonic() + _LONGEST_S
    try:
        while time.monotonic() < end_s:
            totals = megaflow_totals(bed.dpu, bed.balancer.uplinks.ingress)
            seen.append((time.monotonic(), totals["megaflows"], totals["offloaded_megaflows"]))
            is_settled = len(seen) > 20 and seen[-20][1:] == seen[-1][1:]
            if totals["megaflows"] >= profile.clients * _FEW_SHARE and is_settled:
                break
            time.sleep(_POLL_S)
    finally:
        running.command.end()
    return {"inserts_pps": _growth(seen, 1), "offloads_pps": _growth(seen, 2), "megaflows": seen[-1][1]}


def _updated(
    bench: LoadBench, profile: LoadProfile, every: LoadProfile, size: int
) -> tuple[dict[str, Value], tuple[str, ...]]:
    """Change the backend of all entries while their load runs."""
    before = read_counts(bench.counted)
    running = bench.generator.start(profile, frame_bytes=size, offered_pps=_UPDATE_PPS, seconds_s=_UPDATE_S)
    time.sleep(_UPDATE_S / 3)
    begun_s = time.monotonic()
    add_flows(bench.bed, _COOKIE, entry_flows(bench.bed, every, "clients", turn=1))
    bench.bed.dpu.run("ovs-appctl", "revalidator/wait", timeout_s=_LONGEST_S)
    update_s = time.monotonic() - begun_s
    trial = bench.result(before, running, offered_pps=_UPDATE_PPS)
    return {"update_s": update_s, "update_loss_share": trial.frames.loss_share}, trial.suspect


def _too_few(values: Mapping[str, Value], entries: int) -> Iterator[str]:
    if (active := cast(int, values["megaflows"])) < entries * _FEW_SHARE:
        yield f"{active} megaflows for {entries} entries: not all of them were active"


def _growth(seen: Sequence[tuple[float, int, int]], column: int) -> float:
    """Return the growth rate of a count from its last reading of 0 to its first reading of the maximum."""
    most = max(cast(int, one[column]) for one in seen)
    first_s = max((one[0] for one in seen if not one[column]), default=seen[0][0] - _POLL_S)
    last_s = next(one[0] for one in seen if one[column] == most)
    return most / max(_POLL_S, last_s - first_s) if most else 0.0


def _fitting(bed: Bed, counts: Iterable[int]) -> list[int]:
    """Return the numbers of entries that the bed can make in minutes: few in an emulated NIC."""
    slower = 64 if bed.kind is BedKind.EMULATED else 1
    return sorted({max(1, count // slower) for count in counts})


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _method(recorded: RecordedRun) -> str:
    is_nic = recorded.run.kind is BedKind.MACHINES
    return "" if is_nic else "\nwithout a NIC of its own this proves the method, and nothing about hardware"


TABLES = {
    "designs": PointTable(
        {"DESIGN": ("design", str)},
        {
            "PACKETS/S": mean_of("forwarding_pps"),
            "CPU": mean_of("cpu_us", microseconds),
            "MEGAFLOWS": mean_of("megaflows", _whole),
            "UPCALLS/S": mean_of("upcalls_pps"),
            "FIRST PACKET": mean_of("first_packet_us", microseconds),
            "MEMORY": mean_of("memory_bytes", lambda value: f"{quantity(value)}B"),
        },
        lambda point: f"{point['clients']:,} clients",
        lambda _recorded: "\nmeans of the samples; of first packets, the median of each sample",
    ),
    "next-hops": PointTable(
        {"SERVICE": ("service", str), "WAY": ("way", str)},
        {
            "PACKETS/S": mean_of("forwarding_pps"),
            "BIT/S": mean_of("forwarding_bps"),
            "CPU": mean_of("cpu_us", microseconds),
            "CORES": mean_of("cpu_cores", "{:.2f}".format),
            "MEGAFLOWS": mean_of("megaflows", _whole),
            "IN NIC": in_nic,
        },
        lambda point: f"frames of {point['frame_bytes']} bytes",
        lambda _recorded: "",
    ),
    "entries": PointTable(
        {"ENTRIES": ("entries", _whole)},
        {
            "PACKETS/S": mean_of("forwarding_pps"),
            "CPU/PACKET": mean_of("cpu_us", microseconds),
            "ONE PACKET": mean_of("packet_us", microseconds),
            "MEGAFLOWS": mean_of("megaflows", _whole),
            "IN NIC": in_nic,
        },
        lambda point: str(point["kind"]),
        _method,
    ),
    "insert": PointTable(
        {"ENTRIES": ("entries", _whole)},
        {
            "FIRST PACKET": mean_of("first_packet_us", microseconds),
            "RULE": mean_of("rule_us", microseconds),
            "INSERTS/S": mean_of("inserts_pps"),
            "OFFLOADS/S": mean_of("offloads_pps"),
            "UPDATE": mean_of("update_s", span),
            "LOST": mean_of("update_loss_share", percent),
        },
        note=_method,
    ),
}


@click.command("compare")
@click.argument("experiment", type=click.Choice([*TABLES]))
@measure_options()
@repeats_option("[default: 5, quick 1]")
@yes_option
def compare_command(settings: MeasureSettings, *, experiment: str, repeats: int | None, yes: bool) -> None:
    """Compare the cost of designs, ways to backends, or numbers of entries for the switch.

    CPU is the switch's time for a packet, which offloading frees for applications. All are measured in random order.

    designs: packets/s, CPU time, megaflows, upcalls and first packets of masked blocks and of other ways to split
    clients. The same load of 10, 1,000 and 100,000 clients goes through the same switch, with the flows of each design
    in turn. During a measurement they replace all flows of the bridge.

    next-hops: ways to backends: direct, by each tunnel, and with NAT. The same load goes to each UDP service of the
    config, through the installed flows.

    entries: packets/s, CPU time and the time of single packets over the number of active entries. 1 to 65,536 entries
    have traffic at the same time: masked blocks, single clients (/32), or five-tuples, each with its own flow, megaflow
    and client. The curve shows how a NIC copes with many rules; without a NIC it only shows that the method works.

    insert: the rate of new entries. FIRST PACKET: time until a new client's packet reached a backend. RULE: time until
    its rule was in the NIC, or in the datapath if there is no NIC; both only in labs, whose machines share a clock.
    INSERTS/S: new megaflows when all clients start at once; OFFLOADS/S: those in the NIC. UPDATE: time to change the
    backend of all entries under load; LOST: the loss meanwhile.

    \b
    Examples:
      xenoovs measure compare designs --lab --quick
      xenoovs new next-hops > my.yaml
      xenoovs lab up my.yaml
      xenoovs apply --lab --yes
      xenoovs measure compare next-hops --lab --quick
    """
    number = repeats or (1 if settings.quick else 5)
    if experiment == "next-hops":
        if settings.service is not None:
            raise click.UsageError("--service is for the other experiments: next-hops measures all that serve UDP.")
        with settings.open_bed() as bed:
            ways = next_hops_experiment(bed, quick=settings.quick, seed=settings.seed, repeats=number)
            recorded = settings.measure(bed, ways)
    else:
        with settings.open_bed() as bed:
            if bed.kind is BedKind.MACHINES:
                bridge = f"bridge {bed.balancer.uplinks.bridge} on {bed.dpu.place.name}"
                added = f"Add up to {MOST_ENTRIES:,} flows to {bridge}"
                change = f"Replace all flows of {bridge} again and again" if experiment == "designs" else added
                confirm(f"{change} while this measures?", yes=yes)
            with load_bench(bed, designs_profile(bed, clients=1, seed=settings.seed)) as bench:
                recorded = settings.measure(bed, _experiment(experiment, settings, bench, number))
    settings.show(recorded, TABLES[experiment].show)


def _experiment(name: str, settings: MeasureSettings, bench: LoadBench, repeats: int) -> Experiment:
    make = {"designs": designs_experiment, "entries": entries_experiment, "insert": insert_experiment}[name]
    made = make(bench, quick=settings.quick, seed=settings.seed, repeats=repeats)
    if why_not := made.options.get("why_no_ipvs"):
        echo(f"IPVS is not measured: {why_not}", err=True)
    return made

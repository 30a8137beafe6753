"""`xenoovs measure compare`: what designs, ways to backends and numbers of entries cost the switch."""

from __future__ import annotations

import click

from xenoovs.display import percent, quantity, span
from xenoovs.measure.commands.run import (
    MeasureSettings,
    PointTable,
    bed_of,
    in_nic,
    mean_of,
    measure_options,
    microseconds,
    repeats_option,
    run_on_bed,
    show_result,
)
from xenoovs.measure.designs import designs_experiment, designs_profile, next_hops_experiment
from xenoovs.measure.entries import MOST_ENTRIES, entries_experiment, insert_experiment
from xenoovs.measure.load import LoadBench, load_bench
from xenoovs.measure.samples import BedKind, RecordedRun
from xenoovs.measure.schedule import Experiment
from xenoovs.terminal.options import yes_option
from xenoovs.terminal.output import confirm, echo


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
@measure_options
@repeats_option("[default: 5, quick 1]")
@yes_option
def compare_command(settings: MeasureSettings, *, experiment: str, repeats: int | None, yes: bool) -> None:
    """Compare designs, ways to backends, or numbers of entries by what they cost the switch.

    CPU is the time of the switch for each packet: what offloading gives back to applications. All are measured in
    random order.

    designs: masked blocks beside other ways to split clients: packets/s, CPU time, megaflows, upcalls, first packets.
    The same load of 10, 1,000 and 100,000 clients goes through the same switch, with the flows of each design in turn.
    For the time of a measurement they replace all flows of the bridge.

    next-hops: ways to backends, directly, by each tunnel, and with NAT. The same load goes to each UDP service of the
    config, through the flows that are installed.

    entries: packets/s, CPU time and the time of single packets over the number of active entries. 1 to 65,536 entries
    have traffic at the same time: masked blocks, single clients (/32), or five-tuples, each with a flow and a megaflow
    of its own. The load is that of as many clients. The curve shows what a NIC makes of many rules; without a NIC it is
    that of Open vSwitch in software, and proves the method only.

    insert: how fast new entries come. FIRST PACKET: of a new client, until it reached a backend. RULE: until its rule
    was in the NIC, without one in the datapath; both in labs, whose machines share a clock. INSERTS/S: megaflows when
    all clients come at once; of them OFFLOADS/S in the NIC. UPDATE: until all entries have another backend while
    packets come, and what that lost.

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
        with bed_of(settings) as bed:
            ways = next_hops_experiment(bed, quick=settings.quick, seed=settings.seed, repeats=number)
            recorded = run_on_bed(settings, bed, ways)
    else:
        with bed_of(settings) as bed:
            if bed.kind is BedKind.MACHINES:
                bridge = f"bridge {bed.balancer.uplinks.bridge} on {bed.dpu.place.name}"
                added = f"Add up to {MOST_ENTRIES:,} flows to {bridge}"
                change = f"Replace all flows of {bridge} again and again" if experiment == "designs" else added
                confirm(f"{change} while this measures?", yes=yes)
            with load_bench(bed, designs_profile(bed, clients=1, seed=settings.seed)) as bench:
                recorded = run_on_bed(settings, bed, _experiment(experiment, settings, bench, number))
    show_result(settings, recorded, TABLES[experiment].show)


def _experiment(name: str, settings: MeasureSettings, bench: LoadBench, repeats: int) -> Experiment:
    make = {"designs": designs_experiment, "entries": entries_experiment, "insert": insert_experiment}[name]
    made = make(bench, quick=settings.quick, seed=settings.seed, repeats=repeats)
    if why_not := made.options.get("why_no_ipvs"):
        echo(f"IPVS is not measured: {why_not}", err=True)
    return made

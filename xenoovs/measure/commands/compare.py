"""`xenoovs measure compare`: the cost of designs, ways to backends and numbers of entries for the switch."""

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

"""The echo experiment: round trips of TCP messages of growing size, with hardware offload on and off."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import cast

import click

from xenoovs.compile.encoding import deliver
from xenoovs.errors import MeasureError
from xenoovs.lab.topology import client_net, used_addresses
from xenoovs.measure.bed import Bed, added_flows, first_line, packets_to
from xenoovs.measure.counters import SwitchCounters, read_switch
from xenoovs.measure.run import (
    Basis,
    Experiment,
    MeasureSettings,
    PointTable,
    mean_of,
    measure_options,
    microseconds,
    repeats_option,
    sizes_option,
)
from xenoovs.measure.samples import BedKind, Measurement, Point, RecordedRun, Value
from xenoovs.model.address import IPAddress, family_of
from xenoovs.model.next_hop import vlan_of
from xenoovs.openflow.flow import Field, SetField, tag_of
from xenoovs.openflow.text import render_actions
from xenoovs.switch.planned_restart import RESTART_WARNING
from xenoovs.terminal.options import yes_option
from xenoovs.terminal.output import confirm, echo

SIZES_BYTES = tuple(4**power for power in range(2, 13))
"""16 B to 16 MiB."""


def bytes_text(size: float) -> str:
    """Return `16 B`, `64 KiB`, `4 MiB`."""
    for factor, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size:g} B"


EMULATED_OFFLOAD = (
    "an emulated NIC is a program on the processor that also runs Open vSwitch: times with offload on and off say "
    "nothing about a NIC"
)
OFFLOADS = ("on", "off", "unchanged")

_SOURCE = Path(__file__).with_name("echo_program.py").read_text()
_COOKIE = 0x6563686F << 32
"""ASCII "echo". Its owner is foreign to xenoovs, so agents do not change the flow."""

_ANSWER_TIMEOUT_S = 10.0
_RESTART_TIMEOUT_S = 600.0
"""Time limit. A busy virtual machine takes minutes."""


def echo_experiment(
    bed: Bed,
    *,
    offloads: Sequence[str],
    quick: bool,
    sizes: Sequence[int] = SIZES_BYTES,
    repeats: int | None = None,
    messages: int = 50,
) -> Experiment:
    """Return the experiment: TCP echo to the first backend of the service, and to the dpu if the bed has its address.

    `messages`: Limit of each connection. Raises MeasureError if the bed cannot offload.
    """
    if set(offloads) & {"on", "off"} and bed.kind is BedKind.LAB:
        raise MeasureError(
            f"{bed.name} has the datapath of Open vSwitch in user space, which offloads nothing: leave out --offload, "
            "or use a lab of `xenoovs lab up --nic emulated`"
        )
    if set(offloads) & {"on", "off"} and bed.dpu.try_run("sh", "-c", "command -v xenoovs").exit_code != 0:
        raise MeasureError(
            f"--offload restarts Open vSwitch by `xenoovs doctor`, and {bed.dpu.place.name} has no xenoovs: install it "
            "there"
        )
    targets = ("backend", "dpu") if bed.dpu.address else ("backend",)
    points: list[Point] = [
        {"bytes": size, "offload": offload, "target": target}
        for target in targets
        for offload in offloads
        for size in sizes
    ]
    limit_s = 0.5 if quick else 60.0

    def measure(point: Point, _basis: Basis) -> Measurement:
        set_offload(bed, str(point["offload"]))
        with _echo_server(bed, str(point["target"])) as (address, port):
            counters = SwitchCounters(bed, cookie=f"{_COOKIE:#x}/-1")
            counts, before = counters.read(), read_switch(bed.dpu)
            rtt_us = _ask(bed, address, port, size=int(point["bytes"]), messages=messages, limit_s=limit_s)
            after = read_switch(bed.dpu)
            # Packets to the dpu match flows that are not of this experiment.
            least = len(rtt_us) if point["target"] == "backend" else 0
            by_switch = counters.frames_since(counts, received=least)
        fewer = (f"only {len(rtt_us)} of {messages} messages within {limit_s:g} s",)
        values: dict[str, Value] = {
            "rtt_us": rtt_us,
            "mean_us": statistics.fmean(rtt_us),
            "median_us": statistics.median(rtt_us),
            "vswitchd_cpu_s": after.vswitchd_cpu_s - before.vswitchd_cpu_s,
            "softirq_cpu_s": after.softirq_cpu_s - before.softirq_cpu_s,
            **by_switch.values,
        }
        return Measurement(values, fewer if len(rtt_us) < min(3, messages) else ())

    warm_up = partial(measure, {**points[0], "offload": "unchanged"}, {})
    options = {"messages": messages, "limit_s": limit_s}
    return Experiment("echo", points, repeats or (1 if quick else 5), limit_s / 2, measure, options, warm_up=warm_up)


@contextmanager
def _echo_server(bed: Bed, target: str) -> Iterator[tuple[str, int]]:
    """Run the server on a target; yield its address and port."""
    with ExitStack() as stack:
        if target == "dpu":
            station, address = bed.dpu, bed.dpu.address
        else:
            station = bed.backends[bed.service.backends[0].name]
            address = station.address or str(bed.service.backends[0].address or "")
        if not address:
            raise MeasureError(
                f"{station.role} has no address; add `address` in the bed file, so that an echo can go there"
            )
        program = station.start("python3", "-I", "-c", _SOURCE, "serve", address)
        stack.callback(program.end)
        failure = f"the echo server on {station.place.name} ({station.role}) does not start"
        port = int(first_line(program, _ANSWER_TIMEOUT_S, failure))
        if target == "backend":
            stack.enter_context(added_flows(bed, _COOKIE, _flows_to_backend(bed, ip_address(address), port)))
        yield address, port


def _flows_to_backend(bed: Bed, address: IPAddress, port: int) -> Iterator[str]:
    """Yield the flows that send the echo's packets to the backend, whatever services the config has."""
    service = bed.service
    hop, vlan = service.backends[0].next_hop, service.claim.vlan
    # Clients of a lab send these packets untagged, also if the service has a VLAN.
    tag = (SetField(Field.VLAN, tag_of(vlan)),) if vlan and vlan_of(hop) is None else ()
    actions = render_actions((*tag, *deliver(hop, service.source_mac)))
    for uplink in bed.balancer.uplinks.ingress:
        yield f"{packets_to(address, 'tcp')},in_port={uplink},tp_dst={port},actions={actions}"


def _ask(bed: Bed, address: str, port: int, *, size: int, messages: int, limit_s: float) -> list[float]:
    source = bed.client.address
    if not source:
        # The clients of a lab have all addresses of their net.
        source = str(ip_network(client_net(family_of(ip_address(address)), used_addresses(bed.balancer)))[1])
    argv = ["ask", source, address, str(port), str(size), str(messages), str(limit_s)]
    times: list[float] = bed.client.ask(
        _SOURCE,
        *argv,
        failure=f"no TCP echo of {size} bytes from {address} port {port} to {source}",
        hint="; is the config applied, and has the client a route to that address by the dpu?",
        timeout_s=limit_s + 3 * _ANSWER_TIMEOUT_S,
    )
    return times


_SETTING = ("ovs-vsctl", "--if-exists", "get", "Open_vSwitch", ".", "other_config:hw-offload")
_UNLESS_SET = f'[ "$({" ".join(_SETTING)})" = "$1" ] || {{ shift; exec "$@"; }}'


def is_offloading(bed: Bed) -> bool:
    """Return whether offload is on in the database of Open vSwitch."""
    return bed.dpu.run(*_SETTING).stdout.strip().strip('"') == "true"


def offload_command(bed: Bed, *, wanted: bool) -> list[str]:
    """Return the command that turns offload on or off on the dpu, by a planned restart."""
    lab = ["--lab", str(bed.document["lab"])] if bed.kind is not BedKind.MACHINES else []
    return ["xenoovs", "doctor", *lab, "--set", f"offload={'on' if wanted else 'off'}", "--yes"]


def set_offload(bed: Bed, offload: str) -> None:
    """Turn offload "on" or "off" if it is not, or leave it "unchanged". Raises MeasureError."""
    if offload == "unchanged" or is_offloading(bed) == (offload == "on"):
        return
    done = bed.dpu.try_run(*offload_command(bed, wanted=offload == "on"), timeout_s=_RESTART_TIMEOUT_S)
    if done.exit_code != 0:
        raise MeasureError(f"offload cannot be turned {offload} on {bed.dpu.place.name}: {done.stderr.strip()}")


@contextmanager
def offload_restored(bed: Bed) -> Iterator[None]:
    """Restore the offload setting at the end of the block, even if this process is killed in it."""
    before, text = is_offloading(bed), bed.dpu.run(*_SETTING).stdout.strip()
    undo = offload_command(bed, wanted=before)
    with bed.dpu.undone_at_end("sh", "-c", _UNLESS_SET, "sh", text, *undo):
        yield


_FAR = 1.5
_CHOICES = {"both": ("on", "off"), **{offload: (offload,) for offload in OFFLOADS}}


@click.command("echo")
@measure_options()
@click.option(
    "--offload",
    type=click.Choice([*_CHOICES]),
    default="unchanged",
    show_default=True,
    help="Measure with hardware offload on, off or both; Open vSwitch is restarted for each change.",
)
@sizes_option("the powers of 4 from 16", least=1, most=SIZES_BYTES[-1], noun="messages")
@repeats_option("[default: 5, quick 1]")
@yes_option
def echo_command(
    settings: MeasureSettings, offload: str, sizes: tuple[int, ...] | None, repeats: int | None, *, yes: bool
) -> None:
    """Measure the round-trip time of TCP messages of 16 bytes to 16 MiB to the first backend of the service.

    Each sample is one connection with up to 50 messages, which the backend echoes. During the sample the bridge has a
    flow that sends the packets of this connection to the backend. If the bed file has an `address` of the dpu, messages
    also go to a program on the dpu.

    \b
    Examples:
      xenoovs measure echo --lab --quick
      xenoovs measure echo my.yaml --bed bed.yaml --offload both
      xenoovs measure echo --lab --sizes 64,65536 --repeats 3
    """
    offloads = _CHOICES[offload]
    with settings.open_bed() as bed:
        experiment = echo_experiment(
            bed, offloads=offloads, quick=settings.quick, sizes=sizes or SIZES_BYTES, repeats=repeats
        )
        if offload == "unchanged":
            recorded = settings.measure(bed, experiment)
        else:
            echo(RESTART_WARNING, err=True)
            confirm(f"Restart Open vSwitch on {bed.dpu.place.name} for each change of offload?", yes=yes)
            with offload_restored(bed):
                recorded = settings.measure(bed, experiment)
    settings.show(recorded, TABLE.show)


def _notes(recorded: RecordedRun) -> str:
    notes = list[str]()
    values = [cast("dict[str, float]", sample.values) for sample in recorded.samples]
    if any(each["mean_us"] > _FAR * each["median_us"] for each in values):
        notes.append("where the mean is far above the median, a few messages were much slower than the others")
    if recorded.run.kind is BedKind.EMULATED and any(point["offload"] != "unchanged" for point in recorded.run.points):
        notes.append(EMULATED_OFFLOAD)
    return "\n".join(notes)


TABLE = PointTable(
    {"OFFLOAD": ("offload", str), "TARGET": ("target", str), "BYTES": ("bytes", bytes_text)},
    {"MEAN": mean_of("mean_us", microseconds), "MEDIAN": mean_of("median_us", microseconds)},
    note=_notes,
)

"""`xenoovs why`: the reason for each megaflow that is not in hardware."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from xenoovs.compile.offloadable.table import Version, render_version
from xenoovs.datapath.megaflow import Verdict
from xenoovs.diagnosis.offload import block_checker
from xenoovs.diagnosis.reasons import find_live, find_recorded
from xenoovs.errors import counted, worded
from xenoovs.evidence.collector import Collector, finish_leftovers
from xenoovs.evidence.dump_file import NamedBridges, recorded_evidence
from xenoovs.judge.why.case import Case
from xenoovs.judge.why.diagnose import LISTED, MegaflowFilter, Selection, describe, describe_group, group, to_json
from xenoovs.judge.why.reason import Likelihood, Reason
from xenoovs.model.address import IPAddress
from xenoovs.switch.tape import is_replaying
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_FAILED, EXIT_NOTHING_SEEN, EXIT_OK
from xenoovs.terminal.completion import complete_bridge
from xenoovs.terminal.defaults import environment_config, find_config
from xenoovs.terminal.load import check_service, load, load_resolved, recorded
from xenoovs.terminal.options import (
    FILE,
    INTERVAL_S,
    address,
    from_dump_option,
    from_flows_option,
    given_option,
    interval_option,
    optional_config_argument,
    output_option,
    record_option,
    require_no_live_option,
    service_option,
    some_minutes,
    switch_options,
    time_option,
    version_of_option,
)
from xenoovs.terminal.output import answer, echo, print_text
from xenoovs.terminal.reach import reach, where_of

_WHERE = {
    Verdict.PARTIAL: "the NIC matches, the CPU forwards",
    Verdict.TC_SW: "in the kernel's traffic control",
    Verdict.IDLE_HW: "the NIC holds the rule, the CPU forwards",
    Verdict.SW: "in the software datapath",
    Verdict.CONTRADICTED: "counted by the NIC, but counters of its port show that the CPU got them",
}
_WORD = {
    Likelihood.CONFIRMED: ("confirmed", "red"),
    Likelihood.CERTAIN: ("certain", "red"),
    Likelihood.LIKELY: ("likely", "yellow"),
    Likelihood.POSSIBLE: ("possible", "bright_black"),
}


def _ufid(text: str) -> str:
    digits = text.strip().lower().removeprefix("ufid:")
    if not re.fullmatch(r"[0-9a-f-]{1,36}", digits):
        raise click.BadParameter(f"{text!r} is not a ufid: hexadecimal digits and dashes, as in a dump made with -m")
    return digits


@click.command("why")
@optional_config_argument
@click.option(
    "--bridge",
    metavar="NAME",
    shell_complete=complete_bridge,
    help="Without FILE: explain all megaflows of any bridge, such as OVN's br-int.",
)
@switch_options
@record_option("reinstall", "probe_driver", "from_dump")
@service_option
@click.option("--src", "source", metavar="IP", type=address, help="Only megaflows that match packets from this client.")
@click.option("--ufid", metavar="UFID", type=_ufid, help="Only this megaflow; its first digits suffice.")
@time_option(
    "--listen",
    "2s",
    type=some_minutes,
    help="How long ovs-vswitchd logs at debug level why it does not offload; 0 to leave its log levels alone.",
)
@click.option(
    "--reinstall",
    is_flag=True,
    help="Let Open vSwitch reinstall all megaflows while its log is read: it logs reasons only then. All packets "
    "take the slow path for that moment.",
)
@click.option(
    "--probe-driver",
    is_flag=True,
    help="Ask the driver: add each refused rule with skip_sw, read the error, and delete it at once. Takes one "
    "hardware entry for some milliseconds.",
)
@interval_option
@from_dump_option
@from_flows_option
@click.option(
    "--from-log",
    type=FILE,
    metavar="LOG",
    help="With --from-dump: the log of the same ovs-vswitchd (ovs-vswitchd.log).",
)
@click.option(
    "--ovs",
    "version",
    metavar="VERSION",
    callback=lambda _context, _parameter, value: None if value is None else version_of_option(value),
    help="With --from-dump: the version of Open vSwitch, such as 2.17; default: from the log.",
)
@output_option
def why_command(
    config: Path | None,
    *,
    bridge: str | None,
    service: str | None,
    source: IPAddress | None,
    ufid: str | None,
    listen_s: float,
    reinstall: bool,
    probe_driver: bool,
    interval_s: float | None,
    from_dump: Path | None,
    from_flows: Path | None,
    from_log: Path | None,
    version: Version | None,
) -> int:
    """Explain why megaflows of the config FILE are not in hardware, most likely reason first.

    Each reason comes with its evidence and the commands that fix it. Raised log levels are restored, and trial rules
    are deleted; if a run is killed, the next one does it.

    Where the NIC holds rules it makes two samples, 2 s apart (--interval), and judges as verify-offload does: run it
    while traffic flows.

    With --from-dump no switch and nothing of this host is read: the reasons come from the dump, from the offload table
    and, with --from-log, from the log of ovs-vswitchd.

    Without FILE, with --bridge or --from-dump, every megaflow that belongs in hardware is explained. A chain
    of recirculation is in hardware if all of its megaflows are: the first one that is not has the reason.

    Exit status 0: all selected megaflows are in hardware, 2: some are not, or a port contradicts the NIC, 1: it could
    not check, 3: none was found, some are UNCONFIRMED, or a recorded dump may lack those in software.
    """
    if from_dump is None and (from_flows or from_log or version):
        raise click.UsageError("--from-flows, --from-log and --ovs go with --from-dump.")
    require_no_live_option("reinstall", "probe_driver", "interval_s")
    if [config, from_dump, from_flows, from_log].count(Path("-")) > 1:
        raise click.UsageError("standard input can be only one of FILE, DUMP, FLOWS and LOG.")
    if config is None and (from_dump is not None or bridge is None):
        config = find_config("--bridge NAME") if from_dump is None else environment_config()
    if config is None and (given := given_option("service", "from_flows")):
        raise click.UsageError(f"{given} needs the config FILE.")
    selected = MegaflowFilter(service, source, ufid, None if config is not None else NamedBridges())
    balancer = None
    if config is not None:
        balancer = load_resolved(config, of_dpu=True) if from_dump is None else recorded(load(config))
        check_service(balancer, service)
    if from_dump is None:
        switch = reach()
        target = where_of(switch.endpoint, config)
        collector = Collector(switch, interval_s=INTERVAL_S if interval_s is None else interval_s, target=target)
        with _ending_properly():
            if balancer is None:
                name, program, missing = switch.describe(bridge or "").name, None, tuple[str, ...]()
            else:
                checker = block_checker(balancer, collector)
                name, program, missing = balancer.uplinks.bridge, checker.program, checker.remarks
            findings = find_live(
                collector,
                name,
                selected,
                program,
                listen_s=0 if is_replaying() else listen_s,
                reinstall=reinstall,
                probe_driver=probe_driver,
                notes=(*finish_leftovers(switch.endpoint), *missing),
            )
    else:
        given_version = None if version is None else render_version(version)
        evidence = recorded_evidence(from_log, version=given_version, config=config)
        findings = find_recorded(balancer, selected, from_dump, from_flows, evidence)
    nothing = selected.describe_none(is_recorded=from_dump is not None)
    answer(lambda: to_json(findings), lambda: show(findings, nothing=nothing, has_config=config is not None))
    return _status(findings)


def _status(selection: Selection) -> int:
    if selection.candidates or selection.contradicted:
        return EXIT_DIFFERS
    if selection.unjudged:
        return EXIT_FAILED
    if selection.unconfirmed or selection.is_filtered:
        return EXIT_NOTHING_SEEN
    return EXIT_OK if selection.in_hardware else EXIT_NOTHING_SEEN


@contextmanager
def _ending_properly() -> Iterator[None]:
    """Make SIGTERM and SIGHUP end the command as Ctrl-C does, so that temporary changes are reverted first."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show(selection: Selection, *, nothing: str, has_config: bool = True) -> None:
    """Print groups of megaflows with their reasons, then notes and totals, or `nothing` if none was selected."""
    for found in group(selection.candidates):
        _show_group(found, has_config=has_config)
    for note in selection.notes:
        print_text(f"note: {note}", indent="      ")
    if selection.unjudged:
        hidden = f"{counted(selection.unjudged, 'megaflow')} {worded(selection.unjudged, 'runs', 'run')}"
        print_text(f"the dump does not show where {hidden}: it was made without -m")
    if selection.chained:
        megaflows = counted(selection.chained, "more megaflow")
        are = worded(selection.chained, "is", "are")
        print_text(f"{megaflows} {are} in hardware, in chains with one that is not", indent="  ")
    if selection.unconfirmed:
        megaflows = counted(selection.unconfirmed, "megaflow")
        print_text(f"UNCONFIRMED: {megaflows}: the NIC holds the rules, no counter proves that it forwards by them")
    if selection.candidates:
        if selection.left_out:
            print_text(
                f"note: {selection.left_out} more are only counted; select some with --service or --src",
                indent="      ",
            )
        candidates = len(selection.candidates) + selection.left_out
        text = f"{candidates} not in hardware, {selection.in_hardware} in hardware"
        echo(click.style(text, fg="yellow", bold=True))
    elif selection.contradicted:
        echo(click.style("a port contradicts the NIC, so what its rules count is not true", fg="yellow", bold=True))
    elif selection.in_hardware and not selection.unjudged and not selection.unconfirmed:
        echo(click.style(f"{counted(selection.in_hardware, 'megaflow')}, all in hardware", fg="green", bold=True))
    elif not selection.unjudged and not selection.unconfirmed:
        print_text(nothing)


def _show_group(cases: Sequence[Case], *, has_config: bool) -> None:
    print_text(f"{describe_group(cases, has_config=has_config)}, {_WHERE[cases[0].verdict]}", indent="    ", bold=True)
    for diagnosis in cases[:LISTED]:
        print_text(f"    {diagnosis.megaflow.ufid or '(no ufid)'}  {describe(diagnosis)}", indent="      ")
    if len(cases) > LISTED:
        echo(f"    and {len(cases) - LISTED} more (all with -o json)")
    for number, reason in enumerate(cases[0].reasons, start=1):
        _show_reason(number, reason)
    echo()


def _show_reason(number: int, reason: Reason) -> None:
    word, colour = _WORD[reason.likelihood]
    print_text(f"  {number}. {reason.text} [{click.style(word, fg=colour)}]", indent="     ")
    for evidence in reason.evidence:
        print_text(f"       evidence: {evidence}", indent="                 ")
    if reason.source is not None:
        print_text(f"       source:   {reason.source}", indent="                 ")
    for command in reason.fix:
        echo(f"       fix:      {click.style(command, fg='cyan')}")

"""`xenoovs why`: the reason for each megaflow that is not in hardware."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click

from xenoovs.cli.offload import (
    DatapathSampler,
    NamedBridges,
    growth_remarks,
    internal_ports,
    lines_of_bridge,
    max_idle_of,
    missing_remarks,
    own_mask_of,
    ports_of,
)
from xenoovs.cli.why_evidence import (
    Inquiry,
    Recorded,
    WhyFindings,
    find_recorded,
    finish_leftovers,
    overrides_of,
    read_kernel_evidence,
    read_switch,
)
from xenoovs.compile.offloadable.table import Version
from xenoovs.compile.program import Program, compile_onto
from xenoovs.datapath.database import BridgeState
from xenoovs.datapath.megaflow import Verdict
from xenoovs.datapath.parse import scan_dump
from xenoovs.errors import ParseError, counted, first_names, worded
from xenoovs.model.address import IPAddress
from xenoovs.model.balancer import Balancer
from xenoovs.openflow.flow import Flow, ObservedFlow
from xenoovs.switch.management import ManagementSwitch
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_FAILED, EXIT_NOTHING_SEEN, EXIT_OK
from xenoovs.terminal.completion import complete_bridge
from xenoovs.terminal.defaults import environment_config, find_config
from xenoovs.terminal.load import check_service, load_recorded, load_resolved
from xenoovs.terminal.options import (
    FILE,
    INTERVAL_S,
    OutputFormat,
    address,
    duration_or_zero,
    from_dump_option,
    from_flows_option,
    interval_option,
    optional_config_argument,
    output_option,
    service_option,
    switch_options,
    version_of_option,
)
from xenoovs.terminal.output import echo, print_text
from xenoovs.terminal.reach import reach, where_of
from xenoovs.verify.answers import AnswerFinder
from xenoovs.verify.check import CheckContext
from xenoovs.verify.expected import expected_services, index_blocks
from xenoovs.verify.foreign import OverrideCounter
from xenoovs.verify.overlap import OverlapIndex
from xenoovs.verify.why.diagnose import (
    Attribution,
    DiagnosisGroup,
    MegaflowFilter,
    Selection,
    describe,
    diagnose,
    group,
    select_candidates,
    to_json,
)
from xenoovs.verify.why.reason import Likelihood, Reason

_WHERE = {
    Verdict.PARTIAL: "the NIC matches, the CPU forwards",
    Verdict.TC_SW: "in the kernel's traffic control",
    Verdict.IDLE_HW: "the NIC holds the rule, the CPU forwards",
    Verdict.SW: "in the software datapath",
    Verdict.CONTRADICTED: "counted by the NIC, but the CPU got more packets than megaflows explain",
}
_WORD = {
    Likelihood.CONFIRMED: ("confirmed", "red"),
    Likelihood.CERTAIN: ("certain", "red"),
    Likelihood.LIKELY: ("likely", "yellow"),
    Likelihood.POSSIBLE: ("possible", "bright_black"),
}
_LISTED = 3
_LONGEST_LISTEN_S = 300.0


def _ufid(text: str) -> str:
    digits = text.strip().lower().removeprefix("ufid:")
    if not re.fullmatch(r"[0-9a-f-]{1,36}", digits):
        raise click.BadParameter(f"{text!r} is not a ufid: hexadecimal digits and dashes, as in a dump made with -m")
    return digits


def _listening_time(text: str) -> float:
    seconds = duration_or_zero(text)
    if seconds > _LONGEST_LISTEN_S:
        raise click.BadParameter(f"{text!r} is more than 5m.")
    return seconds


@click.command("why")
@optional_config_argument
@click.option(
    "--bridge",
    metavar="NAME",
    shell_complete=complete_bridge,
    help="Without FILE: explain all megaflows of any bridge, such as OVN's br-int.",
)
@switch_options
@service_option
@click.option("--src", "source", metavar="IP", type=address, help="Only megaflows that match packets from this client.")
@click.option("--ufid", metavar="UFID", type=_ufid, help="Only this megaflow; its first digits suffice.")
@click.option(
    "--listen",
    "listen_s",
    metavar="TIME",
    type=_listening_time,
    default="2s",
    show_default=True,
    help="How long ovs-vswitchd logs at debug level why it does not offload; 0: do not change its log levels.",
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
    help="With --from-dump: the version of Open vSwitch, such as 2.17; default: as the log says.",
)
@output_option
@click.pass_context
def why_command(
    context: click.Context,
    /,
    config: Path | None,
    *,
    db: str | None,
    lab: str | None,
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
    output: OutputFormat,
) -> None:
    """Explain why megaflows of the config FILE are not in hardware, most likely reason first.

    Each reason comes with its evidence and the commands that fix it. Raised log levels are restored, and trial rules
    are deleted; if a run is killed, the next one does it.

    Where the NIC holds rules it makes two samples, 2 s apart (--interval), and judges as verify-offload does: run it
    while traffic flows.

    With --from-dump no switch and nothing of this host is read: the reasons come from the dump, from the offload table
    and, with --from-log, from the log of ovs-vswitchd.

    Without FILE, with --bridge or --from-dump, every megaflow that belongs in hardware is explained, as of OVN. A chain
    of recirculation is in hardware if all of its megaflows are: the first one that is not has the reason.

    Exit status 0: all selected megaflows are in hardware, 2: some are not, or a port contradicts the NIC, 1: it could
    not check, 3: none was found, some are UNCONFIRMED, or a recorded dump may lack those in software.
    """
    live = {
        "--db": db,
        "--lab": lab,
        "--reinstall": reinstall,
        "--probe-driver": probe_driver,
        "--interval": interval_s is not None,
    }
    given = [option for option, value in live.items() if value]
    if from_dump is None and (from_flows or from_log or version):
        raise click.UsageError("--from-flows, --from-log and --ovs go with --from-dump.")
    if from_dump is not None and given:
        raise click.UsageError(f"--from-dump reads no switch, so {given[0]} has no use.")
    if [config, from_dump, from_flows, from_log].count(Path("-")) > 1:
        raise click.UsageError("standard input can be only one of FILE, DUMP, FLOWS and LOG.")
    if config is None and (from_dump is not None or bridge is None):
        config = find_config(lab, instead="--bridge NAME") if from_dump is None else environment_config()
    if config is None and (service or from_flows):
        raise click.UsageError(f"{'--service' if service else '--from-flows'} needs the config FILE.")
    selected = MegaflowFilter(service, source, ufid, None if config is not None else NamedBridges())
    balancer = None
    if config is not None:
        balancer = load_resolved(config, of_dpu=True) if from_dump is None else load_recorded(config)
        check_service(balancer, service)
    if from_dump is None:
        switch = reach(db, lab)
        target = where_of(switch.endpoint, config=config, lab=lab)
        between_s = INTERVAL_S if interval_s is None else interval_s
        inquiry = Inquiry(switch.endpoint, target, listen_s, reinstall, probe_driver, between_s)
        with _ending_properly():
            findings = _examine(_subject(balancer, bridge, switch), switch, selected, inquiry)
    else:
        recorded = Recorded(from_dump, from_flows, from_log, version)
        findings = find_recorded(balancer, selected, recorded, config=config)
    selection, nothing = findings.selection, selected.describe_none(is_recorded=from_dump is not None)
    output.show(
        lambda: to_json(findings.diagnoses, selection, notes=findings.notes),
        lambda: show(findings, nothing=nothing, has_config=config is not None),
    )
    context.exit(_status(findings))


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is explained: the megaflows of a bridge, by the program of a config if there is one.

    Attributes:
        observed: flows of xenoovs on the bridge.
    """

    bridge: str
    program: Program | None = None
    observed: tuple[ObservedFlow, ...] = ()


def _subject(balancer: Balancer | None, bridge: str | None, switch: ManagementSwitch) -> _Subject:
    """Return what is explained. Raises BridgeMissing and other SwitchErrors, CompileError."""
    if balancer is None:
        return _Subject(switch.describe(bridge or "").name)
    observed = switch.dump_flows(balancer.uplinks.bridge)
    return _Subject(balancer.uplinks.bridge, compile_onto(balancer, observed), observed)


def _examine(subject: _Subject, switch: ManagementSwitch, selected: MegaflowFilter, inquiry: Inquiry) -> WhyFindings:
    bridge, program = subject.bridge, subject.program
    services = () if program is None else expected_services(program)
    index = index_blocks(services)
    finder = AnswerFinder(services, OverlapIndex(index))

    def select() -> tuple[Selection, tuple[str, ...]]:
        # A ufid selects one megaflow on any bridge; other conditions select on the bridge of the config.
        states = switch.bridges()
        lines_of = str.splitlines if selected.ufid is not None else partial(_lines_of, bridge, states)
        sampler = DatapathSampler(switch, interval_s=inquiry.interval_s)
        reading = sampler.read(lines_of, max_idle_s=max_idle_of(states))
        # A line that is cut off because flows changed meanwhile belongs to a megaflow that is gone.
        megaflows = (found for found in scan_dump(reading.lines) if not isinstance(found, ParseError))
        ports = None
        if program is None and selected.ufid is None:
            ports = next((ports_of(state, states) for state in states if state.name == bridge), None)
        wanted = selected if program is not None else replace(selected, internal_ports=internal_ports(states))
        chosen = select_candidates(
            megaflows,
            find_block=index.find,
            is_selected=wanted.selects,
            find_answers=partial(finder.find, internal_ports=internal_ports(states)),
            find_overrides=partial(overrides_of, OverrideCounter(index), internal_ports=internal_ports(states)),
            context=CheckContext(
                filters=reading.filters,
                internal_ports=internal_ports(states),
                ports=ports,
                before=reading.before,
                port_checks=reading.port_checks,
            ),
        )
        contradictions = (str(port) for port in chosen.contradicted)
        return chosen, (*reading.remarks, *growth_remarks(chosen, reading), *contradictions)

    def foreign() -> tuple[Flow, ...]:
        return tuple(observed.flow for observed in switch.dump_foreign_flows(bridge))

    missing = () if program is None else missing_remarks(program, subject.observed, inquiry.target)
    notes = (*finish_leftovers(inquiry.endpoint), *missing)
    selection, sampled = select()
    if not selection.candidates:
        return WhyFindings(selection, (), (*notes, *sampled))
    evidence, unread = read_switch(inquiry, selection)
    notes = (*notes, *unread)
    if inquiry.reinstall:
        now, sampled_now = select()
        if now.candidates or now.in_hardware or now.unconfirmed:
            if lost := sum(each.held is not None for each in selection.candidates):
                notes = (*notes, f"before Open vSwitch reinstalled megaflows, the NIC did not use {lost} of its rules")
            selection, sampled = now, sampled_now
        else:
            notes = (*notes, "no packet came while Open vSwitch reinstalled megaflows; these are from before")
    evidence, unread = read_kernel_evidence(inquiry, selection, evidence)
    if program is not None:
        selection = Attribution(index, bridge, own_mask_of(program), foreign).attribute(selection)
    return WhyFindings(selection, diagnose(selection, evidence), (*notes, *sampled, *unread))


def _lines_of(bridge: str, states: Iterable[BridgeState], dump: str) -> Iterator[str]:
    return lines_of_bridge(dump, bridge, states)


def _status(findings: WhyFindings) -> int:
    selection = findings.selection
    if selection.candidates or selection.contradicted:
        return EXIT_DIFFERS
    if selection.unjudged:
        return EXIT_FAILED
    if selection.unconfirmed or findings.is_filtered:
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


def show(findings: WhyFindings, *, nothing: str, has_config: bool = True) -> None:
    """Print groups of megaflows with their reasons, then notes and totals, or `nothing` if none was selected."""
    for found in group(findings.diagnoses):
        _show_group(found, has_config=has_config)
    for note in findings.notes:
        print_text(f"note: {note}", indent="      ")
    selection = findings.selection
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


def _show_group(found: DiagnosisGroup, *, has_config: bool) -> None:
    count = len(found.diagnoses)
    services = first_names(found.services, most=_LISTED)
    of = f" of {services} ({first_names(found.backends, most=_LISTED)})"
    if not has_config:
        of = ""
    elif not found.backends:
        of = f" with answers of {services}" if services else " of no service"
    head = f"{found.verdict.value}: {counted(count, 'megaflow')}{of}, {counted(found.packets, 'packet')}"
    print_text(f"{head}, {_WHERE[found.verdict]}", indent="    ", bold=True)
    for diagnosis in found.diagnoses[:_LISTED]:
        echo(f"    {diagnosis.megaflow.ufid or '(no ufid)'}  {describe(diagnosis)}")
    if count > _LISTED:
        echo(f"    and {count - _LISTED} more (all with -o json)")
    for number, reason in enumerate(found.reasons, start=1):
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

"""`xenoovs why`: the reason for each megaflow that is not in hardware."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from xenoovs.cli.main import EXIT_DIFFERS, EXIT_FAILED, EXIT_NOTHING_SEEN, EXIT_OK
from xenoovs.cli.offload import lines_of_bridge, missing_remarks, own_mask_of
from xenoovs.cli.options import (
    FILE,
    OutputFormat,
    address,
    bridge_command,
    load_recorded,
    load_resolved,
    reach,
    where_of,
)
from xenoovs.cli.output import echo, print_json, print_text
from xenoovs.cli.why_evidence import (
    Inquiry,
    Recorded,
    WhyFindings,
    find_recorded,
    finish_leftovers,
    read_kernel_evidence,
    read_switch,
)
from xenoovs.compile.program import compile_onto
from xenoovs.datapath.megaflow import Verdict
from xenoovs.datapath.parse import scan_dump
from xenoovs.errors import ParseError, counted
from xenoovs.model.address import IPAddress
from xenoovs.model.balancer import Balancer
from xenoovs.openflow.flow import Flow
from xenoovs.switch.management import ManagementSwitch
from xenoovs.verify.expected import expected_services, index_blocks
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
    Verdict.SW: "in the software datapath",
}
_WORD = {
    Likelihood.CONFIRMED: ("confirmed", "red"),
    Likelihood.CERTAIN: ("certain", "red"),
    Likelihood.LIKELY: ("likely", "yellow"),
    Likelihood.POSSIBLE: ("possible", "bright_black"),
}
_LISTED = 3


def _ufid(text: str) -> str:
    digits = text.strip().lower().removeprefix("ufid:")
    if not re.fullmatch(r"[0-9a-f-]{1,36}", digits):
        raise click.BadParameter(f"{text!r} is not a ufid: hexadecimal digits and dashes, as in a dump made with -m")
    return digits


@bridge_command("why")
@click.option("--service", metavar="NAME", help="Only megaflows of this service.")
@click.option("--src", "source", metavar="IP", type=address, help="Only megaflows that match packets from this client.")
@click.option("--ufid", metavar="UFID", type=_ufid, help="Only this megaflow; its first digits suffice.")
@click.option(
    "--listen",
    "listen_s",
    metavar="SECONDS",
    type=click.FloatRange(0, 300),
    default=2.0,
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
@click.option(
    "--from-dump",
    type=FILE,
    metavar="DUMP",
    help="Judge the output of `ovs-appctl dpctl/dump-flows -m` in a file, - for standard input, and read no switch.",
)
@click.option(
    "--from-flows",
    type=FILE,
    metavar="FLOWS",
    help="With --from-dump: the output of `ovs-ofctl --names dump-flows`, which shows the blocks as they were, and "
    "foreign flows that un-wildcard bits.",
)
@click.option(
    "--from-log",
    type=FILE,
    metavar="LOG",
    help="With --from-dump: the log of the same ovs-vswitchd (ovs-vswitchd.log).",
)
@click.pass_context
def why_command(
    context: click.Context,
    /,
    config: Path,
    *,
    db: str | None,
    lab: str | None,
    service: str | None,
    source: IPAddress | None,
    ufid: str | None,
    listen_s: float,
    reinstall: bool,
    probe_driver: bool,
    from_dump: Path | None,
    from_flows: Path | None,
    from_log: Path | None,
    output: OutputFormat,
) -> None:
    """Explain why megaflows of the config FILE are not in hardware, most likely reason first.

    Each reason comes with its evidence and the commands that fix it. Raised log levels are restored, and trial rules
    are deleted; if a run is killed, the next one does it.

    With --from-dump no switch and nothing of this host is read: the reasons come from the dump, from the offload table
    and, with --from-log, from the log of ovs-vswitchd.

    Exit status 0: all selected megaflows are in hardware, 2: some are not, 1: it could not check, 3: none was found.
    """
    live = {"--db": db, "--lab": lab, "--reinstall": reinstall, "--probe-driver": probe_driver}
    given = [option for option, value in live.items() if value]
    if from_dump is None and (from_flows or from_log):
        raise click.UsageError("--from-flows and --from-log go with --from-dump.")
    if from_dump is not None and given:
        raise click.UsageError(f"--from-dump reads no switch, so {given[0]} has no use.")
    if [config, from_dump, from_flows, from_log].count(Path("-")) > 1:
        raise click.UsageError("standard input can be only one of FILE, DUMP, FLOWS and LOG.")
    balancer = load_resolved(config) if from_dump is None else load_recorded(config)
    selected = MegaflowFilter(service, source, ufid)
    names = [each.name for each in balancer.services]
    if service is not None and service not in names:
        raise click.UsageError(f"--service {service}: the config has {', '.join(names)}")
    if from_dump is None:
        switch = reach(db, lab)
        target = where_of(switch.endpoint, config=config, lab=lab)
        inquiry = Inquiry(switch.endpoint, target, listen_s, reinstall, probe_driver)
        with _ending_properly():
            findings = _examine(balancer, switch, selected, inquiry)
    else:
        recorded = Recorded(from_dump, from_flows, from_log)
        findings = find_recorded(balancer, selected, recorded, config=config)
    if output is OutputFormat.JSON:
        selection = findings.selection
        print_json(to_json(findings.diagnoses, in_hardware=selection.in_hardware, notes=findings.notes))
    else:
        show(findings, nothing=selected.describe_none(is_recorded=from_dump is not None))
    context.exit(_status(findings.selection))


def _examine(balancer: Balancer, switch: ManagementSwitch, selected: MegaflowFilter, inquiry: Inquiry) -> WhyFindings:
    bridge = balancer.uplinks.bridge
    observed = switch.dump_flows(bridge)
    program = compile_onto(balancer, observed)
    index = index_blocks(expected_services(program))

    def select() -> Selection:
        dump = switch.dump_megaflows()
        # A ufid selects one megaflow on any bridge; other conditions select on the bridge of the config.
        lines = dump.splitlines() if selected.ufid is not None else lines_of_bridge(dump, bridge, switch.bridges())
        # A line that is cut off because flows changed meanwhile belongs to a megaflow that is gone.
        megaflows = (found for found in scan_dump(lines) if not isinstance(found, ParseError))
        return select_candidates(megaflows, find_block=index.find, is_selected=selected.selects)

    def foreign() -> tuple[Flow, ...]:
        return tuple(observed.flow for observed in switch.dump_foreign_flows(bridge))

    notes = (*finish_leftovers(inquiry.endpoint), *missing_remarks(program, observed))
    selection = select()
    if not selection.candidates:
        return WhyFindings(selection, (), notes)
    evidence, unread = read_switch(inquiry, selection)
    notes = (*notes, *unread)
    if inquiry.reinstall:
        now = select()
        if now.candidates or now.in_hardware:
            selection = now
        else:
            notes = (*notes, "no packet came while Open vSwitch reinstalled megaflows; these are from before")
    evidence, unread = read_kernel_evidence(inquiry, selection, evidence)
    attribution = Attribution(index, bridge, own_mask_of(program), foreign)
    return WhyFindings(selection, diagnose(attribution.attribute(selection), evidence), (*notes, *unread))


def _status(selection: Selection) -> int:
    if selection.candidates:
        return EXIT_DIFFERS
    if selection.unjudged:
        return EXIT_FAILED
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


def show(findings: WhyFindings, *, nothing: str) -> None:
    """Print groups of megaflows with their reasons, then notes and totals, or `nothing` if none was selected."""
    for found in group(findings.diagnoses):
        _show_group(found)
    for note in findings.notes:
        print_text(f"note: {note}", indent="      ")
    selection = findings.selection
    if selection.unjudged:
        echo("the dump does not show where megaflows run: it was made without -m")
    elif selection.candidates:
        if selection.left_out:
            print_text(
                f"note: {selection.left_out} more are only counted; select some with --service or --src",
                indent="      ",
            )
        candidates = len(selection.candidates) + selection.left_out
        text = f"{candidates} not in hardware, {selection.in_hardware} in hardware"
        echo(click.style(text, fg="yellow", bold=True))
    elif selection.in_hardware:
        echo(click.style(f"{counted(selection.in_hardware, 'megaflow')}, all in hardware", fg="green", bold=True))
    else:
        print_text(nothing)


def _show_group(found: DiagnosisGroup) -> None:
    count = len(found.diagnoses)
    of = f" of {', '.join(found.services)} ({_short(found.backends)})" if found.services else " of no service"
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


def _short(names: tuple[str, ...]) -> str:
    rest = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + rest

"""`xenoovs why`: the reason for each megaflow that is not in hardware."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from xenoovs.cli.options import Output, bridge_command, load_recorded, load_resolved, reach
from xenoovs.cli.output import echo, print_json, print_text
from xenoovs.datapath.megaflow import Verdict
from xenoovs.errors import counted
from xenoovs.verify.why.diagnose import DiagnosisGroup, describe, group
from xenoovs.verify.why.reason import Likelihood

if TYPE_CHECKING:
    from xenoovs.cli.why_evidence import Inquiry, WhyFindings
    from xenoovs.model.balancer import Balancer
    from xenoovs.openflow.flow import Flow
    from xenoovs.switch.live import LiveSwitch
    from xenoovs.verify.expected import BlockIndex
    from xenoovs.verify.why.diagnose import Attribution, MegaflowFilter, Selection
    from xenoovs.verify.why.reason import Reason


Command = TypeVar("Command", bound=Callable[..., object])

_FILE = click.Path(allow_dash=True, path_type=Path)
_LIVE = ("db", "lab", "reinstall", "probe_driver")


@dataclass(frozen=True, slots=True)
class Recorded:
    """Files, `-` for standard input: a dump of megaflows; optionally flows, and the log of ovs-vswitchd."""

    dump: Path
    flows: Path | None
    log: Path | None

    @classmethod
    def of(cls, config: Path, options: Mapping[str, Any]) -> Recorded | None:
        """Return None if a switch is read. Raises click.UsageError for options that exclude each other."""
        dump, flows, log = (options[name] for name in ("from_dump", "from_flows", "from_log"))
        if dump is None:
            if flows or log:
                raise click.UsageError("--from-flows and --from-log go with --from-dump.")
            return None
        given = next((name for name in _LIVE if options[name]), None)
        if given is not None:
            raise click.UsageError(f"--from-dump asks no switch, so --{given.replace('_', '-')} has no use.")
        if [config, dump, flows, log].count(Path("-")) > 1:
            raise click.UsageError("standard input can be only one of FILE, DUMP, FLOWS and LOG.")
        return cls(dump, flows, log)


def recorded_options(command: Command) -> Command:
    """--from-dump, --from-flows, --from-log."""
    dump = click.option(
        "--from-dump",
        type=_FILE,
        metavar="DUMP",
        help="Judge the output of `ovs-appctl dpctl/dump-flows -m` in a file, - for standard input. No switch is "
        "asked.",
    )
    flows = click.option(
        "--from-flows",
        type=_FILE,
        metavar="FLOWS",
        help="With --from-dump: the output of `ovs-ofctl --names dump-flows`, which shows the blocks as they were, "
        "and foreign flows that un-wildcard bits.",
    )
    log = click.option(
        "--from-log",
        type=_FILE,
        metavar="LOG",
        help="With --from-dump: the log of the same ovs-vswitchd (ovs-vswitchd.log).",
    )
    return dump(flows(log(command)))


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


EXIT_OK, EXIT_FAILED, EXIT_DIFFERS, EXIT_NOTHING_SEEN = 0, 1, 2, 3
"""As in `xenoovs.cli.main`, which imports the commands."""


class _Address(click.ParamType[Any]):
    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return ip_address(value)
        except ValueError:
            self.fail(f"{value!r} is not an IPv4 or IPv6 address", param, ctx)


class _Ufid(click.ParamType[Any]):
    name = "ufid"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        digits = str(value).strip().lower().removeprefix("ufid:")
        if not re.fullmatch(r"[0-9a-f-]{1,36}", digits):
            self.fail(f"{value!r} is no ufid: hexadecimal digits and dashes, as in a dump made with -m", param, ctx)
        return digits


@dataclass(frozen=True, slots=True)
class _Asked:
    """The megaflows in question.

    Attributes:
        switch: reads the megaflows.
        bridge: the bridge of the config.
        index: finds their blocks.
        selected: selects the megaflows.
        remarks: remarks on the bridge.
        attribution: finds foreign flows that un-wildcard bits.
    """

    switch: LiveSwitch
    bridge: str
    index: BlockIndex
    selected: MegaflowFilter
    remarks: tuple[str, ...]
    attribution: Attribution

    def select_candidates(self) -> Selection:
        """Read and select the megaflows. Raises SwitchError."""
        from xenoovs.cli.offload import lines_of_bridge
        from xenoovs.datapath.parse import scan_dump
        from xenoovs.errors import ParseError
        from xenoovs.verify.why.diagnose import select_candidates

        dump = self.switch.dump_megaflows()
        # A ufid selects one megaflow on any bridge; other conditions select on the bridge of the config.
        is_any_bridge = self.selected.ufid is not None
        lines = dump.splitlines() if is_any_bridge else lines_of_bridge(dump, self.bridge, self.switch.bridges())
        # A line that is cut off because flows changed meanwhile belongs to a megaflow that is gone.
        megaflows = (found for found in scan_dump(lines) if not isinstance(found, ParseError))
        return select_candidates(megaflows, find_block=self.index.find, is_selected=self.selected.selects)


@bridge_command("why")
@click.option("--service", metavar="NAME", help="Only megaflows of this service.")
@click.option(
    "--src", "source", metavar="IP", type=_Address(), help="Only megaflows that match packets from this client."
)
@click.option("--ufid", metavar="UFID", type=_Ufid(), help="Only this megaflow; its first digits suffice.")
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
@recorded_options
@click.pass_context
def why_command(context: click.Context, /, config: Path, *, output: Output, **options: Any) -> None:
    """Explain why megaflows of the config FILE are not in hardware, most likely reason first.

    Each reason comes with its evidence and the commands that fix it. Raised log levels are restored, and trial rules
    are deleted; if a run is killed, the next one does it.

    With --from-dump no switch and nothing of this host is read: the reasons come from the dump, from the offload table
    and, with --from-log, from the log of ovs-vswitchd.

    Exit status 0: all selected megaflows are in hardware, 2: some are not, 1: it could not check, 3: none was found.
    """
    from xenoovs.verify.why.diagnose import MegaflowFilter, to_json

    recorded = Recorded.of(config, options)
    balancer = load_resolved(config) if recorded is None else load_recorded(config)
    selected = MegaflowFilter(options["service"], options["source"], options["ufid"])
    names = [service.name for service in balancer.services]
    if selected.service is not None and selected.service not in names:
        raise click.UsageError(f"--service {selected.service}: the config has {', '.join(names)}")
    if recorded is None:
        findings = _ask(balancer, selected, config=config, options=options)
    else:
        from xenoovs.cli.why_evidence import find_recorded

        findings = find_recorded(balancer, selected, recorded, config=config)
    if output is Output.JSON:
        selection = findings.selection
        print_json(to_json(findings.diagnoses, in_hardware=selection.in_hardware, notes=findings.notes))
    else:
        show(findings, nothing=selected.describe_none(is_recorded=recorded is not None))
    context.exit(_status(findings.selection))


def _ask(balancer: Balancer, selected: MegaflowFilter, *, config: Path, options: Mapping[str, Any]) -> WhyFindings:
    from xenoovs.cli.where import where_of
    from xenoovs.cli.why_evidence import Inquiry

    switch = reach(options["db"], options["lab"])
    target = where_of(switch.endpoint, config=config, lab=options["lab"])
    names = ("listen_s", "reinstall", "probe_driver")
    inquiry = Inquiry(switch.endpoint, target, **{name: options[name] for name in names})
    with _ending_properly():
        return _find(_asked(balancer, switch, selected), inquiry)


def _asked(balancer: Balancer, switch: LiveSwitch, selected: MegaflowFilter) -> _Asked:
    from xenoovs.cli.offload import missing_remarks, own_mask_of
    from xenoovs.compile.program import compile_onto
    from xenoovs.verify.expected import expected_services, index_blocks
    from xenoovs.verify.why.diagnose import Attribution

    bridge = balancer.uplinks.bridge
    observed = switch.dump_flows(bridge)
    program = compile_onto(balancer, observed)
    index = index_blocks(expected_services(program))

    def foreign() -> tuple[Flow, ...]:
        return tuple(seen.flow for seen in switch.dump_foreign_flows(bridge))

    attribution = Attribution(index, bridge, own_mask_of(program), foreign)
    return _Asked(switch, bridge, index, selected, missing_remarks(program, observed), attribution)


def _find(asked: _Asked, inquiry: Inquiry) -> WhyFindings:
    from xenoovs.cli.why_evidence import WhyFindings, finish_leftovers, read_kernel_evidence, read_switch
    from xenoovs.verify.why.diagnose import diagnose

    notes = (*finish_leftovers(inquiry.endpoint), *asked.remarks)
    selection = asked.select_candidates()
    if not selection.candidates:
        return WhyFindings(selection, (), notes)
    evidence, unread = read_switch(inquiry, selection)
    notes = (*notes, *unread)
    if inquiry.reinstall:
        now = asked.select_candidates()
        if now.candidates or now.in_hardware:
            selection = now
        else:
            notes = (*notes, "no packet came while Open vSwitch reinstalled megaflows; these are from before")
    evidence, unread = read_kernel_evidence(inquiry, selection, evidence)
    return WhyFindings(selection, diagnose(asked.attribution.attribute(selection), evidence), (*notes, *unread))


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

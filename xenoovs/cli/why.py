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
from xenoovs.verify.why.diagnose import Group, describe, group
from xenoovs.verify.why.reason import Likelihood

if TYPE_CHECKING:
    from xenoovs.cli.why_evidence import Inquiry, WhyFindings
    from xenoovs.model.balancer import Balancer
    from xenoovs.openflow.flow import Flow
    from xenoovs.switch.live import LiveSwitch
    from xenoovs.verify.expected import BlockIndex
    from xenoovs.verify.why.diagnose import Blame, Lineup, Question
    from xenoovs.verify.why.reason import Reason


# Options of `why` that judge what was recorded earlier, as in a support bundle.


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
        """None: a switch is asked. Raises click.UsageError for options that exclude each other."""
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
        help="With --from-dump: the output of `ovs-ofctl --names dump-flows`, which tells the blocks as they were, "
        "and flows of others that widen them.",
    )
    log = click.option(
        "--from-log",
        type=_FILE,
        metavar="LOG",
        help="With --from-dump: the log of the ovs-vswitchd that it is of (ovs-vswitchd.log).",
    )
    return dump(flows(log(command)))


# How `xenoovs why` prints its answer for people.


_WHERE = {
    Verdict.PARTIAL: "the NIC matches, the CPU forwards",
    Verdict.TC_SW: "in the kernel's traffic control",
    Verdict.SW: "in the software datapath",
}
_WORD = {
    Likelihood.TOLD: ("told", "red"),
    Likelihood.CERTAIN: ("certain", "red"),
    Likelihood.LIKELY: ("likely", "yellow"),
    Likelihood.POSSIBLE: ("possible", "bright_black"),
}
_LISTED = 3


def show(findings: WhyFindings, *, nothing: str) -> None:
    """Groups of megaflows with their reasons; then the notes and the sum, or `nothing` where none was asked about."""
    for found in group(findings.diagnoses):
        _show_group(found)
    for note in findings.notes:
        print_text(f"note: {note}", indent="      ")
    lineup = findings.lineup
    if lineup.unjudged:
        echo("the dump does not say where its megaflows run (it was made without -m)")
    elif lineup.suspects:
        if lineup.left_out:
            print_text(
                f"note: {lineup.left_out} more only counted: ask for some by --service or --src", indent="      "
            )
        suspects = len(lineup.suspects) + lineup.left_out
        text = f"{suspects} not in hardware, {lineup.in_hardware} in hardware"
        echo(click.style(text, fg="yellow", bold=True))
    elif lineup.in_hardware:
        echo(click.style(f"{counted(lineup.in_hardware, 'megaflow')}, all in hardware", fg="green", bold=True))
    else:
        print_text(nothing)


def _show_group(found: Group) -> None:
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
    for seen in reason.evidence:
        print_text(f"       seen: {seen}", indent="             ")
    if reason.source is not None:
        print_text(f"       from: {reason.source}", indent="             ")
    for mending in reason.mend:
        echo(f"       mend: {click.style(mending, fg='cyan')}")


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
    """Where the megaflows are, of which blocks they may be, and which are asked about. `remarks`: on the bridge.

    blame: names the flows of others that widen them.
    """

    switch: LiveSwitch
    bridge: str
    index: BlockIndex
    question: Question
    remarks: tuple[str, ...]
    blame: Blame

    def line_up(self) -> Lineup:
        """Look at the datapath now. Raises SwitchError."""
        from xenoovs.cli.offload import lines_of_bridge
        from xenoovs.datapath.parse import scan_dump
        from xenoovs.errors import ParseError
        from xenoovs.verify.why.diagnose import line_up

        dump = self.switch.dump_megaflows()
        # A ufid is of one megaflow, wherever it is; anything else is about the bridge of the config.
        named = self.question.ufid is not None
        lines = dump.splitlines() if named else lines_of_bridge(dump, self.bridge, self.switch.bridges())
        # A line that is unparsed because flows changed meanwhile is of a megaflow that is gone.
        megaflows = (found for found in scan_dump(lines) if not isinstance(found, ParseError))
        return line_up(megaflows, find=self.index.find, asked=self.question.asks_about)


@bridge_command("why")
@click.option("--service", metavar="NAME", help="Only megaflows of this service.")
@click.option("--src", "source", metavar="IP", type=_Address(), help="Only megaflows of packets from this client.")
@click.option("--ufid", metavar="UFID", type=_Ufid(), help="Only this megaflow; its first digits suffice.")
@click.option(
    "--listen",
    "listen_s",
    metavar="SECONDS",
    type=click.FloatRange(0, 300),
    default=2.0,
    show_default=True,
    help="How long to let ovs-vswitchd log why it does not offload; 0: leave its log levels alone.",
)
@click.option(
    "--reinstall",
    is_flag=True,
    help="Let Open vSwitch install all megaflows anew while we listen: it says why only then. All packets "
    "take the slow path for that moment.",
)
@click.option(
    "--probe-driver",
    is_flag=True,
    help="Ask the driver: add each refused rule once more for hardware alone, hear why not, delete it at once. "
    "Takes one hardware entry for some milliseconds.",
)
@recorded_options
@click.pass_context
def why_command(context: click.Context, /, config: Path, *, output: Output, **options: Any) -> None:
    """Say for each megaflow of the config FILE that is not in hardware why, most likely reason first.

    Each reason comes with what was seen and the commands that mend it. Log levels that are raised to hear Open vSwitch
    are put back as they were, and trial rules deleted; what a killed run left, the next one undoes.

    With --from-dump no switch is asked, and nothing of this host is looked at: the reasons come from the dump itself,
    from the table of what can be offloaded and, with --from-log, from what ovs-vswitchd logged.

    Exit status 0: all that were asked about are in hardware, 2: some are not, 1: it could not look, 3: nothing seen.
    """
    from xenoovs.verify.why.diagnose import Question, to_json

    recorded = Recorded.of(config, options)
    balancer = load_resolved(config) if recorded is None else load_recorded(config)
    question = Question(options["service"], options["source"], options["ufid"])
    names = [service.name for service in balancer.services]
    if question.service is not None and question.service not in names:
        raise click.UsageError(f"--service {question.service}: the config has {', '.join(names)}")
    if recorded is None:
        findings = _ask(balancer, question, config=config, options=options)
    else:
        from xenoovs.cli.why_evidence import find_recorded

        findings = find_recorded(balancer, question, recorded, config=config)
    if output is Output.JSON:
        lineup = findings.lineup
        print_json(to_json(findings.diagnoses, in_hardware=lineup.in_hardware, notes=findings.notes))
    else:
        show(findings, nothing=question.nothing_found(is_recorded=recorded is not None))
    context.exit(_status(findings.lineup))


def _ask(balancer: Balancer, question: Question, *, config: Path, options: Mapping[str, Any]) -> WhyFindings:
    from xenoovs.cli.where import where_of
    from xenoovs.cli.why_evidence import Inquiry

    switch = reach(options["db"], options["lab"])
    where = where_of(switch.endpoint, config=config, lab=options["lab"])
    told = ("listen_s", "reinstall", "probe_driver")
    inquiry = Inquiry(switch.endpoint, where, **{name: options[name] for name in told})
    with _ending_properly():
        return _find(_asked(balancer, switch, question), inquiry)


def _asked(balancer: Balancer, switch: LiveSwitch, question: Question) -> _Asked:
    from xenoovs.cli.offload import missing_remarks, own_mask_of
    from xenoovs.compile.program import compile_onto
    from xenoovs.verify.expected import expected_services, index_blocks
    from xenoovs.verify.why.diagnose import Blame

    bridge = balancer.uplinks.bridge
    observed = switch.dump_flows(bridge)
    program = compile_onto(balancer, observed)
    index = index_blocks(expected_services(program))

    def foreign() -> tuple[Flow, ...]:
        return tuple(seen.flow for seen in switch.dump_foreign_flows(bridge))

    blame = Blame(index, bridge, own_mask_of(program), foreign)
    return _Asked(switch, bridge, index, question, missing_remarks(program, observed), blame)


def _find(asked: _Asked, inquiry: Inquiry) -> WhyFindings:
    from xenoovs.cli.why_evidence import WhyFindings, finish_leftovers, hear_kernel, hear_switch
    from xenoovs.verify.why.diagnose import diagnose

    notes = (*finish_leftovers(inquiry.endpoint), *asked.remarks)
    lineup = asked.line_up()
    if not lineup.suspects:
        return WhyFindings(lineup, (), notes)
    evidence, unheard = hear_switch(inquiry, lineup)
    notes = (*notes, *unheard)
    if inquiry.reinstall:
        now = asked.line_up()
        if now.suspects or now.in_hardware:
            lineup = now
        else:
            notes = (*notes, "no packet came while Open vSwitch would have installed them anew: these are as before")
    evidence, unheard = hear_kernel(inquiry, lineup, evidence)
    return WhyFindings(lineup, diagnose(asked.blame.told(lineup), evidence), (*notes, *unheard))


def _status(lineup: Lineup) -> int:
    if lineup.suspects:
        return EXIT_DIFFERS
    if lineup.unjudged:
        return EXIT_FAILED
    return EXIT_OK if lineup.in_hardware else EXIT_NOTHING_SEEN


@contextmanager
def _ending_properly() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end us as Ctrl-C does, so that what is changed for a moment is put back first."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

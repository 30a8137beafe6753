"""The evidence of `xenoovs why`, from the host or from recorded files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from xenoovs.cli.offload import own_mask_of, read_flows
from xenoovs.cli.recorded import open_dump, read_text
from xenoovs.compile.program import compile_onto
from xenoovs.datapath.host import Daemon, HostFacts, Seen, Unknown
from xenoovs.datapath.megaflow import Verdict
from xenoovs.datapath.parse import scan_dump
from xenoovs.datapath.tc import cookie_of_ufid
from xenoovs.errors import ParseError, SwitchError
from xenoovs.openflow.flow import is_foreign, is_ours
from xenoovs.switch.host import gather
from xenoovs.switch.netlink import RouteSocket
from xenoovs.switch.tc import dump_filters
from xenoovs.switch.trial import Answer, Prober
from xenoovs.switch.vlog import Listener
from xenoovs.switch.vswitchd import find_process, judge_offload, parse_history, read_log, same_namespace
from xenoovs.verify.check import UnparsedLines
from xenoovs.verify.commands import Where
from xenoovs.verify.expected import expected_services, index_blocks
from xenoovs.verify.why.case import DriverAnswer, Evidence
from xenoovs.verify.why.diagnose import Blame, diagnose, line_up
from xenoovs.verify.why.log import parse_refusals

if TYPE_CHECKING:
    from xenoovs.cli.why import Recorded
    from xenoovs.datapath.megaflow import Megaflow
    from xenoovs.model.balancer import Balancer
    from xenoovs.openflow.flow import Flow
    from xenoovs.switch.endpoint import Endpoint
    from xenoovs.verify.why.diagnose import Diagnosis, Lineup, Question, Suspect


# The wiring of why: what is read, asked and put back on the way to the evidence.


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What may be asked. listen_s: how long to listen to ovs-vswitchd, 0: not at all. where: for commands that mend."""

    endpoint: Endpoint
    where: Where
    listen_s: float
    reinstall: bool
    probe_driver: bool


@dataclass(frozen=True, slots=True)
class WhyFindings:
    """The answer. `notes`: what was undone of an earlier run, and what could not be looked at."""

    lineup: Lineup
    diagnoses: tuple[Diagnosis, ...]
    notes: tuple[str, ...]


def finish_leftovers(endpoint: Endpoint) -> tuple[str, ...]:
    """Undo what a killed run left; a sentence for each thing that was. Raises SwitchError."""
    told = []
    if Listener(endpoint).finish():
        told.append("an earlier run was killed: the log levels that it had raised are as before again")
    process = find_process(endpoint)
    if process is not None and not same_namespace(process):
        # The rule is not among those that we see, so its note must stay.
        return tuple(told)
    with RouteSocket() as netlink:
        if Prober(netlink, endpoint.local_rundir).finish():
            told.append("an earlier run was killed: the trial rule that it had left is deleted")
    return tuple(told)


def hear_switch(inquiry: Inquiry, lineup: Lineup) -> tuple[Evidence, tuple[str, ...]]:
    """What the host and its Open vSwitch say, and what could not be looked at. Megaflows may change meanwhile."""
    evidence = Evidence(gather(inquiry.endpoint), where=inquiry.where)
    notes = _unseen(evidence)
    process = find_process(inquiry.endpoint)
    if process is not None:
        evidence = replace(evidence, refusals=parse_refusals(read_log(process)))
    if _should_listen(inquiry, lineup, evidence):
        try:
            said = Listener(inquiry.endpoint).listen(seconds=inquiry.listen_s, reinstall=inquiry.reinstall)
            evidence = replace(evidence, refusals=(*parse_refusals(said), *evidence.refusals))
        except SwitchError as error:
            notes = (*notes, str(error))
    return evidence, notes


def hear_kernel(inquiry: Inquiry, lineup: Lineup, evidence: Evidence) -> tuple[Evidence, tuple[str, ...]]:
    """What traffic control and, where that is allowed, the driver say besides; and what could not be looked at."""
    refused = tuple(suspect for suspect in lineup.suspects if suspect.verdict is Verdict.TC_SW)
    process = find_process(inquiry.endpoint)
    if not refused:
        return evidence, ()
    if process is None or not same_namespace(process):
        return evidence, ("ovs-vswitchd has devices of another network namespace: run xenoovs there to ask the kernel",)
    cookies: dict[str, list[str]] = defaultdict(list)
    for suspect in refused:
        if suspect.megaflow.in_port and (cookie := cookie_of_ufid(suspect.megaflow.ufid or "")):
            cookies[suspect.megaflow.in_port].append(cookie)
    try:
        evidence = replace(evidence, filters=dump_filters(cookies).by_cookie)
        if inquiry.probe_driver:
            with RouteSocket() as netlink:
                answers = Prober(netlink, inquiry.endpoint.local_rundir).ask(cookies)
            evidence = replace(evidence, driver=_by_ufid(refused, answers))
    except SwitchError as error:
        return evidence, (str(error),)
    return evidence, ()


def _should_listen(inquiry: Inquiry, lineup: Lineup, evidence: Evidence) -> bool:
    """Open vSwitch says nothing of rules that traffic control has, and nothing at all while it does not offload."""
    if inquiry.reinstall:
        return True
    untranslated = any(suspect.verdict is not Verdict.TC_SW for suspect in lineup.suspects)
    running = evidence.offload
    return bool(inquiry.listen_s and untranslated and (running is None or running.is_on))


def _by_ufid(refused: tuple[Suspect, ...], answers: dict[str, Answer]) -> dict[str, DriverAnswer]:
    found = {}
    for suspect in refused:
        ufid = suspect.megaflow.ufid or ""
        answer = answers.get(cookie_of_ufid(ufid) or "")
        if answer is not None:
            found[ufid] = DriverAnswer(answer.error, answer.text, answer.words)
    return found


def _unseen(evidence: Evidence) -> tuple[str, ...]:
    """What of the host could not be read, with the reason."""
    facts = (evidence.host.database, evidence.host.daemon, evidence.host.devices)
    return tuple(fact.reason for fact in facts if isinstance(fact, Unknown))


# `xenoovs why --from-dump`: the witnesses that are left where no switch can be asked.


_RECORDED = Unknown("a dump tells nothing of the host that it is of")
_HOST = "settings, ports and devices of the host that the dump is of were not seen: `xenoovs doctor` looks there"
_LOG = "what ovs-vswitchd said itself was not heard: its log can be given with --from-log"


def find_recorded(balancer: Balancer, question: Question, recorded: Recorded, *, config: Path) -> WhyFindings:
    """Judge the files. Raises OSError, CompileError, ParseError for the flows and for a dump that has no megaflow."""
    observed = read_flows(recorded.flows) if recorded.flows is not None else ()
    program = compile_onto(balancer, [seen for seen in observed if is_ours(seen.flow.cookie)])
    index = index_blocks(expected_services(program))
    unparsed = UnparsedLines()
    with open_dump(recorded.dump) as lines:
        lineup = line_up(_read_whole(lines, unparsed), find=index.find, asked=question.asks_about)
    notes = tuple(f"a line of the dump could not be read: {error}" for error in unparsed.listed[:1])
    if not lineup.suspects:
        return WhyFindings(lineup, (), notes)

    def foreign() -> tuple[Flow, ...] | None:
        return tuple(seen.flow for seen in observed if is_foreign(seen.flow.cookie)) if recorded.flows else None

    lineup = Blame(index, balancer.uplinks.bridge, own_mask_of(program), foreign).told(lineup)
    log = None if recorded.log is None else _read(recorded.log)
    evidence = Evidence(_host(log), refusals=parse_refusals(log or ""), where=Where(config=_name(config)))
    missing = (_HOST,) if log is not None else (_HOST, _LOG)
    return WhyFindings(lineup, diagnose(lineup, evidence), (*notes, *missing))


def _read_whole(lines: Iterable[str], unparsed: UnparsedLines) -> Iterator[Megaflow]:
    """The megaflows; the other lines go to `unparsed`. Raises ParseError where all lines do."""
    is_any = False
    for one in scan_dump(lines):
        if isinstance(one, ParseError):
            unparsed.add(one)
        else:
            is_any = True
            yield one
    if unparsed.listed and not is_any:
        raise unparsed.listed[0]


def _host(log: str | None) -> HostFacts:
    """What a log tells about offload, and nothing else."""
    daemon: Seen[Daemon] = _RECORDED
    if log is not None:
        history = parse_history(log)
        state = judge_offload(upcall_show="", statistics=_RECORDED, history=history)
        daemon = Daemon(offload=state, history=history, flow_limit=_RECORDED)
    return HostFacts(is_here=False, database=_RECORDED, daemon=daemon, devices=_RECORDED)


def _read(path: Path) -> str:
    return read_text(path)


def _name(config: Path) -> str | None:
    return None if str(config) == "-" else str(config)

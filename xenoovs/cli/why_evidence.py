"""The evidence of `xenoovs why`, from the host or from recorded files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from xenoovs.cli.offload import own_mask_of, read_flows, recorded_remark
from xenoovs.cli.recorded import open_dump, read_text
from xenoovs.compile.offloadable.check import check_megaflow, overall
from xenoovs.compile.offloadable.table import DEFAULT_VERSION, Offload, Profile, Version, render_version
from xenoovs.compile.program import compile_onto
from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.datapath.host import Daemon, HostFacts
from xenoovs.datapath.ipsec import address_text
from xenoovs.datapath.megaflow import Megaflow, Verdict, verdict_of
from xenoovs.datapath.outer import encapsulations
from xenoovs.datapath.parse import MAYBE_FILTERED, Hints, scan_dump
from xenoovs.datapath.tc import cookie_of_ufid
from xenoovs.datapath.tunnel import is_tunnel_device
from xenoovs.errors import ParseError, SwitchError, counted
from xenoovs.model.balancer import Balancer
from xenoovs.openflow.flow import Flow, is_foreign, is_ours
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.host_facts import gather
from xenoovs.switch.netlink import RouteSocket
from xenoovs.switch.offload_setting import OffloadSwitch
from xenoovs.switch.skip_sw_probe import SkipSwProber
from xenoovs.switch.tc import dump_filters
from xenoovs.switch.vlog import OffloadLog
from xenoovs.switch.vswitchd import (
    find_process,
    judge_offload,
    logged_version,
    netns_of,
    parse_history,
    read_log,
    same_namespace,
)
from xenoovs.verify.answers import AnswerFinder
from xenoovs.verify.check import CheckContext, UnparsedLines
from xenoovs.verify.commands import CommandTarget
from xenoovs.verify.expected import ExpectedBlock, expected_services, index_blocks
from xenoovs.verify.foreign import OverrideCounter
from xenoovs.verify.overlap import OverlapIndex
from xenoovs.verify.why.case import BlockOverride, Evidence
from xenoovs.verify.why.diagnose import (
    Attribution,
    Candidate,
    Diagnosis,
    MegaflowFilter,
    Selection,
    diagnose,
    select_candidates,
)
from xenoovs.verify.why.flows import version_or_default
from xenoovs.verify.why.log import parse_refusals


@dataclass(frozen=True, slots=True)
class Recorded:
    """Files, `-` for standard input: a dump of megaflows; optionally flows, and the log of ovs-vswitchd.

    Attributes:
        version: version of the Open vSwitch; None: that of the log, or unknown.
    """

    dump: Path
    flows: Path | None
    log: Path | None
    version: Version | None = None


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What to read as evidence.

    Attributes:
        endpoint: the Open vSwitch.
        target: how suggested commands reach it.
        listen_s: how long to listen to ovs-vswitchd; 0: not at all.
        reinstall: whether Open vSwitch reinstalls all megaflows meanwhile.
        probe_driver: whether to try refused rules with skip_sw.
        interval_s: between two samples of the datapath; 0: one sample.
    """

    endpoint: Endpoint
    target: CommandTarget
    listen_s: float
    reinstall: bool
    probe_driver: bool
    interval_s: float


@dataclass(frozen=True, slots=True)
class WhyFindings:
    """The result.

    Attributes:
        notes: what was undone of an earlier run, and what could not be read.
        is_filtered: the dump may lack megaflows in software: all of it is offloaded.
    """

    selection: Selection
    diagnoses: tuple[Diagnosis, ...]
    notes: tuple[str, ...]
    is_filtered: bool = False


def finish_leftovers(endpoint: Endpoint) -> tuple[str, ...]:
    """Undo what a killed run left behind, and return a message for each such thing. Raises SwitchError."""
    messages = []
    if OffloadLog(endpoint).finish():
        messages.append("restored the log levels that an earlier, killed run had raised")
    if OffloadSwitch(endpoint).finish():
        messages.append("finished a `doctor --set` that was killed: hw-offload is as ovs-vswitchd began with it")
    process = find_process(endpoint)
    if process is not None and not same_namespace(process):
        # The rule is in another namespace, so its record must stay.
        return tuple(messages)
    with RouteSocket() as netlink:
        if SkipSwProber(netlink, endpoint.local_rundir).finish():
            messages.append("deleted the trial rule that an earlier, killed run had left behind")
    return tuple(messages)


def read_switch(inquiry: Inquiry, selection: Selection) -> tuple[Evidence, tuple[str, ...]]:
    """Return the evidence of the host and its Open vSwitch, and notes on what could not be read."""
    evidence = Evidence(_host_of(inquiry.endpoint, selection), target=inquiry.target)
    notes = _unread(evidence)
    process = find_process(inquiry.endpoint)
    if process is not None:
        evidence = replace(evidence, refusals=parse_refusals(read_log(process)))
    if _should_listen(inquiry, selection, evidence):
        try:
            output = OffloadLog(inquiry.endpoint).listen(seconds=inquiry.listen_s, reinstall=inquiry.reinstall)
            evidence = replace(evidence, refusals=(*parse_refusals(output), *evidence.refusals))
        except SwitchError as error:
            notes = (*notes, str(error))
    return evidence, notes


def _host_of(endpoint: Endpoint, selection: Selection) -> HostFacts:
    """Return the facts about the host, with the next hops of tunnels whose rules the NIC holds and does not use."""
    host, place = gather(endpoint), netns_of(endpoint)
    held = (candidate.megaflow for candidate in selection.candidates if candidate.held is not None)
    outers = (outer for megaflow in held for outer in encapsulations(megaflow.actions))
    remotes = tuple(dict.fromkeys(address_text(outer.remote, is_ipv6=outer.is_ipv6) for outer in outers))
    if not remotes or isinstance(place, Unknown):
        return host
    # Imported here: most hosts have no tunnels.
    from xenoovs.switch.tunnel_facts import read_next_hops

    return replace(host, tunnels=read_next_hops(place, remotes[:_MAX_REMOTES]))


_MAX_REMOTES = 256
"""Some milliseconds each."""


def read_kernel_evidence(
    inquiry: Inquiry, selection: Selection, evidence: Evidence
) -> tuple[Evidence, tuple[str, ...]]:
    """Return the evidence with that of traffic control and, if allowed, of the driver; and notes on failures."""
    refused = tuple(candidate for candidate in selection.candidates if _is_refused(candidate))
    process = find_process(inquiry.endpoint)
    if not refused:
        return evidence, ()
    if process is None or not same_namespace(process):
        return evidence, (
            "ovs-vswitchd uses devices of another network namespace: run xenoovs there to read traffic control",
        )
    cookies: dict[str, list[str]] = defaultdict(list)
    for candidate in refused:
        if candidate.megaflow.in_port and (cookie := cookie_of_ufid(candidate.megaflow.ufid or "")):
            cookies[candidate.megaflow.in_port].append(cookie)
    try:
        evidence = replace(evidence, filters=dump_filters(cookies).by_cookie)
        if inquiry.probe_driver:
            tried = {device: rules for device, rules in cookies.items() if not is_tunnel_device(device)}
            with RouteSocket() as netlink:
                answers = SkipSwProber(netlink, inquiry.endpoint.local_rundir).ask(tried)
            ufids = (candidate.megaflow.ufid or "" for candidate in refused)
            driver = {ufid: answers[cookie] for ufid in ufids if (cookie := cookie_of_ufid(ufid)) in answers}
            evidence = replace(evidence, driver=driver)
    except SwitchError as error:
        return evidence, (str(error),)
    untried = [device for device in cookies if is_tunnel_device(device)] if inquiry.probe_driver else []
    return evidence, tuple(_UNTRIED.format(device=device) for device in untried)


_UNTRIED = (
    "the driver was not asked about rules of {device}: for a device without offload of its own, the kernel itself "
    "refuses a rule for hardware alone (tc_setup_cb_add() of net/sched/cls_api.c); dmesg may have the driver's words"
)


def _is_refused(candidate: Candidate) -> bool:
    """Return whether the rule is in traffic control, and not in the NIC."""
    return candidate.verdict is Verdict.TC_SW and candidate.held is None


def _should_listen(inquiry: Inquiry, selection: Selection, evidence: Evidence) -> bool:
    """Return whether the log may grow: Open vSwitch logs nothing about rules in traffic control or without offload."""
    if inquiry.reinstall:
        return True
    untranslated = any(
        candidate.verdict is not Verdict.TC_SW and candidate.held is None for candidate in selection.candidates
    )
    running = evidence.offload
    return bool(inquiry.listen_s and untranslated and (running is None or running.is_on))


def _unread(evidence: Evidence) -> tuple[str, ...]:
    """Return why facts about the host could not be read."""
    facts = (evidence.host.database, evidence.host.daemon, evidence.host.devices)
    return tuple(fact.reason for fact in facts if isinstance(fact, Unknown))


_RECORDED = Unknown("a dump has no facts about its host")
_HOST = "settings, ports and devices of the dump's host were not checked: run `xenoovs doctor` there"
_LOG = "the log of ovs-vswitchd was not read: add --from-log"
_VERSION = "the version of Open vSwitch is unknown: judged as {version}; add --ovs VERSION"


def find_recorded(
    balancer: Balancer | None, selected: MegaflowFilter, recorded: Recorded, *, config: Path | None
) -> WhyFindings:
    """Judge the files. Raises OSError, CompileError, ParseError for the flows and for a dump that has no megaflow.

    Args:
        balancer: The config; None: every megaflow is judged by itself.
        config: The file of the config, for commands.
    """
    observed = read_flows(recorded.flows) if recorded.flows is not None else ()
    ours = [seen for seen in observed if is_ours(seen.flow.cookie)]
    program = None if balancer is None else compile_onto(balancer, ours)
    services = () if program is None else expected_services(program)
    index = index_blocks(services)
    finder = AnswerFinder(services, OverlapIndex(index))
    absent = {block for service in services for block in service.blocks}

    def find_block(megaflow: Megaflow) -> ExpectedBlock | None:
        if (found := index.find(megaflow)) is not None:
            absent.discard(found)
        return found

    unparsed = UnparsedLines()
    log = None if recorded.log is None else read_text(recorded.log)
    logged = None if log is None else logged_version(log)
    version = logged if recorded.version is None else render_version(recorded.version)
    hints = Hints()
    with open_dump(recorded.dump) as lines:
        depends = Counter[str]()
        megaflows = _judged_without_m(_read_whole(hints.watch(lines), unparsed), version, depends)
        selection = select_candidates(
            megaflows,
            find_block=find_block,
            is_selected=selected.selects,
            find_answers=finder.find,
            find_overrides=partial(overrides_of, OverrideCounter(index)),
            context=CheckContext(internal_ports=selected.internal_ports or frozenset(), is_recorded=True),
        )
    # With a config, what a filter left out shows as absent blocks.
    lacks = bool(absent) if services else bool(selection.in_hardware)
    is_filtered = lacks and hints.all_offloaded and not lines.is_complete
    undecided = (f"{counted(number, 'megaflow')}: {text}" for text, number in depends.most_common(_MAX_UNDECIDED))
    notes = (
        *lines.remarks(),
        *undecided,
        *(f"a line of the dump could not be read: {error}" for error in unparsed.listed[:1]),
        *((MAYBE_FILTERED,) if is_filtered else ()),
        *((recorded_remark("why"),) if selection.in_hardware else ()),
    )
    if not selection.candidates:
        return WhyFindings(selection, (), notes, is_filtered)

    def foreign() -> tuple[Flow, ...] | None:
        return tuple(seen.flow for seen in observed if is_foreign(seen.flow.cookie)) if recorded.flows else None

    if balancer is not None and program is not None:
        selection = Attribution(index, balancer.uplinks.bridge, own_mask_of(program), foreign).attribute(selection)
    evidence = Evidence(
        _host(log),
        refusals=parse_refusals(log or ""),
        target=CommandTarget(config=None if config is None or str(config) == "-" else str(config)),
        given_version=version,
    )
    missing = [_HOST, *([_LOG] if log is None else [])]
    if version is None:
        missing.append(_VERSION.format(version=render_version(DEFAULT_VERSION)))
    return WhyFindings(selection, diagnose(selection, evidence), (*notes, *missing))


def overrides_of(
    counter: OverrideCounter, megaflow: Megaflow, internal_ports: Set[str] = frozenset()
) -> tuple[BlockOverride, ...]:
    """Return the blocks that a megaflow outside all blocks overrides; not those that it drops, as a blocklist does."""
    if megaflow.actions == ("drop",):
        return ()
    return tuple(BlockOverride(entry.service, blocks) for entry, blocks in counter.overridden(megaflow, internal_ports))


def _judged_without_m(megaflows: Iterable[Megaflow], version: str | None, depends: Counter[str]) -> Iterator[Megaflow]:
    """Yield the megaflows; of a dump made without -m, those that no NIC forwards as megaflows in software.

    Args:
        megaflows: of the dump.
        version: version of Open vSwitch.
        depends: counts what the place of others depends on, such as the offload of connection tracking.
    """
    known = DEFAULT_VERSION if version is None else version_or_default(version)
    for megaflow in megaflows:
        if verdict_of(megaflow) is not None:
            yield megaflow
            continue
        found = check_megaflow(megaflow, Profile.TC, known)
        if overall(found) is Offload.SW:
            yield replace(megaflow, layer="ovs")
            continue
        for one in found:
            if one.offload is Offload.DEPENDS:
                depends[f"{one.topic.what}: {one.row.text}"] += 1
        yield megaflow


_MAX_UNDECIDED = 3


def _read_whole(lines: Iterable[str], unparsed: UnparsedLines) -> Iterator[Megaflow]:
    """Yield the megaflows; other lines go to `unparsed`. Raises ParseError if there is no megaflow."""
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
    """Return the facts about offload in a log, without any other."""
    daemon: Fact[Daemon] = _RECORDED
    if log is not None:
        history = parse_history(log)
        state = judge_offload(upcall_show="", statistics=_RECORDED, history=history)
        daemon = Daemon(offload=state, history=history, flow_limit=_RECORDED)
    return HostFacts(is_local=False, database=_RECORDED, daemon=daemon, devices=_RECORDED)

"""Finds the reasons why megaflows are not in hardware, on a live switch or in a recorded dump."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from xenoovs.compile.offloadable.check import check_megaflow, overall
from xenoovs.compile.offloadable.table import DEFAULT_VERSION, Offload, Profile, render_version, version_or_default
from xenoovs.compile.program import Program, compile_onto
from xenoovs.dataclass import replace
from xenoovs.datapath.megaflow import Megaflow, Verdict, verdict_of
from xenoovs.datapath.parse import MAYBE_FILTERED, Hints, scan_dump
from xenoovs.diagnosis.offload import growth_remarks, own_mask_of, recorded_remark
from xenoovs.errors import ParseError, counted
from xenoovs.evidence.collector import Collector
from xenoovs.evidence.dump_file import open_dump, read_flows
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.expected import ExpectedService, expected_services
from xenoovs.judge.why.diagnose import Attribution, MegaflowFilter, ReadFlows, Selection, diagnose, select_candidates
from xenoovs.model.balancer import Balancer
from xenoovs.openflow.flow import is_foreign, is_ours


def find_live(
    collector: Collector,
    bridge: str,
    selected: MegaflowFilter,
    program: Program | None,
    *,
    listen_s: float,
    reinstall: bool,
    probe_driver: bool,
    notes: tuple[str, ...],
) -> Selection:
    """Explain the current megaflows. Raises SwitchError.

    `program`: of the config; None to judge every megaflow by itself. `listen_s`: how long to read the log of
    ovs-vswitchd; 0 for not at all. `reinstall`: whether Open vSwitch reinstalls all megaflows during that time.
    `probe_driver`: whether to try refused rules with skip_sw. `notes`: about what was done before.
    """
    services = () if program is None else expected_services(program)

    def select(collector: Collector) -> tuple[Selection, Evidence]:
        # A ufid selects one megaflow on any bridge; other conditions select on the bridge of the config.
        evidence, chosen = collector.megaflows(bridge, is_whole=selected.ufid is not None), selected
        if program is None:
            chosen = replace(selected, internal_ports=evidence.internal_ports)
        else:
            evidence = replace(evidence, ports=None)
        # A line that is cut off because flows changed meanwhile belongs to a megaflow that is gone.
        megaflows = (found for found in scan_dump(evidence.lines) if not isinstance(found, ParseError))
        return select_candidates(megaflows, services, chosen.selects, evidence), evidence

    selection, evidence = select(collector)
    sampled = _sample_notes(selection, evidence)
    if not selection.candidates:
        selection.notes = (*notes, *sampled)
        return selection
    held = [candidate.megaflow for candidate in selection.candidates if candidate.held is not None]
    known = collector.host_of_megaflows(evidence, held)
    if reinstall or (listen_s and _logs_more(selection, known)):
        known = collector.listen(known, seconds=listen_s, is_reinstalling=reinstall)
    notes = (*notes, *known.remarks)
    if reinstall:
        # Rules that are installed again have new counters: their growth needs two new samples.
        again = Collector(collector.switch, interval_s=collector.interval_s, target=collector.target)
        now, evidence = select(again)
        if now.candidates or now.in_hardware or now.unconfirmed:
            if held:
                notes = (
                    *notes,
                    f"before Open vSwitch reinstalled megaflows, the NIC did not use {len(held)} of its rules",
                )
            selection, sampled = now, _sample_notes(now, evidence)
            known = replace(evidence, host=known.host, logs=known.logs)
        else:
            notes = (*notes, "no packet came while Open vSwitch reinstalled megaflows; these are from before")
    # Their rules are in traffic control, and not in the NIC.
    candidates = (each for each in selection.candidates if each.verdict is Verdict.TC_SW and each.held is None)
    known = collector.refused_rules(known, tuple(each.megaflow for each in candidates), is_probing=probe_driver)
    _attribute(selection, program, services, known, partial(collector.foreign_flows, bridge))
    selection.candidates = diagnose(selection, known)
    selection.notes = (*notes, *sampled, *known.remarks)
    return selection


def _attribute(
    selection: Selection,
    program: Program | None,
    services: tuple[ExpectedService, ...],
    evidence: Evidence,
    read_foreign: ReadFlows,
) -> None:
    if program is not None:
        own_mask = own_mask_of(program, lambda: evidence.version)
        attribution = Attribution(services, program.balancer.uplinks.bridge, own_mask, read_foreign)
        selection.candidates = list(map(attribution.attributed, selection.candidates))


def _sample_notes(selection: Selection, evidence: Evidence) -> tuple[str, ...]:
    contradictions = (str(port) for port in selection.contradicted)
    return (*evidence.remarks, *growth_remarks(selection, evidence), *contradictions)


def _logs_more(selection: Selection, evidence: Evidence) -> bool:
    """Return whether the log may grow: Open vSwitch logs nothing about rules in traffic control or without offload."""
    untranslated = any(each.verdict is not Verdict.TC_SW and each.held is None for each in selection.candidates)
    return untranslated and (evidence.offload is None or evidence.offload.is_on)


_HOST = "settings, ports and devices of the dump's host were not checked: run `xenoovs doctor` there"
_LOG = "the log of ovs-vswitchd was not read: add --from-log"
_VERSION = "the version of Open vSwitch is unknown: judged as {version}; add --ovs VERSION"
_MAX_UNDECIDED = 3


def find_recorded(
    balancer: Balancer | None, selected: MegaflowFilter, dump: Path, flows: Path | None, evidence: Evidence
) -> Selection:
    """Explain the megaflows of a dump. Without a config every megaflow is judged by itself. `evidence`: what is known
    besides the files. Raises OSError, CompileError, ParseError for the flows and for a dump without a megaflow."""
    observed = read_flows(flows) if flows is not None else ()
    ours = [seen for seen in observed if is_ours(seen.flow.cookie)]
    program = None if balancer is None else compile_onto(balancer, ours)
    services = () if program is None else expected_services(program)
    evidence = replace(evidence, internal_ports=selected.internal_ports or frozenset())
    unparsed, hints, depends = list[ParseError](), Hints(), Counter[str]()
    with open_dump(dump) as lines:
        megaflows = _judged_without_m(_read_whole(hints.watch(lines), unparsed), evidence.version, depends)
        selection = select_candidates(megaflows, services, selected.selects, evidence)
    # With a config, megaflows that a filter left out show as absent blocks.
    lacks = bool(selection.absent or lines.dumps if services else selection.in_hardware or selection.unconfirmed)
    selection.is_filtered = lacks and hints.is_filtered(is_complete=lines.is_complete)
    selection.notes = (
        *lines.remarks(),
        *(f"{counted(number, 'megaflow')}: {text}" for text, number in depends.most_common(_MAX_UNDECIDED)),
        *(f"a line of the dump could not be read: {error}" for error in unparsed),
        *((MAYBE_FILTERED,) if selection.is_filtered else ()),
        *((recorded_remark("why"),) if selection.in_hardware else ()),
    )
    if not selection.candidates:
        return selection
    foreign = None if flows is None else tuple(seen.flow for seen in observed if is_foreign(seen.flow.cookie))
    _attribute(selection, program, services, evidence, lambda: foreign)
    selection.candidates = diagnose(selection, evidence)
    selection.notes = (*selection.notes, _HOST, *([] if evidence.logs else [_LOG]))
    if evidence.version is None:
        selection.notes = (*selection.notes, _VERSION.format(version=render_version(DEFAULT_VERSION)))
    return selection


def _judged_without_m(megaflows: Iterable[Megaflow], version: str | None, depends: Counter[str]) -> Iterator[Megaflow]:
    """Yield the megaflows. In a dump made without -m, mark those that no NIC can forward as in software. `depends`
    counts the conditions that decide where others run, such as the offload of connection tracking."""
    known = version_or_default(version or "")
    for megaflow in megaflows:
        if verdict_of(megaflow) is not None:
            yield megaflow
            continue
        found = check_megaflow(megaflow, Profile.TC, known)
        if overall(found) is Offload.SW:
            yield replace(megaflow, layer="ovs")
            continue
        depends.update(f"{one.topic.what}: {one.row.text}" for one in found if one.offload is Offload.DEPENDS)
        yield megaflow


def _read_whole(lines: Iterable[str], unparsed: list[ParseError]) -> Iterator[Megaflow]:
    """Yield the megaflows; the first other line goes to `unparsed`. Raises ParseError if there is no megaflow."""
    is_any = False
    for one in scan_dump(lines):
        if isinstance(one, ParseError):
            unparsed[:] = unparsed or [one]
        else:
            is_any = True
            yield one
    if unparsed and not is_any:
        raise unparsed[0]

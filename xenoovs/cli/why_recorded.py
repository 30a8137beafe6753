"""`xenoovs why --from-dump`: the witnesses that are left where no switch can be asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from xenoovs.cli.offload_look import own_mask_of, read_flows
from xenoovs.cli.recorded import open_dump, read_text
from xenoovs.cli.why_witnesses import WhyFindings
from xenoovs.compile.of_config import compile_onto
from xenoovs.datapath.host import Daemon, HostFacts, Seen, Unknown
from xenoovs.datapath.parse import scan_dump
from xenoovs.errors import ParseError
from xenoovs.openflow.cookie import is_foreign, is_ours
from xenoovs.switch.offload_state import judge_offload, parse_history
from xenoovs.verify.blame import Blame
from xenoovs.verify.commands import Where
from xenoovs.verify.diagnose import diagnose, line_up
from xenoovs.verify.expected import expected_services
from xenoovs.verify.join import index_blocks
from xenoovs.verify.torn import TornLines
from xenoovs.verify.why.case import Evidence
from xenoovs.verify.why.log import parse_refusals

if TYPE_CHECKING:
    from xenoovs.cli.why_options import Recorded
    from xenoovs.datapath.megaflow import Megaflow
    from xenoovs.model.balancer import Balancer
    from xenoovs.openflow.flow import Flow
    from xenoovs.verify.why.question import Question

_RECORDED = Unknown("a dump tells nothing of the host that it is of")
_HOST = "settings, ports and devices of the host that the dump is of were not seen: `xenoovs doctor` looks there"
_LOG = "what ovs-vswitchd said itself was not heard: its log can be given with --from-log"


def find_recorded(balancer: Balancer, question: Question, recorded: Recorded, *, config: Path) -> WhyFindings:
    """Judge the files. Raises OSError, CompileError, ParseError for the flows and for a dump that has no megaflow."""
    observed = read_flows(recorded.flows) if recorded.flows is not None else ()
    program = compile_onto(balancer, [seen for seen in observed if is_ours(seen.flow.cookie)])
    index = index_blocks(expected_services(program))
    torn = TornLines()
    with open_dump(recorded.dump) as lines:
        lineup = line_up(_read_whole(lines, torn), find=index.find, asked=question.asks_about)
    notes = tuple(f"a line of the dump could not be read: {error}" for error in torn.listed[:1])
    if not lineup.suspects:
        return WhyFindings(lineup, (), notes)

    def foreign() -> tuple[Flow, ...] | None:
        return tuple(seen.flow for seen in observed if is_foreign(seen.flow.cookie)) if recorded.flows else None

    lineup = Blame(index, balancer.uplinks.bridge, own_mask_of(program), foreign).told(lineup)
    log = None if recorded.log is None else _read(recorded.log)
    evidence = Evidence(_host(log), refusals=parse_refusals(log or ""), where=Where(config=_name(config)))
    missing = (_HOST,) if log is not None else (_HOST, _LOG)
    return WhyFindings(lineup, diagnose(lineup, evidence), (*notes, *missing))


def _read_whole(lines: Iterable[str], torn: TornLines) -> Iterator[Megaflow]:
    """The megaflows; the other lines go to `torn`. Raises ParseError where all lines do."""
    is_any = False
    for one in scan_dump(lines):
        if isinstance(one, ParseError):
            torn.add(one)
        else:
            is_any = True
            yield one
    if torn.listed and not is_any:
        raise torn.listed[0]


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

"""Judges single flows by the offload table, and megaflows without the text of a dump; compares what is shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from xenoovs.compile.offloadable.check import NO_GROUPS, Offloadability, flow_topics, judge
from xenoovs.compile.offloadable.openflow_topics import OpenFlowGroup
from xenoovs.compile.offloadable.table import Profile, Version
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.errors import ParseError
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.expected import ExpectedService
from xenoovs.judge.findings import OffloadFindings
from xenoovs.judge.foreign import OwnMask
from xenoovs.judge.offload import OffloadCheck
from xenoovs.openflow.flow import Flow


def check_flow(
    flow: Flow, profile: Profile, version: Version, *, groups: Mapping[int, OpenFlowGroup] = NO_GROUPS
) -> tuple[Offloadability, ...]:
    """Return all rows of the table that apply to an OpenFlow flow, the worst first.

    A flow that only goes on to another table is judged by its match: megaflows that pass it match that too.

    Args:
        groups: groups of the bridge, by number.
    """
    return judge(flow_topics((flow,), groups=groups), profile, version)


def assert_recorded(name: str, sections: Mapping[str, str], *, update: bool) -> None:
    """The sections are those of a file of tests/golden, each below its title; `--update-golden` records them."""
    path = Path(__file__).parent / "golden" / name
    text = "\n".join(f"# {title}\n{shown}\n" for title, shown in sections.items())
    if update:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def check_offload(
    services: Iterable[ExpectedService],
    megaflows: Iterable[Megaflow | ParseError],
    evidence: Evidence | None = None,
    *,
    own_mask: OwnMask | None = None,
    is_listing: bool = False,
) -> OffloadFindings:
    """Judge megaflows, as `datapath.parse.scan_dump` reads them, against the expected services. Never raises."""
    check = OffloadCheck(tuple(services), evidence or Evidence(), own_mask=own_mask, is_listing=is_listing)
    for megaflow in megaflows:
        check.add(megaflow)
    return check.findings()

"""What `xenoovs lint` prints: tables for people, a document for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from xenoovs.cli.output import print_table, say
from xenoovs.compile.offloadable.cost import Cost, CostFinding
from xenoovs.compile.offloadable.program import JudgedFlow, ProgramOffload, Role
from xenoovs.compile.offloadable.row import Offload, Profile, assumption_about, render_version
from xenoovs.compile.offloadable.summary import Reason, count_by_service, describe, reasons
from xenoovs.errors.words import counted
from xenoovs.openflow.render import render_flow

if TYPE_CHECKING:
    from xenoovs.cli.lint_look import Lint

_COLOUR = {
    Offload.HW: "green",
    Offload.DEPENDS: "yellow",
    Offload.PARTIAL: "yellow",
    Offload.TC_SW: "red",
    Offload.SW: "red",
}


def show_lint(found: Lint, *, everything: bool) -> None:
    """Tables, reasons, costs, and one sentence at the end."""
    least = Offload.HW if everything else Offload.DEPENDS
    if found.program is not None:
        _show_services(found.program)
        _show_reasons(reasons(found.program.flows, least=least))
    if found.dump is not None:
        _show_dump(found.dump, least)
    for cost in found.costs:
        _show_cost(cost)
    if assumed := assumption_about(found.version, found.profile):
        click.echo()
        say(assumed, fg="yellow")
    click.echo()
    say(_conclusion(found), fg="red" if _is_bad(found) else "green", bold=True)


def _show_services(result: ProgramOffload) -> None:
    headers = ["SERVICE", "FLOWS", *(offload.value for offload in Offload)]
    rows = [
        [
            counts.service or "(other traffic, ARP)",
            str(counts.flows),
            *(click.style(str(n), fg=_COLOUR[offload]) if n else "-" for offload, n in counts.by_offload),
        ]
        for counts in count_by_service(result.flows)
    ]
    print_table(headers, rows, right=range(1, len(headers)))


def _show_reasons(found: tuple[Reason, ...]) -> None:
    for reason in found:
        whose = "ARP or neighbour discovery" if reason.is_plumbing else reason.service or "other traffic"
        note = ", not counted" if reason.is_plumbing else ""
        offload = reason.found.offload
        head = click.style(f"{offload.value:8}", fg="bright_black" if reason.is_plumbing else _COLOUR[offload])
        click.echo(f"\n{head} {whose}, {_flows(reason.count)}{note}: {reason.found.topic.what}")
        _show_row(reason.found.evidence, reason.found.row.text, reason.found.row.source)


def _show_dump(result: ProgramOffload, least: Offload) -> None:
    for each in result.flows:
        if each.offload.badness < least.badness:
            continue
        click.echo(f"\n{click.style(f'{each.offload.value:8}', fg=_COLOUR[each.offload])} {render_flow(each.flow)}")
        for found in each.found:
            if found.offload.badness >= least.badness:
                click.echo(f"  {found.offload.value}: {found.topic.what}")
                _show_row(found.evidence, found.row.text, found.row.source)


def _show_row(evidence: str, text: str, source: str) -> None:
    for label, told in (("seen:  ", evidence), ("reason:", text), ("source:", source)):
        say(f"  {label} {told}", indent=" " * 10)


def _show_cost(finding: CostFinding) -> None:
    colour = "red" if finding.cost is Cost.TABLE_FULL else "cyan"
    whose = f"{finding.service}: " if finding.service else ""
    click.echo(f"\n{click.style('COST    ', fg=colour)} {whose}{finding.text}")


def _conclusion(found: Lint) -> str:
    parts = []
    if found.program is not None:
        entries = "" if found.entries is None else f", {counted(found.entries, 'entry', 'entries')} for the services"
        is_full = any(finding.cost is Cost.TABLE_FULL for finding in found.costs)
        parts.append(f"{describe(found.program)}{entries}{', more than the table holds' if is_full else ''}")
    if found.dump is not None and found.program is not None:
        parts.append(f"flows of others: {describe(found.dump) if found.dump.flows else 'none'}")
    elif found.dump is not None:
        parts.append(f"dump: {describe(found.dump)}")
    return f"{_judge_name(found)}: {'; '.join(parts)}"


def _is_bad(found: Lint) -> bool:
    return any(result is not None and result.lost for result in (found.program, found.dump))


def _judge_name(found: Lint) -> str:
    # The version numbers of NVIDIA's fork are its own, and the table names none.
    version = "" if found.profile is Profile.DOCA else f", Open vSwitch {render_version(found.version)}"
    return f"{found.profile.value}{version}"


def _flows(count: int) -> str:
    return counted(count, "flow")


def lint_document(found: Lint, *, everything: bool) -> dict[str, object]:
    """For programs; verdicts by the names of `Offload`."""
    least = Offload.HW if everything else Offload.DEPENDS
    return {
        "profile": found.profile.value,
        "ovs": render_version(found.version),
        "assumed": assumption_about(found.version, found.profile),
        "entries": found.entries,
        "program": None if found.program is None else _program_document(found.program, least),
        "dump": None if found.dump is None else _dump_document(found.dump, least),
        "costs": [
            {"cost": cost.cost.value, "service": cost.service, "entries": cost.entries, "text": cost.text}
            for cost in found.costs
        ],
    }


def _program_document(result: ProgramOffload, least: Offload) -> dict[str, object]:
    services = [
        {
            "service": counts.service,
            "flows": counts.flows,
            "verdicts": {offload.value: number for offload, number in counts.by_offload},
        }
        for counts in count_by_service(result.flows)
    ]
    found = [
        {
            "service": reason.service,
            "counted": not reason.is_plumbing,
            "flows": reason.count,
            "flow": render_flow(reason.flow),
            **_found_document(reason),
        }
        for reason in reasons(result.flows, least=least)
    ]
    return {"summary": describe(result), "services": services, "findings": found}


def _dump_document(result: ProgramOffload, least: Offload) -> dict[str, object]:
    return {"summary": describe(result), "flows": [_flow_document(each, least) for each in result.flows]}


def _flow_document(each: JudgedFlow, least: Offload) -> dict[str, object]:
    found = reasons((each,), least=least)
    return {
        "flow": render_flow(each.flow),
        "verdict": each.offload.value,
        "counted": each.role is not Role.PLUMBING,
        "findings": [_found_document(reason) for reason in found],
    }


def _found_document(reason: Reason) -> dict[str, object]:
    found = reason.found
    return {
        "verdict": found.offload.value,
        "topic": found.topic.name,
        "what": found.topic.what,
        "seen": found.evidence,
        "reason": found.row.text,
        "source": found.row.source,
    }

"""`xenoovs lint`: can the NIC take these flows, and what will they cost?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from xenoovs.cli.doctor_case import foreign_flows
from xenoovs.cli.main import EXIT_DIFFERS, EXIT_OK
from xenoovs.cli.options import Output, load, output_option
from xenoovs.cli.output import echo, print_json, print_table, print_text
from xenoovs.cli.recorded import read_text
from xenoovs.compile.offloadable.check import (
    FlowReason,
    FlowRole,
    JudgedFlow,
    ProgramOffload,
    check_flows,
    check_program,
    count_by_service,
    describe,
    reasons,
)
from xenoovs.compile.offloadable.cost import CostFinding, CostKind, check_cost, program_entries
from xenoovs.compile.offloadable.openflow_topics import parse_groups
from xenoovs.compile.offloadable.table import (
    DEFAULT_VERSION,
    Offload,
    Profile,
    Version,
    assumption_about,
    parse_version,
    render_version,
)
from xenoovs.compile.program import Program, compile_config
from xenoovs.errors import counted
from xenoovs.model.balancer import Balancer
from xenoovs.openflow.flow import Flow, is_foreign
from xenoovs.openflow.text import parse_dump, render_flow
from xenoovs.verify.doctor.check import ForeignCost

# The wiring of `xenoovs lint`: what is read from where, and what is judged.


@dataclass(frozen=True, slots=True)
class Lint:
    """What was found. `program`: None without a config; `dump`: None without --flows."""

    profile: Profile
    version: Version
    program: ProgramOffload | None
    dump: ProgramOffload | None
    costs: tuple[CostFinding, ...]
    entries: int | None


def look(config: Path | None, *, profile: Profile, version: Version, **options: Any) -> Lint:
    """Judge the flows of a config, those of a dump, or both. Raises ConfigError, CompileError, ParseError, OSError.

    options: `flows`, `groups`, `client_macs` and `table_size` of the command, each may be None.
    """
    dumped = _read_flows(options["flows"]) if options["flows"] else None
    groups = parse_groups(read_text(options["groups"])) if options["groups"] else {}
    if config is None:
        assert dumped is not None  # noqa: S101 - narrows the type; the command has seen to it
        dump = check_flows(dumped, profile=profile, version=version, groups=groups)
        return Lint(profile, version, None, dump, (), None)
    balancer = load(config)
    program = compile_config(balancer)
    others = None if dumped is None else tuple(flow for flow in dumped if is_foreign(flow.cookie))
    costs = check_cost(program, client_macs=options["client_macs"], table_size=options["table_size"])
    return Lint(
        profile,
        version,
        check_program(program, profile=profile, version=version),
        None if others is None else check_flows(others, profile=profile, version=version, groups=groups),
        (*costs, *(_foreign_cost(balancer, program, others) if others else ())),
        program_entries(program, client_macs=options["client_macs"] or 1),
    )


def _foreign_cost(balancer: Balancer, program: Program, others: tuple[Flow, ...]) -> tuple[CostFinding, ...]:
    """What the flows of others cost that our packets pass: predicted with and without them."""
    found = foreign_flows(balancer, program, others)
    measured = found.cost
    if not found.passed or not isinstance(measured, ForeignCost) or measured.entries_with_foreign <= measured.entries:
        return ()
    text = (
        f"packets of the services meet {counted(len(found.passed), 'foreign flow')} first ({found.passed[0]}): "
        f"{counted(measured.entries_with_foreign, 'entry', 'entries')} instead of {measured.entries} for "
        f"{measured.packets} sample packets; in a table of their own they would cost nothing"
    )
    return (CostFinding(CostKind.FOREIGN_FLOWS, None, measured.entries_with_foreign, text),)


def _read_flows(path: Path) -> tuple[Flow, ...]:
    """The flows of a dump or of a flow file; lines that start with # are left out."""
    lines = ("" if line.lstrip().startswith("#") else line for line in read_text(path).splitlines())
    return tuple(observed.flow for observed in parse_dump("\n".join(line.rstrip() for line in lines)))


# What `xenoovs lint` prints: tables for people, a document for programs.


_COLOUR = {
    Offload.HW: "green",
    Offload.DEPENDS: "yellow",
    Offload.PARTIAL: "yellow",
    Offload.TC_SW: "red",
    Offload.SW: "red",
}


def show_lint(found: Lint, *, everything: bool) -> None:
    """Tables, reasons, costs, and one sentence at the end."""
    at_least = Offload.HW if everything else Offload.DEPENDS
    if found.program is not None:
        _show_services(found.program)
        _show_reasons(reasons(found.program.flows, at_least=at_least))
    if found.dump is not None:
        _show_dump(found.dump, at_least)
    for cost in found.costs:
        _show_cost(cost)
    if assumed := assumption_about(found.version, found.profile):
        echo()
        print_text(assumed, fg="yellow")
    echo()
    print_text(_conclusion(found), fg="red" if _loses_offload(found) else "green", bold=True)


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


def _show_reasons(found: tuple[FlowReason, ...]) -> None:
    for reason in found:
        whose = "ARP or neighbour discovery" if reason.is_resolution else reason.service or "other traffic"
        note = ", not counted" if reason.is_resolution else ""
        offload = reason.result.offload
        head = click.style(f"{offload.value:8}", fg="bright_black" if reason.is_resolution else _COLOUR[offload])
        echo(f"\n{head} {whose}, {_flows(reason.count)}{note}: {reason.result.topic.what}")
        _show_row(reason.result.evidence, reason.result.row.text, reason.result.row.source)


def _show_dump(result: ProgramOffload, at_least: Offload) -> None:
    for each in result.flows:
        if each.offload.badness < at_least.badness:
            continue
        echo(f"\n{click.style(f'{each.offload.value:8}', fg=_COLOUR[each.offload])} {render_flow(each.flow)}")
        for found in each.results:
            if found.offload.badness >= at_least.badness:
                echo(f"  {found.offload.value}: {found.topic.what}")
                _show_row(found.evidence, found.row.text, found.row.source)


def _show_row(evidence: str, text: str, source: str) -> None:
    for label, told in (("evidence:", evidence), ("reason:  ", text), ("source:  ", source)):
        print_text(f"  {label} {told}", indent=" " * 12)


def _show_cost(finding: CostFinding) -> None:
    colour = "red" if finding.cost is CostKind.TABLE_FULL else "cyan"
    whose = f"{finding.service}: " if finding.service else ""
    echo(f"\n{click.style('COST    ', fg=colour)} {whose}{finding.text}")


def _conclusion(found: Lint) -> str:
    parts = []
    if found.program is not None:
        entries = "" if found.entries is None else f", {counted(found.entries, 'entry', 'entries')} for the services"
        is_full = any(finding.cost is CostKind.TABLE_FULL for finding in found.costs)
        parts.append(f"{describe(found.program)}{entries}{', more than the table holds' if is_full else ''}")
    if found.dump is not None and found.program is not None:
        parts.append(f"flows of others: {describe(found.dump) if found.dump.flows else 'none'}")
    elif found.dump is not None:
        parts.append(f"dump: {describe(found.dump)}")
    return f"{_judge_name(found)}: {'; '.join(parts)}"


def _loses_offload(found: Lint) -> bool:
    return any(result is not None and result.in_software for result in (found.program, found.dump))


def _judge_name(found: Lint) -> str:
    # The version numbers of NVIDIA's fork are its own, and the table names none.
    version = "" if found.profile is Profile.DOCA else f", Open vSwitch {render_version(found.version)}"
    return f"{found.profile.value}{version}"


def _flows(count: int) -> str:
    return counted(count, "flow")


def lint_document(found: Lint, *, everything: bool) -> dict[str, object]:
    """For programs; verdicts by the names of `Offload`."""
    at_least = Offload.HW if everything else Offload.DEPENDS
    return {
        "profile": found.profile.value,
        "ovs": render_version(found.version),
        "assumed": assumption_about(found.version, found.profile),
        "entries": found.entries,
        "program": None if found.program is None else _program_document(found.program, at_least),
        "dump": None if found.dump is None else _dump_document(found.dump, at_least),
        "costs": [
            {"cost": cost.cost.value, "service": cost.service, "entries": cost.entries, "text": cost.text}
            for cost in found.costs
        ],
    }


def _program_document(result: ProgramOffload, at_least: Offload) -> dict[str, object]:
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
            "counted": not reason.is_resolution,
            "flows": reason.count,
            "flow": render_flow(reason.flow),
            **_found_document(reason),
        }
        for reason in reasons(result.flows, at_least=at_least)
    ]
    return {"summary": describe(result), "services": services, "findings": found}


def _dump_document(result: ProgramOffload, at_least: Offload) -> dict[str, object]:
    return {"summary": describe(result), "flows": [_flow_document(each, at_least) for each in result.flows]}


def _flow_document(each: JudgedFlow, at_least: Offload) -> dict[str, object]:
    found = reasons((each,), at_least=at_least)
    return {
        "flow": render_flow(each.flow),
        "verdict": each.offload.value,
        "counted": each.role is not FlowRole.RESOLUTION,
        "findings": [_found_document(reason) for reason in found],
    }


def _found_document(reason: FlowReason) -> dict[str, object]:
    found = reason.result
    return {
        "verdict": found.offload.value,
        "topic": found.topic.name,
        "what": found.topic.what,
        "evidence": found.evidence,
        "reason": found.row.text,
        "source": found.row.source,
    }


_FILE = click.Path(allow_dash=True, path_type=Path)


def _version(_context: click.Context, _parameter: click.Parameter, value: str) -> Version:
    try:
        return parse_version(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("lint")
@click.argument("config", metavar="[FILE]", required=False, type=click.Path(allow_dash=True, path_type=Path))
@click.option(
    "--profile",
    type=click.Choice([profile.value for profile in Profile]),
    default=Profile.TC.value,
    show_default=True,
    callback=lambda _context, _parameter, value: Profile(value),
    help="How Open vSwitch reaches the NIC: the kernel's traffic control, NVIDIA's OVS-DOCA, or DPDK.",
)
@click.option(
    "--ovs",
    "version",
    metavar="VERSION",
    default=render_version(DEFAULT_VERSION),
    show_default=True,
    callback=_version,
    help="Version of Open vSwitch, known from 2.13 to 4.0, later ones judged as 4.0; DOCA does not look at it.",
)
@click.option("--flows", type=_FILE, help="Judge the flows of this `ovs-ofctl dump-flows`; - reads standard input.")
@click.option("--groups", type=_FILE, help="The groups of that bridge: `ovs-ofctl -O OpenFlow15 dump-groups`.")
@click.option("--table-size", type=click.IntRange(min=1), help="Entries that the NIC's table holds.")
@click.option("--client-macs", type=click.IntRange(min=1), help="MACs that clients' packets come with (routers: few).")
@click.option("--strict", is_flag=True, help="Exit with 2 also where it depends.")
@click.option("--all", "everything", is_flag=True, help="Show the reasons of flows in hardware, too.")
@output_option
@click.pass_context
def lint_command(context: click.Context, /, config: Path | None, *, output: Output, **options: Any) -> None:
    """Say of each flow, before any NIC sees it, whether it can be forwarded in hardware, why not, and what it costs.

    Judges the flows of the config FILE, those of others in a dump (--flows), or both: then also what the flows of
    others cost beside ours. The answer comes from a table of what each version of Open vSwitch translates; what a NIC's
    driver refuses, only the NIC can say (`xenoovs verify-offload`, `xenoovs why`).

    \b
    HW       in the NIC, if its driver agrees           DEPENDS  on more than the flow shows
    PARTIAL  the NIC matches, the CPU forwards          TC_SW    in traffic control, which drivers refuse
    SW       in software: Open vSwitch cannot translate it

    Answers to ARP and neighbour discovery are software by design and not counted.
    Exit status 0: the NIC can take all flows, 2: some not, or its table is too small, 1: it could not look.
    """
    if config is None and options["flows"] is None:
        raise click.UsageError("Name a config FILE, or a dump with --flows.")
    if options["groups"] is not None and options["flows"] is None:
        raise click.UsageError("--groups needs --flows.")
    found = look(config, **options)
    if output is Output.JSON:
        print_json(lint_document(found, everything=options["everything"]))
    else:
        show_lint(found, everything=options["everything"])
    context.exit(EXIT_DIFFERS if _is_bad(found, strict=options["strict"]) else EXIT_OK)


def _is_bad(found: Lint, *, strict: bool) -> bool:
    results = [result for result in (found.program, found.dump) if result is not None]
    lost = any(result.in_software or (strict and result.undetermined) for result in results)
    return lost or any(finding.cost is CostKind.TABLE_FULL for finding in found.costs)

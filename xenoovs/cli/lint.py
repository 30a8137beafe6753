"""`xenoovs lint`: checks whether the NIC can offload flows, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from xenoovs.compile.offloadable.check import (
    Offloadability,
    ProgramOffload,
    check_flows,
    check_program,
    count_by_service,
    describe,
    reasons,
)
from xenoovs.compile.offloadable.cost import CostFinding, CostKind, check_cost, check_ipsec, program_entries
from xenoovs.compile.offloadable.openflow_topics import OpenFlowGroup, parse_groups
from xenoovs.compile.offloadable.rewrites import RewriteFinding, check_rewrites, check_script
from xenoovs.compile.offloadable.table import (
    DEFAULT_VERSION,
    Offload,
    Profile,
    Version,
    assumption_about,
    render_version,
)
from xenoovs.compile.program import Program, compile_config
from xenoovs.dataclass import dataclass
from xenoovs.errors import FileUnusable, counted
from xenoovs.evidence.dump_file import read_text
from xenoovs.model.balancer import Balancer
from xenoovs.openflow.flow import Flow, is_foreign
from xenoovs.openflow.text import as_dumped, parse_dump, render_flow
from xenoovs.regex import ASCII, MULTILINE, regex
from xenoovs.switch.tape import is_replaying
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_OK
from xenoovs.terminal.defaults import environment_config, find_config
from xenoovs.terminal.load import load
from xenoovs.terminal.options import (
    FILE,
    enum_option,
    findings_option,
    given_option,
    optional_config_argument,
    record_option,
    version_of_option,
)
from xenoovs.terminal.output import SarifResult, answer, echo, print_table, print_text
from xenoovs.terminal.reach import connect

_MEGAFLOW = regex(r"^(?:ufid:|[^#\n]*recirc_id\([^\n]*in_port\()[^\n]* packets:[^\n]* actions:", MULTILINE)
_NO_FLOW = regex(
    r"\s*(?:#|\$ |(?:\[[^\]]{1,80}\]|[\w.-]+@[\w.-]+(?::\S*)?)\s?[#$%](?:\s|$)|(?:sudo )?ovs-[a-z]+ )", ASCII
)
"""A comment, or a prompt with its command."""

_COLOUR = {
    Offload.HW: "green",
    Offload.DEPENDS: "yellow",
    Offload.PARTIAL: "yellow",
    Offload.TC_SW: "red",
    Offload.SW: "red",
}


@dataclass(frozen=True, slots=True)
class Lint:
    """The result of a check.

    `program`: the flows of the config; None without one. `dump`: the flows of --flows, with a config only the foreign
    ones; None without --flows. `entries`: hardware entries of the services; None without a config. `rewrites`: mistakes
    in flows of --flows that rewrite or reflect tunnel packets, and in the order of a script.
    """

    profile: Profile
    version: Version
    program: ProgramOffload | None
    dump: ProgramOffload | None
    costs: tuple[CostFinding, ...] = ()
    entries: int | None = None
    rewrites: tuple[RewriteFinding, ...] = ()

    @property
    def is_table_full(self) -> bool:
        return any(finding.cost is CostKind.TABLE_FULL for finding in self.costs)

    def results(self) -> Iterator[ProgramOffload]:
        """Yield the results for the config and for --flows."""
        yield from (result for result in (self.program, self.dump) if result is not None)


@click.command("lint")
@optional_config_argument
@enum_option(
    "--profile",
    default=Profile.TC,
    help="How Open vSwitch reaches the NIC: the kernel's traffic control, NVIDIA's OVS-DOCA with any "
    "hw-offload-ct-size, with connections offloaded or with 0, or DPDK.",
)
@click.option(
    "--ovs",
    "version",
    metavar="VERSION",
    default=render_version(DEFAULT_VERSION),
    show_default=True,
    callback=lambda _context, _parameter, value: version_of_option(value),
    help="Version of Open vSwitch, 2.13 to 4.0; later ones are judged as 4.0. Not used for DOCA.",
)
@click.option(
    "--flows",
    type=FILE,
    metavar="FLOWS",
    help="Check the flows of this `ovs-ofctl dump-flows` output, or script of `ovs-ofctl add-flow`.",
)
@click.option("--groups", type=FILE, metavar="GROUPS", help="Its groups: `ovs-ofctl -O OpenFlow15 dump-groups`.")
@click.option("--table-size", metavar="N", type=click.IntRange(min=1), help="Entries that the NIC's table holds.")
@click.option(
    "--client-macs", metavar="N", type=click.IntRange(min=1), help="Number of source MACs of clients (routers: few)."
)
@record_option("flows", "groups")
@click.option("--strict", is_flag=True, help="Exit with 2 also for DEPENDS.")
@click.option("--all", "everything", is_flag=True, help="Show reasons for flows in hardware too.")
@findings_option
def lint_command(
    config: Path | None,
    *,
    profile: Profile,
    version: Version,
    flows: Path | None,
    groups: Path | None,
    table_size: int | None,
    client_macs: int | None,
    strict: bool,
    everything: bool,
) -> int:
    """Check for each flow, without any NIC, whether it can be offloaded, why not, and what it costs.

    Checks the flows of the config FILE, those of a dump (--flows), or both: then also what foreign flows cost. The
    result comes from a table of what each version of Open vSwitch can translate. What a NIC's driver refuses, only the
    NIC can show (`xenoovs verify-offload`, `xenoovs why`).

    \b
    HW       in the NIC, if its driver agrees
    PARTIAL  the NIC matches, the CPU forwards
    TC_SW    in traffic control, but drivers refuse it
    SW       in software: Open vSwitch cannot translate it
    DEPENDS  on more than the flow shows

    Answers to ARP and neighbour discovery are software by design and not counted. Nor are flows of other programs that
    drop tagged packets, as OVN has them.

    Exit status 0: the NIC can take all flows except those whose tunnel the CPU encrypts as the config says, 2: not all,
    or its table is too small, 1: it could not check.
    """
    if flows is None:
        config = config or (environment_config() if is_replaying() else find_config("--flows FLOWS"))
    if groups is not None and flows is None:
        raise click.UsageError("--groups needs --flows.")
    dumped = None if flows is None else _read_flows(flows)
    rewrites = () if flows is None or dumped is None else (*check_rewrites(dumped), *check_script(read_text(flows)))
    known_groups: Mapping[int, OpenFlowGroup] = {} if groups is None else parse_groups(read_text(groups))
    at_least = Offload.HW if everything else Offload.DEPENDS
    balancer = None if config is None else load(config, of_dpu=True)
    if is_replaying():
        dumped, known_groups, found = _recorded(None if balancer is None else balancer.uplinks.bridge)
        version = version if given_option("version") or found is None else version_of_option(found)

    if balancer is None:
        dump = check_flows(dumped or (), profile=profile, version=version, groups=known_groups)
        lint = Lint(profile, version, None, dump, rewrites=rewrites)
    else:
        program = compile_config(balancer)
        foreign = None if dumped is None else tuple(flow for flow in dumped if is_foreign(flow.cookie))
        costs = check_cost(program, client_macs=client_macs, table_size=table_size, version=version)
        lint = Lint(
            profile,
            version,
            check_program(program, profile=profile, version=version, encrypted=balancer.cpu_encrypted_ports),
            None if foreign is None else check_flows(foreign, profile=profile, version=version, groups=known_groups),
            (*costs, *check_ipsec(balancer), *(_foreign_cost(balancer, program, foreign, version) if foreign else ())),
            program_entries(program, client_macs=client_macs or 1),
            rewrites,
        )
    file = str(config or flows or "-")
    answer(lambda: _document(lint, at_least), lambda: _show(lint, at_least), lambda: _findings(lint, at_least, file))
    is_bad = any(result.in_software or (strict and result.undetermined) for result in lint.results())
    return EXIT_DIFFERS if is_bad or lint.is_table_full else EXIT_OK


def _foreign_cost(
    balancer: Balancer, program: Program, foreign: tuple[Flow, ...], version: Version
) -> tuple[CostFinding, ...]:
    """Return the entries that foreign flows cost, predicted for packets of the services with and without them."""
    from xenoovs.judge.doctor.foreign_flows import ForeignCost, foreign_flows

    found = foreign_flows(balancer, program, foreign, version=render_version(version))
    measured = found.cost
    if not found.passed or not isinstance(measured, ForeignCost) or measured.entries_with_foreign <= measured.entries:
        return ()
    text = (
        f"packets of the services meet {counted(len(found.passed), 'foreign flow')} first ({found.passed[0]}): "
        f"{counted(measured.entries_with_foreign, 'entry', 'entries')} instead of {measured.entries} for "
        f"{measured.packets} sample packets; in a table of their own they would cost nothing"
    )
    return (CostFinding(CostKind.FOREIGN_FLOWS, None, measured.entries_with_foreign, text),)


def _recorded(bridge: str | None) -> tuple[tuple[Flow, ...], Mapping[int, OpenFlowGroup], str | None]:
    """Return flows, groups and the version of Open vSwitch from the record. `bridge`: None for its only one."""
    from xenoovs.switch.management import Ofctl
    from xenoovs.switch.vswitchd import read_version

    switch = connect()
    names = [state.name for state in switch.bridges()] if bridge is None else [bridge]
    if len(names) != 1:
        raise click.UsageError(f"The record has bridges {', '.join(names) or '(none)'}: give the config FILE of one.")
    tool = Ofctl(switch.endpoint)
    groups = parse_groups(tool.run("dump-groups", names[0], version="OpenFlow15"))
    return tuple(seen.flow for seen in tool.dump_flows(names[0])), groups, read_version(switch.endpoint)


def _read_flows(path: Path) -> tuple[Flow, ...]:
    """Return the flows of a dump, a flow file or a script of `ovs-ofctl add-flow`, without prompts and comments."""
    from xenoovs.migrate.flows import script_flows

    text = read_text(path)
    if _MEGAFLOW.search(text):
        raise FileUnusable(
            file=str(path),
            reason="it is a dump of megaflows (`ovs-appctl dpctl/dump-flows`); judge it with `xenoovs verify-offload "
            "--from-dump` or `xenoovs why --from-dump`. Flows are written by `ovs-ofctl dump-flows`",
        )
    if found := script_flows(text):
        return found
    lines = ("" if _NO_FLOW.match(line) else as_dumped(line.rstrip()) for line in text.splitlines())
    return tuple(observed.flow for observed in parse_dump("\n".join(lines)))


def _show(lint: Lint, at_least: Offload) -> None:
    if lint.program is not None:
        headers = ["SERVICE", "FLOWS", *(offload.value for offload in Offload)]
        rows = [
            [
                service or "(other traffic, ARP)",
                str(sum(counts.values())),
                *(click.style(str(n), fg=_COLOUR[offload]) if n else "-" for offload, n in counts.items()),
            ]
            for service, counts in count_by_service(lint.program).items()
        ]
        print_table(headers, rows, right=range(1, len(headers)))
        for reason in reasons(lint.program.flows, at_least=at_least):
            colour, note = _COLOUR[reason.result.offload], ""
            owner = reason.service or "other traffic"
            if reason.is_resolution:
                colour, note, owner = "bright_black", ", not counted", "ARP or neighbour discovery"
            said = f"{owner}, {counted(reason.count, 'flow')}{note}: {reason.result.topic.what}"
            _show_entry(reason.result.offload.value, colour, said)
            _show_evidence(reason.result)
    for each in lint.dump.flows if lint.dump is not None else ():
        if each.offload.badness >= at_least.badness:
            is_counted = each.role.carries_traffic
            colour, note = _COLOUR[each.offload], "" if is_counted else f" (not counted: {each.role.value})"
            shown = f"{render_flow(each.flow)}{note}"
            _show_entry(each.offload.value, colour if is_counted else "bright_black", shown)
            for result in each.results:
                if result.offload.badness >= at_least.badness:
                    echo(f"  {result.offload.value}: {result.topic.what}")
                    _show_evidence(result)
    for mistake in lint.rewrites:
        _show_entry("TUNNEL", "yellow", mistake.flow or "order of commands")
        print_text(f"  {mistake.text}", indent="  ")
    for finding in lint.costs:
        colour = "red" if finding.cost is CostKind.TABLE_FULL else "cyan"
        _show_entry("COST", colour, f"{f'{finding.service}: ' if finding.service else ''}{finding.text}")
    if assumption := assumption_about(lint.version, lint.profile):
        echo()
        print_text(assumption, fg="yellow")
    echo()
    is_lost = any(result.in_software for result in lint.results())
    print_text(_conclusion(lint), fg="red" if is_lost else "green", bold=True)


def _show_entry(word: str, colour: str, text: str) -> None:
    echo()
    print_text(text, indent=" " * 9, head=click.style(f"{word:8} ", fg=colour))


def _show_evidence(result: Offloadability) -> None:
    for label, text in (
        ("evidence:", result.evidence),
        ("reason:  ", result.row.text),
        ("source:  ", result.row.source),
    ):
        print_text(f"  {label} {text}", indent=" " * 12)


def _findings(lint: Lint, at_least: Offload, file: str) -> Iterator[SarifResult]:
    """Yield the findings for SARIF. `file`: the config or the dump that was checked."""
    for result in lint.results():
        for reason in reasons(result.flows, at_least=at_least):
            offload = reason.result.offload
            level = "error" if offload.is_software else "note" if offload is Offload.HW else "warning"
            level = "note" if reason.is_resolution else level
            found = f"{offload.value}: {reason.result.topic.what}: {reason.result.row.text}"
            text = f"{found} ({counted(reason.count, 'flow')}, such as {render_flow(reason.flow)})"
            yield SarifResult(reason.result.topic.name, level, text, file)
    for cost in lint.costs:
        level = "error" if cost.cost is CostKind.TABLE_FULL else "note"
        yield SarifResult(cost.cost.value, level, f"{cost.service}: {cost.text}" if cost.service else cost.text, file)
    for rewrite in lint.rewrites:
        yield SarifResult(rewrite.rule.value, "warning", f"{rewrite.flow}: {rewrite.text}", file)


def _conclusion(lint: Lint) -> str:
    parts = []
    if lint.program is not None:
        entries = "" if lint.entries is None else f", {counted(lint.entries, 'entry', 'entries')} for the services"
        parts.append(f"{describe(lint.program)}{entries}{', more than the table holds' if lint.is_table_full else ''}")
    if lint.dump is not None and lint.program is not None:
        parts.append(f"foreign flows: {describe(lint.dump) if lint.dump.flows else 'none'}")
    elif lint.dump is not None:
        parts.append(f"dump: {describe(lint.dump)}")
    # NVIDIA's fork has its own version numbers, which the table does not have.
    version = "" if lint.profile.is_doca else f", Open vSwitch {render_version(lint.version)}"
    return f"{lint.profile.value}{version}: {'; '.join(parts)}"


def _document(lint: Lint, at_least: Offload) -> dict[str, object]:
    return {
        "profile": lint.profile.value,
        "ovs": render_version(lint.version),
        "assumed": assumption_about(lint.version, lint.profile),
        "entries": lint.entries,
        "program": None if lint.program is None else _program_document(lint.program, at_least),
        "dump": None
        if lint.dump is None
        else {
            "summary": describe(lint.dump),
            "flows": [
                {
                    "flow": render_flow(each.flow),
                    "verdict": each.offload.value,
                    "counted": each.role.carries_traffic,
                    "findings": [_result_document(reason.result) for reason in reasons((each,), at_least=at_least)],
                }
                for each in lint.dump.flows
            ],
        },
        "costs": [
            {"cost": cost.cost.value, "service": cost.service, "entries": cost.entries, "text": cost.text}
            for cost in lint.costs
        ],
        "rewrites": [
            {"rewrite": finding.rule.value, "flow": finding.flow, "text": finding.text} for finding in lint.rewrites
        ],
    }


def _program_document(program: ProgramOffload, at_least: Offload) -> dict[str, object]:
    return {
        "summary": describe(program),
        "services": [
            {
                "service": service,
                "flows": sum(counts.values()),
                "verdicts": {offload.value: number for offload, number in counts.items()},
            }
            for service, counts in count_by_service(program).items()
        ],
        "findings": [
            {
                "service": reason.service,
                "counted": not reason.is_resolution,
                "flows": reason.count,
                "flow": render_flow(reason.flow),
                **_result_document(reason.result),
            }
            for reason in reasons(program.flows, at_least=at_least)
        ],
    }


def _result_document(result: Offloadability) -> dict[str, object]:
    return {
        "verdict": result.offload.value,
        "topic": result.topic.name,
        "what": result.topic.what,
        "evidence": result.evidence,
        "reason": result.row.text,
        "source": result.row.source,
    }

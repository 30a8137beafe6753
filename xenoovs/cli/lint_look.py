"""The wiring of `xenoovs lint`: what is read from where, and what is judged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xenoovs.cli.options import load
from xenoovs.cli.recorded import read_text
from xenoovs.compile.of_config import compile_config
from xenoovs.compile.offloadable.cost import Cost, CostFinding, check_cost, program_entries
from xenoovs.compile.offloadable.groups import parse_groups
from xenoovs.compile.offloadable.program import ProgramOffload, check_flows, check_program
from xenoovs.compile.offloadable.row import Profile, Version
from xenoovs.compile.program import Program
from xenoovs.errors.words import counted
from xenoovs.openflow.cookie import is_foreign
from xenoovs.openflow.parse import parse_dump

if TYPE_CHECKING:
    from xenoovs.model.balancer import Balancer
    from xenoovs.openflow.flow import Flow


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
    from xenoovs.cli.doctor_case import foreign_flows
    from xenoovs.verify.doctor.case import Cost as Measured

    found = foreign_flows(balancer, program, others)
    measured = found.cost
    if not found.passed or not isinstance(measured, Measured) or measured.beside <= measured.alone:
        return ()
    text = (
        f"{counted(len(found.passed), 'flow')} of others where our packets pass ({found.passed[0]}): "
        f"{counted(measured.beside, 'entry', 'entries')} instead of {measured.alone} for {measured.packets} sample "
        "packets; a table of their own would cost nothing"
    )
    return (CostFinding(Cost.FOREIGN_FLOWS, None, measured.beside, text),)


def _read_flows(path: Path) -> tuple[Flow, ...]:
    """The flows of a dump or of a flow file; lines that start with # are left out."""
    lines = ("" if line.lstrip().startswith("#") else line for line in read_text(path).splitlines())
    return tuple(observed.flow for observed in parse_dump("\n".join(line.rstrip() for line in lines)))

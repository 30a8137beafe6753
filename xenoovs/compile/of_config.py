"""A config to a program in one call: on a bridge without flows, or on one that has some."""

from __future__ import annotations

from collections.abc import Iterable

from xenoovs.compile.program import Program, compile_program
from xenoovs.compile.read import drain_ports, read
from xenoovs.decision.advance import Progress, advance
from xenoovs.decision.decide import decide, undisturbed
from xenoovs.decision.decision import Decision
from xenoovs.decision.desired import DesiredState
from xenoovs.model.balancer import Balancer
from xenoovs.openflow.flow import ObservedFlow


def compile_config(balancer: Balancer) -> Program:
    """Return the program with the fewest blocks. Raises ToleranceUnreachable, BudgetUnreachable, CompileError."""
    return compile_program(balancer, decide(Decision(), DesiredState(balancer)))


def compile_onto(balancer: Balancer, observed: Iterable[ObservedFlow]) -> Program:
    """Return the program that `apply` would leave on a bridge with these flows; drains under way stay where they are.

    Raises what `compile_config` raises.
    """
    seen = tuple(observed)
    before = read(seen, balancer)
    desired = undisturbed(before[0], DesiredState(balancer))
    decision = decide(before[0], desired)
    ports = drain_ports(seen)
    transition = advance(before, decision, desired, Progress(now_s=0.0, ports=ports, settle_s=None))
    return compile_program(balancer, decision, transition, ofports=ports)

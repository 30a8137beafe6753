"""A config that no flows can be made of, or not these."""

from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

from xenoovs.errors.base import XenoovsError
from xenoovs.errors.words import counted


class ToleranceUnreachable(XenoovsError):
    """Weights that no split over the given number of bits meets. `least`: the least tolerance that can be met, or None.

    `smallest`: index of the smallest positive weight, which decides.
    """

    def __init__(self, *, tolerance: Fraction, least: Fraction | None, smallest: int, max_width: int) -> None:
        self.tolerance, self.least, self.smallest, self.max_width = tolerance, least, smallest, max_width
        wanted = f"a tolerance of {_percent(tolerance)} cannot be met with {counted(max_width, 'bit')}"
        super().__init__(
            f"{wanted}, which make {1 << max_width} classes of addresses, fewer than the backends; allow more bits"
            if least is None
            else f"{wanted}; the least that can is {_percent(least)}: raise the tolerance "
            f"or the smallest weight (backend {smallest}), or allow more bits where they are limited"
        )


def _percent(share: Fraction) -> str:
    """Rounded up at the fourth digit, so that a tolerance typed from the text is large enough."""
    context = Context(prec=4, rounding=ROUND_CEILING)
    return f"{context.divide(Decimal(100 * share.numerator), Decimal(share.denominator)):g}%"


class BudgetUnreachable(XenoovsError):
    """A budget of flows that no split fits. `least`: the least number of flows possible."""

    def __init__(self, *, max_flows: int, least: int) -> None:
        self.max_flows, self.least = max_flows, least
        super().__init__(
            f"{counted(max_flows, 'flow')} cannot serve {least} backends with a weight, which need at least {least}"
        )


class CompileError(XenoovsError):
    """A valid config that no program can serve."""

    def __init__(self, *, service: str, reason: str) -> None:
        self.service, self.reason = service, reason
        super().__init__(f"service {service}: {reason}")


class FlowTaken(XenoovsError):
    """A flow of somebody else has the table, priority and match of one that is wanted. `flow`: theirs, as text."""

    def __init__(self, *, flow: str) -> None:
        self.flow = flow
        super().__init__(
            f"a flow that is not of xenoovs stands where one of xenoovs has to be: {flow}; "
            "remove it or give it another priority; nothing was changed"
        )


class SimulateError(XenoovsError):
    """A flow that cannot be simulated: it matches or does something that xenoovs never writes. `unknown`: its text."""

    def __init__(self, *, flow: str, unknown: str) -> None:
        self.flow, self.unknown, self.commands = flow, unknown, ("ovs-appctl ofproto/trace",)
        super().__init__(f"{flow}: {unknown} cannot be simulated; ask the switch with `{self.commands[0]}`")


class DecisionMalformed(XenoovsError):
    """A document that is no decision. `path`: the key that is wrong."""

    def __init__(self, *, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"not a decision: {path or 'document'}: {reason}; write one with `xenoovs decision -o json`")

"""Whether the bits of a service can meet its weights at all; the solver itself is left to the compiler."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from xenoovs.config.build import key_of
from xenoovs.config.remark import Remark
from xenoovs.config.salvage import Lost
from xenoovs.config.schema import ServiceConfig
from xenoovs.config.tree import Path
from xenoovs.errors.words import counted, worded
from xenoovs.model.block_key import MAX_KEY_BITS
from xenoovs.partition.windows import first_feasible_width, least_tolerance

# Percentages in messages have two decimals.
_STEP = 10_000


def check_shares(service: ServiceConfig, path: Path, *, lost: Lost) -> Iterator[Remark]:
    """Weights, bits, tolerance and budget against each other. `lost`: not to be judged."""
    weights = [backend.weight for backend in service.backends if backend.weight]
    if not weights or lost.has(("backends", None, "weight"), ("match", "bits")):
        return
    width = key_of(service).max_width
    classes, label = counted(1 << width, "class", "classes"), service.match.field.key.label
    if len(weights) > 1 << width:
        yield Remark(
            (*path, "match", "bits"),
            f"{_bits(width)} of the {label} {worded(width, 'makes', 'make')} {classes} of clients for {len(weights)} "
            f"backends with a weight; use at least {_bits((len(weights) - 1).bit_length())}",
        )
    elif lost.has(("tolerance",), ("max_flows",)):
        return
    elif service.max_flows is None and first_feasible_width(weights, service.tolerance, width) is None:
        yield Remark((*path, "tolerance"), _out_of_reach(service, weights, width))


def _out_of_reach(service: ServiceConfig, weights: list[Fraction], width: int) -> str:
    least = least_tolerance(weights, width)
    smallest = min((backend for backend in service.backends if backend.weight), key=lambda backend: backend.weight)
    problem = f"{_percent(service.tolerance)} cannot be met with {_bits(width)} of the {service.match.field.key.label}"
    remedies = [f"raise the smallest weight (backend {smallest.name}) or set it to 0"]
    if width < MAX_KEY_BITS:
        remedies.append("use more bits")
    if least is None or least > 1:
        return f"{problem}, nor can any tolerance up to 100%; {', or '.join(remedies)}"
    # Rounded up, so that it works when it is typed in.
    rounded = Fraction(-(-least.numerator * _STEP // least.denominator), _STEP)
    return f"{problem}; write {_percent(rounded)}, the least that can, or {', or '.join(remedies)}"


def _bits(number: int) -> str:
    return counted(number, "bit")


def _percent(value: Fraction) -> str:
    return f"{float(value * 100):.12g}%"

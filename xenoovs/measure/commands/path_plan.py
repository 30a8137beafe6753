"""How the plan of paths is shown: as tables, as the document of `-o json`, and as the file of weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from xenoovs.display import decimal, percent
from xenoovs.errors import MeasureError
from xenoovs.paths.plan import PathPlan, Usage, advice
from xenoovs.terminal.output import echo, print_table, print_text

_DIGITS = 6


def write_weights(out: Path, document: Mapping[str, object]) -> None:
    """Write the document of a plan, from which a service takes its weights. Raises MeasureError."""
    write_whole(out, json.dumps(document, indent=2) + "\n", instead="name another file with --weights")


def write_whole(out: Path, text: str, *, instead: str) -> None:
    """Write a file, so that others see the text before or the whole new one.

    Args:
        out: The file.
        text: Its text.
        instead: What to do if it cannot be written.

    Raises:
        MeasureError: It cannot be written.
    """
    draft = out.with_name(f".{out.name}.new")
    try:
        try:
            draft.write_text(text, encoding="utf-8")
            draft.replace(out)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise MeasureError(f"{out} cannot be written: {error.strerror}; {instead}") from None


def show_plan(plan: PathPlan, unit: str, weights_file: Path | None) -> None:
    """Print ranking, split, limits and weights."""
    loads = dict(zip((path.name for path in plan.split.paths), plan.split.loads, strict=True))
    total = plan.split.total
    rows = [
        [
            str(position),
            ranked.path.name,
            short(ranked.alone),
            short(ranked.path.latency_us),
            short(ranked.path.cpu),
            short(step.total),
            short(loads[ranked.path.name]),
            percent(loads[ranked.path.name] / total if total else None),
        ]
        for position, (ranked, step) in enumerate(zip(plan.ranking, plan.steps, strict=True), start=1)
    ]
    headers = ["RANK", "PATH", "ALONE", "LATENCY US", "CPU", "SUM SO FAR", "LOAD", "SHARE"]
    print_table(headers, rows, right=(0, 2, 3, 4, 5, 6, 7), spare=(4, 3))
    echo()
    _show_limits(plan.split.usages)
    echo()
    more = f", {percent(plan.gain)} more than the best path alone" if plan.gain > 0 else ""
    echo(f"{short(total)} {unit} in all{more}")
    if plan.demand is not None and total < plan.demand:
        print_text(f"the demand of {short(plan.demand)} {unit} is more than these paths carry", fg="yellow")
    bottlenecks = [usage.name for usage in plan.split.bottlenecks]
    echo(f"limited by {', '.join(bottlenecks)}" if bottlenecks else "no path or resource limits this load")
    for sentence in advice(plan):
        print_text(sentence, fg="yellow")
    echo("weights: " + ", ".join(f"{name} {weight}" for name, weight in plan.weights().items()))
    if weights_file is not None:
        echo(f"written to {weights_file}; in a service: weights: {{from: {weights_file}}}")


def _show_limits(usages: tuple[Usage, ...]) -> None:
    rows = [
        [usage.name, short(usage.capacity), short(usage.used), short(usage.headroom), _used_share(usage)]
        for usage in usages
    ]
    print_table(["LIMIT", "CAPACITY", "USED", "HEADROOM", ""], rows, right=(1, 2, 3, 4))


def _used_share(usage: Usage) -> str:
    return percent(usage.used / usage.capacity) if usage.capacity else "-"


def short(value: Fraction | None) -> str:
    """Return a number for people: exact where that is short, else in some digits."""
    if value is None:
        return "-"
    exact = decimal(value)
    return exact if len(exact) <= _DIGITS + 1 and "/" not in exact else f"{float(value):.{_DIGITS}g}"


def plan_document(plan: PathPlan, unit: str) -> dict[str, object]:
    """Return the plan for `-o json` and for the file of weights; amounts are exact, as text."""
    loads = dict(zip((path.name for path in plan.split.paths), plan.split.loads, strict=True))
    return {
        "version": 1,
        "by": plan.criterion.value,
        "unit": unit,
        "demand": None if plan.demand is None else str(plan.demand),
        "total": str(plan.split.total),
        "gain": float(plan.gain),
        "paths": [
            {
                "name": ranked.path.name,
                "alone": str(ranked.alone),
                "sum": str(step.total),
                "load": str(loads[ranked.path.name]),
            }
            for ranked, step in zip(plan.ranking, plan.steps, strict=True)
        ],
        "limits": [
            {
                "name": usage.name,
                "capacity": str(usage.capacity),
                "used": str(usage.used),
                "headroom": str(usage.headroom),
                "bottleneck": usage.price > 0,
            }
            for usage in plan.split.usages
        ],
        "advice": list(advice(plan)),
        "weights": plan.weights(),
    }

"""`make bench`: speed as ratios measured in one run, beside the limit for each. Nothing here fails."""

from __future__ import annotations

import compileall
import os
import sys
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.bench import (
    agent_load,
    apply,
    compiling,
    controller,
    cuts,
    death,
    dumps,
    fleet,
    fleet_agent,
    idle,
    management,
    megaflows,
    probes,
    solver,
    startup,
    switching,
    verify,
    wire,
)
from scripts.bench.measure import Row

_PARTS = {
    "startup": startup.rows,
    "solver": solver.rows,
    "compile": compiling.rows,
    "apply": apply.rows,
    "wire": wire.rows,
    "management": management.rows,
    "controller": controller.rows,
    "megaflows": megaflows.rows,
    "dumps": dumps.rows,
    "verify": verify.rows,
    "probes": probes.rows,
    "death": death.rows,
    "cuts": cuts.rows,
    "agent": agent_load.rows,
    "idle": idle.rows,
    "fleet": fleet.rows,
    "fleet-agent": fleet_agent.rows,
    "switching": switching.rows,
}


def main() -> None:
    """Run all parts, or those named on the command line."""
    # As installed: a process that has to compile the source first takes twice the time.
    compileall.compile_dir(Path(__file__).resolve().parents[2] / "xenoovs", quiet=1)
    print(f"{'MEASURED':<66}  {'VALUE':>12}  {'BOUND':>12}")
    for name, rows in _PARTS.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        # A part may point the tools of Open vSwitch at its own one.
        with patch.dict(os.environ):
            for row in rows():
                print(_line(row), flush=True)


def _line(row: Row) -> str:
    bound = "" if row.bound is None else f"<= {row.bound:g}"
    verdict = "" if row.bound is None else "  ok" if row.value <= row.bound else "  OVER"
    return f"{row.name:<66}  {row.value:>8.4g} {row.unit:<3}  {bound:>12}{verdict}"


main()

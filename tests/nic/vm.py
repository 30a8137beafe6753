"""Boots virtual machines with the emulated NIC, lets them run scenarios, and brings back their records.

`python -m tests.nic.vm [SCENARIO ...]` runs them (all of them by default) and prints the result file's path; as root.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.nic.guest.catalogue import SCENARIOS
from xenoovs.lab.nic.build import build_module
from xenoovs.lab.nic.call import check, run_inside
from xenoovs.lab.nic.debian import Kernel, unpacked_kernel
from xenoovs.lab.nic.machine import Machine, boot
from xenoovs.lab.nic.needs import missing_packages
from xenoovs.lab.nic.up import wait_until_ready
from xenoovs.switch.process import run

REPOSITORY = Path(__file__).parents[2]
_BALANCERS = Path(__file__).parent / "balancers"
# A scenario takes 10 to 30 s on two cores without KVM; several times that when they are busy.
SCENARIOS_TIMEOUT_S = 1500.0

Records = dict[str, dict[str, Any]]


def install_programs() -> None:
    """Install from Debian what is missing on the host. Needs root and the network only then."""
    if missing := missing_packages():
        run(["apt-get", "update", "-qq"], timeout_s=600.0)
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
        run(install, timeout_s=600.0, env={"DEBIAN_FRONTEND": "noninteractive"})


def record_all(scenarios: Sequence[str], directory: Path) -> Records:
    """Boot two machines, share out `scenarios`, and bring back a record of each (`guest/record.py`), by name.

    Emulated, one machine keeps hardly more than one core busy, and waits often. `directory` is made; it keeps
    result.json and the consoles. Raises LabError or SwitchError when a machine does not do it.
    """
    directory.mkdir(parents=True)
    install_programs()
    kernel = unpacked_kernel()
    build_module(kernel)
    shares = [share for share in (scenarios[::2], scenarios[1::2]) if share]
    with ThreadPoolExecutor(len(shares)) as workers:
        found = workers.map(lambda part: _boot_and_run(kernel, *part), enumerate(shares))
        by_name = {name: record for records in found for name, record in records.items()}
    records = {name: by_name[name] for name in scenarios}
    (directory / "result.json").write_text(json.dumps(records))
    return records


def _boot_and_run(kernel: Kernel, number: int, scenarios: Sequence[str]) -> Records:
    with tempfile.TemporaryDirectory(prefix="xenoovs-nic-") as directory:
        machine = boot(kernel, Path(directory))
        try:
            wait_until_ready(machine)
            return run_scenarios(machine, scenarios, module=build_module(kernel))
        finally:
            machine.kill()


def run_scenarios(machine: Machine, scenarios: Sequence[str], *, module: Path) -> Records:
    """In a machine that nobody else uses meanwhile."""
    programs = {path.stem: _compile(path) for path in sorted(_BALANCERS.glob("*.yaml"))}
    job = {"module": str(module), "scenarios": list(scenarios), "programs": programs}
    argv = ["python", "-m", "tests.nic.guest.main"]
    done = run_inside(machine, argv, stdin=json.dumps(job), directory=str(REPOSITORY), timeout_s=SCENARIOS_TIMEOUT_S)
    sys.stderr.write(done.stderr)
    return dict(json.loads(line) for line in check(done).stdout.splitlines())


def _compile(config: Path) -> str:
    # The console script beside this interpreter: what a user types.
    return run([str(Path(sys.executable).with_name("xenoovs")), "compile", str(config)], timeout_s=60.0).stdout


def main() -> None:
    """Run the scenarios named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []], metavar="SCENARIO", help=", ".join(SCENARIOS))
    wanted = parser.parse_args().scenarios or list(SCENARIOS)
    directory = Path(tempfile.mkdtemp(prefix="xenoovs-nic-")) / "run"
    started = time.monotonic()
    records = record_all(wanted, directory)
    for name, record in records.items():
        print(f"{name}: {record['error'] or 'recorded'} ({record['seconds']:.0f} s)")
    print(f"{time.monotonic() - started:.0f} s; {directory}/result.json; CPU {os.times()}")


if __name__ == "__main__":
    main()

"""Boots two virtual machines with the emulated NIC, lets them do everything, and brings back the records.

`python -m tests.nic.vm [PART ...]` does it (all parts by default) and prints the result file's path; as root. A part is
a scenario, `lab` or `hardware`.
"""

from __future__ import annotations

import argparse
import compileall
import json
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.nic.guest.catalogue import SCENARIOS
from tests.nic.lab_story import NAME, LabStory
from xenoovs.cli import nic_guest
from xenoovs.config.templates import read_template
from xenoovs.lab.nic.call import check, run_inside
from xenoovs.lab.nic.machine import Machine, boot, build_module, missing_packages, start_module, unpacked_kernel
from xenoovs.lab.nic.up import wait_until_ready
from xenoovs.switch.process import run

LAB, HARDWARE = "lab", "hardware"
PARTS = (*SCENARIOS, LAB, HARDWARE)

_REPOSITORY = Path(__file__).parents[2]
_BALANCERS = Path(__file__).parent / "balancers"
# Scenarios of the machine that has the lab and the hardware suite too: as many as make both end together.
_SECOND_SHARE = 7
# A scenario takes 10 to 30 s on two cores without KVM; several times that when they are busy.
_PART_TIMEOUT_S = 1500.0

Records = dict[str, Any]


def install(packages: Collection[str]) -> None:
    """Install these of Debian on the host; where there are any, this needs root and the network."""
    if packages:
        run(["apt-get", "update", "-qq"], timeout_s=600.0)
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
        run(install, timeout_s=600.0, env={"DEBIAN_FRONTEND": "noninteractive"})


def record_all(parts: Collection[str], directory: Path) -> Records:
    """Boot two machines, share out `parts`, and bring back a record of each, by name.

    Emulated, one machine keeps hardly more than one core busy, and waits often. `directory` is made, for result.json.
    Raises LabError or SwitchError when a machine does not do its part.
    """
    directory.mkdir(parents=True)
    install(missing_packages())
    for package in ("xenoovs", "tests"):
        # Emulated, compiling takes seconds, and what the guest writes is gone with it.
        compileall.compile_dir(_REPOSITORY / package, quiet=2)
    scenarios = [name for name in SCENARIOS if name in parts]
    here = max(0, len(scenarios) - _SECOND_SHARE)
    with ThreadPoolExecutor(2) as workers:
        first = workers.submit(_in_bare_machine, scenarios[:here])
        second = workers.submit(_in_lab_machine, scenarios[here:], [part for part in (LAB, HARDWARE) if part in parts])
        records = {**first.result(), **second.result()}
    (directory / "result.json").write_text(json.dumps(records))
    return records


def _in_bare_machine(scenarios: Sequence[str]) -> Records:
    if not scenarios:
        return {}
    with tempfile.TemporaryDirectory(prefix="xenoovs-nic-") as directory, _booted(Path(directory)) as machine:
        return _run_scenarios(machine, scenarios)


def _in_lab_machine(scenarios: Sequence[str], parts: Collection[str]) -> Records:
    if LAB not in parts and not scenarios and HARDWARE not in parts:
        return {}
    with tempfile.TemporaryDirectory(prefix="xenoovs-nic-") as directory:
        story = LabStory(Path(directory))
        try:
            story.begin(read_template("quickstart"))
            check(_python(story.machine, "tests.nic.guest.unplug", NAME))
            records = _run_scenarios(story.machine, scenarios)
            if HARDWARE in parts:
                records[HARDWARE] = _run_hardware(story.machine)
        finally:
            story.end()
        return {**records, LAB: story.as_json()}


@contextmanager
def _booted(directory: Path) -> Iterator[Machine]:
    kernel = unpacked_kernel()
    machine = boot(kernel, directory, start=start_module(nic_guest.__name__, kernel))
    try:
        wait_until_ready(machine)
        yield machine
    finally:
        machine.kill()


def _run_scenarios(machine: Machine, scenarios: Sequence[str]) -> Records:
    programs = {path.stem: _compile(path) for path in sorted(_BALANCERS.glob("*.yaml"))}
    job = {"module": _module(), "scenarios": list(scenarios), "programs": programs}
    done = check(_python(machine, "tests.nic.guest.main", stdin=json.dumps(job)))
    return dict(json.loads(line) for line in done.stdout.splitlines())


def _run_hardware(machine: Machine) -> Any:
    return json.loads(check(_python(machine, "tests.nic.guest.hardware", _module())).stdout)


def _python(machine: Machine, module: str, *arguments: str, stdin: str = "") -> Any:
    argv = ["python", "-m", module, *arguments]
    done = run_inside(machine, argv, stdin=stdin, directory=str(_REPOSITORY), timeout_s=_PART_TIMEOUT_S)
    sys.stderr.write(done.stderr)
    return done


def _module() -> str:
    return str(build_module(unpacked_kernel()))


def _compile(config: Path) -> str:
    # The console script beside this interpreter: what a user types.
    return run([str(Path(sys.executable).with_name("xenoovs")), "compile", str(config)], timeout_s=60.0).stdout


def main() -> None:
    """Do the parts named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=", ".join(PARTS))
    wanted = parser.parse_args().parts or list(PARTS)
    directory = Path(tempfile.mkdtemp(prefix="xenoovs-nic-")) / "run"
    started = time.monotonic()
    record_all(wanted, directory)
    print(f"{time.monotonic() - started:.0f} s; {directory}/result.json")


if __name__ == "__main__":
    main()

"""Boots the virtual machine with the emulated NIC, lets it run scenarios, and brings back their records.

`python -m tests.nic.vm [SCENARIO ...]` runs them (all of them by default) and prints the result file's path; as root.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.nic.build import build_initrd, build_module
from tests.nic.debian import Kernel, install_programs, unpacked_kernel
from tests.nic.guest.catalogue import SCENARIOS
from xenoovs.switch.process import run

_REPOSITORY = Path(__file__).parents[2]
_BALANCERS = Path(__file__).parent / "balancers"
# One boot takes 30 to 60 s, a scenario 5 to 20 s, on two cores without KVM; several times that when they are busy.
BOOT_TIMEOUT_S = 1500.0


class GuestFailed(Exception):
    """The virtual machine did not bring a result. The message ends with what its console said last."""


@dataclass(frozen=True, slots=True)
class Job:
    """What the guest is asked to do; travels as JSON. Paths are the host's, which the guest sees unchanged."""

    module: str
    kernel_root: str
    repository: str
    python: str
    scenarios: tuple[str, ...]
    programs: Mapping[str, str]


def run_scenarios(
    scenarios: Sequence[str], directory: Path, *, timeout_s: float = BOOT_TIMEOUT_S
) -> dict[str, dict[str, Any]]:
    """Boot once and run `scenarios`; a record of each, by name (`tests/nic/guest/record.py` says what is in it).

    `directory` is filled with the result and the console's text. Raises GuestFailed.
    """
    if os.geteuid() != 0:
        raise GuestFailed("the emulated NIC needs root: its virtual machine reads all files of this one")
    install_programs()
    kernel = unpacked_kernel()
    job = Job(
        module=str(build_module(kernel)),
        kernel_root=str(kernel.root),
        repository=str(_REPOSITORY),
        python=sys.executable,
        scenarios=tuple(scenarios),
        programs={path.stem: _compile(path) for path in sorted(_BALANCERS.glob("*.yaml"))},
    )
    exchange = directory / "exchange"
    exchange.mkdir(parents=True)
    (exchange / "job.json").write_text(json.dumps(asdict(job)))
    start = exchange / "start"
    start.write_text(_start_script(job))
    start.chmod(0o755)
    _boot(kernel, build_initrd(kernel, directory), exchange, console=directory / "console.log", timeout_s=timeout_s)
    result = exchange / "result.json"
    if not result.exists():
        raise GuestFailed(_last_words("the virtual machine ended without a result", directory / "console.log"))
    records: dict[str, dict[str, Any]] = json.loads(result.read_text())
    return records


def _compile(config: Path) -> str:
    # The console script beside this interpreter: what a user types.
    return run([str(Path(sys.executable).with_name("xenoovs")), "compile", str(config)], timeout_s=60.0).stdout


def _start_script(job: Job) -> str:
    # A new root has no environment: PATH for the OVS tools, the repository for the guest's own modules.
    return (
        "#!/bin/sh\n"
        "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
        "export HOME=/root PYTHONDONTWRITEBYTECODE=1\n"
        f"cd {shlex.quote(job.repository)} && exec {shlex.quote(job.python)} -m tests.nic.guest.main /mnt/job.json\n"
    )


def _boot(kernel: Kernel, initrd: Path, exchange: Path, *, console: Path, timeout_s: float) -> None:
    argv = ["qemu-system-x86_64", "-M", "q35", "-cpu", "max", "-smp", "2", "-m", "2048", "-nographic", "-no-reboot"]
    # Always emulated: /dev/kvm exists on many machines where a guest then hangs in its first instructions.
    argv += ["-accel", "tcg,thread=multi", "-net", "none"]
    argv += ["-kernel", str(kernel.image), "-initrd", str(initrd)]
    argv += ["-append", "console=ttyS0 quiet panic=-1 mitigations=off"]
    shared = "security_model=none,multidevs=remap"
    argv += ["-virtfs", f"local,path=/,mount_tag=host,readonly=on,{shared}"]
    argv += ["-virtfs", f"local,path={exchange},mount_tag=exchange,{shared}"]
    with console.open("wb") as log:
        # The console must not be the terminal's: QEMU would read from it and stop as a background process.
        machine = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            machine.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise GuestFailed(
                _last_words(f"the virtual machine was not done after {timeout_s:.0f} s", console)
            ) from None
        finally:
            if machine.poll() is None:
                machine.kill()
                machine.wait()


def _last_words(what: str, console: Path) -> str:
    lines = console.read_text(errors="replace").splitlines()
    return "\n".join([f"{what}; its console ({console}) said last:", *lines[-40:]])


def main() -> None:
    """Run the scenarios named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []], metavar="SCENARIO", help=", ".join(SCENARIOS))
    wanted = parser.parse_args().scenarios or list(SCENARIOS)
    directory = Path(tempfile.mkdtemp(prefix="xenoovs-nic-"))
    started = time.monotonic()
    records = run_scenarios(wanted, directory)
    for name, record in records.items():
        print(f"{name}: {record['error'] or 'recorded'} ({record['seconds']:.0f} s)")
    print(f"{time.monotonic() - started:.0f} s; {directory}/exchange/result.json")


if __name__ == "__main__":
    main()

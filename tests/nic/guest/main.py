"""Runs scenarios in the guest, one after the other: a name a line from stdin, a line of JSON each on stdout."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Mapping, MutableMapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.nic.guest.bench import Bench
from tests.nic.guest.catalogue import SCENARIOS
from tests.nic.guest.nic import load_nic, unload_nic
from tests.nic.guest.record import Record
from tests.nic.guest.wire import Wire
from xenoovs.lab.nic.guest.lab import wait_for_cores
from xenoovs.switch.process import run


def main() -> None:
    """Print the record of each scenario as soon as it is complete."""
    job = json.loads(sys.argv[1])
    wires = load_nic(job["module"])
    wait_for_cores()
    for line in sys.stdin:
        print(json.dumps(asdict(_run(line.strip(), wires, job))), flush=True)
    unload_nic(wires)


def _run(name: str, wires: MutableMapping[str, Wire], job: Mapping[str, Any]) -> Record:
    started = time.monotonic()
    # A full buffer of the kernel loses its first lines, so that a number of lines would name no place in it.
    run(["dmesg", "--clear"])
    bench = Bench(Path("/run/ovs") / name, wires, job["programs"], job["module"])
    try:
        SCENARIOS[name](bench)
    except Exception:  # noqa: BLE001 (the record carries it to the test, and the next scenario runs all the same)
        bench.record.error = traceback.format_exc()
    try:
        bench.close()
    except Exception:  # noqa: BLE001 (as above)
        bench.record.error = (bench.record.error or "") + traceback.format_exc()
    bench.record.kernel_log = run(["dmesg"]).stdout.splitlines()
    bench.record.seconds = time.monotonic() - started
    print(f"{time.monotonic():.0f} s: {name}: {'failed' if bench.record.error else 'recorded'}", file=sys.stderr)
    return bench.record


if __name__ == "__main__":
    main()

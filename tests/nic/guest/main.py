"""The first process of the guest after `init.sh`: prepares it, runs the scenarios one after the other, switches off."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.nic.guest.bench import Bench
from tests.nic.guest.catalogue import SCENARIOS
from tests.nic.guest.nic import load_nic
from tests.nic.guest.record import Record
from tests.nic.guest.wire import Wire
from xenoovs.switch.process import run

_MODULES = (
    *("openvswitch", "sch_ingress", "cls_flower", "act_mirred", "act_pedit", "act_gact", "act_csum", "act_skbedit"),
    *("act_vlan", "act_police", "act_tunnel_key", "act_ct", "veth"),
)
# ovs-vswitchd counts the cores anew ten seconds after the last time, and takes boot for a time at which it counted 0
# (lib/ovs-thread.c of 3.1, count_cpu_cores): started earlier it has no handlers, and loses all packets that miss.
_OVS_EARLIEST_S = 11.0
_POWER_OFF = 0x4321FEDC  # linux/reboot.h


def main() -> None:
    """Do what the job file named on the command line says."""
    job = json.loads(Path(sys.argv[1]).read_text())
    try:
        wires = _prepare(job)
        records = {name: asdict(_run(name, wires, job["programs"])) for name in job["scenarios"]}
        Path(sys.argv[1]).with_name("result.json").write_text(json.dumps(records))
        run(["rmmod", "eswitch"])
    except Exception:  # noqa: BLE001 (the machine must switch off whatever happened; the console has the reason)
        traceback.print_exc()
    sys.stdout.flush()
    os.sync()
    ctypes.CDLL(None).reboot(_POWER_OFF)


def _prepare(job: Mapping[str, Any]) -> dict[str, Wire]:
    _say("started")
    run(["mount", "-t", "tmpfs", "tmpfs", "/run"])
    run(["mount", "-t", "debugfs", "debugfs", "/sys/kernel/debug"])
    Path("/run/netns").mkdir()
    run(["ip", "link", "set", "lo", "up"])
    run(["sysctl", "-q", "-w", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"])
    run(["modprobe", "-d", job["kernel_root"], "-a", *_MODULES], timeout_s=120.0)
    wires = load_nic(job["module"])
    time.sleep(max(0.0, _OVS_EARLIEST_S - time.monotonic()))
    _say("the NIC is in place")
    return wires


def _run(name: str, wires: Mapping[str, Wire], programs: Mapping[str, str]) -> Record:
    started = time.monotonic()
    kernel_log = len(_kernel_log())
    bench = Bench(Path("/run/ovs") / name, wires, programs)
    try:
        SCENARIOS[name](bench)
    except Exception:  # noqa: BLE001 (the record carries it to the test, and the next scenario runs all the same)
        bench.record.error = traceback.format_exc()
    try:
        bench.close()
    except Exception:  # noqa: BLE001 (as above)
        bench.record.error = (bench.record.error or "") + traceback.format_exc()
    bench.record.kernel_log = _kernel_log()[kernel_log:]
    bench.record.seconds = time.monotonic() - started
    _say(f"{name}: {'failed' if bench.record.error else 'recorded'} in {bench.record.seconds:.0f} s")
    return bench.record


def _kernel_log() -> list[str]:
    return run(["dmesg"]).stdout.splitlines()


def _say(*words: Iterable[str] | str) -> None:
    print(f"nic: {time.monotonic():.0f} s:", *words, flush=True)


if __name__ == "__main__":
    main()

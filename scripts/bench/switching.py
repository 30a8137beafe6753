"""For how long the DPUs of a fleet disagree about the blocks that move: switching together, and each at once.

Twenty agents, each with a bridge of its own in one Open vSwitch, whose main thread commits one bundle after the other.
A monitor of flows (ovs-ofctl(8)) at each bridge notes when it changed. All of it is on one machine, so its load counts.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from itertools import cycle, islice
from pathlib import Path

from scripts.bench.measure import XENOOVS, Row
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, stop_private_ovs
from xenoovs.store.client import StoreClient
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import create_databases, server_of, start_server, stop_server

_DPUS, _CHANGES = 20, 20
_PATIENCE_S = 120.0
_CONFIG = """\
version: 1
switch: {bridge: b, ingress: [in], egress: out}
services:
  - name: dns
    vip: 10.3.10.45
    protocol: udp
    ports: [53]
    backends:
      - {name: fips2, mac: 02:00:5e:10:00:02, weight: 50}
      - {name: fips3, mac: 02:00:5e:10:00:03, weight: 30}
      - {name: fips4, mac: 02:00:5e:10:00:04, weight: 20}
"""
_TIME = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}): NXST_FLOW_MONITOR", re.MULTILINE)


def rows() -> Iterator[Row]:
    """Yield how far the first and the last bridge that changes are apart, and from the agreed time."""
    yield from _switching("at one moment", "2s", bound=0.02)
    yield from _switching("each at once", "0s", bound=None)


def _switching(name: str, switch_after: str, *, bound: float | None) -> Iterator[Row]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        # One for each fleet: an agent stores the last view beside it.
        ovs = start_private_ovs(directory / "ovs", datapath=Datapath.DUMMY)
        stack.callback(stop_private_ovs, ovs)
        notes = _start(switch_after, ovs, directory, stack)
        fleet = server_of(directory / "store", StoreDatabase.FLEET)
        store = stack.enter_context(StoreClient(fleet.remote))
        windows, late = list[float](), list[float]()
        for command in islice(cycle((("drain", "--yes"), ("reset",))), _CHANGES):
            begun_s = time.time()
            _fleet(directory, *command, "dns", "fips2")
            changed_s = [_changed_s(note, begun_s) for note in notes]
            windows.append(max(changed_s) - min(changed_s))
            view = store.view() or store.wait_changed(None, timeout_s=_PATIENCE_S)
            if view is not None and view.switch_at_ms:
                late += [each - view.switch_at_ms / 1000 for each in changed_s]
    title = f"fleet, {_DPUS} DPUs switch {name}"
    yield Row(f"{title}: first to last, p50", statistics.median(windows), "s", bound)
    yield Row("  worst", max(windows), "s")
    if late:
        yield Row("  from the agreed time to the change, p50", statistics.median(late), "s")
        yield Row("  worst", max(late), "s")
        yield Row("  earliest", min(late), "s")


def _start(switch_after: str, ovs: PrivateOvs, directory: Path, stack: ExitStack) -> list[Path]:
    """Start a fleet that has _CONFIG. Return a file for each DPU that notes the changes of its flows."""
    create_databases(directory / "store", name="bench")
    for database in StoreDatabase:
        files = server_of(directory / "store", database)
        stack.callback(stop_server, files)
        if reason := start_server(files):
            raise RuntimeError(reason)
    stack.enter_context(_running("fleet", "--directory", directory / "store", "serve", "--switch-after", switch_after))
    remotes = [server_of(directory / "store", each).remote for each in StoreDatabase]
    notes = []
    for number in range(1, _DPUS + 1):
        bridge = f"dpu{number}"
        ports = [word for port in "io" for word in ("--", "add-port", bridge, f"{port}{number}")]
        types = [word for port in "io" for word in ("--", "set", "interface", f"{port}{number}", "type=dummy")]
        kind = ("--", "set", "bridge", bridge, "datapath_type=dummy", "fail_mode=secure")
        ovs.vsctl("add-br", bridge, *kind, *ports, *types)
        config = directory / f"{bridge}.yaml"
        config.write_text(f"version: 1\nswitch: {{bridge: {bridge}, ingress: [i{number}], egress: o{number}}}\n")
        _fleet(directory, "add-dpu", bridge)
        fleet = ("--fleet", remotes[0], "--fleet-state", remotes[1], "--dpu", bridge)
        stack.enter_context(_running("agent", config, "--db", ovs.db, *fleet))
        notes.append(stack.enter_context(_monitor(ovs, bridge, directory)))
    (directory / "services.yaml").write_text(_CONFIG)
    _fleet(directory, "apply", directory / "services.yaml", "--now", "--yes", "--timeout", f"{_PATIENCE_S:g}s")
    return notes


@contextmanager
def _running(*arguments: object) -> Iterator[None]:
    null = subprocess.DEVNULL
    with subprocess.Popen([XENOOVS, *map(str, arguments)], stdin=null, stdout=null, stderr=null) as process:
        try:
            yield
        finally:
            process.terminate()


@contextmanager
def _monitor(ovs: PrivateOvs, bridge: str, directory: Path) -> Iterator[Path]:
    file = directory / f"{bridge}.changes"
    argv = ["ovs-ofctl", "--timestamp", "monitor", f"unix:{ovs.directory / bridge}.mgmt", "watch:"]
    with file.open("w") as out, subprocess.Popen(argv, stdout=out, stderr=out, env=ovs.env) as process:
        try:
            yield file
        finally:
            process.terminate()


def _fleet(directory: Path, command: str, *arguments: object) -> None:
    argv = [XENOOVS, "fleet", "--directory", str(directory / "store"), command, *map(str, arguments)]
    subprocess.run(argv, check=True, capture_output=True, env=os.environ)


def _changed_s(note: Path, begun_s: float) -> float:
    """Return when a bridge has changed first after a time; both in seconds since 1970."""
    end_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end_s:
        times = (datetime.fromisoformat(each).timestamp() for each in _TIME.findall(note.read_text()))
        if (changed_s := next((each for each in times if each >= begun_s), None)) is not None:
            return changed_s
        time.sleep(0.01)
    raise RuntimeError(f"a bridge has not changed within {_PATIENCE_S:g} s")

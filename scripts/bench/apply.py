"""From a config to a real bridge (dummy datapath), beside what ovs-ofctl takes for the same flows."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.bench.configs import large_config
from scripts.bench.measure import XENOOVS, Cost, Row, process
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, stop_private_ovs

_BACKENDS = 16


def rows() -> Iterator[Row]:
    """16,000 blocks to an empty bridge; nothing changed; one backend's MAC changed."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        ovs = start_private_ovs(directory / "ovs", datapath=Datapath.DUMMY)
        try:
            os.environ.update(ovs.env)
            yield from _measure(ovs, directory)
        finally:
            stop_private_ovs(ovs)


def _measure(ovs: PrivateOvs, directory: Path) -> Iterator[Row]:
    config = large_config(directory, backends=_BACKENDS)
    flows = directory / "flows.txt"
    flows.write_bytes(subprocess.run([XENOOVS, "compile", str(config)], check=True, stdout=subprocess.PIPE).stdout)
    compiled = process([XENOOVS, "compile", str(config)])
    raw = _on_fresh_bridge(ovs, ["ovs-ofctl", "-O", "OpenFlow14", "--bundle", "add-flows", "ovsbr1", str(flows)])
    applied = _on_fresh_bridge(ovs, [XENOOVS, "apply", str(config), "--yes", "--db", ovs.db])
    replaced = process(["ovs-ofctl", "-O", "OpenFlow14", "replace-flows", "ovsbr1", str(flows)])
    # Flows of replace-flows lose their cookie only if the text has none; put ours back to be sure of the start.
    process([XENOOVS, "apply", str(config), "--yes", "--db", ovs.db], runs=1)
    unchanged = process([XENOOVS, "apply", str(config), "--yes", "--db", ovs.db])
    yield Row("ovs-ofctl --bundle add-flows, the same flows", raw.wall_s, "s")
    yield Row("ovs-ofctl replace-flows, nothing changed", replaced.wall_s, "s")
    yield Row("xenoovs apply to an empty bridge", applied.wall_s, "s")
    yield Row("  / (ovs-ofctl add-flows + xenoovs compile)", applied.wall_s / (raw.wall_s + compiled.wall_s), "x", 1.3)
    yield Row("xenoovs apply, nothing changed", unchanged.wall_s, "s")
    yield _beyond_compile("  (that - compile) / replace-flows", unchanged, compiled, replaced, bound=0.7)
    changed = _alternate(ovs, directory, config)
    yield Row("xenoovs apply, one backend's MAC changed", changed.wall_s, "s")
    yield _beyond_compile("  (that - compile) / replace-flows", changed, compiled, replaced, bound=0.5)


def _beyond_compile(name: str, taken: Cost, compiled: Cost, replaced: Cost, *, bound: float) -> Row:
    return Row(name, (taken.wall_s - compiled.wall_s) / replaced.wall_s, "x", bound)


def _on_fresh_bridge(ovs: PrivateOvs, argv: list[str]) -> Cost:
    costs = []
    for _ in range(3):
        ovs.vsctl("--if-exists", "del-br", "ovsbr1")
        ports = [word for port in ("p0", "p1") for word in ("--", "add-port", "ovsbr1", port)]
        types = [word for port in ("p0", "p1") for word in ("--", "set", "interface", port, "type=dummy")]
        bridge = ["add-br", "ovsbr1", "--", "set", "bridge", "ovsbr1", "datapath-type=dummy", "fail-mode=secure"]
        ovs.vsctl(*bridge, *ports, *types)
        costs.append(process(argv, runs=1))
    return sorted(costs, key=lambda cost: cost.wall_s)[1]


def _alternate(ovs: PrivateOvs, directory: Path, config: Path) -> Cost:
    other = large_config(directory, backends=_BACKENDS, first_mac=0xFFFF00)
    costs = []
    for path in (other, config, other):
        costs.append(process([XENOOVS, "apply", str(path), "--yes", "--db", ovs.db], runs=1))
    return sorted(costs, key=lambda cost: cost.wall_s)[1]

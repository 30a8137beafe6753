"""From a config to a real bridge (dummy datapath), beside what ovs-ofctl takes for the same flows."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.configs import large_config
from scripts.bench.measure import XENOOVS, Row, process
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, stop_private_ovs

_ROUNDS = 5


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


@dataclass(frozen=True, slots=True)
class _Round:
    """Durations in seconds, all measured within one round, so that the machine is equally fast for each."""

    compiled: float
    added: float
    replaced: float
    applied: float
    unchanged: float
    changed: float


def _measure(ovs: PrivateOvs, directory: Path) -> Iterator[Row]:
    configs = _Configs(large_config(directory), large_config(directory, first_mac=0xFFFF00), directory / "flows.txt")
    flows = subprocess.run(
        [XENOOVS, "validate", "--flows", str(configs.first)], check=True, stdout=subprocess.PIPE
    ).stdout
    configs.flows.write_bytes(flows)
    rounds = [_round(ovs, configs) for _ in range(_ROUNDS)]
    yield _row("xenoovs validate --flows", rounds, lambda r: r.compiled, "s")
    yield _row("ovs-ofctl --bundle add-flows, the same flows", rounds, lambda r: r.added, "s")
    yield _row("ovs-ofctl replace-flows, nothing changed", rounds, lambda r: r.replaced, "s")
    yield _row("xenoovs apply to an empty bridge", rounds, lambda r: r.applied, "s")
    yield _row("  / (add-flows + compile)", rounds, lambda r: r.applied / (r.added + r.compiled), "x", 1.3)
    yield _row("xenoovs apply, nothing changed", rounds, lambda r: r.unchanged, "s")
    yield _row(
        "  (that - compile) / replace-flows", rounds, lambda r: (r.unchanged - r.compiled) / r.replaced, "x", 0.7
    )
    yield _row("xenoovs apply, one backend's MAC changed", rounds, lambda r: r.changed, "s")
    yield _row("  (that - compile) / replace-flows", rounds, lambda r: (r.changed - r.compiled) / r.replaced, "x", 0.5)


@dataclass(frozen=True, slots=True)
class _Configs:
    """`other` differs from `first` in one MAC; `flows` is `first` compiled."""

    first: Path
    other: Path
    flows: Path


def _round(ovs: PrivateOvs, configs: _Configs) -> _Round:
    apply = [XENOOVS, "apply", "--yes", "--db", ovs.db]
    compiled = _seconds([XENOOVS, "validate", "--flows", str(configs.first)])
    fresh_bridge(ovs)
    added = _seconds(["ovs-ofctl", "-O", "OpenFlow14", "--bundle", "add-flows", "ovsbr1", str(configs.flows)])
    replaced = _seconds(["ovs-ofctl", "-O", "OpenFlow14", "replace-flows", "ovsbr1", str(configs.flows)])
    fresh_bridge(ovs)
    applied = _seconds([*apply, str(configs.first)])
    unchanged = _seconds([*apply, str(configs.first)])
    changed = _seconds([*apply, str(configs.other)])
    return _Round(compiled, added, replaced, applied, unchanged, changed)


def _row(
    name: str, rounds: list[_Round], value: Callable[[_Round], float], unit: str, bound: float | None = None
) -> Row:
    return Row(name, statistics.median(map(value, rounds)), unit, bound)


def _seconds(argv: list[str]) -> float:
    return process(argv, runs=1).wall_s


def fresh_bridge(ovs: PrivateOvs) -> None:
    """Bridge ovsbr1 with dummy ports p0 and p1, and no flow."""
    ovs.vsctl("--if-exists", "del-br", "ovsbr1")
    ports = [word for port in ("p0", "p1") for word in ("--", "add-port", "ovsbr1", port)]
    types = [word for port in ("p0", "p1") for word in ("--", "set", "interface", port, "type=dummy")]
    bridge = ["add-br", "ovsbr1", "--", "set", "bridge", "ovsbr1", "datapath-type=dummy", "fail-mode=secure"]
    ovs.vsctl(*bridge, *ports, *types)

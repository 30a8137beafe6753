"""What a comparison with nothing to do costs the agent at 16,000 flows, its own CPU and that of others."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.bench.apply import fresh_bridge
from scripts.bench.configs import large_config
from scripts.bench.measure import Row
from xenoovs.agent.reconcile import Reconciler
from xenoovs.config.load import load_config
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, stop_private_ovs
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.live import LiveSwitch

_ROUNDS = 20
_INTERVAL_S = 10.0
"""Of the agent's --resync."""


def rows() -> Iterator[Row]:
    """Percent of a core at the default interval."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        ovs = start_private_ovs(directory / "ovs", datapath=Datapath.DUMMY)
        try:
            fresh_bridge(ovs)
            balancer = load_config(large_config(directory))
            reconciler = Reconciler(LiveSwitch(Endpoint(ovs.db, ovs.directory)))
            reconciler.round(balancer, {})
            before = _cpu_s(ovs)
            for _ in range(_ROUNDS):
                reconciler.round(balancer, {})
            ours, daemon = (after - first for after, first in zip(_cpu_s(ovs), before, strict=True))
            yield Row("agent and ovs-ofctl, nothing to do", 100 * ours / _ROUNDS / _INTERVAL_S, "%", 1.0)
            yield Row("ovs-vswitchd meanwhile", 100 * daemon / _ROUNDS / _INTERVAL_S, "%")
        finally:
            stop_private_ovs(ovs)


def _cpu_s(ovs: PrivateOvs) -> tuple[float, float]:
    """Of this process with the programs that it ran, and of ovs-vswitchd (proc(5), stat, fields 14 and 15)."""
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    fields = Path(f"/proc/{ovs.pids()[0]}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return sum(usage.ru_utime + usage.ru_stime for usage in own), ticks / os.sysconf("SC_CLK_TCK")

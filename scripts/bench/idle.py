"""The CPU of the agent and of ovs-vswitchd for a comparison without changes at 16,000 flows."""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts.bench.apply import fresh_bridge
from scripts.bench.configs import large_config
from scripts.bench.measure import Row
from xenoovs.agent.offload import OffloadSampler, RuleUse
from xenoovs.agent.state import AgentState, RoundFacts
from xenoovs.agent.state_store import StateStore
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.engine import Engine
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, stop_private_ovs
from xenoovs.model.load import load_config
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch

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
            endpoint = Endpoint(ovs.db, ovs.directory)
            engine = Engine(ManagementSwitch(endpoint))
            own, daemon = _percent(ovs, lambda: engine.round(DesiredState(balancer), now_s=time.monotonic()))
            yield Row("agent and ovs-ofctl, nothing to do", own, "%", 1.0)
            yield Row("ovs-vswitchd meanwhile", daemon, "%")
            store = StateStore(AgentState(balancer, balancer))
            store.dispatch(RoundFacts(engine.program))
            watch = OffloadSampler(store, engine.switch, RuleUse.at(endpoint))
            yield Row("with metrics or page: samples of an idle datapath", _percent(ovs, watch.sample)[0], "%", 0.5)
        finally:
            stop_private_ovs(ovs)


def _percent(ovs: PrivateOvs, work: Callable[[], object]) -> tuple[float, float]:
    """Return the CPU of this process and of ovs-vswitchd when `work` runs at the interval, in percent of a core."""
    work()
    before = _cpu_s(ovs)
    for _ in range(_ROUNDS):
        work()
    own, daemon = (after - first for after, first in zip(_cpu_s(ovs), before, strict=True))
    return 100 * own / _ROUNDS / _INTERVAL_S, 100 * daemon / _ROUNDS / _INTERVAL_S


def _cpu_s(ovs: PrivateOvs) -> tuple[float, float]:
    """Of this process with the programs that it ran, and of ovs-vswitchd (proc(5), stat, fields 14 and 15)."""
    usages = [resource.getrusage(target) for target in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    fields = Path(f"/proc/{ovs.pids()[0]}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return sum(usage.ru_utime + usage.ru_stime for usage in usages), ticks / os.sysconf("SC_CLK_TCK")

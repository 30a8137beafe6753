"""Small changes and dumps at the management socket, beside runs of ovs-ofctl, with and without flows of a drain."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts.bench.apply import fresh_bridge
from scripts.bench.configs import large_config
from scripts.bench.measure import Row, function
from xenoovs.compile.pipeline import DrainPriority, Stage, cookie_of, of_service
from xenoovs.compile.program import compile_config
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, stop_private_ovs
from xenoovs.model.load import load_config
from xenoovs.openflow.flow import (
    ETH_IPV4,
    OURS,
    Bundle,
    Command,
    CookieMask,
    Field,
    Flow,
    FlowKey,
    FlowMod,
    exact,
    match_of,
    service_of,
)
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch, Ofctl

_ROUNDS = 20
_BRIDGE, _FLOWS, _LEARNED = "ovsbr1", 50, 16_100


def rows() -> Iterator[Row]:
    """Both ways in turn, so that their ratio holds on any machine."""
    with tempfile.TemporaryDirectory() as name:
        ovs = start_private_ovs(Path(name) / "ovs", datapath=Datapath.DUMMY)
        try:
            fresh_bridge(ovs)
            config = large_config(Path(name), services=1, backends=64)
            yield from _measure(ovs, compile_config(load_config(config)).flows[-_FLOWS:])
        finally:
            stop_private_ovs(ovs)


def _measure(ovs: PrivateOvs, flows: tuple[Flow, ...]) -> Iterator[Row]:
    endpoint = Endpoint(ovs.db, ovs.directory)
    switch, ofctl = ManagementSwitch(endpoint), Ofctl(endpoint)
    few, service = _add(flows), service_of(flows[-1].cookie)
    (own,) = OURS
    all_of_service = CookieMask(own.value | service, own.mask | 0xFFFFFFFF)
    for learned in (0, _LEARNED):
        switch.apply(_BRIDGE, _add(_learned(number, service) for number in range(learned)))
        suffix = f", {learned:,} flows of a drain" if learned else ""
        yield from _compare(
            f"a bundle of {len(few)} flow-mods{suffix}",
            lambda: ofctl.apply(_BRIDGE, few),
            lambda: switch.apply(_BRIDGE, few),
        )
        yield from _compare(
            f"the {len(few)} flows of a service{suffix}",
            lambda: ofctl.dump_flow_text(_BRIDGE, all_of_service),
            lambda: switch.dump_flow_text(_BRIDGE, only=of_service(service)),
        )


def _compare(name: str, theirs: Callable[[], object], mine: Callable[[], object]) -> Iterator[Row]:
    durations = [(function(theirs, runs=1), function(mine, runs=1)) for _ in range(_ROUNDS)]
    by_ofctl, by_socket = (1000 * statistics.median(column) for column in zip(*durations, strict=True))
    yield Row(f"ovs-ofctl: {name}", by_ofctl, "ms")
    yield Row("  at the management socket", by_socket, "ms")
    yield Row("  / ovs-ofctl", by_socket / by_ofctl, "x", 0.25)


def _add(flows: Iterator[Flow] | tuple[Flow, ...]) -> Bundle:
    return Bundle(tuple(FlowMod(Command.ADD, flow) for flow in flows))


def _learned(number: int, service: int) -> Flow:
    """The flow of one connection."""
    conditions = (exact(Field.DL_TYPE, ETH_IPV4), exact(Field.NW_SRC, 0x0A000000 + number))
    key = FlowKey(Stage.LEARNED.table, DrainPriority.LEARNED.value, match_of(conditions))
    return Flow(key, cookie_of(Stage.LEARNED, service), ())

"""Checks of the bridge: datapath, who else commands it, and whose flows our packets pass."""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.datapath.host import Bridge, Unknown
from xenoovs.errors.words import counted, worded
from xenoovs.verify.doctor.case import Case, Cost, ForeignFlows
from xenoovs.verify.doctor.check import Check, Fix, State, vsctl

_SHOWN = 3


def check_bridge(case: Case) -> Iterator[Check]:
    database = case.database
    if database is None or case.wanted is None:
        return
    name, why = case.wanted.bridge, "flows live on a bridge"
    if database.bridge(name) is not None:
        yield Check("bridge", State.OK, "exists", why, subject=name)
        return
    present = ", ".join(bridge.name for bridge in database.bridges) or "none"
    fix = Fix((vsctl("add-br", name),))
    yield Check("bridge", State.WRONG, f"does not exist; bridges here: {present}", why, subject=name, fix=fix)


def check_datapath_type(case: Case) -> Iterator[Check]:
    why = "the kernel's datapath offloads by TC, the userspace one by DPDK or DOCA ports, others not at all"
    for bridge in case.bridges:
        state, seen = _datapath(bridge, frozenset(case.ports))
        yield Check("datapath", state, seen, why, subject=bridge.name)


def _datapath(bridge: Bridge, ports: frozenset[str]) -> tuple[State, str]:
    kind = bridge.datapath_type
    if kind == "system":
        return State.OK, "system: the kernel's, offload by TC"
    if kind not in ("netdev", "doca"):
        return State.WRONG, f"{kind}: no NIC takes part"
    fast = ("dpdk", "doca", "dpdkvhostuserclient")
    slow = sorted(i.name for i in bridge.interfaces if i.name in ports and i.type not in fast)
    if slow:
        names = ", ".join(slow)
        what = f"{names} is no DPDK or DOCA port" if len(slow) == 1 else f"{names} are no DPDK or DOCA ports"
        return State.WRONG, f"{kind}: userspace, but {what}; all of it is software"
    return State.OK, f"{kind}: userspace, ports of DPDK or DOCA"


def check_controllers(case: Case) -> Iterator[Check]:
    why = "two that both write flows undo each other's work, and ours"
    for bridge in case.bridges:
        targets = ", ".join(controller.target for controller in bridge.controllers)
        writers = [c for c in bridge.controllers if c.is_connected and c.role not in ("slave", "secondary")]
        if len(writers) > 1:
            state, seen = State.WRONG, f"{len(writers)} are connected and may write: {targets}"
        elif len(bridge.controllers) > 1:
            state, seen = State.UNKNOWN, f"{len(bridge.controllers)} are set, {len(writers)} may write now: {targets}"
        elif bridge.controllers:
            state, seen = State.OK, f"one: {targets}; it may change our flows"
        else:
            state, seen = State.OK, "none"
        if bridge.controllers and case.is_stale:
            state, seen = State.UNKNOWN, f"{seen}, as ovs-vswitchd last wrote"
        yield Check("controllers", state, seen, why, subject=bridge.name)


def check_fail_mode(case: Case) -> Iterator[Check]:
    """fail_mode of ovs-vswitchd.conf.db(5): standalone takes the bridge over when its controllers are silent."""
    why = "decides what happens to packets while no controller answers or, after a restart, no flow is there yet"
    for bridge in case.bridges:
        if bridge.fail_mode == "secure":
            yield Check("fail-mode", State.OK, "secure: without flows nothing is forwarded", why, subject=bridge.name)
        elif bridge.controllers:
            seen = "standalone, with a controller: when it is silent, our flows are bypassed by a learning switch"
            fix = Fix((vsctl("set-fail-mode", bridge.name, "secure"),))
            yield Check("fail-mode", State.WRONG, seen, why, subject=bridge.name, fix=fix)
        else:
            seen = "standalone, no controller: a learning switch after a restart, until flows are applied"
            yield Check("fail-mode", State.OK, seen, why, subject=bridge.name)


def check_foreign_flows(case: Case) -> Iterator[Check]:
    if case.wanted is None or not case.bridges:
        return
    name, why = "flows of others", "flows that our packets pass first add their masks to our megaflows, or take packets"
    foreign = case.wanted.foreign
    if isinstance(foreign, Unknown):
        yield Check(name, State.UNKNOWN, foreign.reason, why, subject=case.wanted.bridge)
        return
    state, seen = _foreign(foreign)
    yield Check(name, state, seen, why, subject=case.wanted.bridge, fix=_look(case.wanted.bridge, foreign))


def _foreign(foreign: ForeignFlows) -> tuple[State, str]:
    if not foreign.passed:
        return State.OK, f"none on the way of our packets, {foreign.others} elsewhere"
    shown = "; ".join(foreign.passed[:_SHOWN]) + ("; ..." if len(foreign.passed) > _SHOWN else "")
    told = f"{len(foreign.passed)} on the way of our packets: {shown}"
    if foreign.varying:
        fields = ", ".join(foreign.varying)
        return State.WRONG, f"{told}; each value of {fields} that clients send takes hardware entries of its own"
    if isinstance(foreign.cost, Unknown):
        return State.UNKNOWN, f"{told}; their cost is not known: {foreign.cost.reason}"
    return (State.OK if _is_harmless(foreign.cost) else State.WRONG), f"{told}; {_cost(foreign.cost)}"


def _is_harmless(cost: Cost) -> bool:
    return cost.beside <= cost.alone and not cost.taken


def _cost(cost: Cost) -> str:
    entries = f"{counted(cost.beside, 'hardware entry', 'hardware entries')} instead of {cost.alone}"
    alone = counted(cost.alone, "hardware entry", "hardware entries")
    go = worded(cost.taken, "goes", "go")
    taken = f", {cost.taken} of {counted(cost.packets, 'packet')} {go} elsewhere" if cost.taken else ""
    return (entries if cost.beside != cost.alone else f"{alone}, none more") + taken


def _look(bridge: str, foreign: ForeignFlows) -> Fix | None:
    # Whether they may go is their owner's to say: the command only shows them.
    return Fix((("ovs-ofctl", "--names", "dump-flows", bridge),)) if foreign.passed else None

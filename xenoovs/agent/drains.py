"""Drains from round to round: what is to be on the bridge now, and when to look again."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from xenoovs.compile.drain import Situation, settle_s, with_drains
from xenoovs.compile.draining import Draining, Rests, drains_of
from xenoovs.compile.holding import is_learned
from xenoovs.compile.program import Outages, Program
from xenoovs.datapath.megaflow import MAX_IDLE_S
from xenoovs.model.drain import DrainMode
from xenoovs.openflow.flow import Flow, ObservedFlow
from xenoovs.switch.api import BridgeState, Switch

_LOOK_S = 1.0
"""Between two looks at the counters of a drain, which Open vSwitch brings up to date about twice a second."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a round knows. `known`: the flows that the last one left; None: those on the bridge are to be believed."""

    bridge: str
    out: Outages
    known: Collection[Flow] | None
    now_s: float


class Drains:
    """The drains of one bridge. The switch remembers them; only since when an old backend rests is known here."""

    def __init__(self, switch: Switch, *, describe: Callable[[str], BridgeState] | None = None) -> None:
        """`describe`: as that of the switch, which it is unless given."""
        self._switch, self._describe = switch, describe or switch.describe
        self._rests = Rests()

    def program(self, target: Program, look: Look) -> tuple[Program, tuple[tuple[Draining, ...], float | None]]:
        """What is to be on the bridge now on the way to `target`; the drains, and after how long to look again."""
        if not any(service.service.drain.mode is DrainMode.PIN for service in target.services):
            return target, ((), None)
        seen = self._switch.dump_flows(look.bridge)
        held = seen if look.known is None else _with_counters(look.known, seen)
        self._rests = self._rests.after(held, now_s=look.now_s)
        resting = self._rests.resting(target, now_s=look.now_s)
        bridge = self._describe(look.bridge)
        settling_s = settle_s(bridge.max_revalidator_ms)
        situation = Situation(bridge.ofports, look.out, resting, settling_s)
        program = with_drains(target, held, situation)
        idle_s = MAX_IDLE_S if bridge.max_idle_ms is None else bridge.max_idle_ms / 1000
        drains = drains_of(program, held, settle_s=settling_s, idle_s=idle_s)
        return program, (drains, _look_s(drains) if drains else None)


def _look_s(drains: tuple[Draining, ...]) -> float:
    """The seconds after which something is to be done, or to be looked at."""
    return min((_LOOK_S, *(each.left_s for each in drains), *(each.settles_s or _LOOK_S for each in drains)))


def _with_counters(known: Collection[Flow], seen: tuple[ObservedFlow, ...]) -> tuple[ObservedFlow, ...]:
    """Our flows as we left them, whatever others did since, and what was learned."""
    there = {each.flow.key: each for each in seen}
    ours = (
        replace(there[flow.key], flow=flow) if flow.key in there else ObservedFlow(flow, 0, 0, 0.0) for flow in known
    )
    return (*ours, *(each for each in seen if is_learned(each.flow)))

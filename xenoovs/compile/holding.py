"""What a switch has of a service while blocks move: who has which clients, who gets them, and since when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xenoovs.compile.key import key_bits
from xenoovs.compile.movement import is_pinned, stage_number
from xenoovs.compile.next_hop import hop_of
from xenoovs.compile.pipeline import OUTPUT_PORT, Stage
from xenoovs.model.next_hop import NextHop
from xenoovs.openflow.action import Learn, Output, SetField
from xenoovs.openflow.cookie import service_of
from xenoovs.openflow.field import Field
from xenoovs.openflow.flow import Flow, ObservedFlow

Area = tuple[int, int, int]
"""Service id, value and mask of key bits: one block on a switch."""


@dataclass(frozen=True, slots=True)
class Holding:
    """One block on the switch. `old`: who has its open connections; `new`: who gets its new ones.

    Both are the same where the block does not move; None: nobody, or it is not known. age_s: of the drain.
    old_packets: packets that others than `new` got because of the drain.
    has_settled: whether new connections go to `new` already.
    """

    area: Area
    old: NextHop | None
    new: NextHop | None
    is_pinned: bool = False
    age_s: float = 0.0
    old_packets: int = 0
    has_settled: bool = False


def holdings_of(observed: Iterable[ObservedFlow]) -> dict[int, tuple[Holding, ...]]:
    """The blocks of each service, by its id; of two IP families the first stands for both."""
    seen = tuple(observed)
    reading = _Reading(seen)
    found = defaultdict[int, dict[Area, Holding]](dict)
    for each in sorted(reading.of_stage(Stage.BALANCE), key=lambda each: _family(each.flow)):
        area = area_of(each.flow)
        found[area[0]].setdefault(area, reading.holding(each, area))
    return {service: tuple(holdings.values()) for service, holdings in found.items()}


def area_of(flow: Flow) -> Area:
    """The block that a flow is about."""
    return (service_of(flow.cookie), *key_bits(flow))


def is_learned(flow: Flow) -> bool:
    """Whether Open vSwitch itself has added it for a connection."""
    return stage_number(flow) == Stage.LEARNED.value


def is_in_pin(flow: Flow) -> bool:
    """Whether packets of blocks that move meet it."""
    return stage_number(flow) in (Stage.PIN.value, Stage.LEARNED.value)


def is_of_drain(flow: Flow) -> bool:
    """Whether it is there because of a drain."""
    return stage_number(flow) in (Stage.PIN.value, Stage.NEXT.value, Stage.LEARNED.value)


def ports_told(flows: Iterable[Flow]) -> Mapping[str, int]:
    """The ports that flows of drains name, with their OpenFlow numbers; 0 where no flow tells it."""
    found: dict[str, int] = {}
    for flow in flows:
        if stage_number(flow) in (Stage.PIN.value, Stage.NEXT.value):
            numbers = [a.value for a in flow.actions if isinstance(a, SetField) and a.field is OUTPUT_PORT]
            for name in (action.port for action in flow.actions if isinstance(action, Output)):
                found[name] = numbers[0] if numbers else found.get(name, 0)
    return found


class _Reading:
    """The flows of all drains by block."""

    def __init__(self, seen: tuple[ObservedFlow, ...]) -> None:
        self._seen = seen
        pinned = self.of_stage(Stage.PIN)
        self._opens = _by_area(each for each in pinned if _learns(each.flow))
        self._stays = _by_area(each for each in pinned if not _learns(each.flow))
        self._next = _by_area(self.of_stage(Stage.NEXT))
        self._learned = defaultdict[int, list[ObservedFlow]](list)
        for each in self.of_stage(Stage.LEARNED):
            self._learned[service_of(each.flow.cookie)].append(each)

    def of_stage(self, stage: Stage) -> list[ObservedFlow]:
        return [each for each in self._seen if stage_number(each.flow) == stage.value]

    def holding(self, each: ObservedFlow, area: Area) -> Holding:
        if not is_pinned(each.flow):
            hop = hop_of(each.flow.actions)
            return Holding(area, hop, hop)
        stays, later = self._stays.get(area, []), self._next.get(area, [])
        new = hop_of(later[0].flow.actions) if later else None
        return Holding(
            area,
            hop_of(stays[0].flow.actions) if stays else None,
            new,
            is_pinned=True,
            age_s=min((flow.duration_s for flow in later), default=0.0),
            old_packets=sum(flow.packets for flow in (*stays, *self._learned_before(area, new))),
            has_settled=new in {hop_of(each.flow.actions) for each in self._opens.get(area, ())},
        )

    def _learned_before(self, area: Area, new: NextHop | None) -> list[ObservedFlow]:
        """Connections of the block that were opened to a backend which the block has left since."""
        service, value, mask = area
        inside = (flow for flow in self._learned.get(service, ()) if key_bits(flow.flow)[0] & mask == value)
        return [flow for flow in inside if hop_of(flow.flow.actions) != new]


def _by_area(seen: Iterable[ObservedFlow]) -> Mapping[Area, list[ObservedFlow]]:
    found = defaultdict[Area, list[ObservedFlow]](list)
    for each in seen:
        found[area_of(each.flow)].append(each)
    return found


def _learns(flow: Flow) -> bool:
    return any(isinstance(action, Learn) for action in flow.actions)


def _family(flow: Flow) -> int:
    dl_type = flow.match.get(Field.DL_TYPE)
    return 0 if dl_type is None else dl_type.value

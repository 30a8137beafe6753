"""Suspects of why beside the flows of others: what each megaflow matches beyond ours, and who looks there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from xenoovs.datapath.match import match_of
from xenoovs.datapath.value import MaskedValue
from xenoovs.openflow.flow import Flow
from xenoovs.verify.diagnose import Lineup, Suspect
from xenoovs.verify.join import BlockIndex, Place
from xenoovs.verify.why.case import Widened
from xenoovs.verify.widened import ExtraBits, OwnMask, WideningCounter, widened_by

ReadFlows = Callable[[], tuple[Flow, ...] | None]
"""The flows of others; None: there are none to read, as beside a dump alone."""

_Key = tuple[str, str | None, ExtraBits, frozenset[str]]


@dataclass(slots=True)
class Blame:
    """Names who widened what. `read_foreign` is called once, and only where a megaflow is wider than ours make it."""

    index: BlockIndex
    bridge: str
    own_mask: OwnMask
    read_foreign: ReadFlows
    _found: dict[_Key, Widened] = field(default_factory=dict)
    _foreign: list[tuple[Flow, ...] | None] = field(default_factory=list)

    def told(self, lineup: Lineup) -> Lineup:
        """The same lineup, with what widened each suspect. Raises what `read_foreign` does."""
        counter = WideningCounter(self.own_mask)
        return replace(lineup, suspects=tuple(self._blamed(suspect, counter) for suspect in lineup.suspects))

    def _blamed(self, suspect: Suspect, counter: WideningCounter) -> Suspect:
        fields = match_of(suspect.megaflow)
        located = self.index.locate(suspect.megaflow.in_port, fields)
        if located is None:
            return suspect
        place, block = located
        extra = counter.extra_of(suspect.megaflow, fields, place, block)
        return replace(suspect, widened=self._widened(extra, fields, place)) if extra else suspect

    def _widened(self, extra: ExtraBits, fields: Mapping[str, MaskedValue], place: Place) -> Widened:
        service, in_port = place.service, place.service.entries[place.entry].in_port
        added = frozenset(name for name, bits in extra if fields[name].mask == bits)
        key = service.name, in_port, extra, added
        found = self._found.get(key)
        if found is None:
            foreign = self._flows()
            flows = None if foreign is None else widened_by(extra, foreign, service=service, in_port=in_port)
            found = self._found[key] = Widened(self.bridge, extra, added, flows)
        return found

    def _flows(self) -> tuple[Flow, ...] | None:
        if not self._foreign:
            self._foreign.append(self.read_foreign())
        return self._foreign[0]

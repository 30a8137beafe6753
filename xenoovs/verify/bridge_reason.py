"""Why a megaflow of any bridge is not in hardware, in some words: the best of the reasons that its dump shows."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from functools import lru_cache

from xenoovs.compile.offloadable.check import Offloadability, check_megaflow
from xenoovs.compile.offloadable.table import DEFAULT_VERSION, Profile, TopicKind, Version
from xenoovs.datapath.megaflow import Megaflow, Verdict, attributes_of
from xenoovs.verify.chains import is_hop
from xenoovs.verify.check import reason_of
from xenoovs.verify.why.case import MINIFLOW
from xenoovs.verify.why.flows import explains

WITHOUT_CHAINS = "recirculation: the kernel lacks CONFIG_NET_TC_SKB_EXT"
_USERSPACE = "userspace datapath: a NIC forwards only for ports of type dpdk or doca"

_MAX_SHAPES = 4096
_EXPLAINED = (Verdict.SW, Verdict.TC_SW, Verdict.PARTIAL)


@dataclass(slots=True)
class ReasonFinder:
    """Finds reasons, those of similar megaflows once.

    Attributes:
        version: of Open vSwitch.
        has_tc_chains: as KernelFacts has it; None: unknown.
        internal_ports: names of bridges and of their internal ports.
    """

    version: Version = DEFAULT_VERSION
    has_tc_chains: bool | None = None
    internal_ports: Set[str] = frozenset()
    _known: dict[object, str] = field(default_factory=dict)

    def find(self, megaflow: Megaflow, verdict: Verdict) -> str:
        """Return the reason for this verdict; empty if nothing shows one.

        The order: the reason of the datapath, the slow path, the kind of datapath, the kernel, the offload table.
        """
        reason = reason_of(megaflow)
        if reason:
            return reason
        if verdict is Verdict.SW and any(name == MINIFLOW for name, _ in megaflow.extra):
            return _USERSPACE
        if verdict not in _EXPLAINED:
            return ""
        if self.has_tc_chains is False and is_hop(megaflow):
            return WITHOUT_CHAINS
        shape = _shape_of(megaflow), verdict
        if shape not in self._known:
            # A dump whose megaflows all differ must not take minutes.
            if len(self._known) >= _MAX_SHAPES:
                return ""
            self._known[shape] = self._by_table(megaflow, verdict)
        return self._known[shape]

    def _by_table(self, megaflow: Megaflow, verdict: Verdict) -> str:
        ports = {port for port in (megaflow.in_port or "", *megaflow.actions) if port in self.internal_ports}
        is_userspace = any(name == MINIFLOW for name, _ in megaflow.extra)
        profile = Profile.DPDK if is_userspace else Profile.TC
        found = check_megaflow(megaflow, profile, self.version, internal_ports=ports)
        found = tuple(one for one in found if explains(one, verdict))
        certain = next((one for one in found if one.offload.is_software), None)
        if certain is not None:
            return _words(certain)
        # The actions of a megaflow are stronger evidence than its match.
        likely = sorted(found, key=lambda one: one.topic.kind is TopicKind.MATCH)
        return f"perhaps {_words(likely[0])}" if likely else ""


def _words(found: Offloadability) -> str:
    what = found.topic.what
    return what[0].lower() + what[1:] if what[1:2].islower() else what


def _shape_of(megaflow: Megaflow) -> object:
    """Return what of a megaflow decides about its rows of the table, without values that differ from flow to flow."""
    keys = tuple(
        (key.name, key.inner if key.name in ("ct_state", "eth_type") else _shown(key.inner)) for key in megaflow.keys
    )
    actions = tuple(action.partition("=")[0].partition("(0x")[0] for action in megaflow.actions)
    return keys, actions


@lru_cache(maxsize=8192)
def _shown(inner: str) -> tuple[tuple[str, str], ...]:
    """Return the names of attributes with their masks, and with values that are words."""
    return tuple(
        (name, value.rpartition("/")[2] if "/" in value else "" if value[:1].isalnum() and value != "later" else value)
        for name, value in attributes_of(inner).items()
    )

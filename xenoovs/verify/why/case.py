"""What is known of one megaflow that is not in hardware, and of the host that it is on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from xenoovs.datapath.host import Bridge, Database, Device, HostFacts, Interface, OffloadHistory, OffloadState, Unknown
from xenoovs.datapath.megaflow import Megaflow, Verdict
from xenoovs.datapath.tc import TcFilter, cookie_of_ufid
from xenoovs.openflow.flow import Flow
from xenoovs.verify.commands import HERE, Where
from xenoovs.verify.expected import ExpectedBlock
from xenoovs.verify.why.log import Refusal

Shape = tuple[str | None, tuple[tuple[str, str], ...], tuple[str, ...]]
"""Ingress port, keys with what is matched of them, kinds of actions: what a driver looks at before the values."""


@dataclass(frozen=True, slots=True)
class DriverAnswer:
    """The kernel's answer to the rule of a megaflow, tried for hardware alone.

    error: errno(3), e.g. 28 for ENOSPC; None: it was accepted. text: of errno, by strerror(3).
    words: the driver's own, from the extended acknowledgement; None: it gave none.
    """

    error: int | None
    text: str = ""
    words: str | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What all megaflows of one look share.

    filters:     by cookie (`datapath.tc.cookie_of_ufid`). refusals: what ovs-vswitchd logged.
    driver:      ufid -> what the driver said, for megaflows that were tried.
    in_hardware: shapes of which at least one megaflow is in hardware.
    where:       how commands that mend reach this Open vSwitch.
    """

    host: HostFacts
    filters: Mapping[str, TcFilter] = field(default_factory=dict, hash=False)
    refusals: tuple[Refusal, ...] = ()
    driver: Mapping[str, DriverAnswer] = field(default_factory=dict, hash=False)
    in_hardware: frozenset[Shape] = frozenset()
    where: Where = HERE

    @property
    def database(self) -> Database | None:
        return None if isinstance(self.host.database, Unknown) else self.host.database

    @property
    def version(self) -> str | None:
        """Of Open vSwitch, as it prints it."""
        return None if isinstance(self.host.daemon, Unknown) else self.host.daemon.version

    @property
    def offload(self) -> OffloadState | None:
        """Of the ovs-vswitchd that runs; None: not known."""
        daemon = self.host.daemon
        return None if isinstance(daemon, Unknown) or isinstance(daemon.offload, Unknown) else daemon.offload

    @property
    def history(self) -> OffloadHistory | None:
        """What it has done about offload; None: not known."""
        daemon = self.host.daemon
        return None if isinstance(daemon, Unknown) or isinstance(daemon.history, Unknown) else daemon.history

    @property
    def tc_policy(self) -> str | None:
        """The one in use; where the log does not tell it, the one that is set."""
        in_use = self.history.tc_policy if self.history is not None else None
        wanted = self.database.config.get("tc-policy") if self.database is not None else None
        return in_use or wanted

    def device(self, name: str | None) -> Device | None:
        return None if isinstance(self.host.devices, Unknown) or name is None else self.host.devices.get(name)


@dataclass(frozen=True, slots=True)
class Widened:
    """What a megaflow matches beyond the flows of its service.

    fields: name of the field and the bits at which none of ours looks.
    added:  names of those of which ours see no bit at all.
    flows:  the flows of others that look there, on `bridge`; empty: none does now; None: no flows were read.
    """

    bridge: str
    fields: tuple[tuple[str, int], ...]
    added: frozenset[str]
    flows: tuple[Flow, ...] | None


@dataclass(frozen=True, slots=True)
class Case:
    """One megaflow that is not in hardware.

    block:   the block whose packets it carries; None: of no service.
    widened: None: our flows look at all bits of its mask, or that was not looked at.
    """

    megaflow: Megaflow
    verdict: Verdict
    block: ExpectedBlock | None
    evidence: Evidence
    widened: Widened | None = None

    @property
    def in_port(self) -> str | None:
        return self.megaflow.in_port

    @property
    def bridge(self) -> Bridge | None:
        """The bridge that the packets came in by, as far as it is known."""
        database = self.evidence.database
        return None if database is None or self.in_port is None else database.home_of(self.in_port)

    @property
    def interface(self) -> Interface | None:
        bridge = self.bridge
        return None if bridge is None or self.in_port is None else bridge.interface(self.in_port)

    @property
    def is_kernel(self) -> bool:
        """Whether it is of the kernel's datapath; where no bridge is known, as for a tunnel, as far as `dp:` tells."""
        bridge = self.bridge
        return bridge.datapath_type == "system" if bridge is not None else self.verdict is Verdict.TC_SW

    @property
    def filter(self) -> TcFilter | None:
        """The rule of traffic control that stands for it."""
        cookie = cookie_of_ufid(self.megaflow.ufid) if self.megaflow.ufid else None
        return None if cookie is None else self.evidence.filters.get(cookie)

    @property
    def egress(self) -> tuple[str, ...]:
        """Ports among the actions."""
        return tuple(action for action in self.megaflow.actions if "(" not in action and action not in _WORDS)


_WORDS = frozenset(("drop", "pop_vlan", "ct_clear", "pop_eth", "pop_nsh", "ct"))
"""Actions that are one word and no port (format_odp_action of lib/odp-util.c)."""


def shape_of(megaflow: Megaflow) -> Shape:
    """What the megaflow has in common with others that a driver treats alike."""
    keys = sorted((key.name, _matched(key.inner)) for key in megaflow.keys)
    return megaflow.in_port, tuple(keys), tuple(action.partition("=")[0] for action in megaflow.actions)


@lru_cache(maxsize=8192)
def _matched(inner: str) -> str:
    """The attributes of a key of which at least one bit is matched; addresses under any mask are alike."""
    items = (item.partition("=") if "=" in item else ("", "=", item) for item in inner.split(","))
    return ",".join(name or "value" for name, _, text in items if _is_matched(text))


def _is_matched(text: str) -> bool:
    _, is_masked, mask = text.partition("/")
    return not is_masked or any(digit not in ".:0x" for digit in mask)

"""What is known about one megaflow that is not in hardware."""

from __future__ import annotations

from functools import lru_cache

from xenoovs.compile.offloadable.table import Profile, Version, version_or_default
from xenoovs.dataclass import dataclass
from xenoovs.datapath.database import BridgeState, PortState
from xenoovs.datapath.megaflow import Megaflow, Verdict, is_matched, output_ports
from xenoovs.datapath.tc import DriverAnswer, TcFilter
from xenoovs.datapath.tunnel import tunnel_owner, tunnel_ports
from xenoovs.evidence.evidence import Evidence, Shape
from xenoovs.evidence.samples import filter_of
from xenoovs.judge.chains import ChainLink
from xenoovs.judge.expected import ExpectedBlock, ExpectedService
from xenoovs.judge.findings import MegaflowState, Unwildcarding
from xenoovs.judge.why.log import Refusal, parse_refusals
from xenoovs.judge.why.reason import Reason
from xenoovs.openflow.flow import Flow


@dataclass(frozen=True, slots=True)
class BlockOverride:
    """Blocks of one service whose packets a megaflow holds and does not deliver."""

    service: ExpectedService
    blocks: int
    flows: tuple[Flow, ...] | None = None


MINIFLOW = "dp-extra-info"
"""A remark that only the userspace datapath writes (dpif_netdev_flow_dump_next of lib/dpif-netdev.c)."""


OFFLOAD_INFO = "dp-offload-info"
"""A remark that only OVS-DOCA writes: why the megaflow is not offloaded."""

DOCA_LAYER = "doca"
"""Layer (`dp:`) of megaflows that OVS-DOCA offloads; its others have `dp:ovs`."""


def is_of_doca(megaflow: Megaflow) -> bool:
    """Return whether only OVS-DOCA writes such a megaflow."""
    return megaflow.layer == DOCA_LAYER or any(name == OFFLOAD_INFO for name, _ in megaflow.extra)


NO_EVIDENCE = Evidence()


@dataclass(frozen=True, slots=True)
class Case:
    """One megaflow that is not in hardware, what is known about it, and why. `unwildcarded`: None if our flows match
    all bits of its mask, or before `Attribution`. `overrides`: blocks that it overrides. `held`: of a rule in the NIC
    whose packets, or some of them, the CPU forwards. `answers`: services whose answers it may carry. `link`: None if it
    does not recirculate packets. `before`: the first megaflow before it in its chains that is not in hardware.
    `reasons`: most likely first; empty before `diagnose`."""

    megaflow: Megaflow
    verdict: Verdict
    block: ExpectedBlock | None
    evidence: Evidence = NO_EVIDENCE
    unwildcarded: Unwildcarding | None = None
    overrides: tuple[BlockOverride, ...] = ()
    held: MegaflowState | None = None
    answers: tuple[str, ...] = ()
    link: ChainLink | None = None
    before: Megaflow | None = None
    reasons: tuple[Reason, ...] = ()

    @property
    def services(self) -> tuple[str, ...]:
        """Names of the services that its packets belong to."""
        if self.block is not None:
            return (self.block.service,)
        return self.answers or tuple(override.service.name for override in self.overrides)

    @property
    def in_port(self) -> str | None:
        return self.megaflow.in_port

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """The refusals that ovs-vswitchd logged."""
        return tuple(refusal for log in self.evidence.logs for refusal in parse_refusals(log))

    @property
    def driver_answer(self) -> DriverAnswer | None:
        """The driver's answer to a trial of the rule; None if there was no trial."""
        return self.evidence.driver.get(self.megaflow.ufid or "")

    @property
    def bridge(self) -> BridgeState | None:
        """The bridge of the ingress port, also of a tunnel; None if unknown."""
        database = self.evidence.database
        if database is None or self.in_port is None:
            return None
        owner = tunnel_owner(self.megaflow, tunnel_ports(database.bridges))
        return database.bridge_of(self.in_port) or (None if owner is None else database.bridge(owner))

    @property
    def interface(self) -> PortState | None:
        bridge = self.bridge
        return None if bridge is None or self.in_port is None else bridge.port(self.in_port)

    @property
    def is_in_kernel(self) -> bool:
        """Whether the kernel's datapath has it. If the bridge is unknown, True only for TC_SW."""
        bridge = self.bridge
        return bridge.datapath_type == "system" if bridge is not None else self.verdict is Verdict.TC_SW

    @property
    def may_be_in_kernel(self) -> bool:
        """Whether the kernel's datapath has it; if the bridge is unknown, True unless `is_userspace`."""
        bridge = self.bridge
        return bridge.datapath_type == "system" if bridge is not None else not self.is_userspace

    @property
    def is_userspace(self) -> bool:
        """Whether the megaflow itself shows that the userspace datapath has it."""
        return any(name == MINIFLOW for name, _ in self.megaflow.extra)

    @property
    def profile(self) -> Profile:
        """How Open vSwitch reaches the NIC of the megaflow; by traffic control if that is unknown.

        OVS-DOCA is recognised by the whole dump: its partly offloaded megaflows have `dp:ovs`, as with DPDK.
        """
        bridge, database, layers = self.bridge, self.evidence.database, self.evidence.layers
        if self.megaflow.layer == "tc" or (bridge is not None and bridge.datapath_type == "system"):
            return Profile.TC
        is_doca = DOCA_LAYER in layers or is_of_doca(self.megaflow)
        if bridge is not None:
            is_doca = is_doca or "doca" in (bridge.datapath_type, *(port.type for port in bridge.ports))
            is_doca = is_doca or (database is not None and database.has_doca)
        elif not is_doca and not self.is_userspace and self.verdict is not Verdict.PARTIAL:
            return Profile.TC
        profile = Profile.DOCA if is_doca else Profile.DPDK
        return profile if database is None else profile.of_ct_size(database.config)

    @property
    def version(self) -> Version:
        """The version of the running Open vSwitch; if it is unknown, the default of the table."""
        return version_or_default(self.evidence.version or "")

    @property
    def is_port_offered(self) -> bool:
        """Whether the dump or the log shows that Open vSwitch offered megaflows of the ingress port to a NIC."""
        held = any(port == self.in_port for port, _, _ in self.evidence.in_hardware)
        return held or any(refusal.port == self.in_port for refusal in self.refusals)

    @property
    def filter(self) -> TcFilter | None:
        return filter_of(self.megaflow, self.evidence.filters)

    @property
    def egress(self) -> tuple[str, ...]:
        return output_ports(self.megaflow)


def shape_of(megaflow: Megaflow) -> Shape:
    """Return the shape of a megaflow: a driver treats all megaflows of one shape alike."""
    keys = sorted((key.name, _matched(key.inner)) for key in megaflow.keys)
    return megaflow.in_port, tuple(keys), tuple(action.partition("=")[0] for action in megaflow.actions)


@lru_cache(maxsize=8192)
def _matched(inner: str) -> str:
    """Return the attributes of a key of which at least one bit is matched, without values and masks."""
    items = (item.partition("=") if "=" in item else ("", "=", item) for item in inner.split(","))
    return ",".join(name or "value" for name, _, text in items if is_matched(text))

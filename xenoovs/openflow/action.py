"""What a flow does with a packet. A flow with no action drops it. Names: ovs-actions(7)."""

from __future__ import annotations

from dataclasses import dataclass

from xenoovs.openflow.field import Field

LOCAL = "LOCAL"
"""The bridge's own port, which ovs-ofctl never calls by its name (OpenFlow 1.4.0, 7.2.1: OFPP_LOCAL)."""

WIDEST_LOAD = 64
"""Bits that one action writes (NXAST_REG_LOAD, include/openvswitch/ofp-actions.h)."""


@dataclass(frozen=True, slots=True)
class Output:
    """Send a copy out of the port of this name, or of `LOCAL`."""

    port: str


@dataclass(frozen=True, slots=True)
class OutputInPort:
    """Send a copy back where the packet came from (OpenFlow 1.4.0, 7.2.1: OFPP_IN_PORT)."""


@dataclass(frozen=True, slots=True)
class Normal:
    """Forward as a learning switch does (OFPP_NORMAL)."""


@dataclass(frozen=True, slots=True)
class SetField:
    """Overwrite a whole field of the packet or a register.

    Raises ValueError for a field of more than 64 bits: Open vSwitch would show two actions (NXAST_REG_LOAD).
    """

    field: Field
    value: int

    def __post_init__(self) -> None:
        if self.field.width > WIDEST_LOAD:
            raise ValueError(f"{self.field.ovs_name} has more than {WIDEST_LOAD} bits and cannot be set at once")


@dataclass(frozen=True, slots=True)
class Move:
    """Copy the whole of one field into another of the same width."""

    source: Field
    target: Field


@dataclass(frozen=True, slots=True)
class Resubmit:
    """Look the packet up in another table and carry on here afterwards."""

    table: int


@dataclass(frozen=True, slots=True)
class Learn:
    """Add a flow for the connection that this packet opens (ovs-actions(7), "The learn action").

    The new flow stands in `table` with `priority` and `cookie`, and goes after `idle_timeout_s` (1..65535) without a
    packet. It matches dl_type, nw_proto and what this packet has in the fields `same`; it does `writes`, then sends to
    the port whose number stands in the register `output` now. No more than `limit` (1 or more) flows of this cookie are
    learned; all of them go with the last flow that learns them (`delete_learned`).
    """

    table: int
    priority: int
    cookie: int
    idle_timeout_s: int
    limit: int
    dl_type: int
    nw_proto: int
    same: tuple[Field, ...]
    writes: tuple[SetField, ...]
    output: Field


@dataclass(frozen=True, slots=True)
class Foreign:
    """An action that xenoovs never writes, as ovs-ofctl printed it."""

    text: str


Action = Output | OutputInPort | Normal | SetField | Move | Resubmit | Learn | Foreign

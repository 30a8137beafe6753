"""The rows of the offload table: profiles, versions of Open vSwitch, verdicts, topics, and the sources of each row."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

Version = tuple[int, int]
"""Open vSwitch, major and minor: (3, 1). NVIDIA's DOCA train counts otherwise, so rows of profile doca name none."""

OLDEST: Version = (2, 13)
"""The oldest version that the table speaks about: the first that prints `offloaded:partial`."""

NEWEST: Version = (4, 0)
"""The newest version that it was compared with; of later ones it says what it says of this one."""

DEFAULT_VERSION: Version = (3, 1)
"""What Debian 12 ships."""

_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})(?:[.+-].*)?", re.ASCII)


def parse_version(text: str) -> Version:
    """`3.1` or `3.1.0` or `2.17.8+nvidia`. Raises ValueError for other text and for versions before 2.13."""
    found = _VERSION.fullmatch(text)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < OLDEST:
        raise ValueError(f"{text!r} is not a version of Open vSwitch from {render_version(OLDEST)} on; write 3.1")
    return version


def render_version(version: Version) -> str:
    """`3.1`."""
    return f"{version[0]}.{version[1]}"


def assumption_about(version: Version, profile: Profile) -> str | None:
    """What the table assumes of a version that it does not know; None: it knows it, or does not look at it."""
    if version <= NEWEST or profile is Profile.DOCA:
        return None
    known = f"{render_version(OLDEST)} to {render_version(NEWEST)}"
    return f"Open vSwitch {render_version(version)} is not known here ({known} are): judged as {render_version(NEWEST)}"


class Profile(Enum):
    """How Open vSwitch reaches the NIC.

    TC:   kernel datapath; megaflows become flower rules of the kernel's traffic control (ASAP2; the default).
    DOCA: NVIDIA's fork on DOCA Flow (`doca-init`).
    DPDK: userspace datapath with rte_flow.
    """

    TC = "tc"
    DOCA = "doca"
    DPDK = "dpdk"


class Offload(Enum):
    """Where packets of a flow are expected to be forwarded.

    HW:      in the NIC, unless its driver or its table says no.
    DEPENDS: on something that the flow does not show; the text says on what.
    PARTIAL: the NIC matches and marks, the CPU acts.
    TC_SW:   in the kernel's traffic control: Open vSwitch translates it, drivers refuse it.
    SW:      in the datapath's software: Open vSwitch does not translate it.
    """

    HW = "HW"
    DEPENDS = "DEPENDS"
    PARTIAL = "PARTIAL"
    TC_SW = "TC_SW"
    SW = "SW"

    def __init__(self, _name: str) -> None:
        self.badness = len(type(self).__members__)
        """0 for HW; higher is worse."""

    @property
    def is_lost(self) -> bool:
        """Whether it is sure that the CPU forwards the packets."""
        return self.badness > Offload.DEPENDS.badness


class Kind(Enum):
    """What a topic is about. PLACE: ports, drivers and settings, of which flows say nothing."""

    MATCH = "match"
    ACTION = "action"
    COMBINATION = "combination"
    PLACE = "place"


@dataclass(frozen=True, slots=True)
class Row:
    """One verdict on a topic.

    first, last: versions of Open vSwitch, both included; None: no limit on that side.
    text:        why, and what to do about it.
    source:      file and function in Open vSwitch, or the document.
    message:     a piece of what Open vSwitch logs about it (most at debug level); None: it logs nothing.
    """

    profile: Profile
    offload: Offload
    text: str
    source: str
    first: Version | None = None
    last: Version | None = None
    message: str | None = None

    def covers(self, version: Version) -> bool:
        """Whether the row speaks of this version."""
        return (self.first is None or self.first <= version) and (self.last is None or version <= self.last)


@dataclass(frozen=True, slots=True)
class Topic:
    """One thing that a flow can match or do.

    name:    short and stable, for programs.
    what:    for people, as the start of a sentence.
    example: a flow as ovs-ofctl prints it, for topics that a flow can show.
    rows:    for each profile, rows whose versions leave no gap; none for profiles where the topic cannot come up.
    """

    name: str
    kind: Kind
    what: str
    rows: tuple[Row, ...]
    example: str | None = None

    def row(self, profile: Profile, version: Version) -> Row | None:
        """The row that speaks of this profile and version."""
        return next((row for row in self.rows if row.profile is profile and row.covers(version)), None)


# Where the rows come from, and how they are written down.


_TC = "lib/netdev-offload-tc.c (3.7: lib/dpif-offload-tc-netdev.c), "
TC_KEY = f"{_TC}test_key_and_mask()"
TC_PUT = f"{_TC}netdev_tc_flow_put() (3.7: tc_netdev_flow_put())"
TC_ACTIONS = f"{_TC}netdev_tc_parse_nl_actions()"
TC_SET = f"{_TC}set_flower_map, parse_put_flow_set_masked_action()"
TC_TUNNEL = f"{_TC}parse_put_flow_set_action()"
TC_CT = f"{_TC}parse_put_flow_ct_action(), parse_match_ct_state_to_flower()"
TC_MASKED_SET = f"{_TC}parse_put_flow_set_masked_action()"
TC_INIT = f"{_TC}netdev_tc_init_flow_api() (3.7: tc_netdev_init())"
TC_REPLACE = "lib/tc.c, tc_replace_flower()"
TC_FAILED = "lib/dpif-netlink.c, parse_flow_put() (3.7: lib/dpif-offload-tc.c, tc_parse_flow_put())"
NETLINK_NAK = "lib/netlink-socket.c, nl_sock_transact_multiple__()"
_DPDK = "lib/netdev-offload-dpdk.c (3.7: lib/dpif-offload-dpdk-netdev.c), "
DPDK_MATCH = f"{_DPDK}parse_flow_match()"
DPDK_ACTIONS = f"{_DPDK}parse_flow_actions()"
DPDK_OUTPUT = f"{_DPDK}add_output_action()"
DPDK_PARTIAL = f"{_DPDK}add_set_flow_action__()"
DPDK_SET = f"{_DPDK}parse_set_actions()"
DOCA = "NVIDIA DOCA documentation, OpenvSwitch Offload, OVS-DOCA"
XLATE = "ofproto/ofproto-dpif-xlate.c, do_xlate_actions()"

KERNEL_CT = "the kernel needs CONFIG_NET_TC_SKB_EXT and act_ct, and the NIC's driver connection tracking"
DOCA_CT = "connection tracking is offloaded up to hw-offload-ct-size connections (0: none)"
DOCA_DP_HASH = "offloaded with other_config:hw-offload-ct-size=0 alone (connection tracking then is not)"
ASK_DOCA = "NVIDIA's documentation does not say; send a packet and read dp-offload-info in `dpctl/dump-flows -m`"
NOT_IN_RTE = "the flow's match has no form in rte_flow here, so that it is not offered to the NIC at all"
NOT_AN_RTE_ACTION = "the action has no form in rte_flow here: the NIC only marks the packet, and the CPU acts"


def tc(
    offload: Offload,
    text: str,
    source: str,
    *,
    span: tuple[Version | None, Version | None] = (None, None),
    message: str | None = None,
) -> Row:
    """A row of profile tc; `span`: first and last version."""
    return Row(Profile.TC, offload, text, source, span[0], span[1], message)


def dpdk(
    offload: Offload,
    text: str,
    source: str = DPDK_MATCH,
    *,
    span: tuple[Version | None, Version | None] = (None, None),
    message: str | None = None,
) -> Row:
    """A row of profile dpdk; `span`: first and last version."""
    return Row(Profile.DPDK, offload, text, source, span[0], span[1], message)


def doca(offload: Offload, text: str, source: str = DOCA, *, message: str | None = None) -> Row:
    """A row of profile doca, for all versions."""
    return Row(Profile.DOCA, offload, text, source, message=message)


def not_in_rte() -> Row:
    """Profile dpdk does not know the match."""
    return dpdk(Offload.SW, NOT_IN_RTE, DPDK_MATCH, message="matches of ufid")


def not_an_rte_action() -> Row:
    """Profile dpdk does not know the action."""
    return dpdk(Offload.PARTIAL, NOT_AN_RTE_ACTION, DPDK_ACTIONS, message="Unsupported action type")


def everywhere(text: str, tc_source: str, dpdk_source: str) -> tuple[Row, ...]:
    """Hardware in every profile and version."""
    return (tc(Offload.HW, text, tc_source), doca(Offload.HW, text), dpdk(Offload.HW, text, dpdk_source))

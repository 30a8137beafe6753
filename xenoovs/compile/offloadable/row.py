"""The words of the offload table: profiles, versions of Open vSwitch, verdicts, topics and their rows."""

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

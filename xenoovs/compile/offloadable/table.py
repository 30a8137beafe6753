"""The offload table: what Open vSwitch offloads to a NIC, by profile and version. Its rows are in table.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any

from xenoovs.dataclass import dataclass
from xenoovs.regex import ASCII, regex

Version = tuple[int, int]
"""Open vSwitch, major and minor: (3, 1). Rows of profile doca name none, as NVIDIA numbers its releases differently."""

OLDEST: Version = (2, 13)
"""The oldest version that the table covers: the first that prints `offloaded:partial`."""

NEWEST: Version = (4, 0)
"""The newest version that the table was compared with. Later versions are judged like this one."""
DEFAULT_VERSION: Version = (3, 1)
"""The version in Debian 12."""

PRIORITY_SINCE: Version = (3, 7)
"""The first version with other_config:hw-offload-priority (commits a13db17b8, 5c9b96ed5), `dpif/offload/show`, and the
modules dpif-offload*.c."""
IPV6_PREFIXES_SINCE: Version = (3, 5)
"""The first version that tracks prefixes of IPv6 too (default_prefix_fields of ofproto/ofproto.c, commit 2af7cef26)."""

_VERSION = regex(r"([0-9]{1,3})\.([0-9]{1,3})(?:[.+-].*)?", ASCII)


def parse_version(text: str) -> Version:
    """Parse `3.1`, `3.1.0` or `2.17.8+nvidia`. Raises ValueError for any other text, and for versions before 2.13."""
    found = _VERSION.fullmatch(text)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < OLDEST:
        raise ValueError(f"{text!r} is not a version of Open vSwitch from {render_version(OLDEST)} on; write 3.1")
    return version


def version_or_default(text: str) -> Version:
    """Return the version that a text names; the default of the table for other texts."""
    with suppress(ValueError):
        return parse_version(text)
    return DEFAULT_VERSION


def render_version(version: Version) -> str:
    """Return a version as text: `3.1`."""
    return f"{version[0]}.{version[1]}"


def assumption_about(version: Version, profile: Profile) -> str | None:
    """Return what the table assumes about a version that it does not cover; None if it covers it or ignores it."""
    if version <= NEWEST or profile.is_doca:
        return None
    covered = f"{render_version(OLDEST)} to {render_version(NEWEST)}"
    return f"the table covers Open vSwitch {covered}: {render_version(version)} is judged as {render_version(NEWEST)}"


class Profile(Enum):
    """How Open vSwitch reaches the NIC.

    TC: kernel datapath; megaflows become flower rules of the kernel's traffic control (ASAP2; the default). DOCA:
    NVIDIA's fork on DOCA Flow (`doca-init`), with any setting. DOCA_CT: it offloads connections, by default 250,000
    (other_config:hw-offload-ct-size). DOCA_NO_CT: the size is 0, as HBN and some images set it. DPDK: userspace
    datapath with rte_flow.
    """

    TC = "tc"
    DOCA = "doca"
    DOCA_CT = "doca-ct"
    DOCA_NO_CT = "doca-no-ct"
    DPDK = "dpdk"

    @property
    def is_doca(self) -> bool:
        return self in (Profile.DOCA, Profile.DOCA_CT, Profile.DOCA_NO_CT)

    def of_ct_size(self, config: Mapping[str, str]) -> Profile:
        """Return the profile of OVS-DOCA with this other_config of table Open_vSwitch; other profiles unchanged."""
        if self is not Profile.DOCA:
            return self
        return Profile.DOCA_NO_CT if config.get("hw-offload-ct-size", "").strip() == "0" else Profile.DOCA_CT


class Offload(Enum):
    """Where packets of a flow should be forwarded.

    HW: in the NIC, unless its driver refuses or its table is full. DEPENDS: on a fact that is not in the flow; the row
    names it. PARTIAL: the NIC matches and marks, the CPU acts. TC_SW: in the kernel's traffic control: Open vSwitch
    translates the flow, drivers refuse it. SW: in the datapath's software: Open vSwitch does not translate the flow.
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
    def is_software(self) -> bool:
        """Return whether the CPU certainly forwards the packets."""
        return self.badness > Offload.DEPENDS.badness


class TopicKind(Enum):
    """What a topic is about. ENVIRONMENT: ports, drivers and settings, which flows do not show."""

    MATCH = "match"
    ACTION = "action"
    COMBINATION = "combination"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True)
class TableRow:
    """One verdict on a topic, for versions of Open vSwitch from `first` to `last`, without a limit where it is None.
    `source`: file and function in Open vSwitch or Linux, or the document. `message`: part of what Open vSwitch logs
    about it (mostly at debug level); None if it logs nothing."""

    profile: Profile
    offload: Offload
    text: str
    source: str
    first: Version | None = None
    last: Version | None = None
    message: str | None = None

    def covers(self, version: Version) -> bool:
        """Return whether the row is valid for this version."""
        return (self.first is None or self.first <= version) and (self.last is None or version <= self.last)


@dataclass(frozen=True, slots=True)
class Topic:
    """A match or an action that a flow can have. `rows`: for each profile, rows whose versions leave no gap; none for
    profiles where the topic cannot occur, or where DOCA has the row. `example`: a flow as ovs-ofctl prints it, for
    topics that are visible in a flow."""

    name: str
    kind: TopicKind
    what: str
    rows: tuple[TableRow, ...]
    example: str | None = None

    def row(self, profile: Profile, version: Version) -> TableRow | None:
        """Return the row for this profile and version; of OVS-DOCA the one for its setting, if there is one."""
        profiles = (profile, Profile.DOCA) if profile.is_doca else (profile,)
        rows = (row for each in profiles for row in self.rows if row.profile is each and row.covers(version))
        return next(rows, None)


# JSON, as no format loads with less work: each command that uses the table reads all of it at its start.
_TABLE: Mapping[str, Any] = json.loads(Path(__file__).with_name("table.json").read_text(encoding="utf-8"))

SOURCES: Mapping[str, str] = _TABLE["sources"]
"""Short name of a source -> file and function in Open vSwitch or Linux, or the document."""


def _topic(kind: str, rows: list[dict[str, Any]], **topic: str) -> Topic:
    return Topic(kind=TopicKind(kind), rows=tuple(_row(**row) for row in rows), **topic)


def _row(
    *, profile: str, offload: str, source: str, first: str | None = None, last: str | None = None, **row: str
) -> TableRow:
    return TableRow(
        Profile(profile),
        Offload(offload),
        source=SOURCES[source],
        first=None if first is None else parse_version(first),
        last=None if last is None else parse_version(last),
        **row,
    )


TOPICS: tuple[Topic, ...] = tuple(_topic(**topic) for topic in _TABLE["topics"])

TOPIC_OF: Mapping[str, Topic] = {topic.name: topic for topic in TOPICS}
"""Topics by name."""

EXAMPLE_GROUPS: str = "\n".join(_TABLE["example_groups"])
"""The groups that examples refer to, as `ovs-ofctl -O OpenFlow15 dump-groups` prints them."""


def _topic_by_word(topic_words: Mapping[str, list[str]]) -> Mapping[str, str]:
    return {word: topic for topic, words in topic_words.items() for word in words}


@dataclass(frozen=True, slots=True)
class FieldFamily:
    """Header fields that the table treats alike: their names (ovs-fields(7)) as a regular expression, and the topics of
    flows that match or write one; None if no flow can."""

    family: str
    names: str
    match: str
    set: str | None = None


FIELD_FAMILIES: tuple[FieldFamily, ...] = tuple(FieldFamily(**family) for family in _TABLE["fields"])
"""If several match a name, the first one counts."""

OPENFLOW_ACTIONS = _topic_by_word(_TABLE["openflow_actions"])
"""Name of an OpenFlow action (ovs-actions(7)) -> topic."""

DATAPATH_KEYS = _topic_by_word(_TABLE["datapath_keys"])
DATAPATH_SETS = _topic_by_word(_TABLE["datapath_sets"])
DATAPATH_ACTIONS = _topic_by_word(_TABLE["datapath_actions"])
"""Names in lib/odp-util.c of a key, of a key inside `set(...)`, and of an action -> topic. `ipv4.ttl`: an attribute."""

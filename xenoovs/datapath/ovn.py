"""OVN on the same Open vSwitch: the bridges that ovn-controller owns, and those that it shares.

Keys: ovn-controller(8), "CONFIGURATION" and "OPEN VSWITCH DATABASE USAGE".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xenoovs.dataclass import dataclass
from xenoovs.regex import ASCII, regex

DEFAULT_BRIDGE = "br-int"
"""The integration bridge if `ovn-bridge` is not set (DEFAULT_BRIDGE_NAME of lib/ovn-util.h)."""

INSTALLED = "ovn-installed"
"""external_ids of table Interface: ovn-controller has installed the flows of this logical port."""

LOCALNET = "ovn-localnet-port"
"""external_ids of table Port: a patch port that ovn-controller made between its bridge and one with a network."""

_REMOTE = "ovn-remote"
_NO_CHASSIS = "probe-interval"
"""ovn-remote-probe-interval is a key of its own, and no ovn-remote of a chassis of this name."""


@dataclass(frozen=True, slots=True)
class OvnUse:
    """What OVN has to do with a bridge. `is_owner`: ovn-controller writes all flows of the bridge, and deletes those of
    others. Else the bridge is shared: OVN sends packets of a physical network through it, and writes no flows there.
    `evidence`: what of the database shows it, a clause. `remote`: how ovn-controller reaches the southbound database,
    as `tcp:192.0.2.9:6642`; None if not known."""

    is_owner: bool
    evidence: str
    remote: str | None = None


@dataclass(frozen=True, slots=True)
class OvnChassis:
    """An ovn-controller of this host, as external_ids of table Open_vSwitch configure it. `bridge`: the integration
    bridge, which it owns. `encap`: types and addresses of its tunnels, such as `geneve` and `192.0.2.1`. `networks`:
    bridge -> physical networks that are mapped to it. `remote`: of the southbound database."""

    name: str | None
    bridge: str
    encap: tuple[str, ...]
    networks: Mapping[str, tuple[str, ...]]
    remote: str | None = None


def chassis_of(external_ids: Mapping[str, str]) -> tuple[OvnChassis, ...]:
    """Return the ovn-controllers that these external_ids configure; several have keys with the name of their chassis.

    A key with such a name counts before the one without (get_chassis_external_id_value() of lib/ovn-util.c).
    """
    return tuple(_chassis(external_ids, name) for name in _names(external_ids))


def _names(external_ids: Mapping[str, str]) -> Iterator[str | None]:
    if _REMOTE in external_ids:
        yield external_ids.get("system-id")
    for key in sorted(external_ids):
        name = key.removeprefix(f"{_REMOTE}-")
        is_own = external_ids.get("system-id") == name and _REMOTE in external_ids
        if name != key and not name.startswith(_NO_CHASSIS) and not is_own:
            yield name


def _chassis(external_ids: Mapping[str, str], name: str | None) -> OvnChassis:
    def value(key: str) -> str:
        return external_ids.get(f"{key}-{name}") or external_ids.get(key) or ""

    networks: dict[str, tuple[str, ...]] = {}
    for mapping in value("ovn-bridge-mappings").split(","):
        network, _, bridge = mapping.strip().partition(":")
        if network and bridge:
            networks[bridge] = (*networks.get(bridge, ()), network)
    encap = tuple(filter(None, (value("ovn-encap-type"), value("ovn-encap-ip"))))
    return OvnChassis(name, value("ovn-bridge") or DEFAULT_BRIDGE, encap, networks, value(_REMOTE) or None)


def use_of(
    name: str, chassis: tuple[OvnChassis, ...], installed: Sequence[str] = (), localnet: Sequence[str] = ()
) -> OvnUse | None:
    """Return how OVN uses a bridge; None if it does not. `installed`: its interfaces that OVN has installed;
    `localnet`: patch ports that OVN has made there."""
    owner = next((each for each in chassis if each.bridge == name), None)
    if owner is not None:
        evidence = f"external_ids:ovn-remote is set, and {name} is its ovn-bridge"
        return OvnUse(is_owner=True, evidence=evidence, remote=owner.remote)
    if installed:
        return OvnUse(is_owner=True, evidence=f"interface {installed[0]} has external_ids:{INSTALLED}")
    networks = tuple(network for each in chassis for network in each.networks.get(name, ()))
    if networks:
        return OvnUse(is_owner=False, evidence=f"ovn-bridge-mappings maps {', '.join(networks)} to it")
    if localnet:
        return OvnUse(is_owner=False, evidence=f"port {localnet[0]} has external_ids:{LOCALNET}")
    return None


# Logical flows, as `ovn-sbctl --uuid lflow-list` prints them (cmd_lflow_list() of utilities/ovn-sbctl.c).


_DATAPATH = regex(r'Datapath: (?:"([^"]*)"|([0-9a-f-]{36})).*\bPipeline: (ingress|egress)', ASCII)
_FLOW = regex(
    r"\s*uuid=0x([0-9a-f]{8}), table=([0-9]{1,3})\s*\(([^()]*)\), priority=([0-9]{1,5})\s*, "
    r"match=\((.*?)\), action=\((.*)\)",
    ASCII,
)


@dataclass(frozen=True, slots=True)
class LogicalFlow:
    """One logical flow (ovn-sb(5), table Logical_Flow). `cookie`: the first 32 bits of its UUID, which are the cookie
    of the OpenFlow flows that it becomes (ovn-architecture(7)). `datapath`: name of the logical switch or router; the
    first one, if several share the flow. `pipeline`: `ingress` or `egress`. `stage`: name of the table, such as
    `ls_in_acl`."""

    cookie: int
    datapath: str
    pipeline: str
    table: int
    stage: str
    priority: int
    match: str
    actions: str


def parse_logical_flows(text: str) -> dict[int, LogicalFlow]:
    """Return the logical flows by cookie. Lines of another form are skipped."""
    found = dict[int, LogicalFlow]()
    datapath = pipeline = ""
    for line in text.splitlines():
        if head := _DATAPATH.match(line):
            datapath, pipeline = head[1] or head[2] or "", head[3]
        elif flow := _FLOW.fullmatch(line):
            cookie = int(flow[1], 16)
            numbers = int(flow[2]), flow[3].strip(), int(flow[4])
            found.setdefault(cookie, LogicalFlow(cookie, datapath, pipeline, *numbers, flow[5], flow[6]))
    return found

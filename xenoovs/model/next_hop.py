"""How packets reach a backend. Only this module and `compile.encoding` look inside a next hop."""

from __future__ import annotations

from ipaddress import IPv4Address
from re import Match

from xenoovs.dataclass import dataclass, replace
from xenoovs.model.address import Mac, parse_mac
from xenoovs.regex import ASCII, DOTALL, regex

MAX_PORT = 65_535
MAX_VLAN = 4_094
"""IEEE 802.1Q, 9.6: 4095 is reserved."""
UNKNOWN_MAC = Mac(0)
"""The target address of an ARP request (RFC 826); no machine has it (docs/adr/0012)."""


NO_TAG = 0
"""Stands for no tag among VLAN ids, of which 0 is none (IEEE 802.1Q, 9.6)."""


def vlan_text(vlan: int | None) -> str:
    """Return `+vlan7`, `+untagged`, or an empty text for None."""
    return "" if vlan is None else "+untagged" if vlan == NO_TAG else f"+vlan{vlan}"


class _Hop:
    """A next hop, with the port of the bridge through which packets to it leave."""

    __slots__ = ()

    @property
    def is_known(self) -> bool:
        """Return whether packets can be sent to it: its address was configured or found."""
        return mac_of(self) != UNKNOWN_MAC


@dataclass(frozen=True, slots=True, order=True)
class Direct(_Hop):
    """A server on the Ethernet behind a port of the bridge. `mac`: its address there; UNKNOWN_MAC until it is found.
    `vlan`: of packets that leave for it, or NO_TAG; None if they keep the tag, or none, that they came with."""

    mac: Mac
    port: str
    vlan: int | None = None

    def __str__(self) -> str:
        return f"{self.mac}{vlan_text(self.vlan)}@{self.port}"


UNCHANGED = "unchanged"
"""What stands in place of a MAC that packets keep, in the config and in the text of a next hop."""


@dataclass(frozen=True, slots=True, order=True)
class Unchanged(_Hop):
    """Whatever is behind a port of the bridge: packets leave by it with the destination MAC that they came with.
    `vlan`: as that of `Direct`."""

    port: str
    vlan: int | None = None

    def __str__(self) -> str:
        return f"{UNCHANGED}{vlan_text(self.vlan)}@{self.port}"


@dataclass(frozen=True, slots=True, order=True)
class SourcePort(_Hop):
    """The path of the fabric behind a port of the bridge that it selects by the UDP source port of a packet.
    `source_port`: written into packets, 1..65535; 0 until it is found."""

    source_port: int
    port: str

    @property
    def is_known(self) -> bool:
        return self.source_port != 0

    def __str__(self) -> str:
        return f"{self.source_port}@{self.port}"


@dataclass(frozen=True, slots=True, order=True)
class ToAddress(_Hop):
    """The path behind a port of the bridge that leads to one of several addresses of a remote. `address`: written into
    packets as their destination."""

    address: IPv4Address
    port: str

    def __str__(self) -> str:
        return f"{self.address}@{self.port}"


@dataclass(frozen=True, slots=True)
class Translated(_Hop):
    """A server that gets packets at its own address instead of the VIP: destination NAT. `mac`: of the server, or of
    the router in front of it; UNKNOWN_MAC until it is found. `address`: written into packets as their destination.
    `l4_port`: written as their destination port, 1..65535; None if they keep theirs. `vlan`: as that of `Direct`."""

    mac: Mac
    port: str
    address: IPv4Address
    l4_port: int | None = None
    vlan: int | None = None

    @property
    def endpoint(self) -> str:
        """Return address and port as text."""
        return str(self.address) if self.l4_port is None else f"{self.address}:{self.l4_port}"

    def __str__(self) -> str:
        return f"{self.mac}>{self.endpoint}{vlan_text(self.vlan)}@{self.port}"


@dataclass(frozen=True, slots=True, order=True)
class Tunneled(_Hop):
    """A server behind a tunnel of Open vSwitch. `mac`: its address inside of the tunnel. `port`: the name of the tunnel
    port of the bridge. `remote`: the other end of the tunnel. `key`: VNI, or GRE key, that packets are sent with."""

    mac: Mac
    port: str
    remote: IPv4Address
    key: int

    @property
    def has_own_port(self) -> bool:
        """Return whether the port leads only to this remote, so that flows need not set its address."""
        return remote_of_port(self.port) == self.remote

    @property
    def tunnel(self) -> str:
        """Return the name of the port's tunnel."""
        return self.port.removesuffix(port_of_remote("", self.remote))

    def __str__(self) -> str:
        return f"{self.mac}/{self.remote}/{self.key}@{self.port}"


_OWN_PORT = regex(r".+-([0-9a-f]{8})", ASCII | DOTALL)


def port_of_remote(tunnel: str, remote: IPv4Address) -> str:
    """Return the name of a tunnel port that leads to one remote: `gnv0-c0a84d0b` for 192.168.77.11. The address is in
    the name, as in those of Neutron of OpenStack (get_tunnel_name() of its Open vSwitch agent): a port leads to the
    same remote whatever becomes of the others."""
    return f"{tunnel}-{int(remote):08x}"


def remote_of_port(port: str) -> IPv4Address | None:
    """Return the remote of a tunnel port; None if flows set it."""
    found = _OWN_PORT.fullmatch(port)
    return IPv4Address(int(found[1], 16)) if found else None


NextHop = Direct | Unchanged | SourcePort | ToAddress | Translated | Tunneled
"""All kinds of next hops: a closed union."""


_NUMBER = "0|[1-9][0-9]{0,9}"
_TEXT = regex(
    rf"(?:(?P<mac>[0-9a-f:]{{17}})(?:>(?P<address>[0-9.]+)(?::(?P<l4_port>{_NUMBER}))?|/(?P<remote>[0-9.]+)/(?P<key>{_NUMBER}))?"
    rf"|(?P<path>{_NUMBER})|(?P<to>[0-9.]+)|{UNCHANGED})(?:\+(?:vlan(?P<vlan>{_NUMBER})|(?P<untagged>untagged)))?@(?P<port>.+)",
    ASCII | DOTALL,
)


def parse_next_hop(text: str) -> NextHop:
    """Return the next hop of which `text` is the `str()`. Raises ValueError: it is the text of none."""
    found = _TEXT.fullmatch(text)
    hop = None if found is None else _read(found)
    if hop is None or str(hop) != text:
        raise ValueError(f"{text!r} is not a next hop; write MAC@PORT, such as 02:00:5e:10:00:02@p1")
    return hop


def _read(found: Match[str]) -> NextHop | None:
    """Return the next hop; None if a number is too large."""
    port, l4_port, path, tag = found["port"], found["l4_port"], found["path"], found["vlan"]
    vlan = NO_TAG if found["untagged"] else int(tag) if tag else None
    if not 1 <= int(l4_port or 1) <= MAX_PORT or int(path or 0) > MAX_PORT or (vlan or 0) > MAX_VLAN:
        return None
    if path:
        return SourcePort(int(path), port)
    if found["to"]:
        return ToAddress(IPv4Address(found["to"]), port)
    if found["mac"] is None:
        return Unchanged(port, vlan)
    mac = parse_mac(found["mac"])
    if found["remote"]:
        return Tunneled(mac, port, IPv4Address(found["remote"]), int(found["key"]))
    if found["address"]:
        return Translated(mac, port, IPv4Address(found["address"]), int(l4_port) if l4_port else None, vlan)
    return Direct(mac, port, vlan)


def mac_of(hop: _Hop) -> Mac | None:
    """Return the Ethernet address of the server, for ARP; None if packets keep theirs."""
    return hop.mac if isinstance(hop, Direct | Translated | Tunneled) else None


def l4_port_of(hop: NextHop) -> int | None:
    """Return the port that packets get as their destination; None if they keep theirs."""
    return hop.l4_port if isinstance(hop, Translated) else None


def vlan_of(hop: NextHop) -> int | None:
    """Return the VLAN of packets to a next hop, or NO_TAG; None if they keep theirs."""
    return hop.vlan if isinstance(hop, Direct | Unchanged | Translated) else None


def is_tunneled(hop: NextHop) -> bool:
    """Return whether a server is behind a tunnel of Open vSwitch."""
    return isinstance(hop, Tunneled)


def with_mac(hop: NextHop, mac: Mac) -> NextHop:
    """Return the same next hop for a server that was found at `mac`."""
    return replace(hop, mac=mac) if isinstance(hop, Direct | Translated) else hop


def written_and_port(hop: NextHop | None) -> tuple[str, str]:
    """Return the fields that packets to a next hop get, and their port, as text."""
    match hop:
        case SourcePort(source_port, port):
            return f"source port {source_port}", port
        case ToAddress(address, port):
            return f"to {address}", port
        case Translated(mac, port):
            return f"{mac} to {hop.endpoint}{vlan_text(hop.vlan)}", port
        case Tunneled(mac, port, remote, key):
            return f"{mac} to {remote}, key {key}", port
        case _:
            mac_text, port = mac_and_port(hop)
            return f"{mac_text}{'' if hop is None else vlan_text(vlan_of(hop))}", port


def mac_and_port(hop: NextHop | None) -> tuple[str, str]:
    """Return what the columns MAC and PORT show; `-` for a hop that is not known. Paths leave the MAC as it is."""
    if hop is None:
        return "-", "-"
    mac = mac_of(hop)
    return UNCHANGED if mac is None else str(mac), hop.port

"""Tunnel ports: which of them a packet enters by, as all tunnels of one type share a device of the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xenoovs.dataclass import dataclass
from xenoovs.datapath.database import BridgeState
from xenoovs.datapath.megaflow import Megaflow, parse_value
from xenoovs.datapath.outer import OuterHeader, parse_outer

TUNNEL_DEVICES = {
    "vxlan": "vxlan_sys_",
    "geneve": "genev_sys_",
    "gre": "gre_sys",
    "erspan": "erspan_sys",
    "ip6gre": "ip6gre_sys",
    "bareudp": "bareudp_sys_",
    "gtpu": "gtpu_sys_",
    "srv6": "srv6_sys",
}
"""Type of a tunnel's interface -> what the name of its datapath port starts with (lib/netdev-vport.c)."""

_DEVICES = tuple(TUNNEL_DEVICES.values())


def is_tunnel_device(name: str | None) -> bool:
    """Return whether a datapath port is the device that all tunnels of one type share."""
    return name is not None and name.startswith(_DEVICES)


def tunnel_kind(device: str | None) -> str | None:
    """Return the type of the tunnels that share a datapath port; None if it is another port."""
    return next((kind for kind, start in TUNNEL_DEVICES.items() if (device or "").startswith(start)), None)


BY_FLOW = "flow"
"""The value of remote_ip, local_ip and key with which flows choose them (ovs-vswitchd.conf.db(5), table Interface)."""
IPSEC_OPTIONS = ("psk", "remote_cert", "remote_name")
"""Options of an interface that ovs-monitor-ipsec(8) encrypts for (vswitchd.conf.db(5), "Tunnel Options: IPsec")."""


@dataclass(frozen=True, slots=True)
class TunnelPort:
    """A tunnel port. None for `remote`, `local` and `key`: any, as packets or flows say. `device`: what the name of its
    datapath port starts with, or all of it if the UDP port is set. `key`: VNI or GRE key."""

    device: str
    remote: int | None = None
    local: int | None = None
    key: int | None = None

    def takes(self, in_port: str, outer: OuterHeader) -> bool:
        """Return whether packets with this outer header enter by it."""
        if not in_port.startswith(self.device):
            return False
        key = 0 if outer.field("tun_id") is None else outer.exact("tun_id")
        wanted = ((self.remote, outer.source), (self.local, outer.destination), (self.key, key))
        return all(value is None or value == found for value, found in wanted)

    @property
    def rank(self) -> tuple[bool, bool, bool]:
        """The order in which Open vSwitch asks ports that take a packet (tnl_find() of ofproto/tunnel.c)."""
        return self.key is None, self.remote is None, self.local is None


def tunnel_port(kind: str, options: Mapping[str, str]) -> TunnelPort | None:
    """Return the tunnel port of an interface with this type and these options; None if it is no tunnel."""
    device = TUNNEL_DEVICES.get(kind)
    if device is None:
        return None
    port, key = options.get("dst_port", ""), options.get("in_key", options.get("key", "0"))
    device = f"{device}{port}" if device.endswith("_") else device
    number = int(key) if key.isdecimal() and len(key) <= 20 else None
    return TunnelPort(device, _option(options.get("remote_ip")), _option(options.get("local_ip")), number)


def tunnel_ports(bridges: Iterable[BridgeState]) -> tuple[tuple[str, TunnelPort], ...]:
    """Return the tunnel ports of all bridges, each with the name of its bridge."""
    found = ((each.name, tunnel_port(port.type, port.options)) for each in bridges for port in each.ports)
    return tuple((name, port) for name, port in found if port is not None)


def tunnel_owner(megaflow: Megaflow, ports: Iterable[tuple[str, TunnelPort]]) -> str | None:
    """Return the bridge whose tunnel port the packets of a megaflow with `tunnel(...)` entered by; None if unknown.
    `ports`: each with the name of its bridge."""
    text = megaflow.key("tunnel")
    if text is None or megaflow.in_port is None:
        return None
    outer = parse_outer(text)
    taking = [(port.rank, bridge) for bridge, port in ports if port.takes(megaflow.in_port, outer)]
    return min(taking)[1] if taking else None


def _option(text: str | None) -> int | None:
    """Return the address of an option; None if flows choose it, or it is a name."""
    if text is None or text == BY_FLOW:
        return None
    try:
        return parse_value(text, 128 if ":" in text else 32)
    except ValueError:
        return None

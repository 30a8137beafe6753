"""Addresses, routes and neighbours inside the namespaces of a lab, and the processes that answer there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from xenoovs.errors import CommandFailed, LabError
from xenoovs.lab.machines import Machine
from xenoovs.lab.netns import Netns
from xenoovs.lab.topology import Clients

# Next hop of everything, by a fixed neighbour entry: one instead of thousands (RFC 3927; RFC 4291, section 2.5.6).
_GATEWAY4, _GATEWAY6 = "169.254.0.1", "fe80::1"

_IPV4_OFF = tuple(f"ipv4/conf/{scope}/{key}" for scope in ("all", "default") for key in ("rp_filter", "forwarding"))


def prepare_namespace(netns: Netns, namespace: str) -> None:
    """A host that neither forwards nor checks the way back, whatever the settings of the machine outside."""
    netns.write_sysctls(namespace, _IPV4_OFF, value=0)
    netns.batch(["link set dev lo up"], namespace=namespace)


def configure_clients(netns: Netns, clients: Clients) -> None:
    """Every address of the clients' nets is local (`ip route add local`), so that thousands need no set-up each."""
    dev = clients.interface
    lines = [
        *_route_lines(dev, clients.gateway_mac, nets=clients.nets, families=clients.nets),
        *(f"route add {vip}/32 dev {dev}" for vip in clients.arp_vips),
        *(f"route add {vip}/128 dev {dev}" for vip, _ in clients.fixed_vips),
        *(f"neigh replace {vip} lladdr {mac} dev {dev} nud permanent" for vip, mac in clients.fixed_vips),
    ]
    netns.batch(lines, namespace=clients.namespace)


def add_clients(netns: Netns, clients: Clients, addresses: list[str]) -> None:
    """Make further addresses, outside of the clients' nets, addresses of clients."""
    netns.batch((f"route replace local {address} dev lo" for address in addresses), namespace=clients.namespace)


def forget_neighbours(netns: Netns, clients: Clients) -> None:
    """Let clients ask by ARP again; fixed entries stay (ip-neighbour(8), flush)."""
    netns.batch([f"neigh flush dev {clients.interface}"], namespace=clients.namespace)


def configure_machine(netns: Netns, machine: Machine) -> None:
    """A backend for direct server return: VIPs on its loopback, silent about them in ARP (arp_ignore, arp_announce).

    The values are those of ip-sysctl.rst of the kernel: 1 answers only for addresses of the asked interface, 2 never
    asks in the name of an address of another one.
    """
    netns.write_sysctls(machine.namespace, ["ipv4/conf/all/arp_ignore"], value=1)
    netns.write_sysctls(machine.namespace, ["ipv4/conf/all/arp_announce"], value=2)
    vips = (_vip_line(vip) for vip in machine.addresses)
    families = (*machine.addresses, *machine.nets)
    routes = _route_lines("eth0", machine.gateway_mac, nets=machine.nets, families=families)
    netns.batch((*vips, *routes), namespace=machine.namespace)


def start_responder(netns: Netns, machine: Machine, *, log: Path) -> None:
    """Start the process that answers in a machine; it listens when this returns. Raises LabError with its complaint."""
    job = {"label": machine.label, "names": list(machine.names), "listen": list(machine.listen), "log": str(log)}
    argv = [sys.executable, "-P", "-m", "xenoovs.lab.responder"]
    try:
        netns.execute(machine.namespace, argv, stdin=json.dumps(job))
    except CommandFailed as error:
        raise LabError(f"backend {machine.label} does not start to answer: {error.stderr.strip()}") from None


def _route_lines(dev: str, gateway_mac: str, *, nets: Iterable[str], families: Iterable[str]) -> list[str]:
    """Local nets, and the way to everything else; `families`: addresses or nets of the IP versions in use."""
    lines = [f"route add local {net} dev lo" for net in nets]
    versions = {":" in text for text in families}
    if False in versions:
        lines.append(f"neigh replace {_GATEWAY4} lladdr {gateway_mac} dev {dev} nud permanent")
        lines.append(f"route add 0.0.0.0/0 via {_GATEWAY4} dev {dev} onlink")
    if True in versions:
        lines.append(f"neigh replace {_GATEWAY6} lladdr {gateway_mac} dev {dev} nud permanent")
        lines.append(f"route add ::/0 via {_GATEWAY6} dev {dev} onlink")
    return lines


def _vip_line(vip: str) -> str:
    # Duplicate address detection would find the other backends, which have the VIP on purpose.
    return f"addr add {vip}/128 dev lo nodad" if ":" in vip else f"addr add {vip}/32 dev lo"

"""Tunnels in a lab: the network of their outer packets, and their ends in the backend machines.

The kernel of a machine terminates a tunnel if it has devices of that type. Kernels without geneve or gre are common;
then the machine gets its own Open vSwitch, as a DPU in front of a server has.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import replace

from xenoovs.compile.tunnel_ports import Receiver, receiver_of, wanted_ports
from xenoovs.dataclass import dataclass
from xenoovs.errors import CommandFailed, LabError
from xenoovs.lab.host import LabNetns
from xenoovs.lab.lab import Lab
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs
from xenoovs.lab.topology import RESERVED_PREFIX, UNDERLAY_MTU, Machine, MachineTunnelEnd, Underlay
from xenoovs.model.balancer import Balancer, Returns
from xenoovs.model.tunnel import RemoteEnd, remote_end_of
from xenoovs.openflow.flow import LOCAL
from xenoovs.openflow.text import render_flow_to_send
from xenoovs.switch.process import run

UNDERLAY_BRIDGE = f"{RESERVED_PREFIX}br-ul"
"""The bridge with UNDERLAY and the local addresses. Open vSwitch in userspace sends encapsulated packets through the
bridge that has the route (Documentation/howto/userspace-tunneling.rst of Open vSwitch)."""

_MACHINE_BRIDGE, _ENDS_BRIDGE = "br-ul", "br-tun"

_CABLE_PREFIX = "06"
"""First byte of MACs: locally administered (IEEE 802-2014, section 8.4), and unused by the lab's other MACs."""

INNER_MTU = 1500


def add_tunnel_ports(ovs: PrivateOvs, balancer: Balancer) -> None:
    for port in wanted_ports(balancer):
        _, *words = port.command(balancer.uplinks.bridge)
        # No program reads the PSK, as the lab itself makes policies and SAs.
        ovs.vsctl(*words, *([] if port.psk_file is None else ["options:psk=lab"]))


def learn_remotes(lab: Lab) -> None:
    """Set the MACs of machines behind tunnels. Open vSwitch in userspace drops packets until ARP is answered; the
    kernel lets them wait."""
    for machine in lab.topology.machines if lab.ovs.datapath is Datapath.USERSPACE else ():
        if machine.outer_address is not None:
            lab.ovs.appctl("tnl/neigh/set", UNDERLAY_BRIDGE, machine.outer_address, machine.mac)


def machine_ovs(lab: Lab, machine: Machine) -> PrivateOvs:
    """Return the Open vSwitch of a machine. It runs only if the kernel cannot terminate the tunnels, or for BFD."""
    return PrivateOvs(lab.directory / machine.label, lab.marks)


def add_tunnel_ends(lab: Lab, machine: Machine, underlay: Underlay, balancer: Balancer) -> str:
    """Make the ends of a machine's tunnels. Return the device with the outer address."""
    netns = LabNetns(lab.marks)
    device = "eth0"
    # The kernel has no BFD.
    if any(tunnel.bfd for tunnel in balancer.switch_tunnels) or not _add_kernel_devices(netns, machine):
        ovs = _start_ovs(lab, machine, balancer)
        for local in {end.local for end in machine.ends}:
            ovs.appctl("tnl/neigh/set", _MACHINE_BRIDGE, local, underlay.mac)
        device = _MACHINE_BRIDGE
    prefix = dict(underlay.addresses)[machine.ends[0].local]
    netns.batch(
        [
            f"link set dev {device} mtu {UNDERLAY_MTU} up",
            f"addr add {machine.outer_address}/{prefix} dev {device}",
            *(f"link set dev {end.interface} mtu {INNER_MTU} up" for end in machine.ends),
        ],
        namespace=machine.namespace,
    )
    for end in machine.ends:
        netns.execute(machine.namespace, ["ethtool", "-K", end.interface, "tx", "off"])
    return device


def _add_kernel_devices(netns: LabNetns, machine: Machine) -> bool:
    """Make the devices of all tunnels of a machine. Return False, and make none, if the kernel lacks a type."""
    for number, end in enumerate(machine.ends):
        try:
            netns.batch([_kernel_line(end)], namespace=machine.namespace)
        except CommandFailed as error:
            if _NO_TYPE not in error.stderr:
                raise
            made = machine.ends[:number]
            netns.batch((f"link del dev {other.interface}" for other in made), namespace=machine.namespace)
            return False
    return True


_NO_TYPE = "Unknown device type"
"""The error of ip(8) for a device type that the kernel and its modules lack."""


def _kernel_line(end: MachineTunnelEnd) -> str:
    device = f"link add dev {end.interface} address {end.mac}"
    match end.type:
        case "vxlan":
            ways = f"local {end.remote} remote {end.local} dstport {end.dst_port}"
            return f"{device} type vxlan id {end.key} {ways}"
        case "geneve":
            return f"{device} type geneve id {end.key} remote {end.local} dstport {end.dst_port}"
        case _:
            return f"{device} type gretap local {end.remote} remote {end.local} key {end.key}"


def _start_ovs(lab: Lab, machine: Machine, balancer: Balancer) -> PrivateOvs:
    """Start the Open vSwitch of a machine, with the ports and flows that `xenoovs tunnels --far-end` prints for a
    DPU."""
    ovs = machine_ovs(lab, machine)
    # With the same MAC, the kernel would also take outer packets at this cable as its own.
    cable = f"link set dev eth0 address {_CABLE_PREFIX}{machine.mac[2:]}"
    LabNetns(lab.marks).batch([cable], namespace=machine.namespace)
    start_private_ovs(ovs.directory, datapath=Datapath.USERSPACE, netns=machine.namespace, marks=lab.marks)
    ovs.add_bridge(_MACHINE_BRIDGE, ["eth0"], datapath=Datapath.USERSPACE, secure=False)
    ovs.vsctl("set", "bridge", _MACHINE_BRIDGE, f"other_config:hwaddr={machine.mac}")
    ovs.add_bridge(_ENDS_BRIDGE, [], datapath=Datapath.USERSPACE)
    for end in machine.ends:
        ovs.vsctl(
            *("add-port", _ENDS_BRIDGE, end.interface, "--", "set", "interface", end.interface),
            *("type=internal", f'mac="{end.mac}"'),
        )
    receivers = tuple(_receivers(machine, balancer))
    for port in {port.name: port for receiver in receivers for port in receiver.ports}.values():
        _, *words = port.command(_ENDS_BRIDGE)
        ovs.vsctl(*words)
    ovs.add_flows(_ENDS_BRIDGE, [render_flow_to_send(flow) for receiver in receivers for flow in receiver.flows])
    return ovs


def _receivers(machine: Machine, balancer: Balancer) -> Iterator[Receiver]:
    """Yield what `xenoovs tunnels --far-end` prints for each backend at the remote of a machine. Without `return:
    switch`, answers leave by the machine's own cable, and no packet matches the flows that send them to LOCAL. Such
    services come first: where services share a VIP and a backend, the flows with `return: switch` replace theirs."""
    interfaces = {(end.type, end.key, end.dst_port): end.interface for end in machine.ends}
    for service in sorted(balancer.services, key=lambda service: service.returns is Returns.SWITCH):
        for backend in service.backends:
            end = remote_end_of(backend.next_hop, balancer.switch_tunnels)
            if end is None or str(end.remote) != machine.outer_address:
                continue
            alone = replace(balancer, services=(replace(service, backends=(backend,)),))
            host_port = interfaces[end.tunnel.type.value, end.key, end.tunnel.dst_port]
            found = receiver_of(alone, backend.name, host_port=host_port, uplink=LOCAL)
            if found is not None:
                yield found


# IPsec of tunnels: policies and SAs at both ends, as an IKE daemon makes them, with keys of this lab alone. It applies
# to packets that the kernel sends, as with the emulated NIC. Open vSwitch in userspace bypasses it.


_MODULES = ("xfrm_user", "esp4", "gcm", "ctr", "ghash_generic", "seqiv", "drbg")
"""The kernel modules for IPsec. Without drbg, seqiv does not start."""

_KEY_BYTES, _ICV_BITS = 36, 128
"""AES-256-GCM with its salt, and a tag of 16 bytes (RFC 4106, 6, 8.1), as ovs-monitor-ipsec(8) uses it."""
_FIRST_SPI = 0x1000


@dataclass(frozen=True, slots=True)
class LabAssociations:
    """The SAs of a tunnel, one for each direction. `selector`: protocol and port of the tunnel's packets in the form of
    ip-xfrm(8). `number`: the unique `reqid` of both. `keys`: from the switch to the machine, and back."""

    local: str
    remote: str
    selector: str
    number: int
    keys: tuple[str, str]

    def lines(self, here: str) -> Iterator[str]:
        """Yield the commands of ip(8) for one end, which has the address `here`."""
        there = self.remote if here == self.local else self.local
        ways = ((self.local, self.remote), (self.remote, self.local))
        for way, ((source, destination), key) in enumerate(zip(ways, self.keys, strict=True)):
            spi = _FIRST_SPI + 2 * self.number + way
            identity = f"src {source} dst {destination} proto esp spi {spi} reqid {self.number} mode transport"
            yield f"xfrm state add {identity} aead rfc4106(gcm(aes)) 0x{key} {_ICV_BITS}"
        for direction, source, destination in (("out", here, there), ("in", there, here)):
            to = f"src {source} dst {destination}"
            template = f"tmpl {to} proto esp reqid {self.number} mode transport"
            yield f"xfrm policy add dir {direction} {to} {self.selector} {template}"


def check_userspace(balancer: Balancer) -> None:
    """Raise LabError if a tunnel has `ipsec`, which Open vSwitch in userspace bypasses."""
    for tunnel in balancer.switch_tunnels:
        if tunnel.ipsec is not None:
            raise LabError(
                f"tunnel {tunnel.name} has `ipsec`, and Open vSwitch in userspace bypasses the IPsec of the kernel: "
                "use `--nic emulated`, which has the kernel's datapath, or leave it out here"
            )


def add_ipsec(lab: Lab, balancer: Balancer) -> None:
    """Encrypt the tunnels with `ipsec`."""
    if not (found := associations_of(balancer)):
        return
    run(["modprobe", "-a", *_MODULES])
    netns, topology = LabNetns(lab.marks), lab.topology
    netns.batch((line for each in found for line in each.lines(each.local)), namespace=topology.switch_namespace)
    for machine in topology.machines:
        mine = (each for each in found if each.remote == machine.outer_address)
        netns.batch((line for each in mine for line in each.lines(each.remote)), namespace=machine.namespace)


def associations_of(balancer: Balancer) -> tuple[LabAssociations, ...]:
    """Return the SAs of all tunnels with `ipsec`, with new keys."""
    wanted = dict.fromkeys(_ends(balancer.remote_ends))
    return tuple(
        LabAssociations(*end, number, (secrets.token_hex(_KEY_BYTES), secrets.token_hex(_KEY_BYTES)))
        for number, end in enumerate(wanted, start=1)
    )


def _ends(ends: Iterable[RemoteEnd]) -> Iterator[tuple[str, str, str]]:
    for end in ends:
        if end.tunnel.ipsec is not None:
            port = end.tunnel.dst_port
            yield str(end.tunnel.local), str(end.remote), f"proto udp dport {port}" if port else "proto gre"

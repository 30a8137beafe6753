"""The ports in OVSDB that tunnels of Open vSwitch need, and the commands that make them, at both ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2s
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from xenoovs.compile.encoding import deliver, destination_is, family_is, source_is
from xenoovs.compile.pipeline import OTHER_PRIORITY, TUNNEL_RETURN_PRIORITY, Stage, below, cookie_of
from xenoovs.dataclass import dataclass, replace
from xenoovs.datapath.tunnel import BY_FLOW, IPSEC_OPTIONS
from xenoovs.errors import CompileError
from xenoovs.model.address import Family, Vip
from xenoovs.model.balancer import Balancer, Returns, Service
from xenoovs.model.next_hop import Tunneled, is_tunneled, remote_of_port
from xenoovs.model.tunnel import Bfd, Ipsec, RemoteEnd, SwitchTunnel, TunnelPorts, TunnelType, remote_end_of
from xenoovs.openflow.flow import Action, Field, Flow, FlowKey, Output, SetField, exact, match_of

if TYPE_CHECKING:
    from xenoovs.datapath.database import PortState
    from xenoovs.datapath.outer import Encapsulation

MARK = "xenoovs"
"""The key in external_ids of table Interface by which ports made by xenoovs are known."""

_ENDS = ("remote_ip", "key")
_WAYS = ("in_key", "out_key")
"""Keys for one direction, which override `key` (set_tunnel_config() of lib/netdev-vport.c)."""

BFD_MAC = "00:23:20:00:00:01"
"""The MAC to which Open vSwitch sends BFD by default. The receiver matches it by option: otherwise it matches the
protocol and bits of the UDP port of all packets out of the tunnel, and answers need up to 17 megaflows instead of one
(bfd_should_process_flow() of lib/bfd.c)."""

_BFD = "bfd"


@dataclass(frozen=True, slots=True)
class WantedPort:
    """A tunnel port in table Interface. `options`: required options; further ones do no harm. `bfd`: the same for
    column bfd. `psk_file`: the file with the pre-shared key, None if not needed. No command has the key: every user of
    a host can read arguments (proc(5), cmdline), and ovs-vsctl(8) logs them."""

    name: str
    type: str
    options: tuple[tuple[str, str], ...]
    psk_file: str | None = None
    bfd: tuple[tuple[str, str], ...] = ()

    @property
    def settings(self) -> dict[str, str]:
        """Return options and keys of column bfd, by names such as `bfd:min_rx`."""
        return dict(self.options) | {f"{_BFD}:{key}": value for key, value in self.bfd}

    @property
    def digest(self) -> str:
        """Return the value of `external_ids:xenoovs`: the port is ours, and made for these options."""
        made_for = f"{self.type} {self.options} {self.psk_file}" + (f" {self.bfd}" if self.bfd else "")
        return blake2s(made_for.encode(), digest_size=4).hexdigest()

    def command(self, bridge: str) -> tuple[str, ...]:
        """Return the words of the command that makes the port, without the key (ovs-vsctl(8))."""
        return (
            *("ovs-vsctl", "--may-exist", "add-port", bridge, self.name),
            *("--", "set", "interface", self.name, f"type={self.type}"),
            *(f"{key if ':' in key else f'options:{key}'}={value}" for key, value in self.settings.items()),
            f"external_ids:{MARK}={self.digest}",
        )

    def misleads(self, options: Mapping[str, str]) -> str | None:
        """Return why packets to a port with these options go to another machine, or unencrypted, if they do."""
        needed = [key for key, _ in self.options if key in IPSEC_OPTIONS]
        for key in (*needed, *(("psk",) if self.psk_file is not None else ())):
            if key not in options:
                return f"would send unencrypted: it has no option {key}"
        for key, value in self.options:
            if key in _ENDS and options.get(key) != value:
                return f"has {key}={options.get(key, '(none)')} instead of {value}"
            if key == "key" and options.get("out_key", value) != value:
                return f"has out_key={options['out_key']} instead of {value}"
        return None

    def surplus(self, settings: Mapping[str, str]) -> tuple[str, ...]:
        """Return the settings that are not in the config and send packets otherwise than the config says."""
        wanted = {*self.settings, *(("psk",) if self.psk_file is not None else ())}
        found = ("dst_port", *_WAYS, *IPSEC_OPTIONS, f"{_BFD}:enable")
        return tuple(key for key in found if key in settings and key not in wanted)


def settings_of(port: PortState) -> dict[str, str]:
    """Return the settings of a port in the form of `WantedPort.settings`. BFD that is not enabled is left out."""
    bfd = port.bfd if port.bfd.get("enable") == "true" else {}
    return dict(port.options) | {f"{_BFD}:{key}": value for key, value in bfd.items()}


def wanted_ports(balancer: Balancer) -> tuple[WantedPort, ...]:
    """Return the ports of all tunnels: shared ones always, the port of a remote while it has a backend."""
    found = [port for tunnel in balancer.switch_tunnels for port in _ports_of(tunnel, balancer)]
    return tuple(sorted(found, key=lambda port: port.name))


def tagged_tunnels(balancer: Balancer) -> frozenset[str]:
    """Return the tunnel ports in which frames may keep a tag: of services of every VLAN, if others have a VLAN."""
    hops = (each.next_hop for one in balancer.services if one.claim.vlan is None for each in one.backends)
    found = frozenset(hop.port for hop in hops if is_tunneled(hop))
    return found if any(service.claim.vlan for service in balancer.services) else frozenset()


def _ports_of(tunnel: SwitchTunnel, balancer: Balancer) -> Iterator[WantedPort]:
    if tunnel.ports is TunnelPorts.SHARED:
        yield port_of(tunnel, None)
        return
    for name in balancer.tunnel_ports:
        remote = remote_of_port(name)
        if remote is not None and tunnel.port_to(remote) == name:
            yield port_of(tunnel, remote)


def port_of(tunnel: SwitchTunnel, remote: IPv4Address | None) -> WantedPort:
    """Return the port of a tunnel to a remote; None for remotes that flows choose."""
    usual = tunnel.type.dst_port
    options = {
        "remote_ip": BY_FLOW if remote is None else str(remote),
        "local_ip": str(tunnel.local),
        "key": BY_FLOW,
        **({"dst_port": str(tunnel.dst_port)} if tunnel.dst_port != usual else {}),
        **_certificates(tunnel.ipsec),
    }
    psk_file = None if tunnel.ipsec is None else tunnel.ipsec.psk_file
    name = tunnel.name if remote is None else tunnel.port_to(remote)
    return WantedPort(name, tunnel.type.value, tuple(options.items()), psk_file, tuple(_bfd(tunnel.bfd).items()))


def _bfd(bfd: Bfd | None) -> dict[str, str]:
    """Return column bfd. Each end sends as fast as the other one receives (ovs-vswitchd.conf.db(5), table Interface),
    and waits for as many messages as the other end announces (bfd_process_packet() of lib/bfd.c)."""
    if bfd is None:
        return {}
    interval = str(bfd.interval_ms)
    return {
        **{"enable": "true", "min_rx": interval, "min_tx": interval, "mult": str(bfd.multiplier)},
        "bfd_remote_dst_mac": BFD_MAC,
    }


def _certificates(ipsec: Ipsec | None) -> dict[str, str]:
    given = {} if ipsec is None else {"remote_cert": ipsec.remote_cert, "remote_name": ipsec.remote_name}
    return {key: value for key, value in given.items() if value is not None}


def encapsulation_to(end: RemoteEnd) -> Encapsulation:
    """Return the encapsulation to the far end of a tunnel, without key and device."""
    from xenoovs.datapath.outer import GRE, UDP, Encapsulation

    return Encapsulation(
        device="",
        remote=int(end.remote),
        local=int(end.tunnel.local),
        protocol=GRE if end.tunnel.type is TunnelType.GRE else UDP,
        dst_port=end.tunnel.dst_port or None,
    )


# What the bridge at the other end of a tunnel needs, where a backend is behind a DPU: its port and its flows.
#
# The source of the tunnel is always matched: otherwise any host that reaches the UDP port could send packets to it.


@dataclass(frozen=True, slots=True)
class Receiver:
    """The receiving end of a tunnel. `authenticates_by`: the option of the ports by which this end authenticates the
    balancer, whose value is in no config of the balancer; None without IPsec."""

    address: IPv4Address
    ports: tuple[WantedPort, ...]
    flows: tuple[Flow, ...]
    authenticates_by: str | None = None


def receiver_of(balancer: Balancer, backend: str, *, host_port: str, uplink: str) -> Receiver | None:
    """Return what the bridge of a backend needs; None if no backend of this name is behind a tunnel.

    Args:
        backend: Its name; services may share it.
        uplink: The port by which direct answers leave.

    Raises:
        CompileError: Services that share the backend and a VIP have different ways back, or the name stands for two
            servers.
    """
    served = [
        (service, end)
        for service in balancer.services
        for one in service.backends
        if one.name == backend and (end := remote_end_of(one.next_hop, balancer.switch_tunnels)) is not None
    ]
    if not served:
        return None
    named, first = served[0]
    tunnel = first.tunnel
    for service, end in served:
        if (end.tunnel, end.remote) != (tunnel, first.remote):
            raise CompileError(
                service=service.name,
                reason=f"its backend {backend} is at {end.remote} of {end.tunnel.name}, but that of {named.name} at "
                f"{first.remote} of {tunnel.name}: these are two servers, so give one of them another name",
            )
    # What it says of the server's certificate does not hold of ours.
    here = replace(tunnel, local=first.remote, ipsec=None)
    ports, flows = dict[str, WantedPort](), dict[FlowKey, Flow]()
    ways = dict[Vip | None, Service]()
    for service, end in served:
        remote = None if here.ports is TunnelPorts.SHARED else tunnel.local
        port = port_of(here, remote)
        ports[port.name] = port
        back = Tunneled(end.mac, port.name, tunnel.local, end.key)
        for family in service.claim.served_families:
            vips: tuple[Vip | None, ...] = service.claim.vips_of(family) or (None,)
            for vip in vips:
                if ways.setdefault(vip, service).returns is not service.returns:
                    raise CompileError(
                        service=service.name,
                        reason=f"answers from {vip} have another `return` than those of {ways[vip].name}, which has "
                        f"{backend} and this VIP too; nothing tells them apart there, so write the same in both",
                    )
                answers = _answers(back) if service.returns is Returns.SWITCH else (Output(uplink),)
                flows |= _by_key(_arriving(end, port.name, family, vip, host_port))
                flows |= _by_key(_leaving(family, vip, host_port, answers))
    for name in ports:
        drop = FlowKey(Stage.CLASSIFY.table, OTHER_PRIORITY, match_of((), in_port=name))
        flows[drop] = Flow(drop, cookie_of(Stage.CLASSIFY), ())
    known_by = None if tunnel.ipsec is None else tunnel.ipsec.option
    return Receiver(first.remote, tuple(ports.values()), tuple(flows.values()), known_by)


def _by_key(flows: Iterator[Flow]) -> dict[FlowKey, Flow]:
    return {flow.key: flow for flow in flows}


def _answers(back: Tunneled) -> tuple[Action, ...]:
    """Return the actions that send a packet back. The server wrote the destination MAC that it needs there."""
    found = deliver(back, None)
    return tuple(each for each in found if not (isinstance(each, SetField) and each.field is Field.DL_DST))


def _arriving(end: RemoteEnd, port: str, family: Family, vip: Vip | None, host_port: str) -> Iterator[Flow]:
    conditions = (
        exact(Field.TUN_ID, end.key),
        exact(Field.TUN_SRC, int(end.tunnel.local)),
        family_is(family),
        *(() if vip is None else (destination_is(vip),)),
    )
    key = FlowKey(Stage.CLASSIFY.table, TUNNEL_RETURN_PRIORITY, match_of(conditions, in_port=port))
    yield Flow(key, cookie_of(Stage.CLASSIFY), (Output(host_port),))


def _leaving(family: Family, vip: Vip | None, host_port: str, answers: tuple[Action, ...]) -> Iterator[Flow]:
    if vip is None:
        return
    conditions = (family_is(family), source_is(vip))
    key = FlowKey(Stage.CLASSIFY.table, below(TUNNEL_RETURN_PRIORITY, vip), match_of(conditions, in_port=host_port))
    yield Flow(key, cookie_of(Stage.CLASSIFY), answers)

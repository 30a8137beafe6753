"""Tunnels of Open vSwitch in a config: what must hold between their values, and the model that they make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from xenoovs.model.address import Mac
from xenoovs.model.balancer import Returns, ServiceMode, Uplinks
from xenoovs.model.next_hop import NextHop, Tunneled, remote_of_port
from xenoovs.model.schema import BackendForm, ServiceForm
from xenoovs.model.switch_tunnel import Ipsec, SwitchTunnel, TunnelPorts
from xenoovs.model.tunnel import TunnelType
from xenoovs.model.values import OTHER, KeyPath, Remark
from xenoovs.openflow.flow import MAX_PORT_NAME

NumberedTunnel = tuple[int, SwitchTunnel]
Tunnels = Mapping[str, SwitchTunnel]

_SUFFIX = "-c0a84d0b"
"""What a port for one remote has behind the name of its tunnel."""
_LONGEST_NAME = MAX_PORT_NAME - len(_SUFFIX)


def tunneled(backend: BackendForm, tunnels: Tunnels) -> NextHop | None:
    """Return the next hop of a backend behind one of these tunnels; None: it is behind none."""
    tunnel = tunnels.get(backend.egress or "")
    if tunnel is None or backend.remote is None or not isinstance(backend.mac, Mac):
        return None
    key = tunnel.key if backend.key is None else backend.key
    return Tunneled(backend.mac, tunnel.port_to(backend.remote), backend.remote, key or 0)


def check_switch_tunnels(switch: Uplinks, tunnels: Iterable[NumberedTunnel]) -> Iterator[Remark]:
    """Find mistakes between the values of tunnels of Open vSwitch."""
    shared, listening = dict[object, int](), dict[int, tuple[int, TunnelType]]()
    for index, tunnel in tunnels:
        here = ("tunnels", index)
        yield from _check_name(switch, tunnel, here)
        yield from _check_key(tunnel.type, tunnel.key, here)
        if tunnel.type is TunnelType.GRE and tunnel.dst_port:
            yield Remark((*here, "dst_port"), "gre is no UDP and has no port; leave the key out")
        if tunnel.ipsec is not None:
            yield from _check_ipsec(tunnel, tunnel.ipsec, here)
        if tunnel.bfd is not None and tunnel.ports is TunnelPorts.SHARED:
            message = "BFD watches one remote by the port that leads to it alone; write `ports: each`"
            yield Remark((*here, "ports"), message)
        if tunnel.ports is TunnelPorts.SHARED:
            other = shared.setdefault((tunnel.type, tunnel.local, tunnel.dst_port), index)
            if other != index:
                yield Remark(
                    here,
                    f"{OTHER} is a shared {tunnel.type.value} port of {tunnel.local} already, and Open vSwitch has "
                    "one; let backends name that tunnel with a `key` of their own, or write `ports: each`",
                    other=("tunnels", other),
                )
        first, kind = listening.setdefault(tunnel.dst_port, (index, tunnel.type))
        if tunnel.dst_port and kind is not tunnel.type:
            # Its device is bound to this port at all addresses (geneve_socket_create() and vxlan_sock_add() of Linux).
            yield Remark(
                here if tunnel.dst_port == tunnel.type.dst_port else (*here, "dst_port"),
                f"{OTHER} receives {kind.value} at UDP port {tunnel.dst_port}, and a port has one type; write another "
                "`dst_port` at both ends",
                other=("tunnels", first),
            )


def check_remotes(services: Iterable[tuple[int, ServiceForm]], tunnels: Tunnels) -> Iterator[Remark]:
    """Find remotes to which two tunnels lead that Open vSwitch cannot tell apart by what arrives.

    It refuses a second port with the same addresses, and gives what a remote sends to the port that names the remote
    (tnl_port_add() and tnl_find() of ofproto/tunnel.c).
    """
    owners = dict[object, tuple[str, KeyPath]]()
    for number, service in services:
        for index, backend in enumerate(service.backends):
            tunnel, path = tunnels.get(backend.egress or ""), ("services", number, "backends", index)
            if tunnel is None or backend.remote is None:
                continue
            identity = (tunnel.type, tunnel.local, tunnel.dst_port, backend.remote)
            owner, other = owners.setdefault(identity, (tunnel.name, path))
            if owner != tunnel.name:
                yield Remark(
                    (*path, "remote"),
                    f"{OTHER} is at {backend.remote} of {owner}, which is {tunnel.type.value} from {tunnel.local} too: "
                    f"Open vSwitch has one port for what comes from there; use {owner} here, with a `key` of its own",
                    other=other,
                )


def _check_name(switch: Uplinks, tunnel: SwitchTunnel, here: KeyPath) -> Iterator[Remark]:
    name, path = tunnel.name, (*here, "name")
    if name == switch.bridge or name in switch.ingress:
        yield Remark(path, f"{name} is another port of the bridge; a tunnel has a port of its own")
    if name == switch.egress:
        yield Remark(
            ("switch", "egress"),
            f"{name} is a tunnel, which says nothing about the remote of other traffic; name the port of the wire",
        )
    if remote_of_port(name) is not None:
        yield Remark(path, f"the end of {name} means the address of a remote; write a name without it")
    elif tunnel.ports is TunnelPorts.EACH and len(name.encode()) > _LONGEST_NAME:
        yield Remark(
            path,
            f"{name} is too long for ports such as {name}{_SUFFIX}, as names have at most {MAX_PORT_NAME} bytes; write "
            f"at most {_LONGEST_NAME}",
        )


def _check_key(kind: TunnelType, key: int | None, here: KeyPath) -> Iterator[Remark]:
    if key is not None and key >> kind.key_bits:
        yield Remark((*here, "key"), f"{key} does not fit the {kind.key_bits} bits of a VNI; write at most 16777215")


def _check_ipsec(tunnel: SwitchTunnel, ipsec: Ipsec, here: KeyPath) -> Iterator[Remark]:
    if tunnel.ports is TunnelPorts.SHARED:
        yield Remark((*here, "ports"), "IPsec needs a port for each remote, which has its address; write `ports: each`")
    usual = tunnel.type.dst_port
    if usual and tunnel.dst_port != usual:
        # They are text in transp_tmpl of ipsec/ovs-monitor-ipsec.in (Open vSwitch 3.1), whatever the interface says.
        yield Remark(
            (*here, "dst_port"),
            f"ovs-monitor-ipsec encrypts {tunnel.type.value} to port {usual} alone, so packets to {tunnel.dst_port} "
            "would leave unencrypted; leave the key out",
        )
    named = [key for key in ("psk_file", "remote_cert", "remote_name") if getattr(ipsec, key) is not None]
    if len(named) != 1:
        what = f"{' and '.join(named)} are too many" if named else "nothing says how remotes are known"
        yield Remark((*here, "ipsec"), f"{what}; write one of psk_file, remote_cert, remote_name")


def check_tunnelled_backends(
    service: ServiceForm, path: KeyPath, *, switch: Uplinks, tunnels: Tunnels
) -> Iterator[Remark]:
    """Find backends that do not fit their tunnel, and returns by the switch that cannot be.

    Args:
        tunnels: Those of Open vSwitch on this bridge, by name.
    """
    for index, backend in enumerate(service.backends):
        here, tunnel = (*path, "backends", index), tunnels.get(backend.egress or "")
        if tunnel is None:
            yield from _check_without_tunnel(backend, tunnels, here)
        elif service.mode is ServiceMode.NAT:
            yield Remark(
                (*here, "egress"), f"{tunnel.name} is a tunnel, through which there is no NAT; use `mode: dsr`"
            )
        elif service.vlan or backend.vlan is not None:
            yield Remark(
                here,
                f"{tunnel.name} is a tunnel, in which frames would keep their tag; write `vlan: untagged` in the "
                "service and none here",
            )
        else:
            yield from _check_backend(backend, tunnel, here)
    if service.returns is Returns.SWITCH:
        yield from _check_returns(service, switch, tunnels, (*path, "return"))


def _check_without_tunnel(backend: BackendForm, tunnels: Tunnels, here: KeyPath) -> Iterator[Remark]:
    named = f"such as {min(tunnels)}" if tunnels else "with an entry of `tunnels` that has no `host_port`"
    for key in ("remote", "key"):
        if getattr(backend, key) is not None:
            yield Remark((*here, key), f"{backend.name} is behind no tunnel; name one as `egress`, {named}")


def _check_backend(backend: BackendForm, tunnel: SwitchTunnel, here: KeyPath) -> Iterator[Remark]:
    if backend.remote is None:
        yield Remark(here, f"{tunnel.name} is a tunnel; add `remote:`, the address of this backend's end")
    elif backend.remote == tunnel.local:
        yield Remark((*here, "remote"), f"{backend.remote} is our own end of {tunnel.name}; write that of the backend")
    if backend.key is None and tunnel.key is None:
        yield Remark(here, f"neither {backend.name} nor {tunnel.name} has a key; add `key: 5001` to one of them")
    yield from _check_key(tunnel.type, backend.key, here)
    if not isinstance(backend.mac, Mac):
        why = "only its own MAC is taken in at the end of a tunnel" if backend.mac else "no ARP goes through a tunnel"
        yield Remark((*here, "mac") if backend.mac else here, f"{why}; write the MAC of its device there")


def _check_returns(service: ServiceForm, switch: Uplinks, tunnels: Tunnels, here: KeyPath) -> Iterator[Remark]:
    if not service.vip:
        yield Remark(here, "without a VIP nothing says which packets of a tunnel are answers; add `vip:`")
    if len(set(switch.ingress)) > 1:
        yield Remark(
            here,
            f"{len(switch.ingress)} ingress ports do not say by which of them answers leave; write `return: direct`",
        )
    if all(backend.egress not in tunnels for backend in service.backends):
        yield Remark(here, "no backend is behind a tunnel of Open vSwitch; leave the key out")

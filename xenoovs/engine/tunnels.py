"""What keeps packets out of tunnels of Open vSwitch: ports that lead elsewhere, and policies of IPsec that the NIC or
a userspace datapath would bypass."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address

from xenoovs.compile.tunnel_ports import wanted_ports
from xenoovs.datapath.host import UNKNOWN_TYPE, BridgeState, Unknown
from xenoovs.model.balancer import Balancer
from xenoovs.model.switch_tunnel import RemoteEnd
from xenoovs.model.tunnel import TunnelType
from xenoovs.switch.api import PortCheck, Switch


def misleading(balancer: Balancer, found: PortCheck) -> dict[str, str]:
    """Return the ports of tunnels that lead elsewhere, or unencrypted, with the reason."""
    reasons, used = dict[str, str](), set(balancer.tunnel_ports)
    for wanted in wanted_ports(balancer) if balancer.switch_tunnels else ():
        state = found.state.port(wanted.name)
        if wanted.name not in used or state is None or wanted.name in found.unusable or state.type == UNKNOWN_TYPE:
            continue
        if state.type != wanted.type:
            reason: str | None = f"is of type {state.type}, not {wanted.type}"
        else:
            reason = wanted.misleads(state.options)
        if reason is not None:
            reasons[wanted.name] = f"{reason}: `xenoovs doctor FILE --fix` corrects it"
    return reasons


def unencrypted(switch: Switch, state: BridgeState, balancer: Balancer) -> dict[tuple[str, IPv4Address], str]:
    """Return the remotes, by tunnel port and address, to which packets would leave unencrypted against a policy.

    A tunnel with `ipsec: {offload: none}` or `crypto` is left to the CPU: the config says so. Where the policies cannot
    be read, none is returned.
    """
    ends = tuple(_ends(balancer))
    is_userspace = state.datapath_type != "system"
    if not ends or not (is_userspace or state.hw_offload):
        return {}
    # Imported here: most configs have no tunnels.
    from xenoovs.datapath.ipsec import EncapsulationUse, cleartext
    from xenoovs.datapath.outer import GRE, UDP, Encapsulation

    outers = {
        end: Encapsulation(
            device="",
            remote=int(end.remote),
            local=int(end.tunnel.local),
            protocol=GRE if end.tunnel.type is TunnelType.GRE else UDP,
            dst_port=end.tunnel.dst_port or None,
        )
        for end in ends
    }
    found = switch.read_ipsec(tuple(dict.fromkeys(outers.values())))
    if isinstance(found, Unknown):
        return {}
    uses = (EncapsulationUse(outer, 0, 0, is_userspace) for outer in dict.fromkeys(outers.values()))
    clear = {each.use.encapsulation: f"({each.policy}): {each.reason}" for each in cleartext(uses, found)}
    return {(end.port, end.remote): clear[outer] for end, outer in outers.items() if outer in clear}


def _ends(balancer: Balancer) -> Iterator[RemoteEnd]:
    return (end for end in balancer.remote_ends if not end.tunnel.is_encrypted_by_cpu)

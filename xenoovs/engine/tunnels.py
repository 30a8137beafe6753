"""What keeps packets out of tunnels of Open vSwitch: ports that lead elsewhere, policies of IPsec that the NIC or
a userspace datapath would bypass, and policies that are missing."""

from __future__ import annotations

from dataclasses import replace

from xenoovs.compile.tunnel_ports import encapsulation_to, wanted_ports
from xenoovs.datapath.database import UNKNOWN_TYPE
from xenoovs.datapath.fact import Unknown
from xenoovs.model.balancer import Balancer
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


def with_policies(switch: Switch, found: PortCheck, balancer: Balancer) -> PortCheck:
    """Return the ports with the remotes to which packets would leave unencrypted, against a policy or the config.

    Where the policies cannot be read, it names no remote, but the reason if the config requires IPsec. A tunnel with
    `ipsec: {offload: none}` or `crypto` is left to the CPU: what the NIC would do with it is not asked. What the config
    wants encrypted never is in a userspace datapath, whatever the policies.
    """
    is_userspace = found.is_userspace
    passes_kernel = not (is_userspace or found.state.hw_offload)
    # A port that cannot be used has its own reason.
    usable = {port.name for port in found.state.ports} - found.missing.keys() - found.unusable.keys()
    ends = tuple(end for end in balancer.remote_ends if end.port in usable)
    wanted = tuple(end for end in ends if end.tunnel.ipsec is not None)
    past_kernel = () if passes_kernel else tuple(end for end in ends if not end.tunnel.is_encrypted_by_cpu)
    if is_userspace:
        found = replace(found, uncovered=tuple(dict.fromkeys((end.port, end.remote) for end in wanted)))
        wanted, past_kernel = (), tuple(end for end in past_kernel if end not in wanted)
    outers = {end: encapsulation_to(end) for end in (*wanted, *past_kernel)}
    if not outers:
        return found
    # Imported here: most configs have no tunnels.
    from xenoovs.datapath.ipsec import EncapsulationUse, cleartext, uncovered

    state = switch.read_ipsec(tuple(dict.fromkeys(outers.values())))
    if isinstance(state, Unknown):
        return replace(found, unread_policies=state.reason if wanted else "")
    uses = {end: EncapsulationUse(outer, 0, 0, is_userspace) for end, outer in outers.items()}
    clear = {(end.port, end.remote): cleartext((uses[end],), state) for end in past_kernel}
    return replace(
        found,
        unencrypted={end: f"({each.policy}): {each.reason}" for end, each_of in clear.items() for each in each_of},
        uncovered=(
            *found.uncovered,
            *dict.fromkeys((end.port, end.remote) for end in wanted if uncovered((uses[end],), state)),
        ),
    )

"""IPsec of the tunnels in a config: what may not begin, and the keys that Open vSwitch gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from xenoovs.compile.tunnel_ports import IPSEC_OPTIONS
from xenoovs.datapath.host import Fact, Unknown
from xenoovs.engine.change import Change
from xenoovs.errors import FileUnusable, InterfaceMissing, SwitchError, WouldBeUnencrypted
from xenoovs.model.balancer import Balancer
from xenoovs.model.switch_tunnel import Ipsec
from xenoovs.model.tunnel import TunnelType
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.interface_options import has_options, write_options
from xenoovs.verify.doctor.check import RequiredKey

if TYPE_CHECKING:
    from xenoovs.datapath.outer import Encapsulation
    from xenoovs.switch.management import ManagementSwitch


def require_encrypted(switch: ManagementSwitch, change: Change) -> None:
    """Raise WouldBeUnencrypted if a change makes a NIC send packets that a policy of IPsec covers.

    A tunnel with `ipsec: {offload: none}` or `crypto` is left to the CPU: the config says so.
    """
    balancer = change.asked.balancer
    outers = dict.fromkeys(outers_of(balancer))
    if not outers or change.difference.is_empty:
        return
    # Imported here: most configs have no tunnels.
    from xenoovs.datapath.ipsec import EncapsulationUse, address_text, cleartext
    from xenoovs.switch.vswitchd import netns_of
    from xenoovs.switch.xfrm import read_ipsec

    state = switch.describe(change.bridge)
    is_userspace = state.datapath_type != "system"
    place = netns_of(switch.endpoint)
    if isinstance(place, Unknown) or not (is_userspace or state.hw_offload):
        return
    found = read_ipsec(place, outers)
    if isinstance(found, Unknown):
        return
    clear = cleartext((EncapsulationUse(outer, 0, 0, is_userspace) for outer in outers), found)
    if clear:
        remotes = (address_text(each.use.encapsulation.remote, is_ipv6=False) for each in clear)
        covered = zip(remotes, clear, strict=True)
        raise WouldBeUnencrypted(tunnels=(f"packets to {to} ({each.policy}): {each.reason}" for to, each in covered))


def outers_of(balancer: Balancer) -> Iterator[Encapsulation]:
    """Yield what leaves to each remote of backends, unless the config leaves its encryption to the CPU."""
    from xenoovs.datapath.outer import GRE, UDP, Encapsulation

    for end in balancer.remote_ends:
        tunnel = end.tunnel
        if not tunnel.is_encrypted_by_cpu:
            yield Encapsulation(
                device="",
                remote=int(end.remote),
                local=int(tunnel.local),
                protocol=GRE if tunnel.type is TunnelType.GRE else UDP,
                dst_port=tunnel.dst_port or None,
            )


def key_options(ipsec: Ipsec) -> dict[str, str]:
    """Return the options of an interface for its remote. Raises FileUnusable."""
    if ipsec.psk_file is not None:
        return {"psk": _read_key(Path(ipsec.psk_file))}
    found = {"remote_cert": ipsec.remote_cert, "remote_name": ipsec.remote_name}
    return {name: value for name, value in found.items() if value is not None}


def _read_key(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise FileUnusable(file=str(path), reason=f"the pre-shared key cannot be read: {reason}") from None
    if not text or "\n" in text:
        raise FileUnusable(file=str(path), reason="a pre-shared key is one line")
    return text


def required_keys(balancer: Balancer, endpoint: Endpoint) -> Iterator[RequiredKey]:
    """Yield what the ports of tunnels with IPsec need, and whether Open vSwitch has it."""
    for port, ipsec in _ports_with_ipsec(balancer):
        has_key: Fact[bool]
        try:
            has_key = has_options(endpoint, port, key_options(ipsec))
        except InterfaceMissing:
            has_key = False
        except (FileUnusable, SwitchError) as error:
            has_key = Unknown(str(error))
        yield RequiredKey(port, ipsec.psk_file, has_key, is_readable_by_all=_is_readable_by_all(ipsec.psk_file))


def write_keys(balancer: Balancer, endpoint: Endpoint) -> None:
    """Give Open vSwitch the keys that it lacks. Raises FileUnusable, SwitchError."""
    for port, ipsec in _ports_with_ipsec(balancer):
        options = key_options(ipsec)
        if not has_options(endpoint, port, options):
            write_options(endpoint, port, options, without=IPSEC_OPTIONS)


def _ports_with_ipsec(balancer: Balancer) -> tuple[tuple[str, Ipsec], ...]:
    found = {end.port: end.tunnel.ipsec for end in balancer.remote_ends if end.tunnel.ipsec is not None}
    return tuple(found.items())


def _is_readable_by_all(path: str | None) -> bool:
    try:
        return path is not None and bool(Path(path).stat().st_mode & 0o077)
    except OSError:
        return False

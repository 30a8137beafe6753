"""IPsec of tunnels in a lab: policies and SAs at both ends, as an IKE daemon makes them, with keys of this lab alone.

It applies to packets that the kernel sends, as with the emulated NIC. Open vSwitch in userspace bypasses it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator

from xenoovs.dataclass import dataclass
from xenoovs.errors import LabError
from xenoovs.model.balancer import Balancer
from xenoovs.model.tunnel import RemoteEnd

MODULES = ("xfrm_user", "esp4", "gcm", "ctr", "ghash_generic", "seqiv", "drbg")
"""What the kernel needs for it. Without drbg, seqiv cannot begin."""

_KEY_BYTES, _ICV_BITS = 36, 128
"""AES-256-GCM with its salt, and a tag of 16 bytes (RFC 4106, 6, 8.1), as ovs-monitor-ipsec(8) uses it."""
_FIRST_SPI = 0x1000


@dataclass(frozen=True, slots=True)
class LabAssociations:
    """What two ends of a tunnel have in common: an SA each way. `selector`: the protocol and port of the tunnel's
    packets, as ip-xfrm(8) writes them. `number`: `reqid` of both, unlike that of others. `keys`: from the switch to the
    machine, and back."""

    local: str
    remote: str
    selector: str
    number: int
    keys: tuple[str, str]

    def switch_lines(self) -> Iterator[str]:
        yield from self._associations()
        yield from self._policies(self.local, self.remote)

    def machine_lines(self) -> Iterator[str]:
        yield from self._associations()
        yield from self._policies(self.remote, self.local)

    def _associations(self) -> Iterator[str]:
        ways = ((self.local, self.remote), (self.remote, self.local))
        for way, ((source, destination), key) in enumerate(zip(ways, self.keys, strict=True)):
            spi = _FIRST_SPI + 2 * self.number + way
            identity = f"src {source} dst {destination} proto esp spi {spi} reqid {self.number} mode transport"
            yield f"xfrm state add {identity} aead rfc4106(gcm(aes)) 0x{key} {_ICV_BITS}"

    def _policies(self, here: str, there: str) -> Iterator[str]:
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


def associations_of(balancer: Balancer) -> tuple[LabAssociations, ...]:
    """Return the ends of the tunnels with `ipsec`, with new keys."""
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

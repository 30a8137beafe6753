"""What a backend says of itself, where its network namespace is on this host."""

from __future__ import annotations

from xenoovs.datapath.host import BackendFacts, Seen, Unknown
from xenoovs.errors import ParseError
from xenoovs.switch import links
from xenoovs.switch.probe import Place

_KEYS = ("arp_ignore", "arp_announce", "rp_filter")


def read_backend(place: Place, device: str) -> Seen[BackendFacts]:
    """MACs, addresses on the loopback, and the settings of `device` in the namespace `place`."""
    macs = place.read(links.LINKS, links.parse_macs)
    loopback = place.read(links.LOOPBACK, links.parse_addresses)
    files = [f"/proc/sys/net/ipv4/conf/{scope}/{key}" for key in _KEYS for scope in ("all", device)]
    sysctls = place.read(("cat", *files), parse_sysctls)
    if isinstance(macs, Unknown) or isinstance(loopback, Unknown) or isinstance(sysctls, Unknown):
        return next(fact for fact in (macs, loopback, sysctls) if isinstance(fact, Unknown))
    return BackendFacts(macs, loopback, sysctls)


def parse_sysctls(text: str) -> dict[str, int]:
    """Two lines for each of the settings: of `all`, of the device; the larger one works. Raises ParseError."""
    lines = text.split()
    if len(lines) != 2 * len(_KEYS) or not all(line.isascii() and line.isdigit() for line in lines):
        raise ParseError(text=text, offset=0, expected=f"{2 * len(_KEYS)} numbers, one a line")
    values = [int(line) for line in lines]
    return {key: max(values[2 * i : 2 * i + 2]) for i, key in enumerate(_KEYS)}

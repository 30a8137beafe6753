"""IPsec of the kernel: policies and security associations, as `ip xfrm` prints them, and which packets they concern.

Forms: xfrm_policy_info_print(), xfrm_state_info_print() of ip/ipxfrm.c of iproute2 4.19 to 7.1, which has no JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import TypeVar

from xenoovs.dataclass import dataclass, field
from xenoovs.datapath.megaflow import MaskedValue, parse_value, read_masked
from xenoovs.datapath.outer import GRE, UDP, Encapsulation
from xenoovs.errors import ParseError, counted
from xenoovs.regex import ASCII, regex

T = TypeVar("T")

POLICIES = ("ip", "xfrm", "policy")
STATES = ("ip", "-s", "xfrm", "state", "list", "nokeys")
"""Without the keys, so that no secret is read."""

PACKET = "packet"
"""The mode of offload in which the NIC encrypts and decrypts by itself (Linux 6.2)."""

_PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17, "gre": 47, "esp": 50, "ah": 51, "ipv6-icmp": 58, "sctp": 132}
_SELECTOR = regex(
    r"src (?P<src>[0-9a-f:./]+) dst (?P<dst>[0-9a-f:./]+)(?: proto (?P<proto>[a-z0-9-]+))?"
    r"(?: sport (?P<sport>[0-9]+))?(?: dport (?P<dport>[0-9]+))?(?P<rest>(?: [a-z]+ \S+)*) ?",
    ASCII,
)
_DIRECTION = regex(
    r"\s+(?P<kind>dir|socket) (?P<dir>in|out|fwd) (?:action (?P<action>\S+) )?(?:index \d+ )?"
    r"priority (?P<priority>\d+)",
    ASCII,
)
_TEMPLATE = regex(r"\s+tmpl src (?P<src>[0-9a-f:.]+) dst (?P<dst>[0-9a-f:.]+)", ASCII)
_LEVEL_USE = regex(r"\s+level use\b", ASCII)
_STATE = regex(r"src (?P<src>[0-9a-f:.]+) dst (?P<dst>[0-9a-f:.]+)", ASCII)
_SPI = regex(r"\s+proto (?P<proto>\S+) spi 0x[0-9a-f]+", ASCII)
_OFFLOAD = regex(
    r"\s+crypto offload parameters: dev (?P<device>\S+) (?:dir (?P<dir>in|out))? ?(?:mode (?P<mode>crypto|packet))?",
    ASCII,
)
_CURRENT = regex(r"\s+[0-9]+\(bytes\), (?P<packets>[0-9]+)\(packets\)", ASCII)


@dataclass(frozen=True, slots=True)
class IpsecPolicy:
    """One policy: which packets that leave need IPsec, or are exempt. `text`: its selector, as ip prints it.
    `priority`: of policies that match a packet, the lowest number counts. Protocol, ports and device: None for any.
    `has_more`: it matches more than that, such as a user. `requires`: whether packets leave with IPsec alone, or not at
    all; False for an exemption."""

    text: str
    priority: int
    source: MaskedValue
    destination: MaskedValue
    is_ipv6: bool = False
    protocol: int | None = None
    source_port: int | None = None
    destination_port: int | None = None
    device: str | None = None
    has_more: bool = False
    requires: bool = True

    def covers(self, outer: Encapsulation, local: int, device: str) -> bool:
        """Return whether it concerns every packet of a tunnel that leaves from `local`, by this device.

        The kernel looks for policies when the route is known (__xfrm4_selector_match() of net/xfrm/xfrm_policy.c).
        """
        return (
            self.is_ipv6 == outer.is_ipv6
            and not self.has_more
            and self.device in (None, device)
            and _contains(self.source, local)
            and _contains(self.destination, outer.remote)
            and self.protocol in (None, outer.protocol)
            # The source port differs from connection to connection (RFC 7348, 5; RFC 8926, 3.3).
            and self.source_port is None
            and self.destination_port in (None, outer.dst_port)
        )


def _contains(masked: MaskedValue, value: int) -> bool:
    return value & masked.mask == masked.value


@dataclass(frozen=True, slots=True)
class SecurityAssociation:
    """One security association (SA, RFC 4303). `source`, `destination`: outer addresses. `device`: to which it is
    offloaded; None if it is not. `direction`: `in` or `out`; None if not offloaded, or ip does not print it. `offload`:
    `crypto` or `packet`; None: likewise, as iproute2 before 6.2 prints no mode. `packets`: None: not printed."""

    source: int
    destination: int
    is_ipv6: bool
    device: str | None = None
    direction: str | None = None
    offload: str | None = None
    packets: int | None = None


@dataclass(frozen=True, slots=True)
class RouteTo:
    """The route to an address (ip-route(8), `get`). `source`: the address that they get; None if not printed.
    `gateway`: the next hop; None for the address itself. `mtu`: of the route; None for that of the device. `is_local`:
    the address is one of this host."""

    device: str
    source: int | None = None
    gateway: str | None = None
    mtu: int | None = None
    is_local: bool = False


@dataclass(frozen=True, slots=True)
class IpsecState:
    """What the kernel has. `routes`: by the text of the address; one that is missing has no route."""

    policies: tuple[IpsecPolicy, ...] = ()
    associations: tuple[SecurityAssociation, ...] = ()
    routes: Mapping[str, RouteTo] = field(default_factory=dict, hash=False)

    def policy(self, outer: Encapsulation, local: int, device: str) -> IpsecPolicy | None:
        """Return the policy that decides about a tunnel from `local` by a device; None if none does, or an exemption.

        Several with the same priority count in the order in which they were added (xfrm_policy_insert_list() of Linux).
        """
        covering = (each for each in self.policies if each.covers(outer, local, device))
        found = min(covering, key=lambda each: each.priority, default=None)
        return found if found is not None and found.requires else None

    def way(self, outer: Encapsulation) -> tuple[int | None, str]:
        """Return the local address of packets in a tunnel, and the device by which they leave; None, empty: unknown."""
        route = self.routes.get(address_text(outer.remote, is_ipv6=outer.is_ipv6))
        local = outer.local if outer.local is not None or route is None else route.source
        return local, outer.out_port or (route.device if route else "")

    def outgoing(self, outer: Encapsulation, local: int) -> tuple[SecurityAssociation, ...]:
        """Return the SAs from `local` to the remote of a tunnel."""
        return tuple(
            each
            for each in self.associations
            if (each.source, each.destination, each.is_ipv6) == (local, outer.remote, outer.is_ipv6)
        )


def parse_policies(text: str) -> tuple[IpsecPolicy, ...]:
    """Return the policies of packets that leave in the answer to POLICIES, but for those of sockets.

    Raises ParseError with the line.
    """
    return _parsed(text, _policy)


def _parsed(text: str, parse: Callable[[list[str]], T | None]) -> tuple[T, ...]:
    """Return the entries of a list; all lines of one but the first are indented. `parse`: raises ValueError."""
    begins, lines = [0], text.splitlines(keepends=True)
    begins += [number for number, line in enumerate(lines) if number and line.strip() and not line[0].isspace()]
    found = list[T]()
    for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True):
        try:
            entry = [line for line in "".join(lines[begin:end]).splitlines() if line.strip()]
            one = parse(entry) if entry else None
        except ValueError as error:
            raise ParseError(text=text, offset=sum(map(len, lines[:begin])), expected=str(error)) from None
        found += [] if one is None else [one]
    return tuple(found)


def _policy(lines: list[str]) -> IpsecPolicy | None:
    # A security label may stand between them.
    selector, direction = _SELECTOR.fullmatch(lines[0]), next(filter(None, map(_DIRECTION.match, lines[1:])), None)
    if selector is None or direction is None:
        raise ValueError("a policy as `ip xfrm policy` prints it")
    if direction["kind"] == "socket" or direction["dir"] != "out":
        return None
    is_ipv6 = ":" in selector["dst"]
    width = 128 if is_ipv6 else 32
    words = selector["rest"].split()
    rest = dict(zip(words[::2], words[1::2], strict=True))
    device = rest.pop("dev", None)
    if rest.get("uid") == "0":
        del rest["uid"]
    templates = sum(_TEMPLATE.match(line) is not None for line in lines)
    optional = sum(_LEVEL_USE.match(line) is not None for line in lines)
    return IpsecPolicy(
        text=lines[0].strip(),
        priority=int(direction["priority"]),
        source=read_masked(selector["src"], width),
        destination=read_masked(selector["dst"], width),
        is_ipv6=is_ipv6,
        protocol=_protocol(selector["proto"]),
        source_port=_port(selector["sport"]),
        destination_port=_port(selector["dport"]),
        device=device,
        has_more=bool(rest),
        requires=templates > optional or direction["action"] not in (None, "allow"),
    )


def _protocol(name: str | None) -> int | None:
    if name is None:
        return None
    return _PROTOCOLS[name] if name in _PROTOCOLS else parse_value(name, 8)


def _port(text: str | None) -> int | None:
    return None if text is None else parse_value(text, 16)


def parse_associations(text: str) -> tuple[SecurityAssociation, ...]:
    """Parse the answer to STATES: those of ESP. Raises ParseError with the line."""
    return _parsed(text, _association)


def _association(lines: list[str]) -> SecurityAssociation | None:
    addresses = _STATE.match(lines[0])
    identity = _SPI.match(lines[1]) if len(lines) > 1 else None
    if addresses is None or identity is None:
        raise ValueError("an SA as `ip xfrm state` prints it")
    if identity["proto"] != "esp":
        return None
    offload = next(filter(None, map(_OFFLOAD.match, lines)), None)
    current = next(filter(None, map(_CURRENT.match, lines)), None)
    is_ipv6 = ":" in addresses["dst"]
    width = 128 if is_ipv6 else 32
    return SecurityAssociation(
        source=parse_value(addresses["src"], width),
        destination=parse_value(addresses["dst"], width),
        is_ipv6=is_ipv6,
        device=offload["device"] if offload else None,
        direction=offload["dir"] if offload else None,
        offload=offload["mode"] if offload else None,
        packets=int(current["packets"]) if current else None,
    )


# What must not leave unencrypted, and does.


@dataclass(frozen=True, slots=True)
class EncapsulationUse:
    """Megaflows whose packets leave in one tunnel, encapsulated past the kernel's IPsec. `encapsulation`: without key
    and port. `is_userspace`: a userspace datapath sends them; else the NIC does."""

    encapsulation: Encapsulation
    megaflows: int
    packets: int
    is_userspace: bool = False


@dataclass(frozen=True, slots=True)
class Cleartext:
    """Packets of a tunnel that leave unencrypted although a policy, or the config, requires IPsec. `device`: by which
    they leave; empty if not known. `policy`: its selector; None if none covers them, and the config requires IPsec.
    `reason`: a clause."""

    use: EncapsulationUse
    local: int
    device: str
    policy: str | None
    reason: str

    def __str__(self) -> str:
        outer = self.use.encapsulation
        ends = (address_text(end, is_ipv6=outer.is_ipv6) for end in (self.local, outer.remote))
        port = f" port {outer.dst_port}" if outer.dst_port is not None else ""
        protocol = "UDP" if outer.protocol == UDP else "GRE" if outer.protocol == GRE else f"protocol {outer.protocol}"
        count = f"{counted(self.use.megaflows, 'megaflow')}, {counted(self.use.packets, 'packet')}"
        by = f" by {self.device}" if self.device else ""
        against = "" if self.policy is None else f", although a policy of IPsec covers it ({self.policy})"
        return f"{protocol}{port} from {' to '.join(ends)} leaves{by} unencrypted ({count}){against}: {self.reason}"


def cleartext(uses: Iterable[EncapsulationUse], state: IpsecState) -> tuple[Cleartext, ...]:
    """Return the tunnels that leave unencrypted although an outgoing policy covers them.

    The kernel's IPsec sees only packets that the kernel sends. A NIC that encapsulates encrypts them only by an SA with
    `offload packet` on the device by which they leave.
    """
    return tuple(found for use in uses if (found := _cleartext(use, state)) is not None)


def _cleartext(use: EncapsulationUse, state: IpsecState) -> Cleartext | None:
    outer = use.encapsulation
    local, device = state.way(outer)
    policy = None if local is None else state.policy(outer, local, device)
    if local is None or policy is None:
        return None
    associations = state.outgoing(outer, local)
    on_device = [each for each in associations if each.device == device and each.direction in (None, "out")]
    if use.is_userspace:
        reason = "a userspace datapath bypasses the kernel's IPsec"
    elif any(each.offload == PACKET for each in on_device):
        return None
    elif on_device:
        modes = ", ".join(sorted({each.offload or "without a mode" for each in on_device}))
        reason = f"the SA on {device} has offload {modes}, and the NIC encrypts what it encapsulates by `packet` alone"
    elif associations:
        reason = f"no SA is offloaded to {device}, so only the CPU encrypts, and it does not see them"
    else:
        reason = "there is no SA from here to there"
    return Cleartext(use, local, device, policy.text, reason)


def uncovered(uses: Iterable[EncapsulationUse], state: IpsecState) -> tuple[Cleartext, ...]:
    """Return the tunnels, of those that a config requires to be encrypted, that no outgoing policy covers.

    Policies are there before any SA, and hold packets back until there is one (xfrm_lookup() of
    net/xfrm/xfrm_policy.c). So a missing policy is what lets packets leave unencrypted. `uses`: with their local
    address.
    """
    found = list[Cleartext]()
    for use in uses:
        outer = use.encapsulation
        remote, (_, device) = address_text(outer.remote, is_ipv6=outer.is_ipv6), state.way(outer)
        if outer.local is not None and state.policy(outer, outer.local, device) is None:
            reason = f"the config wants IPsec for packets to {remote}, and no policy covers them"
            found.append(Cleartext(use, outer.local, device, None, reason))
    return tuple(found)


def address_text(value: int, *, is_ipv6: bool) -> str:
    return str(IPv6Address(value) if is_ipv6 else IPv4Address(value))

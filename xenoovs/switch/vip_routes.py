"""Routes of VIPs in this host's main routing table, which a routing daemon announces.

All of them lead to one device that carries no traffic. It has only the routes of one agent, so no other route is
changed, and `ip link delete` withdraws them all. The kind of the device decides whether they outlive the agent:

- a veth pair stays until it is deleted or the host restarts; - the kernel closes a TUN device
(linux/Documentation/networking/tuntap.rst) when the process that opened it ends for any reason, and its routes go with
it.

A device of the same name that another program made is refused. Our veth is known by the name of its peer, our TUN
device by the process that holds it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2s
from itertools import islice
from typing import Any

from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.datapath.host import Bgp
from xenoovs.display import span
from xenoovs.errors import CommandTimeout, ParseError, SwitchError
from xenoovs.model.address import Vip, family_of, prefix_text, vip_of
from xenoovs.switch.endpoint import Endpoint, find_endpoint
from xenoovs.switch.netns import Row, json_of
from xenoovs.switch.process import Completed, try_run

PROTOCOL = METRIC = 120
"""Protocol of the routes. iproute2 and FRR know no program with it (rt_protos, zebra/rt_netlink.h)."""
_SHARED = 8
"""Most bridges of this host that can announce one VIP."""
_MAX_NAME = 11
"""IFNAMSIZ is 16 with the final zero, and the prefix has 3 characters."""
_TIMEOUT_S = 5.0
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
_TUN = "/dev/net/tun"


class VipRoutesUnusable(SwitchError):
    """The routes of VIPs cannot be read or changed."""

    retryable = True


def device_of(bridge: str, endpoint: Endpoint) -> str:
    """Return the name of the device of a bridge: `xo-BRIDGE` if that fits, for a bridge of the host's Open vSwitch."""
    where = endpoint.db if endpoint.rundir is None else str(endpoint.rundir.resolve())
    usual = find_endpoint(db=None, env={}).rundir
    if usual is not None and where == str(usual.resolve()) and len(bridge) <= _MAX_NAME and "@" not in bridge:
        return f"xo-{bridge}"
    return f"xo-{blake2s(f'{where} {bridge}'.encode(), digest_size=5).hexdigest()}"


class VipRoutes:
    """The routes of one bridge's VIPs. Every method blocks for some milliseconds. Not thread-safe."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._tun: int | None = None

    def open(self, *, ends_with_process: bool) -> None:
        """Make the device unless it exists, and replace one of the other kind. Raises VipRoutesUnusable: it cannot be
        made, or another program made a device of this name."""
        kind, is_up, is_own = self._state()
        if self._tun is not None and (kind != "tun" or not ends_with_process):
            self._close_tun()
            kind, is_up, is_own = self._state()
        if kind is not None and not is_own:
            raise VipRoutesUnusable(
                f"another program has made the device {self.device} ({kind}), which xenoovs needs for the routes of "
                "VIPs; rename or delete it"
            )
        if kind is not None and kind != ("tun" if ends_with_process else "veth"):
            self._ip("link", "delete", self.device)
            kind = None
        if ends_with_process and self._tun is None:
            self._tun = self._opened_tun()
        elif not ends_with_process and kind is None:
            self._ip("link", "add", self.device, "type", "veth", "peer", "name", self._peer)
        elif is_up:
            return
        # Also one that was set down, or that a killed agent had only begun.
        names = (self.device,) if ends_with_process else (self._peer, self.device)
        # A host without IPv6 refuses the mode alone.
        self._ip_batch(f"link set dev {name} {word}" for name in names for word in ("addrgenmode none", "up"))

    def read(self) -> frozenset[Vip]:
        """Return the VIPs that have a route. Raises VipRoutesUnusable."""
        filters = ("table", "main", "dev", self.device, "proto", str(PROTOCOL))
        with _understood():
            texts = (self._ip("-json", family, "route", "show", *filters) for family in ("-4", "-6"))
            return frozenset().union(*map(parse_vips, texts))

    def change(self, *, add: Iterable[Vip], remove: Iterable[Vip]) -> frozenset[Vip]:
        """Add and remove routes, and return the VIPs that have one then. Raises VipRoutesUnusable if some could not be
        changed; all others were."""
        added, removed = tuple(add), tuple(remove)
        words = f"dev {self.device} proto {PROTOCOL}"
        failure = self._ip_batch(f"route delete {prefix_text(vip)} {words}" for vip in removed)
        missing = added
        for number in range(_SHARED):
            # The kernel has one route of a metric; other bridges of this host may have the VIP too.
            metric = f"metric {METRIC + number}"
            failure = self._ip_batch(f"route add {prefix_text(vip)} {words} {metric}" for vip in missing) or failure
            present = self.read() if missing else frozenset()
            missing = tuple(vip for vip in missing if vip not in present)
            if not missing:
                break
        found = self.read()
        wrong = [*(vip for vip in added if vip not in found), *(vip for vip in removed if vip in found)]
        if wrong:
            raise VipRoutesUnusable(f"the kernel refuses to change the route of {wrong[0]}: {failure or 'no reason'}")
        return found

    def close(self) -> None:
        """Delete the device, if it exists, and all its routes. Raises VipRoutesUnusable."""
        self._close_tun()
        if self._state()[2]:
            self._ip("link", "delete", self.device)

    def release(self) -> None:
        """Leave a veth pair; close a TUN device."""
        self._close_tun()

    @property
    def _peer(self) -> str:
        return f"xp-{self.device.removeprefix('xo-')}"

    def _state(self) -> tuple[str | None, bool, bool]:
        """Return the kind of the device as in ip-link(8), None if it does not exist; whether it is up; whether xenoovs
        made it."""
        done = self._run(("ip", "-json", "-details", "link", "show", "dev", self.device))
        if done.exit_code:
            return None, False, False
        with _understood():
            kind, peer, is_up = parse_kind(done.stdout)
        return kind, is_up, peer == self._peer if kind == "veth" else kind == "tun" and self._tun is not None

    def _opened_tun(self) -> int:
        try:
            descriptor = os.open(_TUN, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise VipRoutesUnusable(
                f"{_TUN}: {error.strerror}; `on_agent_exit: withdraw` needs it: under systemd let the unit use it "
                "(PrivateDevices=no, DeviceAllow=/dev/net/tun rw)"
            ) from None
        try:
            fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", self.device.encode(), _IFF_TUN | _IFF_NO_PI))
        except OSError as error:
            os.close(descriptor)
            raise VipRoutesUnusable(f"cannot make the device {self.device}: {_advised(str(error.strerror))}") from None
        return descriptor

    def _close_tun(self) -> None:
        if self._tun is not None:
            os.close(self._tun)
            self._tun = None

    def _ip(self, *arguments: str) -> str:
        done = self._run(("ip", *arguments))
        if done.exit_code:
            raise VipRoutesUnusable(f"`{' '.join(done.argv)}`: {_advised(_reason(done))}")
        return done.stdout

    def _ip_batch(self, lines: Iterable[str]) -> str:
        """Run commands of ip(8), all even if one fails. Return why the first one failed."""
        text = "".join(f"{line}\n" for line in lines)
        return _reason(self._run(("ip", "-force", "-batch", "-"), stdin=text)) if text else ""

    def _run(self, argv: tuple[str, ...], stdin: str | None = None) -> Completed:
        try:
            return try_run(argv, stdin=stdin, timeout_s=_TIMEOUT_S)
        except CommandTimeout:
            raise VipRoutesUnusable(f"`{' '.join(argv)}` did not end within {span(_TIMEOUT_S)}") from None
        except SwitchError as error:
            raise VipRoutesUnusable(str(error)) from None


@json_of("ip -json route show")
def parse_vips(routes: list[Row]) -> frozenset[Vip]:
    """Return the VIPs among the destinations of routes."""
    found = set()
    for route in routes:
        with suppress(ValueError):
            found.add(vip_of(str(route["dst"])))
    return frozenset(found)


@json_of("ip -json -details link show")
def parse_kind(links: list[Row]) -> tuple[str, str | None, bool]:
    """Return the kind of a device, the device at its other end, and whether it is up."""
    (link,) = links or [{}]
    return link.get("linkinfo", {}).get("info_kind", "device"), link.get("link"), "UP" in link.get("flags", ())


@contextmanager
def _understood() -> Iterator[None]:
    try:
        yield
    except ParseError as error:
        raise VipRoutesUnusable(f"{error}; it needs iproute2 4.14 or newer") from None


def _advised(reason: str) -> str:
    return f"{reason}; the agent needs CAP_NET_ADMIN" if "not permitted" in reason else reason


def _reason(done: Completed) -> str:
    lines = done.stderr.strip().splitlines() if done.exit_code else []
    return lines[0] if lines else f"status {done.exit_code}" if done.exit_code else ""


# What FRR's bgpd says of routes, asked through vtysh(1). Nothing in FRR is ever changed.


_VIPS = 64
"""In one call."""


class FrrUnavailable(SwitchError):
    """FRR's bgpd does not answer through vtysh."""

    retryable = True


def read_bgp_routes(vips: Iterable[Vip]) -> dict[Vip, tuple[str, ...] | None]:
    """Return the neighbours to which bgpd advertises each VIP (/32, /128); None if it has no route of the VIP. Raises
    FrrUnavailable."""
    routes, left = dict[Vip, tuple[str, ...] | None](), iter(vips)
    while some := tuple(islice(left, _VIPS)):
        commands = (f"show bgp {_family(vip)} unicast {prefix_text(vip)} json" for vip in some)
        with _as_of_frr():
            routes.update(zip(some, map(_peers, _documents(_vtysh(*commands))), strict=True))
    return routes


@contextmanager
def _as_of_frr() -> Iterator[None]:
    try:
        yield
    except (AttributeError, TypeError, ValueError):
        reason = "vtysh answers in another form than that of FRR 8; `show bgp ... json` is not JSON"
        raise FrrUnavailable(reason) from None


def read_bgp(vips: Iterable[Vip]) -> Fact[Bgp]:
    """Return the neighbours of bgpd, and the VIPs that its configuration would announce once they have a route."""
    try:
        with _as_of_frr():
            peers = _sessions(*_documents(_vtysh("show bgp summary json")))
        config = _vtysh("show running-config bgpd")
    except FrrUnavailable as problem:
        return Unknown(str(problem))
    allowed = {name for name in ("ipv4", "ipv6") if re.search(r"^  redistribute kernel", _section(config, name), re.M)}
    named = set(re.findall(r"^  network (\S+)", config, re.M))
    return Bgp(
        established=tuple(name for name, is_up in peers.items() if is_up),
        others=tuple(name for name, is_up in peers.items() if not is_up),
        refused=tuple(str(vip) for vip in vips if _family(vip) not in allowed and prefix_text(vip) not in named),
    )


def _sessions(summary: Mapping[str, Any]) -> dict[str, bool]:
    """Return neighbour -> whether a session is established, in any family."""
    peers: dict[str, bool] = {}
    for family in summary.values():
        for name, peer in family.get("peers", {}).items() if isinstance(family, Mapping) else ():
            peers[name] = peers.get(name, False) or peer.get("state") == "Established"
    return peers


def _section(config: str, family: str) -> str:
    found = re.search(rf"^ address-family {family} unicast\n(.*?)^ exit-address-family", config, re.M | re.S)
    return found[1] if found else ""


def _family(vip: Vip) -> str:
    return family_of(vip).name.lower()


def _peers(document: Mapping[str, Any]) -> tuple[str, ...] | None:
    return tuple(document.get("advertisedTo") or ()) if document.get("paths") else None


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """Yield the successive JSON objects of a text, up to text that is none."""
    decoder, position = json.JSONDecoder(), 0
    while (position := text.find("{", position)) >= 0:
        try:
            document, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return
        yield document


def _vtysh(*commands: str) -> str:
    argv = ["vtysh", *(word for command in commands for word in ("-c", command))]
    try:
        done = try_run(argv, timeout_s=_TIMEOUT_S)
    except CommandTimeout:
        raise FrrUnavailable(f"vtysh did not answer within {span(_TIMEOUT_S)}; is a daemon of FRR stopped?") from None
    except SwitchError as error:
        raise FrrUnavailable(str(error)) from None
    if done.exit_code:
        lines = (f"{done.stderr}\n{done.stdout}").strip().splitlines() or [f"status {done.exit_code}"]
        raise FrrUnavailable(_vtysh_advice(lines[0].strip()))
    return done.stdout


def _vtysh_advice(message: str) -> str:
    if "bgpd is not running" in message:
        return "bgpd is not running; set `bgpd=yes` in /etc/frr/daemons and restart FRR"
    if "ermission denied" in message:
        return f"vtysh: {message}; run as root, or as a member of the group frrvty"
    if "failed to connect" in message:
        return "FRR does not run (vtysh connects to no daemon); start it: `systemctl start frr`"
    return f"vtysh: {message}"

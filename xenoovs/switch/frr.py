"""What FRR's bgpd says of routes, asked through vtysh(1). Nothing in FRR is ever changed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from xenoovs.dataclass import dataclass
from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.datapath.host import Bgp
from xenoovs.display import span
from xenoovs.errors import CommandTimeout, SwitchError
from xenoovs.model.address import Vip, family_of, prefix_text
from xenoovs.switch.process import try_run

_TIMEOUT_S = 5.0
_VIPS = 64
"""In one call."""


class FrrUnavailable(SwitchError):
    """FRR's bgpd does not answer through vtysh."""

    retryable = True


@dataclass(frozen=True, slots=True)
class BgpRoute:
    """A route in bgpd. `is_known` False: bgpd does not have it. peers: the neighbours that it is advertised to."""

    is_known: bool
    peers: tuple[str, ...] = ()


def read_bgp_routes(vips: Iterable[Vip]) -> dict[Vip, BgpRoute]:
    """Return what bgpd has of each VIP, as a route of its own (/32, /128). Raises FrrUnavailable."""
    routes, left = dict[Vip, BgpRoute](), iter(vips)
    while some := tuple(islice(left, _VIPS)):
        commands = (f"show bgp {_family(vip)} unicast {prefix_text(vip)} json" for vip in some)
        documents = list(_documents(_vtysh(*commands)))
        if len(documents) != len(some):
            raise FrrUnavailable("vtysh answers in another form than that of FRR 8; `show bgp ... json` is not JSON")
        routes.update(zip(some, map(_route, documents), strict=True))
    return routes


def read_bgp(vips: Iterable[Vip]) -> Fact[Bgp]:
    """Return the neighbours of bgpd, and which VIPs its configuration would announce once they have a route."""
    try:
        (summary,) = _documents(_vtysh("show bgp summary json")) or ({},)
        config = _vtysh("show running-config bgpd")
    except (FrrUnavailable, ValueError) as problem:
        return Unknown(str(problem))
    peers: dict[str, bool] = {}
    for family in summary.values():
        for name, peer in family.get("peers", {}).items() if isinstance(family, Mapping) else ():
            peers[name] = peers.get(name, False) or peer.get("state") == "Established"
    allowed = {name for name in ("ipv4", "ipv6") if re.search(r"^  redistribute kernel", _section(config, name), re.M)}
    named = set(re.findall(r"^  network (\S+)", config, re.M))
    return Bgp(
        established=tuple(name for name, is_up in peers.items() if is_up),
        others=tuple(name for name, is_up in peers.items() if not is_up),
        refused=tuple(str(vip) for vip in vips if _family(vip) not in allowed and prefix_text(vip) not in named),
    )


def _section(config: str, family: str) -> str:
    found = re.search(rf"^ address-family {family} unicast\n(.*?)^ exit-address-family", config, re.M | re.S)
    return found[1] if found else ""


def _family(vip: Vip) -> str:
    return family_of(vip).name.lower()


def _route(document: Mapping[str, Any]) -> BgpRoute:
    return BgpRoute(bool(document.get("paths")), tuple(document.get("advertisedTo") or ()))


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a text, one after the other; stops where there is none."""
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
        raise FrrUnavailable(_advised(lines[0].strip()))
    return done.stdout


def _advised(message: str) -> str:
    if "bgpd is not running" in message:
        return "bgpd is not running; set `bgpd=yes` in /etc/frr/daemons and restart FRR"
    if "ermission denied" in message:
        return f"vtysh: {message}; run as root, or as a member of the group frrvty"
    if "failed to connect" in message:
        return "FRR does not run (vtysh connects to no daemon); start it: `systemctl start frr`"
    return f"vtysh: {message}"

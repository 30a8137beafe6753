"""Routes of this host by ip-route(8): by which device packets to an address leave."""

from __future__ import annotations

import json
from typing import Any

from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.datapath.ipsec import RouteTo
from xenoovs.datapath.megaflow import parse_value
from xenoovs.errors import ParseError
from xenoovs.switch.netns import Netns


def read_route(place: Netns, address: str) -> Fact[RouteTo]:
    """Return the route to an address; Unknown where there is none."""
    return place.read(("ip", "-j", "route", "get", address), parse_route)


def parse_route(text: str) -> Fact[RouteTo]:
    """Parse the answer of `ip -j route get ADDRESS` (print_route() of ip/iproute.c). Raises ParseError."""
    try:
        rows: list[dict[str, Any]] = json.loads(text)
        row = next((row for row in rows if "dst" in row), None)
        if row is None or row.get("type") in ("unreachable", "blackhole", "prohibit"):
            return Unknown("there is no route to it")
        source = row.get("prefsrc")
        metrics: list[dict[str, Any]] = row.get("metrics", [])
        return RouteTo(
            device=str(row["dev"]),
            source=None if source is None else parse_value(source, 128 if ":" in source else 32),
            gateway=row.get("gateway") or row.get("via", {}).get("host"),
            mtu=next((int(metric["mtu"]) for metric in metrics if "mtu" in metric), None),
            is_local=row.get("type") == "local",
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        offset = error.pos if isinstance(error, json.JSONDecodeError) else 0
        raise ParseError(text=text, offset=offset, expected="JSON as `ip -j route get` prints it") from None

"""The database of Open vSwitch by ovs-vsctl(8): its records, and the controller of a bridge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from xenoovs.datapath.host import Controller, Database, Interface, OvsBridge
from xenoovs.errors import BridgeMissing, ControllerTaken, ParseError
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.live import read_bridges
from xenoovs.switch.process import run

# The database of Open vSwitch by `ovs-vsctl -f json list`: every column that this Open vSwitch has, also of forks.
#
# Values are those of RFC 7047, section 5.1: sets, maps and UUIDs are arrays with a word in front.


TABLES = ("Open_vSwitch", "Bridge", "Port", "Interface", "Controller")
LIST = tuple(word for table in TABLES for word in ("--", "list", table))
"""Arguments of ovs-vsctl; it answers with one line of JSON a table, in this order."""

_EXPECTED = "one line of JSON for each of the tables " + ", ".join(TABLES)

_Row = Mapping[str, Any]


def parse_database(text: str) -> Database:
    """The answer of `ovs-vsctl -f json LIST`. Raises ParseError."""
    lines = text.splitlines()
    if len(lines) != len(TABLES):
        raise ParseError(text=text, offset=0, expected=_EXPECTED)
    tables = {name: _rows(line) for name, line in zip(TABLES, lines, strict=True)}
    if len(tables["Open_vSwitch"]) != 1:
        raise ParseError(text=text, offset=0, expected="one row in table Open_vSwitch")
    (switch,) = tables["Open_vSwitch"]
    by_uuid = {row["_uuid"]: row for rows in tables.values() for row in rows}
    bridges = (_bridge(row, by_uuid) for row in tables["Bridge"])
    return Database(
        config=dict(sorted(_map(switch.get("other_config")).items())),
        bridges=tuple(sorted(bridges, key=lambda bridge: bridge.name)),
        datapath_types=tuple(map(str, _set(switch.get("datapath_types")))),
        doca_initialized=switch.get("doca_initialized") if "doca_initialized" in switch else None,
        doca_version=next(iter(map(str, _set(switch.get("doca_version")))), None),
    )


def _rows(line: str) -> list[_Row]:
    try:
        table = json.loads(line)
        headings = table["headings"]
        return [dict(zip(headings, map(_decode, row), strict=True)) for row in table["data"]]
    except (ValueError, TypeError, KeyError):
        raise ParseError(text=line, offset=0, expected=_EXPECTED) from None


def _decode(value: Any) -> Any:
    """An atom as itself, a UUID as text, a set as tuple (of one element: that element), a map as dict."""
    match value:
        case ["uuid", str(text)]:
            return text
        case ["set", list(items)]:
            return tuple(map(_decode, items))
        case ["map", list(pairs)]:
            return {_decode(key): _decode(content) for key, content in pairs}
    return value


def _set(value: Any) -> tuple[Any, ...]:
    # A set of one element is printed as that element (RFC 7047, section 5.1).
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _map(value: Any) -> dict[str, str]:
    return value if isinstance(value, dict) else {}


def _one(value: Any) -> Any:
    return next(iter(_set(value)), None)


def _bridge(row: _Row, by_uuid: Mapping[str, _Row]) -> OvsBridge:
    ports = (by_uuid[uuid] for uuid in _set(row["ports"]) if uuid in by_uuid)
    interfaces = (by_uuid[uuid] for port in ports for uuid in _set(port["interfaces"]) if uuid in by_uuid)
    controllers = (by_uuid[uuid] for uuid in _set(row["controller"]) if uuid in by_uuid)
    return OvsBridge(
        name=row["name"],
        datapath_type=row.get("datapath_type") or "system",
        fail_mode=_one(row.get("fail_mode")) or "standalone",
        controllers=tuple(sorted(map(_controller, controllers), key=lambda controller: controller.target)),
        interfaces=tuple(sorted(map(_interface, interfaces), key=lambda interface: interface.name)),
    )


def _controller(row: _Row) -> Controller:
    return Controller(row["target"], is_connected=row.get("is_connected") is True, role=_one(row.get("role")))


def _interface(row: _Row) -> Interface:
    ofport, link = _one(row.get("ofport")), _one(row.get("link_state"))
    return Interface(
        name=row["name"],
        type=row.get("type") or "system",
        # -1 says that the port could not be made (ovs-vswitchd.conf.db(5), column ofport).
        ofport=ofport if isinstance(ofport, int) and ofport >= 0 else None,
        error=_one(row.get("error")),
        link_up=None if link is None else link == "up",
        mtu=_one(row.get("mtu")),
    )


# Let a bridge of this host connect to a controller, and keep its flows when that one is gone (ovs-vsctl(8)).


_PROBE_MS, _BACKOFF_MS = 5000, 1000
"""inactivity_probe and max_backoff of table Controller (ovs-vswitchd.conf.db(5)): a dead controller is noticed after at
most two probes, and asked for every second. 1000 is the least that Open vSwitch takes."""

_RATE_PPS, _BURST_PACKETS = 1000, 250
"""controller_rate_limit and controller_burst_limit: beyond them Open vSwitch drops packets for the controller, and the
ports share what is left. More than the controller answers, and far less than would delay its other messages."""

# For a controller in-band Open vSwitch adds flows of its own, which match addresses and TCP ports and so widen the
# megaflows of all packets (ovs-vswitchd.conf.db(5), column connection_mode).

_TIMEOUT_S = 30


def attach(
    endpoint: Endpoint,
    bridge: str,
    *,
    target: str,
    beside: frozenset[str] | None = None,
    former: str | None = None,
) -> None:
    """Connect `bridge` to `target`, such as `unix:xenoovs.controller`, with fail_mode secure.

    Args:
        beside: Other controllers that may stay; None: any.
        former: A target of an earlier xenoovs, which is replaced unless a controller is connected there.

    Raises:
        BridgeMissing, CommandFailed.
        ControllerTaken: Nothing was changed.
    """
    states = {state.name: state for state in read_bridges(endpoint)}
    if bridge not in states:
        raise BridgeMissing(bridge=bridge, present=states)
    replaced = _disconnected(endpoint, bridge, former) if former in states[bridge].controllers else None
    present = [each for each in states[bridge].controllers if not (replaced and each == former)]
    strangers = [] if beside is None else sorted(set(present) - {target} - beside)
    if strangers:
        raise ControllerTaken(bridge=bridge, present=strangers)
    words = ["set-fail-mode", bridge, "secure"]
    if target not in present:
        pace = [f"inactivity_probe={_PROBE_MS}", f"max_backoff={_BACKOFF_MS}", "connection_mode=out-of-band"]
        pace += [f"controller_rate_limit={_RATE_PPS}", f"controller_burst_limit={_BURST_PACKETS}"]
        # `set-controller` would make all rows anew, and so drop the connections of the others.
        words += ["--", "--id=@new", "create", "controller", f'target="{target}"', *pace]
        words += ["--", "add", "bridge", bridge, "controller", "@new"]
    if replaced:
        # In the same transaction: a bridge that loses its last controller drops all flows.
        words += ["--", "remove", "bridge", bridge, "controller", replaced]
    _vsctl(endpoint, *words)


def _disconnected(endpoint: Endpoint, bridge: str, target: str | None) -> str | None:
    """Return the row of a controller of a bridge that is not connected; None: it is."""
    found = _vsctl(
        endpoint, "--bare", "--columns=_uuid", "find", "controller", f'target="{target}"', "is_connected=false"
    )
    rows = _vsctl(endpoint, "get", "bridge", bridge, "controller")
    return next((row for row in found.split() if row in rows), None)


def quicken(endpoint: Endpoint, *, target: str) -> None:
    """Let Open vSwitch obey the max_backoff of `target`, which is connected now. Raises CommandFailed.

    It reads max_backoff only for connections that are there, and only when something in its database changes
    (ofservice_reconfigure() of ofproto/connmgr.c, measured with 3.1): else it asks a dead controller every 8 s. So the
    value is changed, and changed back.
    """
    rows = _vsctl(endpoint, "--bare", "--columns=_uuid", "find", "controller", f'target="{target}"').split()
    for row in rows:
        for pace_ms in (_BACKOFF_MS + 1, _BACKOFF_MS):
            _vsctl(endpoint, "set", "controller", row, f"max_backoff={pace_ms}")


def _vsctl(endpoint: Endpoint, *words: str) -> str:
    return run(["ovs-vsctl", f"--db={endpoint.db}", f"--timeout={_TIMEOUT_S}", *words], timeout_s=_TIMEOUT_S + 5).stdout

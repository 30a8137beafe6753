"""The database of Open vSwitch (ovs-vswitchd.conf.db(5)) by the IDL of the `ovs` package: bridges and their ports."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from xenoovs.errors import SwitchUnreachable
from xenoovs.switch.api import BridgeState, PortState
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.python_ovs import import_ovs
from xenoovs.switch.stderr import unreachable

if TYPE_CHECKING:
    from ovs.db.idl import Idl

DEFAULT_TIMEOUT_S = 10.0

_TEXT = {"type": "string"}
_TEXTS = {"type": {"key": "string", "min": 0, "max": "unlimited"}}
_MAYBE_TEXT = {"type": {"key": "string", "min": 0, "max": 1}}
_MAYBE_NUMBER = {"type": {"key": "integer", "min": 0, "max": 1}}
_MAP = {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}


def _rows_of(table: str) -> dict[str, Any]:
    return {"type": {"key": {"type": "uuid", "refTable": table}, "min": 0, "max": "unlimited"}}


_SCHEMA = {
    "name": "Open_vSwitch",
    "version": "7.15.0",
    "tables": {
        "Open_vSwitch": {
            "columns": {"bridges": _rows_of("Bridge"), "other_config": _MAP, "ovs_version": _MAYBE_TEXT},
            "isRoot": True,
        },
        "Bridge": {
            "columns": {
                "name": _TEXT,
                "ports": _rows_of("Port"),
                "datapath_type": _TEXT,
                "datapath_id": _MAYBE_TEXT,
                "fail_mode": _MAYBE_TEXT,
                "controller": _rows_of("Controller"),
                "protocols": _TEXTS,
            },
        },
        "Port": {"columns": {"interfaces": _rows_of("Interface")}},
        "Interface": {
            "columns": {
                "name": _TEXT,
                "type": _TEXT,
                "ofport": _MAYBE_NUMBER,
                "link_state": _MAYBE_TEXT,
                "mac_in_use": _MAYBE_TEXT,
                "error": _MAYBE_TEXT,
            },
        },
        "Controller": {"columns": {"target": _TEXT}},
    },
}
"""The tables and columns that xenoovs reads, as vswitch.ovsschema of every Open vSwitch since 2.4 has them. The IDL
asks the server for these alone; its own schema file need not be on this host."""


def read_bridges(endpoint: Endpoint, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> tuple[BridgeState, ...]:
    """All bridges, sorted by name. Raises SwitchUnreachable, also when there is no answer within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    # Imported here: it takes 40 ms, and most commands never need it.
    import_ovs()
    _check_reachable(endpoint.db, deadline=deadline)
    from ovs.db.idl import Idl, SchemaHelper

    helper = SchemaHelper(schema_json=_SCHEMA)
    helper.register_all()
    idl = Idl(endpoint.db, helper, leader_only=False)
    try:
        _wait_for_contents(idl, target=endpoint.db, deadline=deadline)
        return _bridges(idl)
    finally:
        idl.close()


def _check_reachable(db: str, *, deadline: float) -> None:
    # The IDL tries again and again and never says why: ask once, for the reason. A cluster may list several servers.
    from ovs.stream import Stream

    errors = []
    for target in db.split(","):
        error, stream = Stream.open_block(Stream.open(target), timeout=_remaining_ms(deadline))
        if stream is not None:
            stream.close()
        if not error:
            return
        errors.append(error)
    raise unreachable(db, os.strerror(errors[0]))


def _wait_for_contents(idl: Idl, *, target: str, deadline: float) -> None:
    from ovs.poller import Poller

    while not idl.has_ever_connected():
        idl.run()
        if idl.has_ever_connected():
            return
        remaining_ms = _remaining_ms(deadline)
        if remaining_ms == 0:
            raise SwitchUnreachable(target=target, reason="ovsdb-server does not answer in time; is it busy or hung?")
        poller = Poller()
        idl.wait(poller)
        poller.timer_wait(remaining_ms)
        poller.block()


def _remaining_ms(deadline: float) -> int:
    return max(0, int((deadline - time.monotonic()) * 1000))


def _bridges(idl: Idl) -> tuple[BridgeState, ...]:
    states = [_bridge(row, bridge) for row in idl.tables["Open_vSwitch"].rows.values() for bridge in row.bridges]
    return tuple(sorted(states, key=lambda state: state.name))


def _bridge(switch: Any, row: Any) -> BridgeState:
    ports = (_port(interface) for port in row.ports for interface in port.interfaces)
    offload = switch.other_config.get("hw-offload")
    return BridgeState(
        name=row.name,
        ports=tuple(sorted(ports, key=lambda port: port.name)),
        datapath_type=row.datapath_type or "system",
        datapath_id=_one(row.datapath_id),
        fail_mode=_one(row.fail_mode) or "standalone",
        controllers=tuple(sorted(controller.target for controller in row.controller)),
        protocols=tuple(sorted(row.protocols)),
        hw_offload=None if offload is None else offload == "true",
        max_idle_ms=_number(switch.other_config.get("max-idle", "")),
        max_revalidator_ms=_number(switch.other_config.get("max-revalidator", "")),
        ovs_version=_one(switch.ovs_version),
    )


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _port(row: Any) -> PortState:
    ofport: int | None = _one(row.ofport)
    link = _one(row.link_state)
    return PortState(
        name=row.name,
        # -1 says that the port could not be made (ovs-vswitchd.conf.db(5), column ofport).
        ofport=ofport if ofport is not None and ofport >= 0 else None,
        type=row.type or "system",
        link_up=None if link is None else link == "up",
        mac=_one(row.mac_in_use),
        error=_one(row.error),
    )


def _one(column: list[Any]) -> Any:
    return column[0] if column else None

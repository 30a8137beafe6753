"""A real Open vSwitch: its database, OpenFlow at its management sockets, and its tools for the rest."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

from xenoovs.errors import BridgeMissing, CommandFailed, NotEncodable, SwitchError, SwitchUnreachable, UnknownTableName
from xenoovs.openflow.flow import FOREIGN, OURS, Bundle, CookieMask, Cookies, ObservedFlow, is_foreign
from xenoovs.openflow.text import parse_dump, parse_name, render_bundle, render_flow
from xenoovs.switch.api import BridgeState, PortState
from xenoovs.switch.appctl import Appctl
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.openflow import (
    connected,
    count_flows,
    decode_flows,
    render_dump,
    request_datapath_id,
    request_flows,
    send_bundle,
)
from xenoovs.switch.process import run
from xenoovs.switch.stderr import lift, lift_refusal, unreachable

if TYPE_CHECKING:
    from ovs.db.idl import Idl


# The `ovs` package, imported so that it brings neither eventlet nor gevent with it, and heeds ctrl-c.


_ASKED_FOR = ("eventlet", "gevent")


def import_ovs() -> None:
    """To be called before the first import of `ovs`. May be called again.

    `ovs.poller` imports both wherever they are installed, as eventlet beside os-ken, to ask whether they have patched
    `select`. Imported in a thread that is not the main one, eventlet leaves asyncio unable to end its threads: the
    agent did not end on SIGTERM. Who uses one has imported it before.
    """
    if "ovs.poller" in sys.modules:
        return
    absent = [name for name in _ASKED_FOR if name not in sys.modules]
    sys.modules |= dict.fromkeys(absent)  # type: ignore[arg-type]
    try:
        with _interrupted_after():
            import ovs.poller  # noqa: F401
    finally:
        for name in absent:
            del sys.modules[name]


@contextmanager
def _interrupted_after() -> Iterator[None]:
    """`ovs.poller` and `ovs.timeval` take whatever goes wrong in an import for a missing module, and ctrl-c too."""
    if current_thread() is not main_thread():
        # Only the main thread is interrupted.
        yield
        return
    came = list[int]()
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        for number in came:
            signal.raise_signal(number)


# The database of Open vSwitch (ovs-vswitchd.conf.db(5)) by the IDL of the `ovs` package: bridges and their ports.


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


# What ovs-ofctl(8) does better than our own OpenFlow: dump thousands of flows, and describe those of others.


_NAMED_TABLES = (re.compile(r"table=[^0-9]"), re.compile(r"resubmit\(,[^0-9]"))
"""Two that each begin with plain text, which `re` finds twenty times as fast as one pattern of both."""
_DUMP_TIMEOUT_S = 60.0
# A bundle of 16,000 flows takes 0.1 to 0.9 s on two cores of a PC; a busy BlueField may be some ten times slower.
_BUNDLE_TIMEOUT_S = 15.0
_BUNDLE_TIMEOUT_PER_FLOW_S = 0.002
_TABLE_NAME = re.compile(r'^  table ([0-9]+) \(("(?:[^"\\]|\\.)*"|[^"()]+)\):', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Ofctl:
    """Runs of ovs-ofctl. Callers first make sure that ovs-vswitchd answers: ovs-ofctl waits long for one that does not.

    All methods raise BridgeMissing, OpenFlowVersionDisabled, SwitchUnreachable, CommandMissing and CommandTimeout.
    """

    endpoint: Endpoint

    def dump_flow_text(self, bridge: str, only: CookieMask) -> str:
        """Return flows without counters, one a line, tables by number. Raises ParseError for text of another form."""
        cookies = f"cookie={only.value:#x}/{only.mask:#x}"
        text = self._run("dump-flows", bridge, cookies, "--no-stats")
        if not any(named.search(text) for named in _NAMED_TABLES):
            return text
        flows = parse_dump(text, tables=self._table_numbers(bridge))
        return "".join(f"{render_flow(seen.flow)}\n" for seen in flows)

    def dump_foreign_flows(self, bridge: str) -> tuple[ObservedFlow, ...]:
        """Return the flows of others with their counters, likewise."""
        text = self._run("dump-flows", bridge)
        try:
            flows = tuple(parse_dump(text))
        except UnknownTableName:
            flows = tuple(parse_dump(text, tables=self._table_numbers(bridge)))
        return tuple(seen for seen in flows if is_foreign(seen.flow.cookie))

    def apply(self, bridge: str, bundle: Bundle) -> None:
        """Send all flow-mods in one bundle, also such as are only known by their text.

        Raises BundleRejected. After CommandTimeout and SwitchUnreachable the change may or may not have happened, as a
        whole: read the tables again.
        """
        text = render_bundle(bundle)
        argv = ["ovs-ofctl", "-O", "OpenFlow14", "--bundle", "add-flows", self.endpoint.management(bridge), "-"]
        timeout_s = _BUNDLE_TIMEOUT_S + _BUNDLE_TIMEOUT_PER_FLOW_S * len(bundle)
        try:
            run(argv, stdin=text, timeout_s=timeout_s, env=self.endpoint.env)
        except CommandFailed as failed:
            lines = text.splitlines()
            raise lift_refusal(failed, endpoint=self.endpoint, bridge=bridge, lines=lines) from None

    def _run(self, command: str, bridge: str, *arguments: str) -> str:
        target = self.endpoint.management(bridge)
        argv = ["ovs-ofctl", "-O", "OpenFlow14", "--names", command, target, *arguments]
        try:
            return run(argv, timeout_s=_DUMP_TIMEOUT_S, env=self.endpoint.env).stdout
        except CommandFailed as failed:
            raise lift(failed, endpoint=self.endpoint, bridge=bridge) from None

    def _table_numbers(self, bridge: str) -> dict[str, int]:
        # Table names are rare, and describing all tables takes longer than dumping flows: asked for when one is met.
        described = self._run("dump-table-features", bridge)
        return {parse_name(name): int(number) for number, name in _TABLE_NAME.findall(described)}


_FEW_FLOWS = 500
"""Up to so many flows are decoded and rendered faster than ovs-ofctl starts and prints them (docs/adr/0017)."""


@dataclass(frozen=True, slots=True)
class LiveSwitch:
    """The Open vSwitch at `endpoint`; nothing is kept between calls. Implements `Switch`.

    db_timeout_s: how long the database may take to answer.
    """

    endpoint: Endpoint
    db_timeout_s: float = DEFAULT_TIMEOUT_S

    def bridges(self) -> tuple[BridgeState, ...]:
        """All bridges. Raises SwitchError where the database is not the one of the ovs-vswitchd that has the flows."""
        states = read_bridges(self.endpoint, timeout_s=self.db_timeout_s)
        if self.endpoint.is_split:
            self._check_same_switch(states)
        return states

    def describe(self, bridge: str) -> BridgeState:
        states = self.bridges()
        for state in states:
            if state.name == bridge:
                return state
        raise BridgeMissing(bridge=bridge, present=(state.name for state in states))

    def incarnation(self, bridge: str) -> str | None:
        return self.endpoint.incarnation(bridge)

    def dump_flows(self, bridge: str, *, only: Cookies = OURS) -> tuple[ObservedFlow, ...]:
        with connected(self.endpoint, bridge) as connection:
            return decode_flows(request_flows(connection, only), connection.names)

    def dump_flow_text(self, bridge: str, *, only: Cookies = OURS) -> str:
        with connected(self.endpoint, bridge) as connection:
            counts = dict(zip(only, count_flows(connection, only), strict=True))
            few = tuple(each for each, flows in counts.items() if 0 < flows <= _FEW_FLOWS)
            text = render_dump(decode_flows(request_flows(connection, few), connection.names)) if few else ""
        many = (each for each, flows in counts.items() if flows > _FEW_FLOWS)
        return text + "".join(Ofctl(self.endpoint).dump_flow_text(bridge, each) for each in many)

    def dump_foreign_flows(self, bridge: str) -> tuple[ObservedFlow, ...]:
        """Return the flows of others as ovs-ofctl prints them, which has a name for every action and field."""
        return Ofctl(self.endpoint).dump_foreign_flows(bridge) if self.count_flows(bridge, only=FOREIGN) else ()

    def count_flows(self, bridge: str, *, only: Cookies = OURS) -> int:
        with connected(self.endpoint, bridge) as connection:
            return sum(count_flows(connection, only))

    def apply(self, bridge: str, bundle: Bundle) -> None:
        """Apply all flow-mods or none. An empty bundle sends nothing. Raises BundleRejected."""
        if not bundle.mods:
            return
        try:
            with connected(self.endpoint, bridge) as connection:
                send_bundle(connection, bundle, ofports=connection.numbers)
        except NotEncodable:
            # A flow from a dump of ovs-ofctl, which can send what it prints; or a port that is not there.
            Ofctl(self.endpoint).apply(bridge, bundle)

    def dump_megaflows(self) -> str:
        return Appctl(self.endpoint).dump_megaflows()

    def trace(self, bridge: str, flow: str) -> str:
        return Appctl(self.endpoint).trace(bridge, flow)

    def _check_same_switch(self, states: tuple[BridgeState, ...]) -> None:
        sockets = self.endpoint.bridges_with_socket()
        for state in states:
            if state.name not in sockets or self._datapath_id(state.name) != state.datapath_id:
                raise SwitchError(
                    f"bridge {state.name} of the database {self.endpoint.db} is not the one at {self.endpoint.rundir}: "
                    "--db and OVS_RUNDIR are of two different Open vSwitches; give one of them alone"
                )

    def _datapath_id(self, bridge: str) -> str:
        """16 hexadecimal digits, as column datapath_id of table Bridge has them."""
        with connected(self.endpoint, bridge) as connection:
            return f"{request_datapath_id(connection):016x}"

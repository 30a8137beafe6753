"""The controller: listens, admits bridges, and ends without leaving a thread or a socket behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING

from xenoovs.controller.bridge import ExpectedBridge
from xenoovs.controller.connection import BridgeConnection, dump, send_bundle
from xenoovs.controller.listen import Address, Stream, SwitchListener
from xenoovs.controller.registry import Registry
from xenoovs.controller.session import Session
from xenoovs.dataclass import dataclass
from xenoovs.datapath.database import UNKNOWN_TYPE, BridgeState, Controller, PortState
from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.errors import BridgeMissing, NotInOpenFlow, OtherBridge, StandingBy, SwitchError
from xenoovs.log import info
from xenoovs.openflow.flow import OURS, Bundle, Cookies, ObservedFlow
from xenoovs.openflow.wire.message import Port
from xenoovs.switch.certificates import Certificates
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.openflow import count_flows, render_dump, request_barrier, wait_in_step

if TYPE_CHECKING:
    from xenoovs.datapath.ipsec import IpsecState
    from xenoovs.datapath.outer import Encapsulation

_END_S = 2.0
_TICK_S = 0.01


class Server:
    """Listens from its creation until `close`. Raises CannotListen, CertificateUnusable. `certificates`: None without
    TLS. `is_redundant`: other controllers share the bridges. `target`, `local_target`: as of SwitchListener."""

    def __init__(
        self,
        address: Address,
        certificates: Certificates | None = None,
        *,
        is_redundant: bool = False,
    ) -> None:
        self._sessions: set[Session] = set()
        self._is_closing = False
        self.registry = Registry(is_redundant=is_redundant)
        warn = self.registry.log_limit.warn
        self._listener = SwitchListener(address, serve=self._serve, warn=warn, certificates=certificates)
        self.target, self.local_target = self._listener.target, self._listener.local_target
        self.registry.target = self.target
        info("waiting for bridges", at=self.target)

    @property
    def needs_same_namespace(self) -> bool:
        """Return whether bridges can connect only from this network namespace."""
        return not self.local_target.startswith("unix:")

    def expect(self, bridge: str, datapath_id: int | None = None) -> ExpectedBridge:
        """Admit a bridge when it connects. Returns the same value for the same bridge."""
        return self.registry.expect(bridge, datapath_id)

    def close(self) -> None:
        """Disconnect all bridges. Their flows stay."""
        # In parallel, for one that hangs is waited for, and the lease of another is to be released at once.
        closing = [Thread(target=each.close, name="xenoovs-close") for each in self.registry.expected]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()
        self._is_closing = True
        self._listener.close()
        for session in tuple(self._sessions):
            session.abandon("the controller stops")
        deadline = monotonic() + _END_S
        while self._sessions and monotonic() < deadline:
            sleep(_TICK_S)

    def _serve(self, stream: Stream, peer: str, accepted_s: float, admitted: Callable[[], None]) -> None:
        session = Session(stream, peer, self.registry, accepted_s=accepted_s, admitted=admitted)
        self._sessions.add(session)
        try:
            if not self._is_closing:
                session.serve()
        finally:
            self._sessions.discard(session)


# A switch that connects to the controller. What OpenFlow cannot do is done on the host, where the switch is local.


@dataclass(frozen=True, slots=True)
class ControllerSwitch:
    """Implements `Switch` for bridges that are connected. `local`: the Open vSwitch of this host, for megaflows, traces
    and its database; None if the switch is elsewhere. `timeout_s`: how long a call waits for a bridge that is not
    connected. `only`: the one bridge that may be changed; None for any, which is admitted at its first use."""

    registry: Registry
    local: ManagementSwitch | None = None
    timeout_s: float = 0.0
    only: ExpectedBridge | None = None

    def bridges(self) -> tuple[BridgeState, ...]:
        """Return all bridges of this host if the switch is local, else the connected ones.

        This reads the database again when a bridge reports a new or a removed port, and always for bridges with tunnel
        ports, as nothing reports their options. Reading takes longer than all other work when a port goes down.
        `describe` always reads it.
        """
        connections = self.registry.connections if self.only is None else self.only.connections
        if self.local is None or not all(map(self._is_here, connections)):
            return tuple(_state(connection) for connection in connections)
        if not connections:
            return self.local.bridges()
        key = tuple((connection, port.number, port.name) for connection in connections for port in connection.ports)
        view = connections[0].host_view
        if view is None or view[0] != key or _has_tunnels(view[1], connections):
            view = connections[0].host_view = key, self.local.bridges()
        return view[1]

    def describe(self, bridge: str) -> BridgeState:
        connection = self._connection(bridge)
        here = self.local if self._is_here(connection) else None
        return _state(connection) if here is None else here.describe(bridge)

    def incarnation(self, bridge: str) -> str | None:
        connection = self._expected(bridge).connection
        return None if connection is None else f"{connection.datapath_id:016x}-{connection.generation}"

    def dump_flows(self, bridge: str, *, only: Cookies = OURS) -> tuple[ObservedFlow, ...]:
        return dump(self._connection(bridge), only)

    def dump_flow_text(self, bridge: str, *, only: Cookies = OURS) -> str:
        """Raises StandingBy too: a standby changes nothing, so it needs no dump."""
        connection = self._connection(bridge)
        if connection.is_standby:
            raise StandingBy(bridge=bridge)
        return render_dump(dump(connection, only))

    def count_flows(self, bridge: str, *, only: Cookies = OURS) -> int:
        with self._connection(bridge).exchange() as exchange:
            return sum(count_flows(exchange, only))

    def apply(self, bridge: str, bundle: Bundle) -> None:
        """Apply all flow-mods or none. Raises BundleRejected, StandingBy, SwitchUnreachable."""
        if not bundle.mods:
            return
        connection = self._connection(bridge)
        if connection.is_standby:
            raise StandingBy(bridge=bridge)
        send_bundle(connection, bundle)

    @contextmanager
    def prepared(self, bridge: str, bundle: Bundle) -> Iterator[Callable[[], None]]:
        """Send everything with the commit, as the connection also carries heartbeats, which cannot wait."""
        yield partial(self.apply, bridge, bundle)

    def wait_revalidated(self, bridge: str) -> None:
        """Wait for the revalidators if the switch is local, else, as OpenFlow does not report them, for two seconds."""
        connection = self._connection(bridge)

        def barrier() -> None:
            with connection.exchange() as exchange:
                request_barrier(exchange)

        if self.local is not None and self._is_here(connection):
            self.local.wait_revalidated(bridge)
        else:
            wait_in_step(barrier)

    def dump_megaflows(self) -> str:
        return self._host("megaflows").dump_megaflows()

    def trace(self, bridge: str, flow: str) -> str:
        return self._host("a trace").trace(bridge, flow)

    def read_ipsec(self, outers: Sequence[Encapsulation]) -> Fact[IpsecState]:
        try:
            return self._host("policies of IPsec").read_ipsec(outers)
        except NotInOpenFlow as problem:
            return Unknown(str(problem))

    def _expected(self, bridge: str) -> ExpectedBridge:
        if self.only is None:
            return self.registry.expect(bridge)
        if self.only.bridge != bridge:
            raise OtherBridge(mine=self.only.label, wanted=bridge)
        return self.only

    def _connection(self, bridge: str) -> BridgeConnection:
        expected = self._expected(bridge)
        if self.local is not None and expected.connection is None:
            present = self.local.endpoint.bridges_with_socket()
            if present and bridge not in present:
                raise BridgeMissing(bridge=bridge, present=present)
        return expected.connected(timeout_s=self.timeout_s)

    def _is_here(self, connection: BridgeConnection) -> bool:
        """Return whether it is a bridge of this host, not another one of the same name."""
        if connection.is_here is None and self.local is not None:
            mine = connection.bridge, f"{connection.datapath_id:016x}"
            try:
                connection.is_here = mine in {(state.name, state.datapath_id) for state in self.local.bridges()}
            except SwitchError:
                return False
        return bool(connection.is_here)

    def _host(self, wanted: str) -> ManagementSwitch:
        connections = () if self.only is None else self.only.connections
        if self.local is None or not all(map(self._is_here, connections)):
            raise NotInOpenFlow(wanted=wanted)
        return self.local


def _has_tunnels(states: Iterable[BridgeState], connections: Iterable[BridgeConnection]) -> bool:
    names = {connection.bridge for connection in connections}
    ports = (port for state in states if state.name in names for port in state.ports)
    return any("remote_ip" in port.options for port in ports)


def port_states(connection: BridgeConnection | None) -> dict[str, PortState] | None:
    """Return the ports of a bridge by name, from OpenFlow; None while it is not connected."""
    return None if connection is None else {port.name: _port_state(port) for port in connection.ports}


def _port_state(port: Port) -> PortState:
    # Open vSwitch counts its ports in 16 bits (ovs-vswitchd.conf.db(5), column ofport).
    number, kind = port.number & 0xFFFF, "internal" if port.is_local else UNKNOWN_TYPE
    status = {"forwarding": "true" if port.is_live else "false"}
    return PortState(port.name, number, kind, link_up=port.is_up, bfd_status=status)


def _state(connection: BridgeConnection) -> BridgeState:
    """Return the state of a bridge that OpenFlow shows."""
    states = tuple(sorted(map(_port_state, connection.ports), key=lambda port: port.name))
    return BridgeState(
        connection.bridge,
        states,
        datapath_id=f"{connection.datapath_id:016x}",
        controllers=(Controller(connection.session.peer, is_connected=True),),
    )

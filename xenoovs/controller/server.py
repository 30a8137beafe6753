"""The controller: listens, admits bridges, and ends without leaving a thread or a socket behind."""

from __future__ import annotations

from threading import Thread
from time import monotonic, sleep
from types import TracebackType

from xenoovs.controller.bridge import ExpectedBridge
from xenoovs.controller.listen import Accepted, Address, Stream, SwitchListener
from xenoovs.controller.log import ControllerLog
from xenoovs.controller.mastership import Mastership
from xenoovs.controller.neighbour_discovery import NeighbourProxy
from xenoovs.controller.registry import Registry
from xenoovs.controller.session import Session, Timeouts
from xenoovs.dataclass import dataclass, field
from xenoovs.switch.certificates import Certificates

_END_S = 2.0
_TICK_S = 0.01


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """How a controller works. certificates: None: without TLS. is_redundant: other controllers share the bridges."""

    address: Address
    certificates: Certificates | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    is_redundant: bool = False


@dataclass(frozen=True, slots=True)
class ServedBridge:
    """An expected bridge and its services: no two bridges share a thread, a rate limit or a lease."""

    expected: ExpectedBridge
    proxy: NeighbourProxy
    mastership: Mastership | None

    def close(self) -> None:
        self.proxy.close()
        if self.mastership is not None:
            self.mastership.close()


def serve_bridge(expected: ExpectedBridge, *, log: ControllerLog) -> ServedBridge:
    proxy = NeighbourProxy(lambda: expected.connections, log=log)
    expected.receive_packet = proxy.receive
    return ServedBridge(expected, proxy, Mastership(expected, log=log) if expected.is_shared else None)


class Server:
    """Listens from its creation until `close`. Raises CannotListen, CertificateUnusable."""

    def __init__(self, settings: ControllerSettings, *, log: ControllerLog) -> None:
        self._timeouts, self._log = settings.timeouts, log
        self._sessions: set[Session] = set()
        self._bridges: dict[ExpectedBridge, ServedBridge] = {}
        self._is_closing = False
        self.registry = Registry(log=log, is_redundant=settings.is_redundant)
        limited = ControllerLog(log.info, self.registry.log_limit.warn)
        self._listener = SwitchListener(
            settings.address, serve=self._serve, log=limited, certificates=settings.certificates
        )
        self.registry.target = self._listener.target
        log.info("waiting for bridges", at=self._listener.target)

    @property
    def target(self) -> str:
        """What `ovs-vsctl set-controller` takes."""
        return self._listener.target

    @property
    def local_target(self) -> str:
        """The same for a bridge of this host."""
        return self._listener.local_target

    @property
    def needs_same_namespace(self) -> bool:
        """Whether a bridge reaches it only from this network namespace."""
        return not self.local_target.startswith("unix:")

    def expect(self, bridge: str, datapath_id: int | None = None) -> ServedBridge:
        """Admit a bridge when it connects, and serve it. Returns the same value for the same bridge."""
        expected = self.registry.expect(bridge, datapath_id)
        if expected not in self._bridges:
            self._bridges[expected] = serve_bridge(expected, log=self._log)
        return self._bridges[expected]

    def close(self) -> None:
        """Disconnect all bridges. Their flows stay."""
        # In parallel, for one that hangs is waited for, and the lease of another is to be released at once.
        closing = [Thread(target=served.close, name="xenoovs-close") for served in self._bridges.values()]
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

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self, stream: Stream, accepted: Accepted) -> None:
        session = Session(
            stream, accepted.peer, self.registry, self._timeouts, accepted_s=accepted.at_s, admitted=accepted.admitted
        )
        self._sessions.add(session)
        try:
            if not self._is_closing:
                session.serve()
        finally:
            self._sessions.discard(session)

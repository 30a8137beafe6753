"""xenoovs as an application of os-ken or ryu, beside other applications: `ryu-manager xenoovs.ryu_app my_app.py`.

The launcher listens, by its own options (--ofp-listen-host, --ofp-tcp-listen-port, --ctl-privkey ...), and hands over
each connection. Bridges of the configs are ours; other applications get all other bridges, as if this one were not
there. The environment names the configs: XENOOVS_CONFIG=/etc/xenoovs/config.yaml, or several with `:` between them.
XENOOVS_API=127.0.0.1:8080 opens the control API, and XENOOVS_LAB names the lab whose Open vSwitch is used.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import select
import selectors
import socket
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from queue import Full, Queue
from threading import Thread
from time import time
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from click import ClickException

from xenoovs.agent.control.app import ask, status_and_code
from xenoovs.agent.control.client import ANSWER_TIMEOUT_S
from xenoovs.agent.control.handlers import ROUTES
from xenoovs.agent.control.schemas import ErrorAnswer, ErrorDetail
from xenoovs.agent.daemon import Agent, AgentGroup
from xenoovs.agent.report import LastChange
from xenoovs.agent.state import OffloadSample
from xenoovs.agent.tasks import LoopCall, run_loop
from xenoovs.cli.agent import controller_command
from xenoovs.cli.run_agents import configured_bridges, local_places, open_sockets, run_agents
from xenoovs.cli.via import Options, Resolve, engine_of, is_here
from xenoovs.compile.plan import ChangeKind
from xenoovs.controller.bridge import ExpectedBridge
from xenoovs.controller.connection import BridgeConnection
from xenoovs.controller.listen import Stream, TcpAddress
from xenoovs.controller.registry import Registry
from xenoovs.controller.server import ControllerSwitch
from xenoovs.controller.session import OFFERED, Session
from xenoovs.decision.decision import BackendName
from xenoovs.engine.change import Change
from xenoovs.engine.engine import Engine
from xenoovs.errors import ConfigUnreadable, FrameworkMissing, ListenError, RequestRefused, XenoovsError
from xenoovs.log import info, start_logging, warn
from xenoovs.model.address import Mac
from xenoovs.model.balancer import Uplinks
from xenoovs.openflow.wire.frame import ECHO_REQUEST, FEATURES_REPLY, HEADER, HELLO, MULTIPART_REPLY, VERSION, Frames
from xenoovs.show.codec import to_json
from xenoovs.switch.endpoint import is_loopback
from xenoovs.switch.management import ManagementSwitch
from xenoovs.terminal.reach import endpoint_of

_END_S = 5.0
_SOCKET_TIMEOUT_S = 5.0
_WITHOUT = "--attach --redundant --web and the limit of pending connections, which `xenoovs controller` has"

_MAX_SEEN_BYTES = 8 << 20
"""65,280 ports are described by some 5 MB."""
_MAX_HOSTS, _MAX_EXPECTED, _MAX_EVENTS = 4096, 64, 10_000

_HEADERS = {"HTTP_HOST": "Host", "HTTP_AUTHORIZATION": "Authorization", "CONTENT_TYPE": "Content-Type"}
_BY_HOP = frozenset(("Connection", "Keep-Alive", "Transfer-Encoding"))
"""Headers of one connection (RFC 9110, 7.6.1)."""

_DISTRIBUTIONS = {"os_ken": "os-ken", "ryu": "ryu"}


def _find_framework() -> str:
    """Return the package whose launcher runs this, or else one that is installed. Raises FrameworkMissing."""
    running = (package for package in _DISTRIBUTIONS if f"{package}.base.app_manager" in sys.modules)
    installed = (package for package in _DISTRIBUTIONS if find_spec(package))
    package = next(running, None) or next(installed, None)
    if package is None:
        raise FrameworkMissing
    os.environ.setdefault("OSKEN_HUB_TYPE", "native")
    return package


_PACKAGE = _find_framework()
_app_manager: Any = import_module(f"{_PACKAGE}.base.app_manager")
_Application: Any = getattr(_app_manager, "OSKenApp", None) or _app_manager.RyuApp
_controller: Any = import_module(f"{_PACKAGE}.controller.controller")
_event: Any = import_module(f"{_PACKAGE}.controller.event")
_protocol: Any = import_module(f"{_PACKAGE}.ofproto.ofproto_protocol")

_REQUIRED_APP = [f"{_PACKAGE}.controller.ofp_handler"]
"""What the launcher loads too: the application that listens (the name is the framework's)."""


# What other applications observe, by `set_ev_cls`, and ask, by `send_request`.


@dataclass(frozen=True)
class EventOfBridge(_event.EventBase):  # type: ignore[misc]
    """What they all have. `time_s`: since 1970."""

    bridge: str
    time_s: float


@dataclass(frozen=True)
class EventBackendChanged(EventOfBridge):
    """A backend has changed. reason: such as `down: connection refused`. number: of its changes, from 1."""

    service: str
    backend: str
    reason: str
    number: int


@dataclass(frozen=True)
class EventServiceChanged(EventOfBridge):
    """A service is `new`, `changed` or `removed`. `moved`: share of its clients that have another backend now, 0 to 1.
    `ejected`: get none, whatever their weight."""

    service: str
    kind: str
    moved: float
    least_moved: float
    ejected: tuple[str, ...]


@dataclass(frozen=True)
class EventProgramApplied(EventOfBridge):
    """Flows of a bridge were changed, in one bundle of so many messages."""

    flow_mods: int


@dataclass(frozen=True)
class EventOffloadSampled(EventOfBridge):
    """There is a sample of hardware offload: all the time with REST, else while a client reads the status."""

    sample: OffloadSample


class XenoovsRequest(_event.EventRequestBase):  # type: ignore[misc]
    """A request, answered by a `XenoovsReply`: a route of the control API, and what its body or address has."""

    def __init__(self, route: str, values: Mapping[str, object] | None = None, bridge: str = "") -> None:
        super().__init__()
        self.dst, self.route, self.values, self.bridge = XenoovsApp.__name__, route, values or {}, bridge


class XenoovsReply(_event.EventReplyBase):  # type: ignore[misc]
    """An answer. `status`: of HTTP. `document`: what the control API answers."""

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        super().__init__("")
        self.status, self.document = status, document


class OwnedDatapath:
    """One of our bridges, in EventSwitchEnter and EventSwitchLeave of `topology`. Nothing can be sent to it."""

    def __init__(self, bridge: str, number: int) -> None:
        self.bridge, self.id = bridge, number
        # `ProtocolDesc` of the framework refuses versions that one of the applications lacks.
        self.ofproto: Any = import_module(f"{_PACKAGE}.ofproto.ofproto_v1_4")
        self.ofproto_parser: Any = import_module(f"{_PACKAGE}.ofproto.ofproto_v1_4_parser")

    def send_msg(self, *_message: object, **_more: object) -> bool:
        """Refuse a message as the framework does at a closed connection. An exception would end the application."""
        event = "a message of another application is refused: xenoovs controls the bridge"
        warn(event, bridge=self.bridge, remedy="ask xenoovs, by send_request(XenoovsRequest(...))")
        return False

    send = send_barrier = send_msg


def _refusal(error: Exception) -> tuple[int, str]:
    """Return status and document of an answer that failed, as the control API has them."""
    status, code = status_and_code(error) if isinstance(error, XenoovsError) else (500, "internal")
    return status, to_json(ErrorAnswer(ErrorDetail(code, str(error) or repr(error))))


class SharedSocket:
    """The socket of a switch. What came until it is known whose the bridge is can be read again. OpenSSL must not be
    entered twice at once for one connection, so TLS needs `Stream`; ryu has no poll(2) for it."""

    def __init__(self, sock: Any) -> None:
        self._sock: Any = sock
        if hasattr(select, "poll"):
            self._sock = Stream(sock)
        else:
            sock.settimeout(_SOCKET_TIMEOUT_S)
        self._seen, self._is_seeing, self._again, self._has_hello = bytearray(), True, b"", False

    def recv(self, size: int) -> bytes:
        """Return what has arrived. Raises TimeoutError when nothing came for a moment, OSError."""
        if self._again:
            data, self._again = self._again[:size], self._again[size:]
            return data
        try:
            data = self._sock.recv(size)
        except OSError as error:
            if "timed out" in str(error):
                # What eventlet raises.
                raise TimeoutError from None
            raise
        if self._is_seeing:
            self._seen += data
            if len(self._seen) > _MAX_SEEN_BYTES:
                raise OSError(errno.ENOBUFS, "it has sent too much before its ports")
        return bytes(data)

    def sendall(self, data: bytes) -> None:
        """Send it, but for a second HELLO."""
        if self._has_hello:
            self._has_hello = False
            if data[1] == HELLO:
                return
        self._sock.sendall(data)

    def forget(self) -> None:
        """Keep nothing more to be read again: the bridge is ours."""
        self._is_seeing, self._seen = False, bytearray()

    def rewind(self) -> None:
        """Let the framework read from the beginning, without what answered us, and begin with HELLO again."""
        frames = [bytes(frame) for frame in Frames().feed(bytes(self._seen))]
        rest = bytes(self._seen[sum(map(len, frames)) :])
        self._again = b"".join(frame for frame in frames if not _is_answer(frame)) + rest
        self._has_hello = True
        self.forget()

    def shutdown(self, how: int) -> None:
        self._sock.shutdown(how)

    def close(self) -> None:
        self._sock.close()

    def settimeout(self, _seconds: float) -> None:
        """The framework waits as we do."""

    def setsockopt(self, *_option: int) -> None:
        """It is set."""


def _is_answer(frame: bytes) -> bool:
    """Return whether a message is for us alone: an answer to a request of ours, or an echo that was answered."""
    _, kind, _, xid = HEADER.unpack_from(frame)
    return kind == ECHO_REQUEST or (kind in (FEATURES_REPLY, MULTIPART_REPLY) and xid == 0)


class Versions:
    """Which versions HELLO offers to a host: ours if its next bridge seems to be ours, or else those of the framework.

    A bridge is known only after HELLO. If it came in a version of the others, it is disconnected and comes again after
    a second, and so do its neighbours, in their order.
    """

    def __init__(self, theirs: Callable[[], Collection[int]]) -> None:
        """`theirs`: returns those that all applications speak, of `OFFERED`; known once all are loaded."""
        self._theirs = theirs
        self._next = defaultdict[str, deque[bool]](partial(deque, maxlen=_MAX_EXPECTED))
        self._last: dict[str, bool] = {}

    def offer(self, host: str) -> Collection[int]:
        """Return what to offer to the next bridge of a host."""
        expected = self._next.get(host)
        is_ours = expected.popleft() if expected else self._last.get(host, True)
        theirs = self._theirs()
        return theirs if VERSION in theirs or not is_ours else OFFERED

    def fits(self, session: Session, *, is_ours: bool) -> bool:
        """Return whether the version agreed upon is that which the owner of the bridge would have got."""
        if is_ours:
            return session.version == VERSION or VERSION not in session.spoken or VERSION in session.offered
        common = session.spoken.intersection(self._theirs())
        return not common or session.version == max(common)

    def learn(self, host: str, *, is_ours: bool) -> None:
        """Note whose the last bridge of a host was: ours come first where both are."""
        if len(self._last) >= _MAX_HOSTS:
            self._last.clear()
            self._next.clear()
        self._last[host] = is_ours or self._last.get(host, False)

    def expect(self, host: str, *, is_ours: bool) -> None:
        """Note that a bridge of a host comes again."""
        self._next[host].append(is_ours)


class XenoovsApp(_Application):  # type: ignore[misc]
    """Runs the agents in a thread of its own; the launcher's threads read the connections."""

    _EVENTS = [EventBackendChanged, EventServiceChanged, EventProgramApplied, EventOffloadSampled]  # noqa: RUF012
    OFP_VERSIONS = OFFERED
    """Of these the bridge of a connection can be read, before it is known whose it is."""

    def __init__(self, *arguments: object, **contexts: object) -> None:
        super().__init__(*arguments, **contexts)
        start_logging()
        wsgi: Any = next((each for each in contexts.values() if type(each).__name__ == "WSGIApplication"), None)
        self._options = options = _options(default_api=None if wsgi is None else "127.0.0.1:0")
        self._local = ManagementSwitch(endpoint_of(options.db, options.lab))
        self._bridges = configured_bridges(options, self._local)
        # Others that are slow do not make us wait.
        self._outbox: Queue[Any] = Queue(_MAX_EVENTS)
        self.register_handler(XenoovsRequest, self._answer)
        self._registry = Registry()
        for one in self._bridges:
            self._registry.expect(one.uplinks.bridge, one.uplinks.datapath_id)
        self._registry.claim, self._registry.listener = self._claim, self._tell_topology
        self._group = AgentGroup()
        # ryu replaces select(2) and with it what asyncio would use.
        self._events = asyncio.SelectorEventLoop(selectors.SelectSelector())
        self._thread = Thread(target=self._run, name="xenoovs-agent", daemon=True)
        self._api = "127.0.0.1", 0
        if wsgi is not None:
            bridges = "|".join(re.escape(one.uplinks.label) for one in self._bridges)
            paths = {"path": f"(?:(?:{bridges})/)?(?:v1/.+|ready|metrics)"}
            # For each request it makes a "controller", calls that with the request, and gets what answers.
            controller = lambda *_facts, **_config: lambda _request: self._forward  # noqa: E731
            wsgi.mapper.connect("xenoovs", "/{path}", controller=controller, requirements=paths)
        self._versions = Versions(lambda: _protocol.ProtocolDesc().supported_ofp_version)
        # What the launcher's server calls for each connection.
        self._serve_other = _controller.datapath_connection_factory
        _controller.datapath_connection_factory = self._serve

    def start(self) -> None:
        """Called by the launcher when all applications are there."""
        super().start()
        framework = f"{_DISTRIBUTIONS[_PACKAGE]} {version(_DISTRIBUTIONS[_PACKAGE])}"
        info("waiting for bridges where the launcher listens", framework=framework, without=_WITHOUT)
        self._thread.start()
        Thread(target=self._publish, name="xenoovs-events", daemon=True).start()

    def stop(self) -> None:
        """Called by the launcher at its end. The flows stay."""
        LoopCall(self._events, self._group.stop)()
        self._thread.join(_END_S)
        super().stop()

    def _serve(self, sock: Any, address: tuple[str, int]) -> None:
        """Serve a connection, or let the framework do it if the bridge is not ours."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = address[:2]
        shared = SharedSocket(sock)
        offered = self._versions.offer(host)
        session = Session(shared, str(TcpAddress(host, port)), self._registry, admitted=shared.forget, offered=offered)
        session.serve()
        if session.is_released:
            shared.rewind()
            self._serve_other(shared, address)

    def _claim(self, session: Session, is_ours: bool) -> bool:  # noqa: FBT001
        """Return whether a connection is no more ours: the bridge is not, or has to come again in another version."""
        host = session.peer.rpartition(":")[0].strip("[]")
        if self._versions.fits(session, is_ours=is_ours):
            self._versions.learn(host, is_ours=is_ours)
            if not is_ours:
                session.release()
            return not is_ours
        self._versions.expect(host, is_ours=is_ours)
        session.refuse("the switch has to come again in another version of OpenFlow")
        return True

    def _run(self) -> None:
        try:
            self._run_agents()
        except Exception as error:  # noqa: BLE001 - the other applications and their bridges go on
            reason = str(error) if isinstance(error, XenoovsError | ClickException) else f"internal error: {error!r}"
            warn("xenoovs has ended; the flows stay, and other applications go on", reason=reason)

    def _run_agents(self) -> None:
        try:
            places = local_places(self._local, self._options)
        except ListenError as problem:
            places = None
            warn("no control socket: `status`, `drain` and others do not work, overrides are not saved", reason=problem)
        with open_sockets(self._options, places, self._bridges) as (opened, ports):
            self._api = next((each.socket.getsockname()[:2] for each in ports), self._api)
            agents = run_agents(self._group, opened, ports, self._reach, self._local, self._options, made=self._observe)
            run_loop(self._events, agents)

    def _observe(self, agent: Agent) -> None:
        bridge = agent.config.balancer.uplinks.label

        def backend_changed(name: BackendName, change: LastChange) -> None:
            self._put(self, EventBackendChanged(bridge, change.time_s, *name, change.reason, change.number))

        def bridge_changed(change: Change) -> None:
            self._put(self, EventProgramApplied(bridge, time(), change.difference.flow_mods))
            # A summary of many services takes some time.
            for one in change.services() if EventServiceChanged in self.observers else ():
                if one.kind is not ChangeKind.SAME:
                    facts = one.kind.value, float(one.moved), float(one.least_moved), one.ejected
                    self._put(self, EventServiceChanged(bridge, time(), one.name, *facts))

        agent.changes.listeners.append(backend_changed)
        agent.store.subscribe(Change, bridge_changed)
        agent.store.subscribe(
            OffloadSample, lambda sample: self._put(self, EventOffloadSampled(bridge, time(), sample))
        )

    def _tell_topology(self, connection: BridgeConnection, is_connected: bool) -> None:  # noqa: FBT001
        """Let our bridges enter and leave the topology of the framework, if an application has loaded that."""
        if (switches := _app_manager.lookup_service_brick("switches")) is None:
            return
        events, topology = (import_module(f"{_PACKAGE}.topology.{name}") for name in ("event", "switches"))
        switch = topology.Switch(OwnedDatapath(connection.label, connection.datapath_id))
        for port in connection.ports:
            facts = {"port_no": port.number, "hw_addr": str(Mac(port.mac)), "config": port.config, "state": port.state}
            switch.add_port(SimpleNamespace(name=port.name.encode(), **facts))
        self._put(switches, (events.EventSwitchEnter if is_connected else events.EventSwitchLeave)(switch))

    def _put(self, source: Any, event: Any) -> None:
        try:
            self._outbox.put_nowait((source, event))
        except Full:
            warn("an event is lost: other applications are too slow", kind=type(event).__name__)

    def _publish(self) -> None:
        while True:
            source, event = self._outbox.get()
            try:
                source.send_event_to_observers(event)
            except Exception as error:  # noqa: BLE001 - the next event may be delivered
                warn("internal error; an event is lost", kind=type(event).__name__, error=repr(error))

    def _answer(self, request: Any) -> None:
        status = 200
        try:
            if not self._events.is_running():
                raise RequestRefused("xenoovs does not run; its log says why", status=503, code="failed")
            found = asyncio.run_coroutine_threadsafe(self._ask(request), self._events).result(ANSWER_TIMEOUT_S)
            document = to_json(found() if callable(found) else found)
        except Exception as error:  # noqa: BLE001 - the caller waits for an answer
            status, document = _refusal(error)
        self.reply_to_request(request, XenoovsReply(status, json.loads(document)))

    async def _ask(self, request: XenoovsRequest) -> object:
        agents, only = self._group.agents, self._bridges[0].uplinks.label if len(self._bridges) == 1 else ""
        agent = agents.get(request.bridge or only)
        route = next((each for each in ROUTES if each.name == request.route), None)
        if agent is None or route is None or route.handler is None:
            missing = f"no bridge {request.bridge!r} or no route {request.route!r}"
            raise RequestRefused(missing, status=404, code="not_found")
        query = ((key, str(value)) for key, value in request.values.items())
        return await ask(agent, route, route.handler, query, json.dumps(request.values).encode())

    def _forward(self, environ: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
        """Answer a request to the web server of ryu (PEP 3333) from our own port: the same routes and tokens."""
        # Events are sent as they come, and not 4 KB at once (eventlet, wsgi.py).
        environ["eventlet.minimum_write_chunk_size"] = 1
        target = f"{quote(environ['PATH_INFO'], safe='/@')}?{environ.get('QUERY_STRING', '')}"
        size, headers = (
            environ.get("CONTENT_LENGTH") or "0",
            {name: environ.get(key, "") for key, name in _HEADERS.items()},
        )
        connection = HTTPConnection(*self._api)
        try:
            if not is_loopback(environ["REMOTE_ADDR"]):
                # The server of ryu has no TLS: a token could be read on its way.
                raise RequestRefused("only this machine may ask here", status=403, code="wrong_host")
            body = environ["wsgi.input"] if int(size) else None
            connection.request(environ["REQUEST_METHOD"], target, body, headers)
            answer = connection.getresponse()
        except (RequestRefused, OSError, HTTPException, ValueError) as error:
            status, document = _refusal(error)
            start(f"{status} {HTTPStatus(status).phrase}", [("Content-Type", "application/json")])
            return (document.encode(),)
        start(f"{answer.status} {answer.reason}", [each for each in answer.getheaders() if each[0] not in _BY_HOP])
        return iter(answer.readline, b"")

    def _reach(self, uplinks: Uplinks, resolve: Resolve) -> tuple[Engine, ExpectedBridge]:
        expected = self._registry.expect(uplinks.bridge, uplinks.datapath_id)
        here = self._local if is_here(self._local, uplinks, is_named=bool(self._options.lab)) else None
        switch = ControllerSwitch(self._registry, here, only=expected)
        return engine_of(expected, switch, resolve)


def _options(*, default_api: str | None) -> Options:
    """Those of `xenoovs controller` without any. Raises ConfigUnreadable."""
    files = os.environ.get("XENOOVS_CONFIG")
    if not files:
        raise ConfigUnreadable(file="of the controller", reason="the environment has no XENOOVS_CONFIG")
    api, token = os.environ.get("XENOOVS_API") or default_api, os.environ.get("XENOOVS_TOKEN_FILE")
    more = [*(("--api", api) if api else ()), *(("--token-file", token) if token else ())]
    more += ["--allow-exec"] if os.environ.get("XENOOVS_ALLOW_EXEC") == "1" else []
    context = controller_command.make_context("xenoovs", [*files.split(os.pathsep), *more])
    place: dict[str, Any] = {name: context.meta[name] for name in ("control", "db", "lab")}
    return Options(**context.params, **place, is_controller=True, exec_option="XENOOVS_ALLOW_EXEC=1")

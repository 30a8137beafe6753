"""xenoovs as an application of os-ken or ryu, beside other applications: `ryu-manager xenoovs.ryu_app my_app.py`.

The launcher listens, by its own options (--ofp-listen-host, --ofp-tcp-listen-port, --ctl-privkey ...), and hands over
each connection. Bridges of the configs are ours; other applications get all other bridges, as if this one were not
there. The environment names the configs: XENOOVS_CONFIG=/etc/xenoovs/config.yaml, or several with `:` between them.
XENOOVS_API=127.0.0.1:8080 opens the control API, and XENOOVS_LAB names the lab whose Open vSwitch is used.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import selectors
import socket
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Collection
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from threading import Thread
from typing import Any

from xenoovs.agent.bridges import AgentGroup
from xenoovs.agent.log import LogForm, info, start_logging, warn
from xenoovs.cli.agent import controller_command
from xenoovs.cli.agent_options import Options, options_of
from xenoovs.cli.agents import configured_bridges, local_places, open_sockets, run_agents
from xenoovs.cli.via import Reached, Resolve, is_here, reach_by
from xenoovs.controller.listen import Stream
from xenoovs.controller.log import ControllerLog
from xenoovs.controller.registry import Registry
from xenoovs.controller.server import serve_bridge
from xenoovs.controller.session import OFFERED, Session
from xenoovs.controller.switch import ControllerSwitch
from xenoovs.errors import ConfigUnreadable, FrameworkMissing, ListenError, XenoovsError
from xenoovs.model.balancer import Uplinks
from xenoovs.openflow.wire.frame import (
    ECHO_REQUEST,
    FEATURES_REPLY,
    HEADER,
    HELLO,
    MULTIPART_REPLY,
    VERSION,
    Frames,
)
from xenoovs.terminal.reach import connect

_END_S = 5.0
_SOCKET_TIMEOUT_S = 5.0
_WITHOUT = "--attach --redundant --web and the limit of pending connections, which `xenoovs controller` has"

_MAX_SEEN_BYTES = 8 << 20
"""65,280 ports are described by some 5 MB."""
_MAX_HOSTS, _MAX_EXPECTED = 4096, 64

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

_protocol: Any = import_module(f"{_PACKAGE}.ofproto.ofproto_protocol")

_REQUIRED_APP = [f"{_PACKAGE}.controller.ofp_handler"]
"""What the launcher loads too: the application that listens (the name is the framework's)."""


class SharedSocket:
    """The socket of a switch. What came until it is known whose the bridge is can be read again.

    OpenSSL must not be entered twice at once for one connection, so TLS needs `Stream`; ryu has no poll(2) for it.
    """

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

    OFP_VERSIONS = OFFERED
    """Of these the bridge of a connection can be read, before it is known whose it is."""

    def __init__(self, *arguments: object, **contexts: object) -> None:
        super().__init__(*arguments, **contexts)
        start_logging(LogForm.TEXT)
        self._options = options = _options()
        self._local = connect(options.db, options.lab)
        self._bridges = configured_bridges(options.configs, self._local, is_controller=True, lab=options.lab)
        self._log = ControllerLog(info, warn)
        self._registry = Registry(log=self._log)
        for one in self._bridges:
            self._registry.expect(one.uplinks.bridge, one.uplinks.datapath_id)
        self._registry.claim = self._claim
        self._group = AgentGroup()
        # ryu replaces select(2) and with it what asyncio would use.
        self._events = asyncio.SelectorEventLoop(selectors.SelectSelector())
        self._thread = Thread(target=self._run, name="xenoovs-agent", daemon=True)
        self._versions = Versions(lambda: _protocol.ProtocolDesc().supported_ofp_version)
        # What the launcher's server calls for each connection.
        self._serve_other, _controller.datapath_connection_factory = (
            _controller.datapath_connection_factory,
            self._serve,
        )

    def start(self) -> None:
        """Called by the launcher when all applications are there."""
        super().start()
        framework = f"{_DISTRIBUTIONS[_PACKAGE]} {version(_DISTRIBUTIONS[_PACKAGE])}"
        info("waiting for bridges where the launcher listens", framework=framework, without=_WITHOUT)
        self._thread.start()

    def stop(self) -> None:
        """Called by the launcher at its end. The flows stay."""
        self._events.call_soon_threadsafe(self._group.stop)
        self._thread.join(_END_S)
        super().stop()

    def _serve(self, sock: Any, address: tuple[str, int]) -> None:
        """Serve a connection, or let the framework do it if the bridge is not ours."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = address[:2]
        shared = SharedSocket(sock)
        peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        offered = self._versions.offer(host)
        session = Session(shared, peer, self._registry, admitted=shared.forget, offered=offered)
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
        session.is_settled = True
        session.abandon("the switch has to come again in another version of OpenFlow")
        return True

    def _run(self) -> None:
        try:
            self._run_agents()
        except XenoovsError as problem:
            warn("xenoovs has ended; the flows stay, and other applications go on", reason=str(problem))
        except Exception as error:  # noqa: BLE001 - the other applications and their bridges go on
            warn("internal error; xenoovs has ended, and other applications go on", error=repr(error))

    def _run_agents(self) -> None:
        try:
            places = local_places(self._local, self._options)
        except ListenError as problem:
            places = None
            warn("no control socket: `status`, `drain` and others do not work, overrides are not saved", reason=problem)
        with open_sockets(self._options, places, self._bridges, is_shared=False) as opened:
            agents = run_agents(self._group, opened, self._reach, self._local, self._options)
            self._events.run_until_complete(agents)

    def _reach(self, uplinks: Uplinks, resolve: Resolve) -> Reached:
        expected = self._registry.expect(uplinks.bridge, uplinks.datapath_id)
        here = self._local if is_here(self._local, uplinks, is_named=bool(self._options.lab)) else None
        switch = ControllerSwitch(self._registry, here, only=expected)
        return reach_by(serve_bridge(expected, log=self._log), switch, resolve)


def _options() -> Options:
    """Those of `xenoovs controller` without any. Raises ConfigUnreadable."""
    files = os.environ.get("XENOOVS_CONFIG")
    if not files:
        raise ConfigUnreadable(file="of the controller", reason="the environment has no XENOOVS_CONFIG")
    api = ["--api", os.environ["XENOOVS_API"]] if os.environ.get("XENOOVS_API") else []
    context = controller_command.make_context("xenoovs", [*files.split(os.pathsep), *api])
    return options_of(context.params, is_controller=True)

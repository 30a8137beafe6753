"""The controller as an application of os-ken or ryu, under their launchers: `ryu-manager xenoovs.cli.controller_app`.

The launcher listens, by its own options (--ofp-listen-host, --ofp-tcp-listen-port, --ctl-privkey ...), and hands over
each connection. The environment names the configs: XENOOVS_CONFIG=/etc/xenoovs/config.yaml, or several with `:` between
them. XENOOVS_LAB names the lab whose Open vSwitch is used. No other application may use the same bridges.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import socket
import sys
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from threading import Thread
from typing import Any

from xenoovs.agent.bridges import AgentGroup
from xenoovs.agent.log import LogForm, info, start_logging, warn
from xenoovs.cli.agent import agent_command
from xenoovs.cli.agent_options import Options
from xenoovs.cli.agents import configured_bridges, local_places, open_sockets, run_agents
from xenoovs.cli.via import Reached, Resolve, is_here, reach_by
from xenoovs.controller.log import ControllerLog
from xenoovs.controller.registry import Registry
from xenoovs.controller.server import serve_bridge
from xenoovs.controller.session import Session
from xenoovs.controller.switch import ControllerSwitch
from xenoovs.errors import ConfigUnreadable, FrameworkMissing, ListenError
from xenoovs.model.balancer import Uplinks
from xenoovs.terminal.reach import connect

_END_S = 5.0
_SOCKET_TIMEOUT_S = 5.0
_WITHOUT = "--attach --redundant --api --web and the limit of pending connections, which `xenoovs controller` has"

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

_REQUIRED_APP = [f"{_PACKAGE}.controller.ofp_handler"]
"""What the launcher loads too: the application that listens (the name is the framework's)."""


class XenoovsController(_Application):  # type: ignore[misc]
    """Runs the agents in a thread of its own; the launcher's threads read the connections."""

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
        self._group = AgentGroup()
        # ryu replaces select(2) and with it what asyncio would use.
        self._events = asyncio.SelectorEventLoop(selectors.SelectSelector())
        self._thread = Thread(target=self._run, name="xenoovs-agent", daemon=True)
        # What the launcher's server calls for each connection.
        _controller.datapath_connection_factory = self._serve

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
        sock.settimeout(_SOCKET_TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = address[:2]
        Session(sock, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", self._registry).serve()

    def _run(self) -> None:
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
    context = agent_command.make_context("xenoovs", [*files.split(os.pathsep), "--via", "controller"])
    return Options(**{name: context.params[name] for name in Options.__dataclass_fields__})

"""The controller as an application of ryu or os-ken, under their launchers: `ryu-manager xenoovs.cli.controller_app`.

The launcher listens, by its own options (--ofp-listen-host, --ofp-tcp-listen-port, --ctl-privkey ...). The environment
names the config: XENOOVS_CONFIG=/etc/xenoovs/config.yaml. It wants to be the only application that talks to its bridge.
"""

from __future__ import annotations

import asyncio
import os
import selectors
from pathlib import Path
from threading import Thread

from xenoovs.agent.clock import MonotonicClock
from xenoovs.agent.config_file import ConfigFile
from xenoovs.agent.daemon import Agent
from xenoovs.agent.log import LogForm, start_logging, tell, warn
from xenoovs.agent.probe.run import Prober
from xenoovs.agent.told import LinkReconciler
from xenoovs.cli.keeping import wake
from xenoovs.controller.board import Board
from xenoovs.controller.responder import Responder
from xenoovs.controller.session import FRAMEWORK, Session
from xenoovs.controller.switch import ControllerSwitch
from xenoovs.controller.voice import Voice
from xenoovs.errors import ConfigUnreadable

_REQUIRED_APP = [FRAMEWORK.ofp_handler.__name__]
"""What the launcher loads too: the application that says hello (the name is the framework's)."""


class XenoovsController(FRAMEWORK.application):  # type: ignore[misc,name-defined]
    """Keeps one bridge right, from a thread of its own; the launcher's threads only hand over what the switch says."""

    def __init__(self, *arguments: object, **contexts: object) -> None:
        super().__init__(*arguments, **contexts)
        start_logging(LogForm.TEXT)
        path = os.environ.get("XENOOVS_CONFIG")
        if path is None:
            raise ConfigUnreadable(file="of the controller", reason="the environment has no XENOOVS_CONFIG")
        self._config = ConfigFile(Path(path))
        self._board = Board(voice=Voice(tell, warn))
        self._board.want(self._config.balancer.uplinks.bridge)
        # What the launcher's server calls for each connection.
        FRAMEWORK.controller.datapath_connection_factory = self._serve

    def start(self) -> None:
        """Called by the launcher when all applications are there."""
        super().start()
        tell("waiting for bridges", framework=FRAMEWORK.name)
        Thread(target=self._keep, name="xenoovs-agent", daemon=True).start()

    def _serve(self, socket: object, address: object) -> None:
        Session(socket, address, self._board.ears).serve()

    def _keep(self) -> None:
        # ryu replaces select(2) and with it what asyncio would take.
        events = asyncio.SelectorEventLoop(selectors.SelectSelector())
        responder = Responder(lambda: self._board.lines, voice=Voice(tell, warn))
        self._board.on_packet(responder.hear)
        switch = ControllerSwitch(self._board)
        reconciler = LinkReconciler(switch, self._board.ports_down, follow=responder.follow)
        events.run_until_complete(self._run(events, reconciler))

    async def _run(self, events: asyncio.AbstractEventLoop, reconciler: LinkReconciler) -> None:
        agent = Agent(self._config, reconciler, probe=Prober().probe, clock=MonotonicClock())
        self._board.on_change(lambda: wake(events, agent.want_round))
        await agent.run()

"""The controller as an application of ryu or os-ken, under their launchers: `ryu-manager xenoovs.cli.controller_app`.

The launcher listens, by its own options (--ofp-listen-host, --ofp-tcp-listen-port, --ctl-privkey ...). The environment
names the configs: XENOOVS_CONFIG=/etc/xenoovs/config.yaml, or several with `:` between them. It wants to be the only
application that talks to its bridges.
"""

from __future__ import annotations

import asyncio
import os
import selectors
from threading import Thread

from xenoovs.agent.bridges import run_together
from xenoovs.agent.daemon import Agent
from xenoovs.agent.log import LogForm, info, start_logging, warn
from xenoovs.cli.agent import Options, agent_command
from xenoovs.cli.agents import kept_of, local_places, make_agents, opening, serve_together
from xenoovs.cli.options import connect
from xenoovs.cli.via import Reached, Resolve, is_here, reach_by
from xenoovs.controller.log import Voice
from xenoovs.controller.registry import Board
from xenoovs.controller.server import make_post
from xenoovs.controller.session import FRAMEWORK, Session
from xenoovs.controller.switch import ControllerSwitch
from xenoovs.errors import ConfigUnreadable, ListenError
from xenoovs.model.balancer import Uplinks

_END_S = 5.0
_WITHOUT = "--attach --redundant --api --web and the places for strangers, which `xenoovs controller` has"

_REQUIRED_APP = [FRAMEWORK.ofp_handler.__name__]
"""What the launcher loads too: the application that says hello (the name is the framework's)."""


class XenoovsController(FRAMEWORK.application):  # type: ignore[misc,name-defined]
    """Keeps its bridges right, from a thread of its own; the launcher's threads only hand over what switches say."""

    def __init__(self, *arguments: object, **contexts: object) -> None:
        super().__init__(*arguments, **contexts)
        start_logging(LogForm.TEXT)
        self._options, self._local = _options(), connect(None, None)
        self._kept = kept_of(self._options.configs, self._local, is_told=True)
        self._voice = Voice(info, warn)
        self._board = Board(voice=self._voice)
        for one in self._kept:
            self._board.want(one.uplinks.bridge, one.uplinks.datapath_id)
        self._agents: tuple[Agent, ...] = ()
        # ryu replaces select(2) and with it what asyncio would take.
        self._events = asyncio.SelectorEventLoop(selectors.SelectSelector())
        self._thread = Thread(target=self._keep, name="xenoovs-agent", daemon=True)
        # What the launcher's server calls for each connection.
        FRAMEWORK.controller.datapath_connection_factory = self._serve

    def start(self) -> None:
        """Called by the launcher when all applications are there."""
        super().start()
        info("waiting for bridges where the launcher listens", framework=FRAMEWORK.name, without=_WITHOUT)
        self._thread.start()

    def stop(self) -> None:
        """Called by the launcher at its end. The flows stay."""
        for agent in self._agents:
            self._events.call_soon_threadsafe(agent.stop)
        self._thread.join(_END_S)
        super().stop()

    def _serve(self, socket: object, address: object) -> None:
        Session(socket, address, self._board.ears).serve()

    def _keep(self) -> None:
        try:
            places = local_places(self._local, self._options)
        except ListenError as problem:
            places = None
            warn(
                "there is no socket for `status`, `drain` and others, and overrides do not outlive this", reason=problem
            )
        with opening(self._options, places, self._kept, is_shared=False) as opened:

            async def run() -> None:
                agents = await make_agents(opened, self._reach, self._local, self._options)
                self._agents = tuple(agents.values())
                await run_together(agents, beside=serve_together(opened, agents, self._options))

            self._events.run_until_complete(run())

    def _reach(self, uplinks: Uplinks, resolve: Resolve) -> Reached:
        place = self._board.want(uplinks.bridge, uplinks.datapath_id)
        here = self._local if is_here(self._local, uplinks, is_named=False) else None
        switch = ControllerSwitch(self._board, here, only=place)
        return reach_by(make_post(place, voice=self._voice), switch, resolve)


def _options() -> Options:
    """Those of `xenoovs controller` without any. Raises ConfigUnreadable."""
    files = os.environ.get("XENOOVS_CONFIG")
    if not files:
        raise ConfigUnreadable(file="of the controller", reason="the environment has no XENOOVS_CONFIG")
    context = agent_command.make_context("xenoovs", [*files.split(os.pathsep), "--via", "controller"])
    return Options(**{name: context.params[name] for name in Options.__dataclass_fields__})

"""An agent on a switch in memory, in a thread of this process, with its control socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Thread

from aiohttp.web import RouteDef

from tests.command_line import SMALL_CONFIG
from tests.fake_switch import FakeSwitch, fake_bridge
from tests.patience import PATIENCE_S, eventually
from xenoovs.agent.config_file import ConfigFile
from xenoovs.agent.control.client import Client
from xenoovs.agent.control.files import bound_socket
from xenoovs.agent.control.serve import ApiListener, serve, unix_listener
from xenoovs.agent.daemon import Agent
from xenoovs.agent.probe.check import Check, ProbeResult
from xenoovs.agent.reload import Settings
from xenoovs.agent.runtime_file import RuntimeFile
from xenoovs.agent.scheduler import Probe
from xenoovs.agent.tasks import LoopCall, run_loop
from xenoovs.engine.engine import Engine
from xenoovs.openflow.flow import Flow


async def all_answer(check: Check, *, timeout_s: float) -> ProbeResult:
    return ProbeResult(ok=True, latency_s=0.0, reason="answered")


@contextmanager
def in_thread(agent: Agent) -> Iterator[None]:
    """Let an agent work in a thread for the time of a `with`."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=run_loop, args=(loop, agent.run()))
    thread.start()
    try:
        yield
    finally:
        LoopCall(loop, agent.stop)()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@dataclass
class Servers:
    """By address: backends that answer no probe, and what agents of servers reply, else `up`; None: nothing."""

    down: Collection[str] = ()
    replies: dict[str, str | None] = field(default_factory=dict)

    async def probe(self, check: Check, *, timeout_s: float) -> ProbeResult:
        address = str(check.address)
        reply = self.replies.get(address, "up") if check.min_change is not None else ""
        if address in self.down or reply is None:
            return ProbeResult(ok=False, latency_s=0.0, reason="no answer")
        return ProbeResult(ok=True, latency_s=0.0, reason="answered", reply=reply)


@dataclass(frozen=True, slots=True)
class Scene:
    """A directory with my.yaml and the state of the agent, and a switch that has the bridge ovsbr1."""

    directory: Path
    switch: FakeSwitch
    disk: Path | None = None
    """Where the state of the agent is saved; None: beside its config."""

    @property
    def config(self) -> Path:
        return self.directory / "my.yaml"

    @property
    def state(self) -> Path:
        return (self.disk or self.directory) / "state.json"

    @property
    def flows(self) -> set[Flow]:
        return {seen.flow for seen in self.switch.dump_flows("ovsbr1")}

    def edit(self, old: str, new: str) -> None:
        text = self.config.read_text()
        assert old in text
        self.config.write_text(text.replace(old, new))

    @contextmanager
    def agent(
        self,
        *,
        confirm_s: float | None = None,
        also: Iterable[ApiListener] = (),
        probe: Probe = all_answer,
        routes: Callable[[Agent], Sequence[RouteDef]] = lambda _: (),
        config: ConfigFile | None = None,
        resync_s: float = 0.3,
        now_s: Callable[[], float] = time.monotonic,
        command_options: Callable[[], str] = str,
    ) -> Iterator[tuple[Agent, Client]]:
        """An agent that has made its first round, and a client of it.

        also: further addresses. routes: pages beside the API. config: replaces the config file.
        """
        runtime = RuntimeFile(self.state)
        settings = Settings(resync_s, confirm_s, runtime, command_options=command_options, now_s=now_s)
        engine = Engine(self.switch)
        agent = Agent(config or ConfigFile(self.config), engine, probe=probe, settings=settings)
        path, agent.routes = self.directory / "agent.sock", routes(agent)
        with bound_socket(path) as sock:
            for opened in (unix_listener(sock), *also):
                agent.add_task(partial(serve, agent, opened))
            with in_thread(agent):
                eventually(
                    lambda: agent.state.round.last_s is not None or bool(agent.state.round.held),
                    "the first round is done",
                )
                yield agent, Client(path)


def make_scene(directory: Path) -> Scene:
    """With SMALL_CONFIG."""
    scene = Scene(directory, FakeSwitch(fake_bridge("ovsbr1", ["p0", "p1"])))
    scene.config.write_text(SMALL_CONFIG)
    return scene


FIPS2, FIPS3 = "198.51.100.2", "198.51.100.3"


def checked_scene(directory: Path, more: str = "") -> Scene:
    """With health checks: each result counts, and the backends have these addresses. more: further lines."""
    scene = make_scene(directory)
    health = "health: {probe: tcp, port: 53, interval: 50ms, timeout: 40ms, fall: 1, rise: 1, jitter: 0%}\n"
    scene.edit("services:", f"{health}{more}services:")
    scene.edit("weight: 70", f"weight: 70, address: {FIPS2}")
    scene.edit("weight: 30", f"weight: 30, address: {FIPS3}")
    return scene

"""Several agents in one process, each with a bridge of its own. They share the event loop and the descriptors."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from xenoovs.agent.daemon import Agent
from xenoovs.agent.log import bridge_context
from xenoovs.agent.tasks import TaskFactory, kept_running, run_all
from xenoovs.errors import XenoovsError

_THREADS = 8
"""For each agent, more than it ever needs at once: calls that hang at one bridge must not delay those at another."""


Starter = Callable[[], Awaitable[Agent | None]]
"""Makes an agent, with its config; None: the group stops."""


class AgentGroup:
    """The agents of one process, by their bridges' labels. Each runs before the configs of the others are read."""

    def __init__(self) -> None:
        self.agents: dict[str, Agent] = {}
        # Held while a config is read. If all were read at once, no bridge would get flows before the end.
        self.turn, self.is_stopping = asyncio.Lock(), False

    def stop(self) -> None:
        """Stop all agents, and make no more."""
        self.is_stopping = True
        for agent in self.agents.values():
            agent.stop()

    def reload(self) -> None:
        """Read all config files now."""
        for agent in self.agents.values():
            agent.reload()

    async def run(
        self, starters: Mapping[str, Starter], *, once: bool = False, beside: TaskFactory | None = None
    ) -> None:
        """Make agents and run them, and `beside`, until all are stopped or, with `once`, come to their end. Raises
        XenoovsError: an agent could not be made, or with `once`: a bridge could not be reconciled. Any other exception
        of an agent ends all."""
        loop = asyncio.get_running_loop()
        if len(starters) > 1:
            loop.set_default_executor(ThreadPoolExecutor(_THREADS * len(starters), thread_name_prefix="xenoovs-work"))
        problems, all_made = list[XenoovsError](), asyncio.Event()

        async def run_one(bridge: str, start: Starter) -> None:
            if (agent := await start()) is None or self.is_stopping:
                return
            self.agents[bridge] = agent
            if len(self.agents) == len(starters):
                all_made.set()
            try:
                await agent.run(once=once)
            except XenoovsError as problem:
                problems.append(problem)

        async def run_named(bridge: str, start: Starter) -> None:
            # A task has a context of its own, and all tasks and threads that the agent makes inherit it.
            with bridge_context(bridge):
                await run_one(bridge, start)

        async def run_beside(factory: TaskFactory) -> None:
            await all_made.wait()
            await kept_running(factory)

        one_or_named = run_named if len(starters) > 1 else run_one
        runs = (one_or_named(bridge, start) for bridge, start in starters.items())
        await run_all(runs, beside=() if beside is None else (run_beside(beside),))
        if problems:
            raise problems[0]


def handle_signals(loop: asyncio.AbstractEventLoop, group: AgentGroup) -> None:
    """Stop all agents on SIGTERM and SIGINT, reload all on SIGHUP. For the main thread."""
    loop.add_signal_handler(signal.SIGTERM, group.stop)
    loop.add_signal_handler(signal.SIGINT, group.stop)
    loop.add_signal_handler(signal.SIGHUP, group.reload)

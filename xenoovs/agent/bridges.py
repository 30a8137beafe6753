"""Several agents in one process, each with a bridge of its own. They share the event loop and the descriptors."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from xenoovs.agent.daemon import Agent
from xenoovs.agent.log import bridge_context
from xenoovs.agent.scheduler import max_probes, raise_descriptor_limit
from xenoovs.agent.tasks import TaskFactory, run_all
from xenoovs.errors import XenoovsError

_THREADS = 8
"""For each agent, more than it ever needs at once: calls that hang at one bridge must not delay those at another."""


async def run_together(agents: Mapping[str, Agent], *, once: bool = False, beside: TaskFactory | None = None) -> None:
    """Run agents until all are stopped.

    Args:
        agents: By the labels of their bridges.
        once: As of `Agent.run`. All agents come to their end.
        beside: Runs until then.

    Raises:
        XenoovsError: With `once`: a bridge could not be reconciled.
        Exception: An agent failed unexpectedly, which ends all.
    """
    descriptors = raise_descriptor_limit()
    for agent in agents.values():
        agent.scheduler.max_running = max_probes(descriptors // len(agents))
    if len(agents) == 1:
        (only,) = agents.values()
        await only.run(once=once)
        return
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_THREADS * len(agents), thread_name_prefix="xenoovs-work"))
    problems: list[XenoovsError] = []
    runs = (_run(agent, bridge, problems, once=once) for bridge, agent in agents.items())
    await run_all(runs, beside=() if beside is None else (beside(),))
    if problems:
        raise problems[0]


async def _run(agent: Agent, bridge: str, problems: list[XenoovsError], *, once: bool) -> None:
    # A task has a context of its own, and all tasks and threads that the agent makes inherit it.
    with bridge_context(bridge):
        try:
            await agent.run(once=once)
        except XenoovsError as problem:
            problems.append(problem)


def handle_signals(loop: asyncio.AbstractEventLoop, agents: tuple[Agent, ...]) -> None:
    """Stop all agents on SIGTERM and SIGINT, reload all on SIGHUP. For the main thread."""

    def stop() -> None:
        for agent in agents:
            agent.stop()

    def reload() -> None:
        for agent in agents:
            agent.reload()

    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.add_signal_handler(signal.SIGINT, stop)
    loop.add_signal_handler(signal.SIGHUP, reload)

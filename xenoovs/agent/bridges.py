"""Several agents in one process, each with a bridge of its own: they share the event loop and nothing else."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from xenoovs.agent.daemon import Agent
from xenoovs.agent.driver import Work
from xenoovs.agent.log import speaking_of
from xenoovs.errors import XenoovsError

_Running = Coroutine[None, None, None]

_THREADS = 8
"""For each agent, more than it ever needs at once: calls that hang at one bridge must not keep those at another."""


async def run_together(agents: Mapping[str, Agent], *, once: bool = False, beside: Work | None = None) -> None:
    """Until all are stopped. By the labels of their bridges; `beside`: runs until then.

    A mistake of ours in one of them ends all, as it would end a process that has only that one. With `once` everybody
    comes to an end, and then what kept bridges from being right is raised, of the first of them.
    """
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


async def run_all(works: Iterable[_Running], *, beside: Iterable[_Running] = ()) -> None:
    """Run all works to their end; the first that fails ends the others and is raised.

    Args:
        beside: These are cancelled when the works have ended.
    """
    running = [asyncio.ensure_future(work) for work in works]
    pending = {*running, *map(asyncio.ensure_future, beside)}
    every = tuple(pending)
    try:
        while not all(task.done() for task in running):
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in every:
            task.cancel()
        await asyncio.gather(*every, return_exceptions=True)


async def _run(agent: Agent, bridge: str, problems: list[XenoovsError], *, once: bool) -> None:
    # A task has a context of its own, and all tasks and threads that the agent makes inherit it.
    with speaking_of(bridge):
        try:
            await agent.run(once=once)
        except XenoovsError as problem:
            problems.append(problem)


def handle_signals(loop: asyncio.AbstractEventLoop, agents: tuple[Agent, ...]) -> None:
    """SIGTERM and SIGINT stop all, SIGHUP lets all reload. To be called in the main thread."""

    def stop() -> None:
        for agent in agents:
            agent.stop()

    def reload() -> None:
        for agent in agents:
            agent.reload()

    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.add_signal_handler(signal.SIGINT, stop)
    loop.add_signal_handler(signal.SIGHUP, reload)

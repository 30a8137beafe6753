"""Run-time state that controllers of one bridge share: the lease on the bridge has it, and a file of each of them."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from socket import gethostname

from xenoovs.agent.daemon import Agent
from xenoovs.agent.log import warn
from xenoovs.agent.runtime_file import RuntimeFile, parse_runtime, render_runtime
from xenoovs.agent.state import Runtime
from xenoovs.controller.mastership import Mastership
from xenoovs.errors import RequestRefused, StandingBy, StateUnusable

_ADOPT_TIMEOUT_S, _ROUND_TIMEOUT_S = 30.0, 2.0
"""A bridge that hangs may delay a round for longer, but not that the state is adopted."""


class SharedRuntimeFile(RuntimeFile):
    """The file of one controller. What is saved is published; what was published goes before what was saved."""

    def __init__(self, path: Path, mastership: Mastership) -> None:
        super().__init__(path)
        self._mastership = mastership

    def load(self) -> Runtime:
        """Return what was published, else what was saved. Raises StateUnusable."""
        state = self._mastership.state
        if not state:
            runtime = super().load()
            self._mastership.publish(render_runtime(runtime).encode())
            return runtime
        self._mastership.publish(state)
        try:
            return parse_runtime(state)
        except ValueError as error:
            raise StateUnusable(path="the lease on the bridge", reason=str(error), renamed=None) from None

    def save(self, runtime: Runtime) -> None:
        """Save and publish it. Blocks; raises OSError, and publishes nothing then."""
        super().save(runtime)
        self._mastership.publish(render_runtime(runtime).encode())


def share_runtime(agent: Agent, mastership: Mastership, *, control: Path | None) -> None:
    """Let an agent adopt what other controllers publish, and refuse requests while another one is master.

    Args:
        control: Its control socket, for the messages of other controllers.
    """
    loop = asyncio.get_running_loop()

    def adopt(state: bytes) -> None:
        try:
            runtime = parse_runtime(state)
        except ValueError as error:
            warn("the run-time state in the lease is unusable", bridge=agent.bridge, reason=str(error))
            return
        try:
            asyncio.run_coroutine_threadsafe(agent.adopt(runtime), loop).result(_ADOPT_TIMEOUT_S)
            asyncio.run_coroutine_threadsafe(agent.next_round(), loop).result(_ROUND_TIMEOUT_S)
        except (LateError, CancelledError, RuntimeError):
            # It is adopted, or the agent ends: only the end of its last round was not seen.
            return

    def require_master() -> None:
        try:
            mastership.require()
        except StandingBy as problem:
            raise RequestRefused(_explain(problem), status=409, code="standby") from None

    agent.check_request = require_master
    where = "" if control is None else f", --control {control}"
    mastership.share(f"{gethostname()}, PID {os.getpid()}{where}", adopt)


def _explain(problem: StandingBy) -> str:
    if not problem.master:
        return f"no controller is master of bridge {problem.bridge} now; send the request again in a moment"
    return f"another controller ({problem.master}) is master of bridge {problem.bridge}; send the request there"

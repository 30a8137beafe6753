"""Agents for tests: in a thread of this process with a prober of the test's own, or as a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.agent_support import all_answer, in_thread
from tests.patience import eventually as eventually
from xenoovs.agent.config_file import ConfigFile
from xenoovs.agent.daemon import Agent
from xenoovs.agent.probe.run import Prober
from xenoovs.agent.reload import Settings
from xenoovs.agent.scheduler import Probe
from xenoovs.engine.engine import Engine
from xenoovs.lab.lab import Lab
from xenoovs.lab.probing import in_lab
from xenoovs.model.load import parse_config
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch


@contextmanager
def running_agent(
    config: Path, directory: Path, *, probe: Probe = all_answer, resync_s: float = 10.0, lab: Lab | None = None
) -> Iterator[Agent]:
    """An agent at work for the time of a `with`; `directory`: the run directory of the Open vSwitch.

    With `lab` its probes are those of the config, inside the lab.
    """
    file = ConfigFile(config)
    if lab is not None:
        topology, probe = lab.topology, Prober(exec_allowed=True).probe
        file = ConfigFile(config, lambda text, _: in_lab(parse_config(text, file=str(config), for_lab=True), topology))
    switch = ManagementSwitch(Endpoint(f"unix:{directory / 'db.sock'}", directory))
    agent = Agent(
        file,
        Engine(switch),
        probe=probe,
        settings=Settings(resync_s=resync_s),
    )
    agent.watch_bridge(switch.endpoint.db)
    with in_thread(agent):
        yield agent

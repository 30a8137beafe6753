"""`xenoovs agent --fleet`: the connections to the store of a fleet, and the config that the agent starts with."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from xenoovs.agent.control.files import AgentPaths
from xenoovs.agent.fleet import FleetMember
from xenoovs.agent.fleet_config import FleetCache, FleetConfig
from xenoovs.agent.tasks import LoopCall, call_each
from xenoovs.errors import ConfigError, FleetCacheUnusable, StoredServiceUnusable
from xenoovs.log import info, warn
from xenoovs.model.fleet import join
from xenoovs.model.include import ConfigSources
from xenoovs.store.client import DpuStatusClient, StoreClient
from xenoovs.store.view import FleetView
from xenoovs.terminal.options import certificates

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent
    from xenoovs.cli.via import Options

_PATIENCE_S = 2.0
"""How long the store may take before the agent logs that it waits for it."""


@contextmanager
def joined_fleet(
    options: Options, places: AgentPaths | None
) -> Iterator[tuple[FleetConfig, Callable[[Agent], FleetMember]]]:
    """Connect to the store. Without a usable cached view, wait for the first one, for as long as it takes. Return the
    config that an agent starts with, and what makes the agent a member of the fleet, within its event loop. Raises
    ConfigError, ConfigUnreadable, StoreError."""
    assert options.fleet is not None  # noqa: S101  # or nothing is to be joined
    (path,) = options.configs
    sources = ConfigSources(path)
    local = join(sources.read(path), {}, file=str(path), sources=sources)
    assert places is not None  # noqa: S101  # as without --once
    cache, listeners = FleetCache(places.fleet(local.uplinks.label)), list[Callable[[], None]]()
    notice = partial(call_each, listeners)
    with ExitStack() as stack:
        tls = None if options.tls_ca is None else certificates(options.tls_key, options.tls_cert, options.tls_ca)
        store = stack.enter_context(StoreClient(options.fleet, on_change=notice, tls=tls))
        states = None
        if options.fleet_state is not None:
            states = stack.enter_context(DpuStatusClient(options.fleet_state, on_change=notice, tls=tls))
        name = options.dpu or socket.gethostname()
        config = _cached(cache, path, name) or _first(store, path, options.fleet, name)

        def member_of(agent: Agent) -> FleetMember:
            known = config, name, store, states, cache, options.tls_cert
            member = FleetMember(agent.store, agent.engine, *known, request_poll=agent.wake)
            # The connections have begun before.
            listeners.append(LoopCall(asyncio.get_running_loop(), member.changed))
            return member

        yield config, member_of


def _cached(cache: FleetCache, path: Path, dpu: str) -> FleetConfig | None:
    try:
        view = cache.load()
        if view is None:
            return None
        config = FleetConfig(path, view, dpu)
    except (ConfigError, FleetCacheUnusable, StoredServiceUnusable) as problem:
        warn("the saved view of the store is not used", reason=str(problem))
        return None
    info("begins with the saved view of the store", generation=view.generation, file=cache.path)
    return config


def _first(store: StoreClient, path: Path, remotes: str, dpu: str) -> FleetConfig:
    """Return the config with the first view of the store that can be used."""
    view: FleetView | None = None
    shown = ""
    while True:
        view = store.wait_changed(view, timeout_s=_PATIENCE_S)
        reason = store.connection.reason or store.connection.problem or "it has not answered yet"
        if view is not None:
            try:
                if view.intent:
                    return FleetConfig(path, view, dpu)
                reason = "the fleet has no config yet: `xenoovs fleet apply FILE --now`"
            except (ConfigError, StoredServiceUnusable) as problem:
                reason = str(problem)
        if reason != shown:
            shown = reason
            warn("waiting for the store; the flows of the bridge stay", remotes=remotes, reason=reason)

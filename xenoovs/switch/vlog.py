"""Lets ovs-vswitchd log why it does not offload: raises log levels for a moment, and always restores them.

Levels and rate limits: ovs-appctl(8), "LOGGING COMMANDS"; names of modules: VLOG_DEFINE_THIS_MODULE in lib/ of OVS.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from xenoovs.dataclass import asdict, dataclass
from xenoovs.errors import ParseError, SwitchError
from xenoovs.regex import regex
from xenoovs.switch.appctl import Appctl
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.undo_journal import VLOG, UndoJournal
from xenoovs.switch.vswitchd import Process, find_process, log_state, read_log

_LEVEL = "(?:OFF|EMER|ERR|WARN|INFO|DBG)"
_LINE = regex(
    rf"(?P<name>\S+) +(?P<console>{_LEVEL}) +(?P<syslog>{_LEVEL}) +(?P<file>{_LEVEL})"
    r"(?P<unlimited> +\(rate limiting disabled\))?"
)
_HEADER_LINES = 2

_OFFLOAD = regex(r"netdev_offload(_\w+)?|dpif_offload(_\w+)?|tc|dpif_netlink|netlink_socket|\w*doca\w*")
"""Up to 3.6: netdev_offload, netdev_offload_tc, netdev_offload_dpdk, dpif_netlink. From 3.7 on: dpif_offload,
dpif_offload_tc, dpif_offload_tc_netdev, dpif_offload_dpdk_netdev ... In both tc, and netlink_socket, where newer
versions log the driver's message. NVIDIA's fork: also names with doca."""


@dataclass(frozen=True, slots=True)
class ModuleLevel:
    """One module in `vlog/list`: the level of its log file, and whether its rate is limited."""

    name: str
    file: str
    is_rate_limited: bool


def parse_levels(text: str) -> tuple[ModuleLevel, ...]:
    """Return all modules in `vlog/list` (vlog_get_levels of lib/vlog.c). Raises ParseError."""
    return tuple(_parse_level(line, n) for n, line in enumerate(text.splitlines(), 1) if n > _HEADER_LINES and line)


def _parse_level(line: str, number: int) -> ModuleLevel:
    found = _LINE.fullmatch(line.strip())
    if found is None:
        raise ParseError(text=line, offset=0, expected="a module and its three levels", line=number)
    return ModuleLevel(found["name"], found["file"], found["unlimited"] is None)


def offload_modules(levels: Iterable[ModuleLevel]) -> tuple[ModuleLevel, ...]:
    """Return those of the modules that log about offload."""
    return tuple(level for level in levels if _OFFLOAD.fullmatch(level.name))


@dataclass(frozen=True, slots=True)
class OffloadLog:
    """The log of the ovs-vswitchd of `endpoint` at debug level. Every method may raise SwitchError."""

    endpoint: Endpoint

    def finish(self) -> bool:
        """Restore levels that a killed run left raised. Return whether there were any."""
        return self._journal.finish(lambda: self._put_back(find_process(self.endpoint)))

    def listen(self, *, seconds: float, reinstall: bool) -> str:
        """Return the log of these `seconds` at debug level. `reinstall`: purge megaflows, as each new one is logged."""
        appctl = Appctl(self.endpoint)
        with self.raised() as (process, before):
            if reinstall:
                appctl.run("revalidator/purge")
            time.sleep(seconds)
        return read_log(process, since=before)

    @contextmanager
    def raised(self) -> Iterator[tuple[Process, os.stat_result]]:
        """Raise levels within the context, which is the process and the state of its log before."""
        process = find_process(self.endpoint)
        before = log_state(process) if process is not None else None
        if process is None or before is None:
            raise SwitchError(
                "ovs-vswitchd writes no log file that can be read here; start it with --log-file, and run xenoovs "
                "as root on the host where it runs"
            )
        with self._journal.held():
            self._put_back(process)
            modules = offload_modules(parse_levels(Appctl(self.endpoint).run("vlog/list")))
            self._journal.write({**asdict(process), "modules": [asdict(module) for module in modules]})
            try:
                self._raise(modules)
                yield process, before
            finally:
                self._put_back(find_process(self.endpoint))

    @property
    def _journal(self) -> UndoJournal:
        return UndoJournal(self.endpoint.local_rundir, VLOG)

    def _raise(self, modules: tuple[ModuleLevel, ...]) -> None:
        if modules:
            Appctl(self.endpoint).run("vlog/set", *(f"{module.name}:file:dbg" for module in modules))
            Appctl(self.endpoint).run("vlog/disable-rate-limit", *(module.name for module in modules))

    def _put_back(self, process: Process | None) -> bool:
        facts = self._journal.read()
        if facts is None:
            return False
        if process is not None and asdict(process).items() <= facts.items():
            self._restore(_noted_modules(facts, self._journal))
        # The levels of a process end with it.
        self._journal.erase()
        return True

    def _restore(self, modules: tuple[ModuleLevel, ...]) -> None:
        appctl = Appctl(self.endpoint)
        limited = [module.name for module in modules if module.is_rate_limited]
        if modules:
            appctl.run("vlog/set", *(f"{module.name}:file:{module.file}" for module in modules))
        # Without names the command would concern every module.
        if limited:
            appctl.run("vlog/enable-rate-limit", *limited)


def _noted_modules(facts: dict[str, object], journal: UndoJournal) -> tuple[ModuleLevel, ...]:
    try:
        modules = facts["modules"]
        if not isinstance(modules, list):
            raise TypeError
        return tuple(ModuleLevel(**module) for module in modules)
    except (KeyError, TypeError):
        raise journal.malformed() from None

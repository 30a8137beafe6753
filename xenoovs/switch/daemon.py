"""The ovs-vswitchd that runs: is it offloading, how many megaflows does it allow, which MACs has it learned?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from xenoovs.datapath.host import Daemon, Database, OffloadHistory, OffloadState, Seen, Unknown
from xenoovs.errors import SwitchError
from xenoovs.switch.appctl import Appctl
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.offload_state import judge_offload, parse_flow_limit, parse_history, parse_offload_show
from xenoovs.switch.probe import understood
from xenoovs.switch.vswitchd import find_process, read_log

_VERSION = re.compile(r"ovs-vswitchd \([^)]*\) (\S+)")
_LEARNED = re.compile(r"^\s*([0-9]+|LOCAL)\s+[0-9]+\s+([0-9a-f]{2}(?::[0-9a-f]{2}){5})\s", re.MULTILINE)


def read_daemon(endpoint: Endpoint) -> Seen[Daemon]:
    """Ask by ovs-appctl and read the log. Unknown where ovs-vswitchd does not answer."""
    shown = _appctl(endpoint, "upcall/show")
    if isinstance(shown, Unknown):
        return shown
    offload, history = _offload(endpoint, upcall_show=shown)
    version = _appctl(endpoint, "version")
    return Daemon(
        offload=offload,
        history=history,
        flow_limit=parse_flow_limit(shown),
        version=None if isinstance(version, Unknown) else parse_version(version),
    )


def parse_version(text: str) -> str | None:
    """`ovs-vswitchd (Open vSwitch) 3.1.0`, of which further lines tell of libraries."""
    found = _VERSION.match(text)
    return found[1] if found else None


def read_history(endpoint: Endpoint) -> Seen[OffloadHistory]:
    """What the log tells about offload."""
    process = find_process(endpoint) if endpoint.rundir is not None else None
    if process is None:
        return Unknown("the process ovs-vswitchd is not found, and so not its log")
    log = read_log(process)
    return parse_history(log) if log else Unknown("it writes no log that can be read")


def read_learned(endpoint: Endpoint, database: Database) -> dict[str, dict[str, str]]:
    """Bridge -> MAC -> port, for bridges that tell (`fdb/show` of ovs-vswitchd(8))."""
    learned: dict[str, dict[str, str]] = {}
    for bridge in database.bridges:
        text = _appctl(endpoint, "fdb/show", bridge.name)
        if not isinstance(text, Unknown):
            names = {str(i.ofport): i.name for i in bridge.interfaces if i.ofport is not None}
            learned[bridge.name] = parse_learned(text, names)
    return learned


def parse_learned(text: str, names: Mapping[str, str]) -> dict[str, str]:
    """The answer of `fdb/show`: MAC -> port; `names`: OpenFlow port number -> name."""
    return {mac: names.get(port, port) for port, mac in _LEARNED.findall(text)}


def _offload(endpoint: Endpoint, *, upcall_show: str) -> tuple[Seen[OffloadState], Seen[OffloadHistory]]:
    history = read_history(endpoint)
    # As of 3.7; ovs-appctl has --format since 3.4.
    told = _appctl(endpoint, "--format", "json", "dpif/offload/show")
    answer = told if isinstance(told, Unknown) else understood(told, parse_offload_show)
    if not isinstance(answer, Unknown):
        enabled, providers = answer
        known = OffloadHistory() if isinstance(history, Unknown) else history
        now = replace(known, has_begun=enabled, providers=providers, is_whole=True)
        return OffloadState(is_on=enabled, evidence="`dpif/offload/show` says so"), now
    return judge_offload(upcall_show=upcall_show, statistics=_statistics(endpoint), history=history), history


def _statistics(endpoint: Endpoint) -> Seen[str]:
    datapaths = _appctl(endpoint, "dpctl/dump-dps")
    if isinstance(datapaths, Unknown):
        return datapaths
    names = datapaths.split()
    return _appctl(endpoint, "dpctl/offload-stats-show", names[0]) if names else Unknown("there is no datapath yet")


def _appctl(endpoint: Endpoint, *arguments: str) -> Seen[str]:
    try:
        return Appctl(endpoint).run(*arguments)
    except SwitchError as error:
        return Unknown(str(error))

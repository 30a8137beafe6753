"""The process ovs-vswitchd: which one it is, its log, its limits, and whether it offloads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from xenoovs.dataclass import dataclass, replace
from xenoovs.datapath.database import Database
from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.datapath.host import Daemon, OffloadHistory, OffloadState
from xenoovs.errors import SwitchError
from xenoovs.regex import MULTILINE, regex
from xenoovs.switch.appctl import Appctl
from xenoovs.switch.endpoint import Endpoint, pid_of, stat_of
from xenoovs.switch.netns import HERE, Netns, Row, json_of, understood
from xenoovs.switch.tape import asked, number_of, read_link

_PROC = Path("/proc")
_LOG_NAME = "ovs-vswitchd.log"
"""Where `--log-file` names none (ovs-vswitchd(8), "Logging Options")."""
_OPTION = "--log-file="
_TAIL_BYTES = 16 << 20

ELSEWHERE = Unknown("the Open vSwitch is on another host, whose devices are not seen from here")


@dataclass(frozen=True, slots=True)
class Process:
    """One run of ovs-vswitchd. `started`: clock ticks since boot (proc(5), /proc/PID/stat, field 22)."""

    pid: int
    started: int

    @property
    def namespace(self) -> str | None:
        """Return the kernel's name of the network namespace (namespaces(7)); None without permission."""
        return read_link(_PROC / str(self.pid) / "ns" / "net")


def find_process(endpoint: Endpoint) -> Process | None:
    """The ovs-vswitchd of the pid file in the run directory; None if it does not run, or not among our processes."""
    pid = pid_of(endpoint, "ovs-vswitchd")
    stat = stat_of(pid, "ovs-vswitchd") or []
    started = number_of(stat[19]) if len(stat) > 19 else None
    return None if pid is None or started is None else Process(pid, started)


def same_namespace(process: Process) -> bool:
    """Return whether ovs-vswitchd has the network devices of this process. False where that is unknown."""
    own = read_link(_PROC / "self" / "ns" / "net")
    return own is not None and process.namespace == own


def netns_of(endpoint: Endpoint) -> Fact[Netns]:
    """Return the network namespace of ovs-vswitchd, where its devices are."""
    if endpoint.rundir is None:
        return ELSEWHERE
    process = find_process(endpoint)
    if process is None or same_namespace(process):
        return HERE
    return Netns(_PROC / str(process.pid) / "ns" / "net")


def place_of(endpoint: Endpoint) -> Netns:
    """Return the network namespace of ovs-vswitchd; for one on another host, that of this process."""
    place = netns_of(endpoint)
    return HERE if isinstance(place, Unknown) else place


def log_state(process: Process) -> os.stat_result | None:
    """Return which file the log is, and its size; None if it writes none that we may read."""
    path = _log(process)
    with suppress(OSError):
        return None if path is None else path.stat()
    return None


def read_log(process: Process, *, since: os.stat_result | None = None) -> str:
    """The log from the end of `since` on, or its last 16 MiB. Empty where there is none, or none that we may read."""
    return asked(("tail", "ovs-vswitchd.log"), lambda: _tail(process, since)) or ""


def _tail(process: Process, since: os.stat_result | None) -> str:
    path = _log(process)
    if path is None:
        return ""
    with suppress(OSError), path.open("rb") as file:
        state = os.fstat(file.fileno())
        # logrotate(8) may have put another file in its place.
        is_same = since is not None and since.st_ino == state.st_ino and since.st_size <= state.st_size
        start = since.st_size if since is not None and is_same else 0
        file.seek(max(start, state.st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace")
    return ""


def _log(process: Process) -> Path | None:
    """The log as the process itself has it open: right also in a container, and after a rename."""
    home = _PROC / str(process.pid)
    with suppress(OSError):
        words = (home / "cmdline").read_bytes().split(b"\0")
        given = next((Path(os.fsdecode(w)[len(_OPTION) :]) for w in words if w.startswith(_OPTION.encode())), None)
        name = given.name if given is not None else _LOG_NAME
        for descriptor in sorted((home / "fd").iterdir(), key=lambda path: int(path.name)):
            target = _target(descriptor)
            # Until `vlog/reopen` a log that was rotated or removed stays open: as NAME.1, or as `NAME (deleted)`.
            if target is not None and target.name.startswith(name):
                return descriptor
    return None


def _target(descriptor: Path) -> Path | None:
    with suppress(OSError):
        return descriptor.readlink()
    return None


# Whether the ovs-vswitchd that runs offloads, and for which ports: by asking it, and by its log.


_BEGUN = regex(
    r"\|INFO\|(?:netdev: Flow API Enabled(?:, using [0-9]+ threads?)?|Flow HW offload is enabled)$", MULTILINE
)
_PORT = regex(r"\|INFO\|bridge \S+: added interface \S+ on port ", MULTILINE)
"""The first comes after offload has begun, where it was set at the start (bridge_run of vswitchd/bridge.c)."""
_POLICY = regex(r"\|INFO\|tc: Using policy '([a-z_]+)'$", MULTILINE)
_ASSIGNED = regex(r"\|INFO\|(\S+): Assigned flow API '([^']+)'\.?$", MULTILINE)
_FAILED = regex(
    r"\|(?:INFO|WARN|ERR)\|((?:init: failed to get ifindex for|failed adding ingress qdisc required for offloading on) "
    r"([^\s:]+): .*)$",
    MULTILINE,
)
"""Messages of lib/netdev-offload.c, netdev-offload-tc.c and tc.c up to 3.6; of dpif-offload.c and dpif-offload-tc.c as
of 3.7."""

_FIRST = regex(r"^[^|\n]*\|00001\|(?!dpif_netlink\||netlink_socket\||unixctl\|)[^|()\n]+\|", MULTILINE)
"""Messages are numbered from the start of each thread (lib/vlog.c); other threads than the first say which they are,
as `dpif(handler2)`. The excluded ones are first messages of tools, in a log that was copied from a terminal."""
_OFFLOADS = regex(r"\|failed to offload flow: |\|netdev_offload_tc[(|]|\|dpif_offload_tc[a-z_]*[(|]")
"""Messages that only an ovs-vswitchd that offloads writes."""

_LIMIT = regex(r"\(limit ([0-9]{1,20})\)")
_REFUSED = "(Invalid argument)"
_COUNTED = regex(r"^\s*offloaded flows\s*:", MULTILINE)


def parse_history(log: str) -> OffloadHistory:
    """What the log says since the last start that it shows. Any text is a log."""
    starts = [found.start() for found in _FIRST.finditer(log)]
    since = log[starts[-1] :] if starts else log
    begun, port = _BEGUN.search(since), _PORT.search(since)
    policies = _POLICY.findall(since)
    providers = dict(_ASSIGNED.findall(since))
    return OffloadHistory(
        has_started=bool(begun or providers or _OFFLOADS.search(since)),
        had_ports_before=begun is not None and port is not None and port.start() < begun.start(),
        tc_policy=policies[-1] if policies else None,
        providers=providers,
        failures={port: text for text, port in _FAILED.findall(since)},
        is_complete=bool(starts),
    )


def parse_flow_limit(upcall_show: str) -> Fact[int]:
    """The least limit of all datapaths in the answer of `upcall/show`."""
    found = [int(limit) for limit in _LIMIT.findall(upcall_show)]
    return min(found) if found else Unknown("`ovs-appctl upcall/show` shows no limit")


@json_of("ovs-appctl --format json dpif/offload/show")
def parse_offload_show(document: Row) -> tuple[bool, dict[str, str]]:
    """Return whether offload is on, and port -> provider, in the answer of `dpif/offload/show` (3.7)."""
    if not isinstance(enabled := document["enabled"], bool):
        raise TypeError("`enabled` is neither true nor false")
    datapaths = [value.get("providers") for value in document.values() if isinstance(value, dict)]
    providers = (pair for each in datapaths if isinstance(each, dict) for pair in each.items())
    return enabled, {port: name for name, row in providers if isinstance(row, dict) for port in row.get("ports") or {}}


def judge_offload(*, upcall_show: str, statistics: Fact[str], history: Fact[OffloadHistory]) -> Fact[OffloadState]:
    """On or off up to 3.6, where nothing says so directly.

    `upcall/show` counts offloaded flows as soon as a port has a provider that can count (dpif_get_n_offloaded_flows).
    `dpctl/offload-stats-show` is refused with EINVAL by the userspace datapath while offload is off (dpif-netdev.c).
    """
    if _COUNTED.search(upcall_show):
        return OffloadState(is_on=True, evidence="`upcall/show` counts offloaded flows")
    if not isinstance(statistics, Unknown):
        return OffloadState(is_on=True, evidence="`dpctl/offload-stats-show` counts offloads")
    if _REFUSED in statistics.reason:
        return OffloadState(is_on=False, evidence="`dpctl/offload-stats-show` is refused")
    if not isinstance(history, Unknown) and (history.has_started or history.is_complete):
        evidence = "the log says that it began" if history.has_started else "nothing of it in the log since the start"
        return OffloadState(is_on=history.has_started, evidence=evidence)
    reason = history.reason if isinstance(history, Unknown) else "its log does not reach back to its start"
    return Unknown(f"ovs-vswitchd does not report it, and {reason}")


# The ovs-vswitchd that runs: is it offloading, how many megaflows does it allow, which MACs has it learned?


_VERSION = regex(r"ovs-vswitchd \([^)]*\) (\S+)")
_LEARNED = regex(r"^\s*([0-9]+|LOCAL)\s+[0-9]+\s+([0-9a-f]{2}(?::[0-9a-f]{2}){5})\s", MULTILINE)


def read_daemon(endpoint: Endpoint) -> Fact[Daemon]:
    """Ask by ovs-appctl and read the log. Unknown where ovs-vswitchd does not answer."""
    shown = _appctl(endpoint, "upcall/show")
    if isinstance(shown, Unknown):
        return shown
    offload, history = _offload(endpoint, upcall_show=shown)
    return Daemon(offload, history, parse_flow_limit(shown), read_version(endpoint))


def read_version(endpoint: Endpoint) -> str | None:
    """Return the version of the running daemon, such as `3.1.0`; None if it does not answer."""
    text = _appctl(endpoint, "version")
    return None if isinstance(text, Unknown) else parse_version(text)


def parse_version(text: str) -> str | None:
    """`ovs-vswitchd (Open vSwitch) 3.1.0`, without the further lines about libraries."""
    found = _VERSION.match(text)
    return found[1] if found else None


def logged_version(log: str) -> str | None:
    """Return the last version that ovs-vswitchd wrote into its log at a start (bridge_run of vswitchd/bridge.c)."""
    found = _VERSION.findall(log)
    return found[-1] if found else None


def read_history(endpoint: Endpoint) -> Fact[OffloadHistory]:
    process = find_process(endpoint)
    if process is None:
        return Unknown("the process ovs-vswitchd is not found, and so not its log")
    log = read_log(process)
    return parse_history(log) if log else Unknown("it writes no log that can be read")


def read_learned(endpoint: Endpoint, database: Database) -> dict[str, dict[str, str]]:
    """Bridge -> MAC -> port, for bridges that have a table (`fdb/show` of ovs-vswitchd(8))."""
    learned: dict[str, dict[str, str]] = {}
    for bridge in database.bridges:
        text = _appctl(endpoint, "fdb/show", bridge.name)
        if not isinstance(text, Unknown):
            names = {str(i.ofport): i.name for i in bridge.ports if i.ofport is not None}
            learned[bridge.name] = parse_learned(text, names)
    return learned


def parse_learned(text: str, names: Mapping[str, str]) -> dict[str, str]:
    """The answer of `fdb/show`: MAC -> port; `names`: OpenFlow port number -> name."""
    return {mac: names.get(port, port) for port, mac in _LEARNED.findall(text)}


def _offload(endpoint: Endpoint, *, upcall_show: str) -> tuple[Fact[OffloadState], Fact[OffloadHistory]]:
    history = read_history(endpoint)
    # As of 3.7; ovs-appctl has --format since 3.4.
    text = _appctl(endpoint, "--format", "json", "dpif/offload/show")
    answer = text if isinstance(text, Unknown) else understood(text, parse_offload_show)
    if not isinstance(answer, Unknown):
        enabled, providers = answer
        known = OffloadHistory() if isinstance(history, Unknown) else history
        now = replace(known, has_started=enabled, providers=providers, is_complete=True)
        return OffloadState(is_on=enabled, evidence="`dpif/offload/show` says so"), now
    return judge_offload(upcall_show=upcall_show, statistics=_statistics(endpoint), history=history), history


def _statistics(endpoint: Endpoint) -> Fact[str]:
    datapaths = _appctl(endpoint, "dpctl/dump-dps")
    if isinstance(datapaths, Unknown):
        return datapaths
    answers = [_appctl(endpoint, "dpctl/offload-stats-show", name) for name in datapaths.split()]
    return telling_statistics(answers)


def read_offload_counters(endpoint: Endpoint) -> tuple[str, ...]:
    """Return the answers of `dpctl/offload-stats-show` and `coverage/show`; empty where ovs-vswitchd refuses."""
    answers = _statistics(endpoint), _appctl(endpoint, "coverage/show")
    return tuple("" if isinstance(answer, Unknown) else answer for answer in answers)


def telling_statistics(answers: Sequence[Fact[str]]) -> Fact[str]:
    """Return the first answer that shows whether ovs-vswitchd offloads: that of the kernel's datapath never does."""
    telling = (answer for answer in answers if not isinstance(answer, Unknown) or _REFUSED in answer.reason)
    return next(telling, answers[0] if answers else Unknown("there is no datapath yet"))


def _appctl(endpoint: Endpoint, *arguments: str) -> Fact[str]:
    try:
        return Appctl(endpoint).run(*arguments)
    except SwitchError as error:
        return Unknown(str(error))

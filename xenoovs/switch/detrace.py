"""Megaflows back to flows by ofproto/detrace, where Open vSwitch has it (3.4 and newer)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from xenoovs.errors import CommandFailed
from xenoovs.switch.appctl import Appctl
from xenoovs.switch.endpoint import Endpoint

_COMMAND = "ofproto/detrace"
_NO_PMD = "pmd=2147483647"
"""PMD_ID_NULL of lib/dpif.h: the kernel's datapath has no polling threads. The default of 3.4.0 is another, the main
thread of the userspace datapath."""
_FOUND = "actions="


def detrace(endpoint: Endpoint, ufids: Iterable[str], *, cores: Iterable[int] = ()) -> dict[str, str]:
    """The answers of ofproto/detrace by ufid; megaflows that are gone meanwhile are left out, all where it is unknown.

    cores: of the userspace datapath's polling threads, each of which has megaflows of its own.
    Some calls of ovs-appctl each: ask for few. Raises SwitchUnreachable, CommandMissing, CommandTimeout.
    """
    wanted = list(ufids)
    appctl = Appctl(endpoint)
    if not wanted or _COMMAND not in appctl.run("list-commands"):
        return {}
    threads = ((_NO_PMD,), (), *((f"pmd={core}",) for core in cores))
    found = ((ufid, _ask(appctl, ufid, threads)) for ufid in wanted)
    return {ufid: answer for ufid, answer in found if answer is not None}


def _ask(appctl: Appctl, ufid: str, threads: Iterable[tuple[str, ...]]) -> str | None:
    """The answer of the first thread that has the megaflow."""
    for thread in threads:
        with suppress(CommandFailed):
            answer = appctl.run(_COMMAND, f"ufid:{ufid}", *thread)
            if _FOUND in answer:
                return answer
    return None

"""Megaflows back to flows by ofproto/detrace, where Open vSwitch has it (3.4 and newer)."""

from __future__ import annotations

from collections.abc import Iterable

from xenoovs.errors import CommandFailed
from xenoovs.switch.appctl import Appctl
from xenoovs.switch.endpoint import Endpoint

_COMMAND = "ofproto/detrace"
_NO_PMD = "pmd=2147483647"
"""PMD_ID_NULL of lib/dpif.h: the kernel's datapath has no polling threads. The default of 3.4.0 is another."""


def detrace(endpoint: Endpoint, ufids: Iterable[str]) -> dict[str, str]:
    """The answers of ofproto/detrace by ufid; megaflows that are gone meanwhile are left out, all where it is unknown.

    One call of ovs-appctl each: ask for few. Raises SwitchUnreachable, CommandMissing, CommandTimeout.
    """
    wanted = list(ufids)
    appctl = Appctl(endpoint)
    if not wanted or _COMMAND not in appctl.run("list-commands"):
        return {}
    answers = {}
    for ufid in wanted:
        try:
            answers[ufid] = appctl.run(_COMMAND, f"ufid:{ufid}", _NO_PMD)
        except CommandFailed:
            continue
    return answers

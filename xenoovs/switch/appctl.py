"""ovs-vswitchd through ovs-appctl(8): megaflows, traces, and the flows that made a megaflow."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress

from xenoovs.dataclass import dataclass
from xenoovs.errors import BridgeMissing, CommandFailed
from xenoovs.openflow.text import split_list
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.process import run
from xenoovs.switch.stderr import lift

_TIMEOUT_S = 60.0
_ROUND_TIMEOUT_S = 15.0
"""Time limit of one round of the revalidators. Open vSwitch limits its megaflows if a round takes 2 s."""
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Appctl:
    """ovs-appctl to one ovs-vswitchd. All methods raise SwitchUnreachable, CommandMissing and CommandTimeout."""

    endpoint: Endpoint

    def dump_megaflows(self) -> str:
        """Return the text of `dpctl/dump-flows -m`, of one datapath after the other."""
        try:
            return self.run("dpctl/dump-flows", "-m")
        except CommandFailed:
            # It requires a name unless there is exactly one datapath (get_one_dp() of lib/dpctl.c).
            datapaths = self.run("dpctl/dump-dps").split()
            if len(datapaths) == 1:
                raise
        # Without a bridge there is no datapath, and so no megaflow.
        return "".join(self.run("dpctl/dump-flows", "-m", datapath) for datapath in datapaths)

    def trace(self, bridge: str, flow: str) -> str:
        """Return the text of `ofproto/trace BRIDGE FLOW`, with names of ports. `flow`: a match in the form of
        ovs-ofctl(8). Raises BridgeMissing, and CommandFailed for a `flow` that Open vSwitch does not understand."""
        self.endpoint.management(bridge)
        if bridge not in (present := self.run("ofproto/list").split()):
            raise BridgeMissing(bridge=bridge, present=present)
        try:
            return self.run("ofproto/trace", bridge, flow, "--names")
        except CommandFailed as failed:
            # Before 3.1 (commit a93d0b74d of Open vSwitch).
            if "--names: unknown option" not in failed.stderr:
                raise
        return _with_names(self.run("ofproto/trace", bridge, flow), bridge, self.run("dpif/show"))

    def wait_revalidated(self) -> None:
        """Return when every megaflow was compared with the flows of the bridges at the time of the call.

        `revalidator/wait` ends with a round of the revalidators (udpif_run of ofproto/ofproto-dpif-upcall.c, the same
        from 2.17 to 4.0). The first answer may come before the main thread notifies them of changed flows; the second
        may belong to a round that began before that; the third is of a whole round after it.

        Raises CommandFailed if Open vSwitch has datapaths of two types, for which it gives no such answer.
        """
        for _ in range(_ROUNDS):
            self.run("revalidator/wait", timeout_s=_ROUND_TIMEOUT_S)

    def run(self, *arguments: str, timeout_s: float = _TIMEOUT_S) -> str:
        """Run any command of ovs-vswitchd(8). Raises CommandFailed if it answers with an error."""
        try:
            return run(["ovs-appctl", *arguments], timeout_s=timeout_s, env=self.endpoint.env).stdout
        except CommandFailed as failed:
            raise lift(failed, endpoint=self.endpoint) from None


def _with_names(trace: str, bridge: str, shown: str) -> str:
    """Name the ports in a trace's actions by the numbers of `dpif/show` (dpif_show_backer, ofproto/ofproto-dpif.c)."""
    datapaths = re.split(r"^(?=\S)", shown, flags=re.MULTILINE)
    datapath = next((part for part in datapaths if f"\n  {bridge}:\n" in part), "")
    names = {number: name for name, number in re.findall(r"^ {4}(\S+) [0-9]+/([0-9]+): ", datapath, re.MULTILINE)}
    before, head, end = trace.rpartition("Datapath actions: ")
    actions, *after = end.split("\n", 1)
    return before + head + "\n".join((",".join(names.get(part, part) for part in split_list(actions)), *after))


# Megaflows back to flows by ofproto/detrace, where Open vSwitch has it (3.4 and newer).


_COMMAND = "ofproto/detrace"
_NO_PMD = "pmd=2147483647"
"""PMD_ID_NULL of lib/dpif.h: the kernel's datapath has no polling threads. The default of 3.4.0 is another thread."""
_FOUND = "actions="


def detrace(endpoint: Endpoint, ufids: Iterable[str], *, cores: Iterable[int] = ()) -> dict[str, str]:
    """Return the answers of ofproto/detrace by ufid, without megaflows that no longer exist; none before 3.4.

    `cores`: of the userspace datapath's polling threads, each of which has its own megaflows. Each ufid takes some
    calls of ovs-appctl. Raises SwitchUnreachable, CommandMissing, CommandTimeout.
    """
    wanted = list(ufids)
    appctl = Appctl(endpoint)
    if not wanted or _COMMAND not in appctl.run("list-commands"):
        return {}
    threads = ((_NO_PMD,), (), *((f"pmd={core}",) for core in cores))
    found = ((ufid, _ask(appctl, ufid, threads)) for ufid in wanted)
    return {ufid: answer for ufid, answer in found if answer is not None}


def _ask(appctl: Appctl, ufid: str, threads: Iterable[tuple[str, ...]]) -> str | None:
    """Return the answer of the first thread that has the megaflow."""
    for thread in threads:
        with suppress(CommandFailed):
            answer = appctl.run(_COMMAND, f"ufid:{ufid}", *thread)
            if _FOUND in answer:
                return answer
    return None

"""ovs-vswitchd by ovs-appctl(8): megaflows and traces."""

from __future__ import annotations

from dataclasses import dataclass

from xenoovs.errors import BridgeMissing, CommandFailed
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.process import run
from xenoovs.switch.stderr import lift

_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Appctl:
    """ovs-appctl to one ovs-vswitchd. All methods raise SwitchUnreachable, CommandMissing and CommandTimeout."""

    endpoint: Endpoint

    def dump_megaflows(self) -> str:
        """The text of `dpctl/dump-flows -m`; where several datapaths exist, of each in turn."""
        datapaths = self.run("dpctl/dump-dps").split()
        if len(datapaths) < 2:
            # Without a bridge there is no datapath, and so no megaflow.
            return self.run("dpctl/dump-flows", "-m") if datapaths else ""
        return "".join(self.run("dpctl/dump-flows", "-m", datapath) for datapath in datapaths)

    def trace(self, bridge: str, flow: str) -> str:
        """The text of `ofproto/trace BRIDGE FLOW --names`. `flow`: as ovs-ofctl(8) writes a match.

        Raises BridgeMissing, and CommandFailed for a `flow` that Open vSwitch does not understand.
        """
        self.endpoint.management(bridge)
        if bridge not in (present := self.run("ofproto/list").split()):
            raise BridgeMissing(bridge=bridge, present=present)
        return self.run("ofproto/trace", bridge, flow, "--names")

    def run(self, *arguments: str) -> str:
        """Any command of ovs-vswitchd(8). Raises CommandFailed when it answers with an error."""
        target = self.endpoint.local_rundir
        try:
            return run(["ovs-appctl", *arguments], timeout_s=_TIMEOUT_S, env={"OVS_RUNDIR": str(target)}).stdout
        except CommandFailed as failed:
            raise lift(failed, endpoint=self.endpoint) from None

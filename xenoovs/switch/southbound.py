"""The southbound database of OVN by ovn-sbctl(8): which logical flows are behind the cookies of OpenFlow flows."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.datapath.ovn import LogicalFlow, parse_logical_flows
from xenoovs.errors import CommandFailed, CommandMissing, CommandTimeout
from xenoovs.switch.process import run

TIMEOUT_S = 20


def read_logical_flows(
    remote: str | None, cookies: Iterable[int], *, timeout_s: int = TIMEOUT_S
) -> Fact[dict[int, LogicalFlow]]:
    """Return the logical flows with these cookies (32 bits). Physical flows, such as those of ports, have none.
    `remote`: as ovn-controller has it (external_ids:ovn-remote); None: not known. `timeout_s`: for all of it; the
    database may be large."""
    if remote is None:
        return Unknown("external_ids:ovn-remote of table Open_vSwitch is not set")
    if "ssl:" in remote:
        return Unknown(f"{remote} needs keys; `ovn-sbctl lflow-list COOKIE` with yours shows a logical flow")
    wanted = [f"{cookie:#010x}" for cookie in sorted(set(cookies)) if 0 < cookie < 1 << 32]
    if not wanted:
        return {}
    # A follower of a cluster has them too; this saves the leader the load.
    options = (f"--db={remote}", f"--timeout={timeout_s}", "--no-leader-only", "--uuid")
    try:
        output = run(["ovn-sbctl", *options, "lflow-list", *wanted], timeout_s=timeout_s + 5)
    except CommandMissing:
        return Unknown("ovn-sbctl is not installed")
    except CommandTimeout:
        return Unknown(f"{remote} did not answer within {timeout_s} s")
    except CommandFailed as failed:
        # ovn-sbctl ends itself by SIGALRM.
        if failed.exit_code == -signal.SIGALRM:
            return Unknown(f"{remote} did not answer within {timeout_s} s")
        lines = [line for line in failed.stderr.splitlines() if line.strip()]
        return Unknown(lines[-1].strip() if lines else f"ovn-sbctl ended with {failed.exit_code}")
    return parse_logical_flows(output.stdout)

"""Nothing is wrong with the flows, but the set-up keeps them out of hardware."""

from __future__ import annotations

from tests.nic.guest.bench import Bench
from tests.nic.guest.nic import set_hw_tc_offload
from xenoovs.switch.process import run


def fixed(bench: Bench) -> None:
    """Two settings are wrong, and a third later: doctor reports and fixes each; only then flows are offloaded.

    At last `ethtool -K p0 hw-tc-offload off`: the driver of the ingress port takes no rules.
    """
    set_hw_tc_offload("p0", "off")
    bench.begin("dns", hw_offload="false")
    bench.prime()
    bench.xenoovs("doctor", "dns", "--fix", "--yes", "--output", "json")
    bench.prime()
    bench.send()
    bench.look("fixed")
    bench.judge("dns", "verify-offload", "doctor", recorded=True)
    run(["tc", "qdisc", "del", "dev", "p0", "ingress"])
    bench.purge()
    bench.prime()
    bench.send()
    bench.look("without its qdisc")
    bench.judge("dns", recorded=True)
    bench.xenoovs("doctor", "dns", "--fix", "--yes", "--output", "json")
    bench.prime()
    bench.look("fixed again")
    bench.judge("dns", "doctor")
    set_hw_tc_offload("p0", "off")
    bench.purge()
    bench.prime()
    bench.send(packets_each=5)
    bench.look("without the feature")
    bench.judge("dns", recorded=True)

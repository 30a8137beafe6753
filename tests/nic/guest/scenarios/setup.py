"""Nothing is wrong with the flows, but the set-up keeps them out of hardware."""

from __future__ import annotations

from tests.nic.guest.bench import CLIENTS, Bench
from tests.nic.guest.frames import Kind
from tests.nic.guest.nic import set_hw_tc_offload
from xenoovs.switch.process import run


def hw_offload_off(bench: Bench) -> None:
    """OVS never asks: other_config:hw-offload is false."""
    bench.begin("dns", hw_offload="false")
    bench.prime()
    bench.send(packets_each=5)
    bench.look("after 5 packets of each client")
    bench.judge("dns")


def not_restarted(bench: Bench) -> None:
    """hw-offload is turned on while OVS runs; later ovs-vswitchd is restarted, as the manual asks."""
    bench.begin("dns", hw_offload="false")
    bench.prime()
    bench.look("off")
    bench.configure("hw-offload=true")
    bench.send(packets_each=5)
    bench.look("on, 5 packets of each client")
    bench.judge("dns")
    bench.purge()
    bench.prime()
    bench.look("on, purged")
    bench.restart_ovs()
    bench.prime()
    bench.look("on, restarted")


def turned_off_not_restarted(bench: Bench) -> None:
    """hw-offload is turned off while OVS runs: the setting says one thing, the NIC does another."""
    bench.begin("dns")
    bench.prime()
    bench.configure("hw-offload=false")
    bench.purge()
    bench.prime()
    bench.send(packets_each=5)
    bench.look("off, purged, 5 packets of each client")
    bench.judge("dns")
    bench.record_settings()


def skip_hw(bench: Bench) -> None:
    """tc-policy=skip_hw: OVS uses TC without the NIC."""
    bench.begin("dns", settings=["tc-policy=skip_hw"])
    bench.prime()
    bench.send(packets_each=5)
    bench.look("after 5 packets of each client")
    bench.judge("dns")


def hw_tc_offload_off(bench: Bench) -> None:
    """`ethtool -K p0 hw-tc-offload off`: the driver of the ingress port takes no rules."""
    set_hw_tc_offload("p0", "off")
    bench.begin("dns")
    bench.prime()
    bench.send(packets_each=5)
    bench.look("after 5 packets of each client")
    bench.judge("dns")
    bench.record_settings()


def fixed(bench: Bench) -> None:
    """Two settings are wrong, and a third later: doctor reports and fixes each; only then flows are offloaded."""
    set_hw_tc_offload("p0", "off")
    bench.begin("dns", hw_offload="false")
    bench.prime()
    bench.xenoovs("doctor", "dns", "--fix", "--yes", "--output", "json")
    bench.prime()
    bench.look("fixed")
    bench.judge("dns")
    run(["tc", "qdisc", "del", "dev", "p0", "ingress"])
    bench.purge()
    bench.prime()
    bench.look("without its qdisc")
    bench.judge("dns")
    bench.xenoovs("doctor", "dns", "--fix", "--yes", "--output", "json")
    bench.prime()
    bench.look("fixed again")
    bench.judge("dns")


def port_gone(bench: Bench) -> None:
    """The port of the backends leaves the bridge: flows stay, and their megaflows drop all packets."""
    bench.begin("dns")
    bench.prime()
    bench.send(packets_each=5)
    bench.look("before")
    bench.judge("dns")
    bench.ovs.vsctl("del-port", "p1")
    bench.purge()
    bench.send_frames([Kind().frame(client) for client in CLIENTS] * 3)
    bench.wait_until_stable()
    bench.xenoovs("verify-offload", "dns", "--interval", "0s", "--output", "json")

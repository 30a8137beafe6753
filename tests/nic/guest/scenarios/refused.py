"""The NIC or OVS refuses something: a key, an action, a port, one rule too many."""

from __future__ import annotations

from tests.nic.guest.bench import CLIENTS, Bench
from tests.nic.guest.frames import Kind
from tests.nic.guest.nic import limit, set_max_rules

_TABLE_SIZE = 4
# Of packets that stay in software every single one may cost an upcall and lines of log.
_FEW = CLIENTS[:3]
_FOREIGN_ACTIONS = """\
priority=3000,udp,in_port=p0,nw_dst=10.3.10.46 actions=push_vlan:0x8100,set_field:4101->vlan_vid,output:p1
priority=3000,udp,in_port=p0,nw_dst=10.3.10.47 actions=output:LOCAL
priority=3000,udp,in_port=p0,nw_dst=10.3.10.48 actions=output(port=p1,max_len=64)
"""


def unsupported_key(bench: Bench) -> None:
    """A foreign flow matches the ICMP type, which this NIC cannot; our blocks are in hardware beside it."""
    bench.begin("dns", extra_flows="priority=3000,icmp,in_port=p0,nw_dst=10.3.10.45,icmp_type=8 actions=output:p1\n")
    bench.prime()
    bench.prime(_FEW, kind=Kind(protocol="icmp"))
    bench.look("primed")
    bench.send(packets_each=5)
    bench.send(_FEW, packets_each=3, kind=Kind(protocol="icmp"))
    bench.look("after 5 packets of each client, 3 of ICMP of a few")
    bench.judge("dns")


def widened_by_tos(bench: Bench) -> None:
    """A foreign flow of higher priority matches the DSCP: so does every megaflow then, and this NIC cannot."""
    foreign = "priority=3000,udp,in_port=p0,nw_dst=10.3.10.45,nw_tos=184 actions=output:pf0hpf\n"
    limit(ip_key="N")
    bench.begin("dns", extra_flows=foreign)
    bench.prime()
    bench.send(packets_each=5)
    bench.look("after 5 packets of each client")
    bench.judge("dns")


def unsupported_action(bench: Bench) -> None:
    """A VLAN tag and the local port, which this NIC refuses; a truncated output, which OVS does not even ask for."""
    bench.begin("dns", extra_flows=_FOREIGN_ACTIONS)
    bench.explain()
    bench.prime()
    for destination in ("10.3.10.46", "10.3.10.47", "10.3.10.48"):
        bench.prime(_FEW, kind=Kind(destination=destination))
    bench.look("primed")
    bench.send(packets_each=5)
    for destination in ("10.3.10.46", "10.3.10.47", "10.3.10.48"):
        bench.send(_FEW, packets_each=2, kind=Kind(destination=destination))
    bench.look("after 5 packets of each client, 2 of a few to each foreign address")
    bench.judge("dns")


def skip_sw(bench: Bench) -> None:
    """With tc-policy=skip_sw a rule that the NIC refuses does not stay in TC's software; OVS logs the refusal."""
    foreign = "priority=3000,icmp,in_port=p0,nw_dst=10.3.10.45,icmp_type=8 actions=output:p1\n"
    bench.begin("dns", extra_flows=foreign, settings=["tc-policy=skip_sw"])
    bench.explain()
    bench.prime()
    bench.prime(_FEW, kind=Kind(protocol="icmp"))
    bench.look("primed")
    bench.judge("dns")


def table_full(bench: Bench) -> None:
    """The rule table has room for half of the blocks; a larger one helps only after OVS asks again."""
    set_max_rules(_TABLE_SIZE)
    bench.begin("dns")
    bench.prime()
    bench.look("primed")
    bench.send(packets_each=5)
    bench.look("after 5 packets of each client")
    bench.judge("dns")
    set_max_rules(64)
    bench.send(packets_each=5)
    bench.look("larger table, 5 more packets of each client")
    bench.judge("dns")
    bench.purge()
    bench.prime()
    bench.send(packets_each=5)
    bench.look("purged, primed, 5 packets of each client")


def few_preferences(bench: Bench) -> None:
    """The NIC takes preferences 1 to 16 only, and its table is full: trial rules must not run into the former."""
    limit(max_prio=16)
    set_max_rules(_TABLE_SIZE)
    bench.begin("dns")
    bench.prime()
    bench.send(packets_each=5)
    bench.look("after 5 packets of each client")
    bench.judge("dns")


def hash_collisions(bench: Bench) -> None:
    """The NIC refuses by value: rules of one shape are in hardware and are not, and its table has room."""
    limit(buckets=5)
    bench.begin("dns")
    bench.prime()
    bench.send(packets_each=5)
    bench.look("after 5 packets of each client")
    bench.judge("dns")
    bench.xenoovs("why", "dns", "--listen", "0", "--output", "json")


def bucket_chains(bench: Bench) -> None:
    """The NIC refuses by value, in words that are about neither the chain nor the preference of a trial."""
    limit(buckets=5, chained="Y")
    bench.begin("dns")
    bench.prime()
    bench.send(packets_each=5)
    bench.look("after 5 packets of each client")
    bench.judge("dns")


def prefix_masks(bench: Bench) -> None:
    """The NIC matches prefixes only, so it refuses every block by low bits."""
    limit(prefix_masks="Y")
    bench.begin("dns")
    bench.prime()
    bench.send(packets_each=5)
    bench.look("after 5 packets of each client")
    bench.judge("dns")


def foreign_port(bench: Bench) -> None:
    """One backend is behind a veth, which is not on the eSwitch; traffic also enters there."""
    bench.add_veth("x0")
    from_veth = "priority=3000,udp,in_port=x0 actions=output:p1\n"
    bench.begin("foreign_port", extra_flows=from_veth, ports=("p0", "p1", "x0"))
    bench.prime()
    bench.prime(port="x0")
    bench.look("primed")
    bench.send(packets_each=5)
    bench.send(packets_each=3, port="x0")
    bench.look("after 5 packets of each client by p0 and 3 by x0")
    bench.judge("foreign_port")
    bench.record_settings()

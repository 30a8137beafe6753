"""The NIC refuses something: a key, a port, one rule too many, rules by their values."""

from __future__ import annotations

from tests.nic.guest.bench import CLIENTS, Bench
from tests.nic.guest.frames import Kind
from tests.nic.guest.nic import limit, set_max_rules

_TABLE_SIZE = 4
# Of packets that stay in software every single one may cost an upcall and lines of log.
_FEW = CLIENTS[:3]


def skip_sw(bench: Bench) -> None:
    """With tc-policy=skip_sw a rule that the NIC refuses does not stay in TC's software; OVS logs the refusal."""
    foreign = "priority=3000,icmp,in_port=p0,nw_dst=10.3.10.45,icmp_type=8 actions=output:p1\n"
    bench.begin("dns", extra_flows=foreign, settings=["tc-policy=skip_sw"])
    bench.explain()
    bench.prime()
    bench.prime(_FEW, kind=Kind(protocol="icmp"))
    # Without a counted packet a rule would become unconfirmed between the look and the command.
    bench.send()
    bench.look("primed")
    bench.judge("dns", "verify-offload", "why", recorded=True)


def limits(bench: Bench) -> None:
    """Half of the blocks find room; a larger table helps only after OVS asks again. Then the NIC refuses by value."""
    set_max_rules(_TABLE_SIZE)
    bench.begin("dns")
    bench.prime()
    bench.look("primed")
    bench.send(packets_each=5)
    bench.look("full table")
    bench.judge("dns", "verify-offload", "why", recorded=True)
    set_max_rules(64)
    bench.send(packets_each=5)
    bench.look("larger table")
    bench.judge("dns", "verify-offload", "why")
    _again(bench, "purged")
    # Rules of one shape are in hardware and are not, and the table has room.
    limit(buckets=5)
    _again(bench, "hash collisions")
    bench.judge("dns", "verify-offload", "why", recorded=True)
    bench.xenoovs("why", "dns", "--listen", "0", "--output", "json")
    # In words that are about neither the chain nor the preference of a trial.
    limit(chained="Y")
    _again(bench, "bucket chains")
    bench.judge("dns", "verify-offload", "why")


def _again(bench: Bench, label: str) -> None:
    bench.purge()
    bench.prime()
    bench.send(packets_each=5)
    bench.look(label)


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
    bench.judge("foreign_port", recorded=True, simulated=True)
    bench.record_settings()

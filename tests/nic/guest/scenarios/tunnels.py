"""Backends behind tunnels of Open vSwitch: the NIC puts packets into tunnels and takes them out."""

from __future__ import annotations

from tests.nic.guest import nic
from tests.nic.guest.bench import CLIENTS, Bench
from tests.nic.guest.frames import GENEVE_PORT, KEY, LOCAL, REMOTES, VIP, Kind, Tunnel
from tests.nic.guest.ovs import BRIDGE, TUNNELS
from xenoovs.switch.process import run

BLOCKS = {"geneve": "0.0.0.0/0.0.0.1", "vxlan": "0.0.0.1/0.0.0.3", "gre": "0.0.0.3/0.0.0.3"}
"""Sources by the type of the tunnel in which their packets leave."""
OF_CLIENTS = Kind(protocol="tcp", port=80)


def flows(*kinds: str) -> str:
    """A block for each type of tunnel, and the way back."""
    lines = []
    for number, kind in enumerate(kinds, 1):
        port, source = TUNNELS[kind].name, BLOCKS[kind] if len(kinds) > 1 else "0.0.0.0/0.0.0.0"
        to = f"set_field:{KEY}->tun_id,set_field:{REMOTES[kind]}->tun_dst,output:{port}"
        with_option, of_option = ("set_field:42->tun_metadata0,", "tun_metadata0=42,") if kind == "geneve" else ("", "")
        mac = f"set_field:02:00:00:00:0d:0{number}->eth_dst"
        lines += [
            f"priority=100,ip,in_port=p0,nw_src={source} actions={with_option}{mac},{to}\n",
            f"priority=100,ip,{of_option}in_port={port},nw_src={VIP} actions=output:p0\n",
        ]
    return "".join(lines)


def answers(kind: str) -> Kind:
    """What a backend sends back by a tunnel."""
    return Kind(destination=CLIENTS[0], port=4000, source_port=80, protocol="tcp", tunnel=Tunnel(kind, REMOTES[kind]))


def tunnels(bench: Bench) -> None:
    """VXLAN, Geneve and GRE side by side, out and in; then clients with every code point of ECN.

    At last the module is removed under live tunnels, of which it holds rules in both directions.
    """
    bench.begin(extra_flows=flows(*BLOCKS), ports=("p0",), tunnels=tuple(BLOCKS))
    bench.prime(kind=OF_CLIENTS)
    for kind in BLOCKS:
        bench.prime([VIP], kind=answers(kind), port="p1")
    bench.look("primed")
    bench.send(packets_each=5, kind=OF_CLIENTS)
    for kind in BLOCKS:
        bench.send([VIP], packets_each=20, kind=answers(kind), port="p1")
    bench.look("after 5 packets of each client and 20 of each remote")
    for tos in (2, 3):
        bench.prime(kind=Kind(protocol="tcp", port=80, tos=tos))
    for tos in (0, 2, 3):
        bench.send(kind=Kind(protocol="tcp", port=80, tos=tos))
    bench.look("clients with ECN 0, 2 and 3")
    bench.judge(BRIDGE, "verify-offload", recorded=True)
    bench.reload_nic()


def tunnel_paths(bench: Bench) -> None:
    """Neighbours, MTU and routes: what the NIC asks the kernel for each packet, and when a rule comes."""
    bench.begin(extra_flows=flows("geneve"), ports=("p0",), tunnels=("geneve",))
    bench.prime(kind=OF_CLIENTS)
    bench.prime([VIP], kind=answers("geneve"), port="p1")
    bench.look("primed")
    # The remote is a host that answers ARP, and discards what comes.
    nic.ip_batch(f"neigh del {REMOTES['geneve']} dev p1")
    with nic.host_beyond(REMOTES["geneve"]):
        bench.send(kind=OF_CLIENTS)
        bench.look("neighbour unknown")
        bench.send(packets_each=5, kind=OF_CLIENTS)
        bench.look("neighbour known again")
        bench.send(packets_each=2, kind=Kind(protocol="tcp", port=80, length=1514))
        bench.look("packets of 1500 bytes")
    nic.set_up_uplink()
    nic.ip_batch(f"route add {REMOTES['geneve']}/32 dev lo")
    bench.purge()
    bench.prime(kind=OF_CLIENTS)
    bench.look("routed elsewhere")
    nic.ip_batch(f"route del {REMOTES['geneve']}/32 dev lo", "addr flush dev p1", "addr add 192.168.77.1/24 dev ovsbr1")
    nic.ip_batch("link set ovsbr1 up")
    # Open vSwitch deletes megaflows when it learns of other routes.
    bench.wait_until(lambda: f"/24 dev {BRIDGE}" in bench.appctl("ovs/route/show"), "the route by the bridge is known")
    bench.wait_until_revalidated()
    bench.purge()
    bench.prime(kind=OF_CLIENTS)
    bench.prime([VIP], kind=answers("geneve"), port="p1")
    bench.look("local address on the bridge")
    bench.xenoovs("why", BRIDGE, "--probe-driver", "--listen", "0s", "--interval", "0s", "--output", "json")
    bench.judge(BRIDGE, "verify-offload", recorded=True)


# What IPsec needs of the kernel; without drbg, seqiv cannot begin.
IPSEC_MODULES = ("xfrm_user", "esp4", "esp4_offload", "gcm", "ctr", "ghash_generic", "seqiv", "drbg")
_ESP = "proto esp reqid 7 mode transport"
_CIPHER = f"aead rfc4106(gcm(aes)) 0x{bytes(range(20)).hex()} 128"


def tunnel_ipsec(bench: Bench) -> None:
    """An IPsec policy covers a tunnel, without an SA, and with one that the device was given: the NIC refuses it."""
    remote = REMOTES["geneve"]
    run(["modprobe", "-a", *IPSEC_MODULES])
    to = f"src {LOCAL} dst {remote}"
    nic.ip_batch(f"xfrm policy add dir out {to} proto udp dport {GENEVE_PORT} tmpl {to} {_ESP}")
    bench.begin(extra_flows=flows("geneve"), ports=("p0",), tunnels=("geneve",))
    bench.prime(kind=OF_CLIENTS)
    bench.look("policy without SA")
    nic.ip_batch(f"xfrm state add {to} spi 0x101 {_ESP} {_CIPHER} offload dev p1 dir out")
    bench.purge()
    bench.prime(kind=OF_CLIENTS)
    bench.look("SA on the device")
    bench.judge(BRIDGE, "verify-offload", recorded=True)
    nic.ip_batch("xfrm policy flush", "xfrm state flush")

"""The network of the demo: clients, a router, DPUs and servers, each a network namespace.

                                 ┌ dpu1 ┐
    clients ── router ── ECMP ───┼ dpu2 ┼── LAN ── web1 .. web4
                 │               └ dpu3 ┘    │
                 └────────── answers ────────┘

The router shares packets to the VIP out by a hash of addresses and ports (fib_multipath_hash_policy 1, ip-sysctl.rst),
so the flows of one client take different DPUs. It leaves out a DPU whose link is down (ignore_routes_with_linkdown).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scripts.demo_fleet.place import Place
from xenoovs.lab.host import has_ipv6
from xenoovs.lab.lifecycle import add_namespaces, isolate
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs
from xenoovs.lab.responder import CheckAnswer, Job, render_job
from xenoovs.switch.process import run

VIP, PORT = "192.0.2.80", 53
DPUS = ("dpu1", "dpu2", "dpu3")
SERVERS = ("web1", "web2", "web3", "web4")
CLIENTS = tuple(f"198.18.0.{number}" for number in range(64))
"""All values of their lowest six bits, so that shares of clients are those of blocks."""

CLIENT_PORTS = (20001, 20002, 20003)
_CLIENT_NET = "198.18.0.0/24"
_LAN = "198.51.100"
_ROUTER_ON_LAN = f"{_LAN}.254"


def server_mac(server: str) -> str:
    return f"02:00:5e:10:00:0{server[-1]}"


def server_address(server: str) -> str:
    return f"{_LAN}.{server[-1]}"


def ovs_of(place: Place, dpu: str) -> PrivateOvs:
    """Return the Open vSwitch of a DPU."""
    return PrivateOvs(place.directory / dpu, place.marks(dpu))


def build(place: Place) -> None:
    """Build the network, with an Open vSwitch without flows in each DPU, and start the servers."""
    hosts = ("clients", "router", "lan", "store", *DPUS, *SERVERS)
    add_namespaces(place.netns, map(place.namespace, hosts))
    isolate(place.netns, map(place.namespace, hosts))
    _set(place, "router", 1, "ipv4/ip_forward", "ipv4/fib_multipath_hash_policy")
    _set(place, "router", 1, *(f"ipv4/conf/{which}/ignore_routes_with_linkdown" for which in ("all", "default")))
    _ip(place, "router", _cables(place, [("cl", "clients", "eth0"), *((dpu, dpu, "p0") for dpu in DPUS)]))
    lan = [("router", "router", "lan")]
    lan += [(f"{dpu}-p1", dpu, "p1") for dpu in DPUS] + [(f"{dpu}-eth1", dpu, "eth1") for dpu in DPUS]
    lan += [(server, server, "eth0") for server in SERVERS]
    ports = [f"link set dev {near} master lan up" for near, _, _ in lan]
    _ip(place, "lan", ["link add dev lan type bridge", "link set dev lan up", *_cables(place, lan), *ports])
    _configure_clients(place)
    for number, dpu in enumerate(DPUS, start=1):
        _configure_dpu(place, dpu, f"{_LAN}.10{number}")
    for server in SERVERS:
        _configure_server(place, server)
    _configure_router(place)


def _cables(place: Place, links: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return commands of ip(8) for veth pairs: (device here, host, device there)."""
    return [f"link add dev {near} type veth peer name {far} netns {place.namespace(host)}" for near, host, far in links]


def _ip(place: Place, host: str, lines: Iterable[str]) -> None:
    place.netns.batch(lines, namespace=place.namespace(host))


def _set(place: Place, host: str, value: int, *paths: str) -> None:
    place.netns.write_sysctls(place.namespace(host), paths, value=value)


def _up(*devices: str) -> list[str]:
    # Without link-local addresses no router solicitations are among the packets.
    options = "addrgenmode none up" if has_ipv6() else "up"
    return [f"link set dev {device} {options}" for device in devices]


def _compute_checksums(place: Place, host: str, *devices: str) -> None:
    """Let a sender compute checksums, which packets that stay inside the machine lack otherwise (ethtool(8))."""
    for device in devices:
        place.netns.execute(place.namespace(host), ["ethtool", "-K", device, "tx", "off"])


def _configure_clients(place: Place) -> None:
    lines = ["addr add 198.19.0.2/30 dev eth0", "route add default via 198.19.0.1"]
    _ip(place, "clients", [*_up("eth0"), *lines, f"route add local {_CLIENT_NET} dev lo"])
    _compute_checksums(place, "clients", "eth0")


def _configure_router(place: Place) -> None:
    lines = [*_up("cl", "lan", *DPUS), "addr add 198.19.0.1/30 dev cl", f"route add {_CLIENT_NET} via 198.19.0.2"]
    lines += [f"addr add {_ROUTER_ON_LAN}/24 dev lan"]
    # On each link to a DPU it asks for the VIP by ARP, and the flows there answer.
    lines += [f"addr add 169.254.1.{number}/32 dev {dpu}" for number, dpu in enumerate(DPUS, start=1)]
    _ip(place, "router", [*lines, f"route add {VIP}/32 {' '.join(f'nexthop dev {dpu}' for dpu in DPUS)}"])
    _compute_checksums(place, "router", *DPUS)


def _configure_dpu(place: Place, dpu: str, address: str) -> None:
    _ip(place, dpu, [*_up("p0", "p1", "eth1"), f"addr add {address}/24 dev eth1"])
    ovs = ovs_of(place, dpu)
    start_private_ovs(
        ovs.directory, datapath=Datapath.USERSPACE, netns=place.namespace(dpu), marks=place.marks(dpu)
    ).add_bridge("ovsbr1", ("p0", "p1"), datapath=Datapath.USERSPACE)


def _configure_server(place: Place, server: str) -> None:
    """Configure a server that answers clients itself (direct server return): its VIP is silent on the LAN."""
    _set(place, server, 1, "ipv4/conf/all/arp_ignore")
    _set(place, server, 2, "ipv4/conf/all/arp_announce")
    lines = [f"link set dev eth0 address {server_mac(server)}", *_up("eth0")]
    lines += [f"addr add {server_address(server)}/24 dev eth0", f"addr add {VIP}/32 dev lo"]
    _ip(place, server, [*lines, f"route add default via {_ROUTER_ON_LAN}"])
    start_server_program(place, server)


def start_server_program(place: Place, server: str) -> None:
    """Start the program that answers clients and health checks with the name of its server."""
    job = Job(
        label=server,
        names=(server,),
        listen=(("udp", PORT),),
        log=str(place.directory / f"{server}.log"),
        own_addresses=(server_address(server),),
        checks=(CheckAnswer("dns", PORT),),
    )
    run(place.python(server, "xenoovs.lab.responder"), stdin=render_job(job), env=place.marks(server))


def cut_power(place: Place, dpu: str) -> int:
    """Kill all processes of a DPU, then its links, as their light goes out. Return how many processes."""
    killed = place.kill(dpu)
    _ip(place, dpu, [f"link set dev {device} down" for device in ("p0", "p1", "eth1")])
    return killed


@dataclass(frozen=True, slots=True)
class Flow:
    """The packets of a client from one port: all take the same DPU."""

    client: str
    port: int


FLOWS = tuple(Flow(client, port) for client in CLIENTS for port in CLIENT_PORTS)


def dpus_of(place: Place, flows: Sequence[Flow] = FLOWS) -> dict[Flow, str]:
    """Ask the kernel of the router which DPU the packets of each flow take (ip-route(8), get)."""
    asked = [f"route get {VIP} from {flow.client} iif cl ipproto udp sport {flow.port} dport {PORT}" for flow in flows]
    text = "".join(f"{line}\n" for line in asked)
    output = run(["ip", "-n", place.namespace("router"), "-batch", "-"], stdin=text).stdout
    answers = [words[words.index("dev") + 1] for line in output.splitlines() if "dev" in (words := line.split())]
    return dict(zip(flows, answers, strict=True))

"""OVN with two chassis: ours with a port of the NIC, the other one beyond the cable, and Geneve between them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.nic.guest import nic
from tests.nic.guest.bench import CLIENTS, Bench
from tests.nic.guest.frames import CLIENT_MAC, LOCAL, REMOTES, Kind
from tests.nic.guest.ovs import TUNNELS
from tests.ovn_daemons import (
    chassis_keys,
    nbctl,
    start_controller,
    start_databases,
    stop_controller,
    stop_databases,
)
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, stop_private_ovs
from xenoovs.switch.process import try_run

HOST = "host"
"""Port of the other chassis."""
_PEER, _TOP = Path("/run/ovs/hv2"), Path("/run/ovn-databases")
_REMOTE = REMOTES["geneve"]
_ROUTER_MAC, _SERVER_MAC = "02:00:00:00:00:ff", "02:00:00:00:00:02"
SERVER, BEYOND = "10.0.0.2", "10.0.1.2"
SWITCHED = Kind(destination=SERVER, mac=_SERVER_MAC)
ROUTED = Kind(destination=BEYOND, mac=_ROUTER_MAC)
ANSWERS = Kind(destination=CLIENTS[0], mac=CLIENT_MAC, port=4000, source_port=53)
_BRIDGE = ("--bridge", "br-int", "--output", "json")

_LOGICAL = f"""
ls-add sw0
lsp-add sw0 vm1
lsp-set-addresses vm1 {CLIENT_MAC}
lsp-add sw0 vm2
lsp-set-addresses vm2 "{_SERVER_MAC} {SERVER}"
ls-add sw1
lsp-add sw1 vm3
lsp-set-addresses vm3 "02:00:00:00:00:03 {BEYOND}"
lr-add lr0
lrp-add lr0 lr0-sw0 {_ROUTER_MAC} 10.0.0.1/24
lrp-add lr0 lr0-sw1 02:00:00:00:01:ff 10.0.1.1/24
lsp-add sw0 sw0-lr0
lsp-set-type sw0-lr0 router
lsp-set-addresses sw0-lr0 router
lsp-set-options sw0-lr0 router-port=lr0-sw0
lsp-add sw1 sw1-lr0
lsp-set-type sw1-lr0 router
lsp-set-addresses sw1-lr0 router
lsp-set-options sw1-lr0 router-port=lr0-sw1
"""


def ovn(bench: Bench) -> None:
    """Switching and routing."""
    bench.begin(ports=())
    nic.set_up_uplink()
    with _two_chassis(bench), bench.watching("p0", TUNNELS["geneve"].device):
        bench.prime(kind=SWITCHED)
        bench.prime([SERVER], kind=ANSWERS, port=HOST)
        bench.prime(kind=ROUTED)
        with bench.between_samples(lambda: _use(bench)):
            bench.ask("verify-offload", *_BRIDGE, "--tree")
        bench.look("switched and routed")
        bench.judge(_BRIDGE[1], "verify-offload", recorded=True)


def _use(bench: Bench) -> None:
    """What the NIC forwards: 5 packets of each client by each way, and 20 answers."""
    bench.send(packets_each=5, kind=SWITCHED)
    bench.send(packets_each=5, kind=ROUTED)
    bench.send([SERVER], packets_each=20, kind=ANSWERS, port=HOST)


@contextmanager
def _two_chassis(bench: Bench) -> Iterator[None]:
    wire = nic.WIRE_NETNS
    device = f"{nic.UPLINK}-w"
    ours = bench.ovs
    peer: PrivateOvs | None = None
    nic.ip_batch(f"neigh del {_REMOTE} dev {nic.UPLINK}", f"link set {nic.UPLINK} mtu 2000")
    nic.ip_batch(
        f"addr add {_REMOTE}/24 dev {device}",
        f"link set {device} mtu 2000",
        "link set lo up",
        f"link add {HOST} type veth peer name {HOST}-w",
        netns=wire,
    )
    try:
        nic.set_up_silent(HOST)
        bench.plug_in(HOST)
        _TOP.mkdir()
        start_databases(_TOP)
        peer = start_private_ovs(_PEER, datapath=Datapath.KERNEL, netns=wire)
        _set_up(ours, "hv1", LOCAL, {"p0": "vm1"})
        _set_up(peer, "hv2", _REMOTE, {HOST: "vm2", "vm3": "vm3"})
        start_controller(ours)
        start_controller(peer, netns=wire)
        _nbctl(*_LOGICAL.strip().splitlines())
        ports = ((ours, "p0"), (peer, HOST), (peer, "vm3"))
        bench.wait_until(lambda: all(_is_installed(*port) for port in ports), "OVN has installed all ports")
        yield
    finally:
        for chassis in filter(None, (ours, peer)):
            stop_controller(chassis)
            chassis.vsctl("--if-exists", "del-br", "br-int", timeout_s=300.0)
        stop_databases(_TOP)
        if peer is not None:
            stop_private_ovs(peer)
        try_run(["ip", "netns", "exec", wire, "ovs-dpctl", "del-dp", "ovs-system"])
        bench.unplug(HOST)
        nic.ip_batch(
            f"link del {HOST}",
            f"addr flush dev {device}",
            f"link set {device} mtu 1500",
            "link set lo down",
            netns=wire,
        )
        nic.ip_batch(f"link set {nic.UPLINK} mtu 1500")


def _set_up(ovs: PrivateOvs, name: str, underlay: str, ports: dict[str, str]) -> None:
    """Make an Open vSwitch a chassis, with the logical ports of its ports."""
    words = ["set", "Open_vSwitch", ".", *chassis_keys(name, top=_TOP, underlay=underlay)]
    words += ["--", "add-br", "br-int", "--", "set", "bridge", "br-int", "fail_mode=secure"]
    for port, logical in ports.items():
        kind = ["type=internal"] if port == "vm3" else []
        words += ["--", "add-port", "br-int", port]
        words += ["--", "set", "Interface", port, *kind, f"external_ids:iface-id={logical}"]
    ovs.vsctl(*words, timeout_s=300.0)


def _is_installed(ovs: PrivateOvs, port: str) -> bool:
    return "true" in ovs.vsctl("--if-exists", "get", "Interface", port, "external_ids:ovn-installed")


def _nbctl(*commands: str) -> None:
    words = list[str]()
    for command in commands:
        words += ["--", *shlex.split(command)]
    nbctl(_TOP, words[1:])

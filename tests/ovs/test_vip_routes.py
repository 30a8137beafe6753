"""The device and the routes of VIPs, in a network namespace of a real kernel."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from ipaddress import ip_address

import pytest

from xenoovs.agent.probe.sockets import in_namespace
from xenoovs.switch.process import run
from xenoovs.switch.vip_routes import VipRoutes, VipRoutesUnusable

VIPS = {VIP := ip_address("192.0.2.10"), ip_address("2001:db8::10")}


@pytest.fixture
def netns() -> Iterator[str]:
    name = f"xo-vip-routes-{os.getpid()}"
    run(["ip", "netns", "add", name])
    yield name
    run(["ip", "netns", "delete", name])


@pytest.fixture
def set_routes(netns: str) -> Iterator[Callable[..., object]]:
    """Opens the device, runs a command, opens it again and adds the route, in the namespace."""
    routes = VipRoutes("xo-t")

    def call(policy: str, command: str = "true") -> frozenset[object]:
        routes.open(ends_with_process=policy == "withdraw")
        run(command.split())
        routes.open(ends_with_process=policy == "withdraw")
        return frozenset(routes.change(add={VIP} - routes.read(), remove=()))

    yield lambda *words: in_namespace(netns, lambda: call(*words))
    routes.release()


@pytest.mark.parametrize("policy", ["keep", "withdraw"])
def test_a_device_that_was_set_down_is_set_up_again(set_routes: Callable[..., object], policy: str) -> None:
    assert set_routes(policy, "ip link set xo-t down") == {VIP}


def test_a_device_that_a_killed_agent_had_begun_is_finished(netns: str, set_routes: Callable[..., object]) -> None:
    run(["ip", "-n", netns, "link", "add", "xo-t", "type", "veth", "peer", "name", "xp-t"])
    assert set_routes("keep") == {VIP}
    assert "LOWER_UP" in run(["ip", "-n", netns, "link", "show", "dev", "xo-t"]).stdout


def test_a_host_without_ipv6_announces_its_ipv4_vips(netns: str, set_routes: Callable[..., object]) -> None:
    """As with `ipv6.disable=1`: on a device whose MTU is below 1280 the kernel has no IPv6, and refuses its mode."""
    small = ("mtu", "1000")
    for name, peer in (("xo-t", "xp-t"), ("tap", "peer")):
        run(["ip", "-n", netns, "link", "add", name, *small, "type", "veth", "peer", "name", peer, *small])
    mode = ["ip", "-n", netns, "link", "set", "dev", "tap", "addrgenmode", "none"]
    assert subprocess.run(mode, capture_output=True, check=False).returncode
    assert set_routes("keep") == {VIP}


FOREIGN = {
    "a veth": "link add xo-t type veth peer name other",
    "a bridge": "link add xo-t type bridge",
    "a TUN device": "tuntap add dev xo-t mode tun",
}


@pytest.mark.parametrize(
    ("kind", "policy"), [("a veth", "keep"), ("a veth", "withdraw"), ("a bridge", "keep"), ("a TUN device", "withdraw")]
)
def test_a_device_of_the_name_that_another_program_has_made_is_refused_and_stays(
    netns: str, set_routes: Callable[..., object], policy: str, kind: str
) -> None:
    for command in (
        FOREIGN[kind],
        "link set dev xo-t up",
        "route add 192.0.2.77/32 dev xo-t proto 120 metric 120",
    ):
        run(["ip", "-n", netns, *command.split()])
    route = ["ip", "-n", netns, "route", "show", "dev", "xo-t"]
    before = run(route).stdout
    with pytest.raises(VipRoutesUnusable, match=r"another program has made the device xo-t \(.*rename or delete it"):
        set_routes(policy)
    in_namespace(netns, VipRoutes("xo-t").close)
    assert run(route).stdout == before


def test_two_bridges_of_a_host_announce_one_vip(netns: str) -> None:
    """The kernel has one route of a prefix and a metric."""
    run(["ip", "-n", netns, "link", "set", "lo", "up"])
    one, two = VipRoutes("xo-one"), VipRoutes("xo-two")

    def announce() -> None:
        for routes in (one, two):
            routes.open(ends_with_process=True)
            assert routes.change(add=VIPS, remove=()) == VIPS
        assert one.change(add=(), remove=VIPS) == frozenset()
        assert two.read() == VIPS
        assert one.change(add=VIPS, remove=()) == VIPS
        assert two.change(add=(), remove=VIPS) == frozenset()
        assert one.read() == VIPS

    in_namespace(netns, announce)
    one.release()
    two.release()

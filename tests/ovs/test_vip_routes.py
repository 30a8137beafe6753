"""The device and the routes of VIPs, in a network namespace of a real kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from xenoovs.switch.process import run

_SET = """
import sys
from ipaddress import ip_address
from xenoovs.switch.vip_routes import VipRoutes
routes = VipRoutes("xo-t")
for command in sys.argv[2:]:
    routes.open(ends_with_process=sys.argv[1] == "withdraw")
    __import__("subprocess").run(command.split(), check=True)
    routes.open(ends_with_process=sys.argv[1] == "withdraw")
    print(*routes.change(add={ip_address("192.0.2.10")} - routes.read(), remove=()))
"""


@pytest.fixture
def netns() -> Iterator[str]:
    name = f"xo-vip-routes-{os.getpid()}"
    run(["ip", "netns", "add", name])
    yield name
    run(["ip", "netns", "delete", name])


@pytest.fixture
def set_routes(netns: str) -> Callable[..., str]:
    """Opens the device, runs each command, opens it again and adds the route, in the namespace."""

    def call(policy: str, *commands: str) -> str:
        argv = ["ip", "netns", "exec", netns, sys.executable, "-c", _SET, policy, *commands]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.stdout.strip() or done.stderr.strip().splitlines()[-1]

    return call


@pytest.mark.parametrize("policy", ["keep", "withdraw"])
def test_a_device_that_was_set_down_is_set_up_again(set_routes: Callable[..., str], policy: str) -> None:
    assert set_routes(policy, "ip link set xo-t down") == "192.0.2.10"


def test_a_device_that_a_killed_agent_had_begun_is_finished(netns: str, set_routes: Callable[..., str]) -> None:
    run(["ip", "-n", netns, "link", "add", "xo-t", "type", "veth", "peer", "name", "xp-t"])
    assert set_routes("keep", "true") == "192.0.2.10"
    assert "LOWER_UP" in run(["ip", "-n", netns, "link", "show", "dev", "xo-t"]).stdout


def test_a_host_without_ipv6_announces_its_ipv4_vips(netns: str, set_routes: Callable[..., str]) -> None:
    """As with `ipv6.disable=1`: on a device whose MTU is below 1280 the kernel has no IPv6, and refuses its mode."""
    small = ("mtu", "1000")
    for name, peer in (("xo-t", "xp-t"), ("tap", "peer")):
        run(["ip", "-n", netns, "link", "add", name, *small, "type", "veth", "peer", "name", peer, *small])
    mode = ["ip", "-n", netns, "link", "set", "dev", "tap", "addrgenmode", "none"]
    assert subprocess.run(mode, capture_output=True, check=False).returncode
    assert set_routes("keep", "true") == "192.0.2.10"


FOREIGN = {
    "a veth": ("veth", "peer", "name", "other"),
    "a bridge": ("bridge",),
    "a TUN device": (),
}


@pytest.mark.parametrize(
    ("kind", "policy"), [("a veth", "keep"), ("a veth", "withdraw"), ("a bridge", "keep"), ("a TUN device", "withdraw")]
)
def test_a_device_of_the_name_that_another_program_has_made_is_refused_and_stays(
    netns: str, set_routes: Callable[..., str], policy: str, kind: str
) -> None:
    if words := FOREIGN[kind]:
        run(["ip", "-n", netns, "link", "add", "xo-t", "type", *words])
    else:
        run(["ip", "-n", netns, "tuntap", "add", "dev", "xo-t", "mode", "tun"])
    run(["ip", "-n", netns, "link", "set", "dev", "xo-t", "up"])
    route = ["ip", "-n", netns, "route", "show", "dev", "xo-t"]
    run(["ip", "-n", netns, "route", "add", "192.0.2.77/32", "dev", "xo-t", "proto", "120", "metric", "120"])
    before = run(route).stdout
    said = set_routes(policy, "true")
    assert "another program has made the device xo-t (" in said
    assert "rename or delete it" in said
    closing = 'from xenoovs.switch.vip_routes import VipRoutes; VipRoutes("xo-t").close()'
    run(["ip", "netns", "exec", netns, sys.executable, "-c", closing])
    assert run(route).stdout == before


_TWO = """
from ipaddress import ip_address
from xenoovs.switch.vip_routes import VipRoutes
vips = {ip_address("192.0.2.10"), ip_address("2001:db8::10")}
one, two = VipRoutes("xo-one"), VipRoutes("xo-two")
for routes in (one, two):
    routes.open(ends_with_process=True)
    assert routes.change(add=vips, remove=()) == vips
assert one.change(add=(), remove=vips) == frozenset()
assert two.read() == vips
assert one.change(add=vips, remove=()) == vips
assert two.change(add=(), remove=vips) == frozenset()
print(*sorted(map(str, one.read())))
"""


def test_two_bridges_of_a_host_announce_one_vip(netns: str) -> None:
    """The kernel has one route of a prefix and a metric."""
    run(["ip", "-n", netns, "link", "set", "lo", "up"])
    argv = ["ip", "netns", "exec", netns, sys.executable, "-c", _TWO]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("192.0.2.10 2001:db8::10\n", "")

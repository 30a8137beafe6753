from __future__ import annotations

import pytest

from xenoovs.errors import LabError
from xenoovs.lab.host import Host, check_host

GOOD = Host(is_root=True, missing=(), has_tun=True, has_ipv6=True)


def test_a_good_host_passes() -> None:
    check_host(GOOD, needs_ipv6=True)


@pytest.mark.parametrize(
    ("host", "message"),
    [
        (Host(is_root=False, missing=(), has_tun=True, has_ipv6=True), "run the same command with `sudo`"),
        (
            Host(is_root=True, missing=("ip", "ovs-vswitchd"), has_tun=True, has_ipv6=True),
            "ip, ovs-vswitchd not found; on Debian: `apt-get install iproute2 openvswitch-switch`",
        ),
        (Host(is_root=True, missing=(), has_tun=False, has_ipv6=True), "modprobe tun"),
        (Host(is_root=True, missing=(), has_tun=True, has_ipv6=False), "ipv6.disable=1"),
    ],
)
def test_what_is_missing_is_reported_with_its_remedy(host: Host, message: str) -> None:
    with pytest.raises(LabError) as raised:
        check_host(host, needs_ipv6=True)
    assert message in str(raised.value)


def test_ipv6_is_required_only_when_needed() -> None:
    check_host(Host(is_root=True, missing=(), has_tun=True, has_ipv6=False), needs_ipv6=False)

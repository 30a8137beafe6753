"""What FRR 8.4.4 (Debian 12) prints, recorded, and how it is read."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

import pytest

from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import Bgp
from xenoovs.switch.frr import BgpRoute, FrrUnavailable, read_bgp, read_bgp_routes

VIP, VIP6 = ip_address("192.0.2.10"), ip_address("2001:db8::10")
ADVERTISED = '{"prefix":"192.0.2.10/32","advertisedTo":{"10.9.0.2":{"hostname":"tor"}},"paths":[{"valid":true}]}'
SUMMARY = """{"ipv4Unicast":{"peers":{"10.9.0.2":{"state":"Established"},"10.9.0.3":{"state":"Active"}}},
"ipv6Unicast":{"peers":{"10.9.0.3":{"state":"Connect"}}}}"""
CONFIG = """Current configuration:
!
router bgp 65001
 neighbor 10.9.0.2 remote-as 65000
 !
 address-family ipv4 unicast
  redistribute kernel route-map VIPS
 exit-address-family
 !
 address-family ipv6 unicast
  network 2001:db8::10/128
 exit-address-family
exit
"""


@pytest.fixture
def vtysh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of this name, first on PATH; it prints the file `out` and runs the file `more`."""
    program = tmp_path / "vtysh"
    program.write_text(f'#!/bin/sh\ncase "$*" in *running*) cat {tmp_path}/config;; *) cat {tmp_path}/out;; esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "config").write_text(CONFIG)
    return program


def test_each_vip_has_the_neighbors_that_it_is_advertised_to(vtysh: Path) -> None:
    (vtysh.parent / "out").write_text(f"{ADVERTISED}\n{{\n}}\n")
    assert read_bgp_routes((VIP, VIP6)) == {VIP: BgpRoute(True, ("10.9.0.2",)), VIP6: BgpRoute(False)}


@pytest.mark.parametrize("text", ["", "{}", "{broken", "nonsense", "[1]"])
def test_another_form_is_an_error(vtysh: Path, text: str) -> None:
    (vtysh.parent / "out").write_text(text)
    with pytest.raises(FrrUnavailable, match="another form"):
        read_bgp_routes((VIP, VIP6))


@pytest.mark.parametrize(
    ("stderr", "advice"),
    [
        ("bgpd is not running", "set `bgpd=yes`"),
        ("Exiting: failed to connect to any daemons.", "systemctl start frr"),
        ("% Can't open configuration file /etc/frr/vtysh.conf due to 'Permission denied'.", "group frrvty"),
        ("% Unknown command: show bgp", "vtysh: % Unknown command"),
    ],
)
def test_a_failure_of_vtysh_is_reported_with_its_remedy(vtysh: Path, stderr: str, advice: str) -> None:
    vtysh.write_text(f'#!/bin/sh\necho "{stderr}" >&2\nexit 1\n')
    with pytest.raises(FrrUnavailable, match=advice):
        read_bgp_routes((VIP,))
    assert isinstance(read_bgp((VIP,)), Unknown)


def test_without_frr_the_error_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FrrUnavailable, match="apt-get install frr"):
        read_bgp_routes((VIP,))


def test_doctor_reads_sessions_and_vips_that_bgpd_would_not_announce(vtysh: Path) -> None:
    (vtysh.parent / "out").write_text(SUMMARY)
    other = ip_address("2001:db8::11")
    assert read_bgp((VIP, VIP6, other)) == Bgp(("10.9.0.2",), ("10.9.0.3",), ("2001:db8::11",))

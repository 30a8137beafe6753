"""IPsec of a lab's tunnels: what both ends get."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.switch_tunnels import GENEVE, behind_tunnels
from xenoovs.errors import LabError
from xenoovs.lab.ipsec import associations_of, check_userspace
from xenoovs.model.switch_tunnel import Ipsec, TunnelPorts
from xenoovs.model.tunnel import TunnelType

SECURE = replace(GENEVE, ports=TunnelPorts.EACH, ipsec=Ipsec(psk_file="/k"))


def test_both_ends_have_the_same_keys_and_mirrored_policies() -> None:
    first, second = associations_of(behind_tunnels(SECURE))
    switch, machine = tuple(first.switch_lines()), tuple(first.machine_lines())
    assert [line for line in switch if " state " in line] == [line for line in machine if " state " in line]
    to = f"src {first.local} dst {first.remote} proto udp dport 6081 tmpl"
    assert any(line.startswith(f"xfrm policy add dir out {to}") for line in switch)
    assert any(line.startswith(f"xfrm policy add dir in {to}") for line in machine)
    assert first.local == second.local == str(SECURE.local)
    assert len({*first.keys, *second.keys}) == 4
    assert first.number != second.number


def test_gre_has_no_port() -> None:
    tunnel = replace(SECURE, type=TunnelType.GRE, dst_port=0)
    assert {each.selector for each in associations_of(behind_tunnels(tunnel))} == {"proto gre"}


def test_without_ipsec_there_is_nothing() -> None:
    assert associations_of(behind_tunnels()) == ()
    check_userspace(behind_tunnels())


def test_a_userspace_datapath_sends_past_it() -> None:
    with pytest.raises(LabError, match=f"tunnel {GENEVE.name} has `ipsec`, and Open vSwitch in userspace bypasses"):
        check_userspace(behind_tunnels(SECURE))

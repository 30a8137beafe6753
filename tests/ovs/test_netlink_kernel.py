"""The netlink socket against the kernel of this machine."""

from __future__ import annotations

import socket

import pytest

from xenoovs.switch.netlink import NLM_F_CREATE, Refused, RouteSocket, encode_attributes
from xenoovs.switch.skip_sw_probe import RTM_GETQDISC, RTM_NEWTFILTER, TCMSG, FilterParent

pytestmark = pytest.mark.ovs

KIND = encode_attributes(((1, b"flower\0"),))


def test_a_refusal_comes_with_the_kernels_words() -> None:
    place = FilterParent(socket.if_nametoindex("lo"))
    with RouteSocket() as kernel, pytest.raises(Refused) as refused:
        # The loopback device has no ingress qdisc.
        kernel.request(RTM_NEWTFILTER, NLM_F_CREATE, place.pack(handle=1, info=0xC0020008) + KIND)
    assert refused.value.error == 22
    assert "doesn't exist" in refused.value.text


def test_a_dump_ends_and_the_next_request_is_not_confused_by_it() -> None:
    with RouteSocket() as kernel:
        for _ in range(3):
            bodies = list(kernel.dump(RTM_GETQDISC, TCMSG.pack(0, 0, 0, 0, 0)))
            assert all(len(body) >= TCMSG.size for body in bodies)
        half_read = kernel.dump(RTM_GETQDISC, TCMSG.pack(0, 0, 0, 0, 0))
        next(half_read, None)
        with pytest.raises(Refused):
            kernel.request(RTM_NEWTFILTER, NLM_F_CREATE, FilterParent(0x7FFFFFFF).pack(handle=1) + KIND)

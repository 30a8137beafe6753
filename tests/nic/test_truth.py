"""The text of the NIC's debugfs files, as it was recorded once, becomes the right values."""

from __future__ import annotations

from tests.nic.truth import PortCounters, parse_ports, parse_rules, ufid_of
from xenoovs.datapath.megaflow import MaskedValue

RULE = (
    "port=p0 pref=2 cookie=ee1d21181e47fb1c688892a2cf472430 packets=160 bytes=16000 match"
    " eth_dst=02005e100001/ffffffffffff eth_type=0800/ffff ip_proto=11/ff ip_src=00000001/00000003"
    " ip_dst=0a030a2d/ffffffff l4_dst=0035/ffff frag=00/01"
    " actions set:eth+0=02005e10/ffffffff set:eth+4=00030000/ffff0000 redirect:p1\n"
)


def test_a_rule_is_read_with_values_and_masks() -> None:
    [rule] = parse_rules(RULE)
    assert (rule.port, rule.pref, rule.packets, rule.bytes) == ("p0", 2, 160, 16000)
    assert rule.match["nw_src"] == MaskedValue(1, 3)
    assert rule.match["tp_dst"] == MaskedValue(53, 0xFFFF)
    assert rule.frag == MaskedValue(0, 1)
    assert rule.outputs == ("p1",)


def test_the_mac_that_a_rule_writes_is_put_together_from_its_words() -> None:
    assert parse_rules(RULE)[0].dl_dst == 0x02005E100003
    [half] = parse_rules(RULE.replace(" set:eth+4=00030000/ffff0000", ""))
    assert half.dl_dst is None
    assert half.dl_src is None
    # As a logical router writes them.
    words = "set:eth+4=00000200/0000ffff set:eth+8=000001ff/ffffffff "
    words += "set:eth+0=02000000/ffffffff set:eth+4=00030000/ffff0000"
    [both] = parse_rules(RULE.partition(" actions ")[0] + f" actions {words} redirect:p1\n")
    assert (both.dl_src, both.dl_dst) == (0x0200000001FF, 0x020000000003)


def test_a_rule_without_actions_on_headers_drops() -> None:
    [rule] = parse_rules(RULE.partition(" actions ")[0] + " actions drop\n")
    assert (rule.actions, rule.outputs, rule.dl_dst) == (("drop",), (), None)


def test_the_cookie_of_tc_is_the_ufid_with_the_bytes_of_each_word_turned() -> None:
    ufid = "43d31ab9-4e39-4fcc-bd80-4aaf34dc5a32"
    assert ufid_of("b91ad343cc4f394eaf4a80bd325adc34") == ufid
    assert ufid_of(ufid).replace("-", "") == "b91ad343cc4f394eaf4a80bd325adc34"


def test_ports_are_counted_apart() -> None:
    text = (
        "port=p0 hit_packets=671 hit_bytes=67100 miss_packets=33 miss_bytes=3300 out_packets=1 out_bytes=60"
        " too_long_packets=2 too_long_bytes=3028 sas=1\n"
    )
    assert parse_ports(text) == {"p0": PortCounters(hit=671, miss=33, out=1, too_long=2, sas=1)}


def test_a_rule_of_a_tunnel_has_its_outer_header_apart() -> None:
    head, _, rest = RULE.partition(" match ")
    outer = (
        "enc_key=00001389/ffffffff enc_src=c0a84d0b/ffffffff enc_tos=00/ff enc_opts=0102800100010002/ffffffff7fffffff"
    )
    into = (
        f"{head.replace('port=p0', 'port=p1 via=genev_sys_6081')} match {outer} eth_type=0800/ffff actions decap drop"
    )
    [rule] = parse_rules(into)
    assert (rule.port, rule.via, rule.options) == ("p1", "genev_sys_6081", "0102800100010002/ffffffff7fffffff")
    assert rule.outer["tun_id"] == MaskedValue(5001, 0xFFFFFFFF)
    assert set(rule.outer) == {"tun_id", "src", "tos"}
    assert set(rule.match) == {"dl_type"}
    [out] = parse_rules(f"{head} match {rest.replace('set:', 'encap:dst=192.0.2.2,key=5001,csum set:', 1)}")
    assert out.encapsulations == ({"dst": "192.0.2.2", "key": "5001", "csum": ""},)

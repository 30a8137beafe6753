"""The table, fifth part: groups and other ways to choose among ports."""

from __future__ import annotations

from xenoovs.compile.offloadable.row import (
    DOCA_DP_HASH,
    DPDK_ACTIONS,
    TC_ACTIONS,
    XLATE,
    Kind,
    Offload,
    Row,
    Topic,
    doca,
    dpdk,
    everywhere,
    not_an_rte_action,
    tc,
)

HW, DEPENDS, SW = Offload.HW, Offload.DEPENDS, Offload.SW
_HASHED = "the datapath hashes and recirculates, which TC cannot; split clients by masked addresses instead"


def _dp_hash_rows(message: str) -> tuple[Row, ...]:
    return (tc(SW, _HASHED, TC_ACTIONS, message=message), doca(DEPENDS, DOCA_DP_HASH), not_an_rte_action())


def _depends_everywhere(text: str) -> tuple[Row, ...]:
    return (tc(DEPENDS, text, XLATE), doca(DEPENDS, text, XLATE), dpdk(DEPENDS, text, XLATE))


EXAMPLE_GROUPS = """\
group_id=2,type=ff,bucket=bucket_id:0,watch_port:p1,actions=output:p1
group_id=3,type=all,bucket=bucket_id:0,actions=output:p1,bucket=bucket_id:1,actions=output:pf0hpf
group_id=4,type=select,bucket=bucket_id:0,actions=output:p1,bucket=bucket_id:1,actions=output:pf0hpf
group_id=5,type=select,selection_method=hash,fields(ip_src,ip_dst),bucket=bucket_id:0,actions=output:p1
group_id=6,type=select,selection_method=hash,fields(ip_src=0.0.0.3),bucket=bucket_id:0,actions=output:p1
"""
"""The groups that the examples below send to, as `ovs-ofctl -O OpenFlow15 dump-groups` prints them."""

GROUP_TOPICS: tuple[Topic, ...] = (
    Topic(
        "group",
        Kind.ACTION,
        "A group whose kind is not known",
        _depends_everywhere("give the output of `ovs-ofctl -O OpenFlow15 dump-groups BRIDGE` too (--groups)"),
        "ip actions=group:1",
    ),
    Topic(
        "group-one",
        Kind.ACTION,
        "A group that takes one bucket (indirect, fast failover)",
        everywhere("the bucket is chosen when the flow is translated; its actions count", XLATE, XLATE),
        "ip actions=group:2",
    ),
    Topic(
        "group-all",
        Kind.ACTION,
        "A group that copies to all buckets",
        everywhere("translated into the actions of all buckets, which count", XLATE, XLATE),
        "ip actions=group:3",
    ),
    Topic(
        "group-dp-hash",
        Kind.ACTION,
        "A select group by the datapath's hash (the default)",
        _dp_hash_rows("unsupported put action type: 8"),
        "ip actions=group:4",
    ),
    Topic(
        "group-hash-exact",
        Kind.ACTION,
        "A select group that hashes whole fields",
        everywhere(
            "the bucket is chosen when the flow is translated, and the fields are matched whole: "
            "an entry for each client; hash masked fields instead",
            XLATE,
            XLATE,
        ),
        "ip actions=group:5",
    ),
    Topic(
        "group-hash-masked",
        Kind.ACTION,
        "A select group that hashes masked fields",
        everywhere(
            "the bucket is chosen when the flow is translated, and the fields are matched under their masks: "
            "at most an entry for each value of the masked bits",
            XLATE,
            XLATE,
        ),
        "ip actions=group:6",
    ),
    Topic(
        "multipath",
        Kind.ACTION,
        "Choose by a hash of the packet (multipath, bundle)",
        everywhere("what is hashed is matched whole: an entry for each connection", XLATE, XLATE),
        "ip actions=multipath(symmetric_l4,1024,modulo_n,4,0,NXM_NX_REG0[0..3]),resubmit(,1)",
    ),
    Topic(
        "hash",
        Kind.ACTION,
        "The datapath hashes the packet",
        _dp_hash_rows("unsupported put action type: 8"),
    ),
    Topic(
        "lb-output",
        Kind.ACTION,
        "A bond balanced inside the userspace datapath (lb_output)",
        (doca(DEPENDS, "NVIDIA bonds the uplinks in the NIC instead"), not_an_rte_action()),
    ),
)

COMBINATION_TOPICS: tuple[Topic, ...] = (
    Topic(
        "several-outputs",
        Kind.COMBINATION,
        "Send several copies, also with different headers (mirrors do)",
        (
            tc(HW, "up to 16 actions; the driver decides", TC_ACTIONS),
            doca(SW, "one output alone is offloaded; mirrors of a bridge are"),
            dpdk(DEPENDS, "translated; most drivers send to one port alone", DPDK_ACTIONS),
        ),
        "ip actions=output:p1,mod_dl_dst:02:00:5e:10:00:02,output:pf0hpf",
    ),
    Topic(
        "many-actions",
        Kind.COMBINATION,
        "More than 16 actions",
        (
            tc(SW, "a rule of TC has at most 16 (TCA_ACT_MAX_NUM)", TC_ACTIONS, message="Can only support 16 actions"),
            doca(SW, "one output alone is offloaded"),
            dpdk(DEPENDS, "translated; most drivers send to one port alone", DPDK_ACTIONS),
        ),
        f"ip actions={','.join(f'output:p{number}' for number in range(1, 18))}",
    ),
    Topic(
        "set-port-of-fragment",
        Kind.COMBINATION,
        "Write addresses or ports of fragments of TCP or UDP",
        (
            tc(DEPENDS, "translated, but TC spoils the checksum of fragments", TC_ACTIONS, span=(None, (3, 4))),
            tc(
                SW,
                "TC would have to mend a checksum that only the first fragment has",
                TC_ACTIONS,
                span=((3, 5), None),
                message="not supported on fragments due to checksum limitation",
            ),
            doca(SW, "fragments are not offloaded"),
            dpdk(DEPENDS, "left to the NIC's driver", DPDK_ACTIONS),
        ),
        "udp,nw_frag=first actions=mod_tp_dst:5353,output:p1",
    ),
    Topic(
        "wide-match",
        Kind.COMBINATION,
        "Matches of more than 32 bytes in all",
        (doca(HW, "one rule matches 32 bytes: it becomes a chain of up to 10 entries, of which fewer fit"),),
        "udp6,dl_dst=02:00:00:00:00:01,ipv6_src=2001:db8::7,ipv6_dst=2001:db8::10,tp_dst=53 actions=output:p1",
    ),
)

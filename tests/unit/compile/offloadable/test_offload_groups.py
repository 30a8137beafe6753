"""Groups as ovs-ofctl dumps them, and what a flow that sends to one does."""

from __future__ import annotations

import pytest

from tests.judged import check_flow
from xenoovs.compile.offloadable.check import overall
from xenoovs.compile.offloadable.openflow_topics import parse_groups
from xenoovs.compile.offloadable.table import Offload, Profile
from xenoovs.errors import ParseError
from xenoovs.openflow.text import parse_flow


@pytest.mark.parametrize(
    ("group", "topic"),
    [
        ("type=select,bucket=actions=output:p1", "group-dp-hash"),
        ("type=select,selection_method=dp_hash,selection_method_param=1,bucket=actions=output:p1", "group-dp-hash"),
        ("type=select,selection_method=hash,bucket=actions=output:p1", "group-hash-exact"),
        ("type=select,selection_method=hash,fields=ip_src,bucket=actions=output:p1", "group-hash-exact"),
        (
            "type=select,selection_method=hash,fields(ip_src=0.0.0.7,eth_type),bucket=actions=output:p1",
            "group-hash-masked",
        ),
        ("type=select,selection_method=doca,bucket=actions=output:p1", "group"),
        ("type=all", "group-all"),
        ("type=ff,bucket=watch_port:p1,actions=output:p1", "group-one"),
        ("type=indirect,bucket=actions=output:p1", "group-one"),
    ],
)
def test_kinds_of_groups(group: str, topic: str) -> None:
    assert parse_groups(f" group_id=7,{group}\n")[7].topic == topic


def test_buckets_of_every_version_of_openflow() -> None:
    text = (
        "OFPST_GROUP_DESC reply (OF1.5) (xid=0x2):\n"
        " group_id=1,type=all,bucket=bucket_id:0,actions=mod_dl_dst:02:00:00:00:00:01,output:p1,"
        "bucket=bucket_id:1,weight:5,actions=output:p2\n"
        "OFPST_GROUP_DESC reply (OF1.3) (xid=0x2):\n"
        " group_id=2,type=select,bucket=weight:1,actions=output:p1\n\n"
    )
    groups = parse_groups(text)
    assert groups[1].buckets == ("mod_dl_dst:02:00:00:00:00:01,output:p1", "output:p2")
    assert groups[2].buckets == ("output:p1",)


def test_copies_count_for_groups_that_copy_and_not_for_those_that_choose() -> None:
    buckets = "bucket=actions=output:p1,bucket=actions=output:p2"
    groups = parse_groups(f"group_id=1,type=all,{buckets}\ngroup_id=2,type=ff,{buckets}\n")
    copying, choosing = (parse_flow(f"ip actions=group:{number}") for number in (1, 2))
    assert overall(check_flow(copying, Profile.DOCA, (3, 1), groups=groups)) is Offload.SW
    assert overall(check_flow(choosing, Profile.DOCA, (3, 1), groups=groups)) is Offload.HW


def test_a_line_that_is_no_group() -> None:
    with pytest.raises(ParseError, match="line 2"):
        parse_groups("group_id=1,type=all\ngroup_id=x,type=all\n")

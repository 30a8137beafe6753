"""Blocks are reported as overridden exactly if the tables with foreign flows send their packets elsewhere."""

from __future__ import annotations

from ipaddress import IPv4Address
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.judged import check_offload
from tests.unit.verify.programs import two_services
from xenoovs.datapath.megaflow import Key, Megaflow
from xenoovs.model.packet import Packet
from xenoovs.openflow.text import parse_flow
from xenoovs.simulate.megaflows import PredictedMegaflow, pipeline_of
from xenoovs.simulate.walk import Outcome, tables_of
from xenoovs.verify.expected import ExpectedBlock, expected_services

PROGRAM = two_services()
SERVICES = expected_services(PROGRAM)
OURS = tables_of(PROGRAM.flows)
BLOCK_OF = {block.flow: block for service in SERVICES for block in service.blocks}

_PARTS = (
    ("ip", "udp", "tcp"),
    ("", ",nw_src=0.0.0.7/0.0.0.15", ",nw_src=0.0.0.1/0.0.0.1", ",nw_src=198.51.100.0/24", ",nw_src=0.0.0.2/0.0.0.2"),
    ("", ",nw_dst=10.3.10.45", ",nw_dst=10.3.10.0/24", ",nw_dst=10.3.10.47"),
    ("", ",in_port=p0", ",in_port=p1"),
)
_FLOWS = st.builds(
    "priority={},{} actions={}".format,
    st.sampled_from([1, 500, 1500, 3000]),
    st.tuples(*map(st.sampled_from, _PARTS)).map("".join),
    st.sampled_from(["drop", "output:p9", *(f"mod_dl_dst:02:00:00:00:00:{i:02x},output:p1" for i in (1, 2, 0x77))]),
)


@given(st.lists(_FLOWS, min_size=1, max_size=3, unique_by=lambda text: text.split(",")[0]), st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_overridden_or_misdelivered_is_what_the_tables_send_elsewhere(foreign: list[str], seed: int) -> None:
    flows = (*PROGRAM.flows, *map(parse_flow, foreign))
    tables, pipeline = tables_of(flows), pipeline_of(flows)
    for packet in _packets(Random(seed)):
        wanted = OURS.run(packet)
        block = next((BLOCK_OF[flow] for flow in wanted.flows if flow in BLOCK_OF), None)
        if block is not None:
            is_elsewhere = _places(tables.run(packet)) != _places(wanted)
            assert _is_reported(pipeline.predict(packet)[0], block) == is_elsewhere


def _places(outcome: Outcome) -> list[tuple[str | None, int]]:
    return [(copy.port, copy.dl_dst) for copy in outcome.copies]


def _packets(random: Random) -> list[Packet]:
    vips = [IPv4Address(f"10.3.10.{last}") for last in (45, 46, 47)]
    return [
        Packet("p0", IPv4Address(0xC6336400 + random.getrandbits(9)), random.choice(vips), proto, 4000, 53)
        for proto in (17, 6)
        for _ in range(10)
    ]


def _is_reported(predicted: PredictedMegaflow, block: ExpectedBlock) -> bool:
    keys = (Key("in_port", predicted.in_port), Key("eth_type", "0x0800", fields=predicted.fields()))
    megaflow = Megaflow(None, keys, 1, 60, 0.1, None, None, "ovs", predicted.actions or ("drop",))
    findings = check_offload(SERVICES, [megaflow])
    is_misdelivered = any(found.block is block and found.misdelivered for found in findings.blocks)
    return is_misdelivered or any(block in taking.blocks for taking in findings.overrides)

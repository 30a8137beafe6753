"""The first question to a bridge that connects: does it still have flows of ours?"""

from __future__ import annotations

from xenoovs.openflow.cookie import OURS
from xenoovs.openflow.wire.codec import decode, encode
from xenoovs.openflow.wire.flow_stats import FlowFilter
from xenoovs.openflow.wire.frame import HEADER
from xenoovs.openflow.wire.kinds import MULTIPART_REPLY
from xenoovs.openflow.wire.multipart import AggregateReply, AggregateRequest

_XID = 0xFFF
"""Below those of exchanges (`line.py`)."""


def memory_request() -> bytes:
    """Asks for the number of our flows. Before the answer comes nobody works on the bridge."""
    (ours,) = OURS
    return encode(AggregateRequest(FlowFilter(cookie=ours.value, cookie_mask=ours.mask)), xid=_XID)


def remembers(frame: bytes) -> bool | None:
    """Whether the bridge has flows of ours; None: this is no answer to the question. Raises WireError."""
    _, kind, _, xid = HEADER.unpack_from(frame)
    if (kind, xid) != (MULTIPART_REPLY, _XID):
        return None
    answer = decode(frame).message
    return isinstance(answer, AggregateReply) and answer.sums.flows > 0

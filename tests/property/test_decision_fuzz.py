"""Any JSON is a decision or is refused as none, and what is accepted survives being written."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from xenoovs.decision.document import decision_document, parse_decision
from xenoovs.errors import DecisionMalformed

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
blocks = st.builds("{:#x}/{}".format, st.integers(0, 40), st.integers(0, 17)) | anything
rows = st.dictionaries(st.sampled_from(("b0", "b1", "")), st.lists(blocks, max_size=4), max_size=3)
fields = st.sampled_from(("source_address", "source_port", "vlan"))
keys = st.fixed_dictionaries(
    {"field": fields},
    optional={"positions": st.lists(st.integers(-1, 130), max_size=4), "width": st.integers(-1, 17) | anything},
)
services = st.fixed_dictionaries(
    {"id": st.sampled_from(("0x00000001", "0x0000000a", "0x0", "0x00000000")), "key": keys | anything, "home": rows},
    optional={"active": rows, "name": anything, "extra": anything},
)
documents = st.fixed_dictionaries(
    {"version": st.integers(-1, 9), "services": st.lists(services | anything, max_size=3)},
    optional={"format": st.integers(0, 2) | anything},
)


@given(documents | anything)
def test_a_decision_or_none(document: Any) -> None:
    try:
        decision = parse_decision(document)
    except DecisionMalformed:
        return
    again = parse_decision(json.loads(json.dumps(decision_document(decision))))
    assert (again, again.version) == (decision, decision.version)

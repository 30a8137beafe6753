"""Any bytes are a request or are refused; any saved text is read or refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from xenoovs.agent.control.schemas import BackendRequest, EmptyRequest, WeightRequest, parse_request
from xenoovs.agent.runtime_file import parse_runtime, render_runtime
from xenoovs.errors import RequestRefused

KINDS = (BackendRequest, WeightRequest, EmptyRequest)
Values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)
Keys = st.sampled_from(["service", "backend", "weight", "version", "paused", "overrides", "more"])
Documents = (st.dictionaries(Keys, Values) | Values).map(lambda value: json.dumps(value).encode())


@given(st.binary() | Documents)
@example(b"[" * 100_000)
@example(b'{"weight": 1e99999999999}')
@example(b'{"weight": ' + b"9" * 5000 + b"}")
def test_requests(data: bytes) -> None:
    for kind in KINDS:
        answer = parsed(data, kind)
        assert answer is None or isinstance(answer, kind)


def parsed(data: bytes, kind: type) -> object:
    """The request; None where it was refused, which is all that may be raised."""
    try:
        return parse_request(data, kind)
    except RequestRefused:
        return None


@given(st.binary() | Documents)
@example(b"[" * 100_000)
def test_states(data: bytes) -> None:
    try:
        runtime = parse_runtime(data)
    except ValueError:
        return
    assert parse_runtime(render_runtime(runtime).encode()) == runtime


@pytest.mark.parametrize("weight", [0, 7, 0.5, 0.000000001, 1000000000])
def test_good_weights(weight: float) -> None:
    data = json.dumps({"service": "s", "backend": "b", "weight": weight}).encode()
    assert float(parse_request(data, WeightRequest).weight) == weight

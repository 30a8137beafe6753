"""Cookies as masks, as a switch filters flows by them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from xenoovs.openflow.flow import ANSWER_OWNER, FOREIGN, LEASE_OWNER, OURS, OWNER, Cookies, is_foreign, is_ours

_NEAR = st.sampled_from((OWNER, LEASE_OWNER, ANSWER_OWNER, OWNER + 1, OWNER ^ 0x8000, 0))
COOKIES = st.integers(0, (1 << 64) - 1) | st.builds(
    lambda owner, rest: owner << 48 | rest, _NEAR, st.integers(0, (1 << 48) - 1)
)


def times_in(cookie: int, masks: Cookies) -> int:
    """In how many of the masks a cookie is."""
    return sum(cookie in mask for mask in masks)


@given(cookie=COOKIES)
def test_masks_select_the_owner_of_a_flow(cookie: int) -> None:
    assert times_in(cookie, OURS) == is_ours(cookie)
    assert times_in(cookie, FOREIGN) == is_foreign(cookie)

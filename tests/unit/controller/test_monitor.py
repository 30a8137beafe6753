"""Flow monitor updates, as Open vSwitch 3.1.0 sent them."""

from __future__ import annotations

from queue import SimpleQueue

import pytest

from tests.patience import PATIENCE_S
from xenoovs.controller.monitor import Throttle, touches_ours
from xenoovs.errors import MalformedOpenFlow

_REMOVED = bytes.fromhex(
    "0513003800000000001000000000000000280002000200000000000700000000786f0000000000010001000a80000a020800000000000000"
)
_FOREIGN = bytes.fromhex(
    "051300300000000000100000000000000020000100000000000000030000000000000000000000050001000400000000"
)
_OWN = bytes.fromhex("051300180000000000100000000000000008000400001002")


@pytest.mark.parametrize(("frame", "touched"), [(_REMOVED, True), (_FOREIGN, False), (_OWN, False), (_OWN[:12], False)])
def test_only_flows_of_ours_that_others_changed_matter(frame: bytes, *, touched: bool) -> None:
    assert touches_ours(frame) is touched


@pytest.mark.parametrize("length", [0, 3, 23, 41, 65535])
def test_lengths_that_cannot_be(length: int) -> None:
    with pytest.raises(MalformedOpenFlow):
        touches_ours(_REMOVED[:16] + length.to_bytes(2, "big") + _REMOVED[18:])


def test_many_changes_wake_once_and_once_more_after_a_pause() -> None:
    woken = SimpleQueue[int]()
    calm, quick = Throttle(lambda: woken.put(1), pause_s=3600), Throttle(lambda: woken.put(2), pause_s=0.01)
    for _ in range(1000):
        calm.trigger()
    assert (woken.get(timeout=PATIENCE_S), woken.empty()) == (1, True)
    quick.trigger()
    quick.trigger()
    assert (woken.get(timeout=PATIENCE_S), woken.get(timeout=PATIENCE_S)) == (2, 2)

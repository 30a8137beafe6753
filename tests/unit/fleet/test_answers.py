"""How long a command waits for the store."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from tests.fleet_support import EMPTY
from xenoovs.errors import StoreUnreachable
from xenoovs.fleet.commands import client
from xenoovs.fleet.commands.client import CONNECT_S, FleetStore
from xenoovs.store.client import StoreConnection
from xenoovs.store.replica import NO_ANSWER
from xenoovs.store.view import FleetView


class LateStore:
    """A client that has a view from the first, and is connected after `late_s`. Who waits moves its clock."""

    def __init__(self, late_s: float, reason: str) -> None:
        self.now_s, self._late_s = 0.0, late_s
        self._lost = StoreConnection(is_connected=False, remote="", since_s=0, reason=reason)

    @property
    def connection(self) -> StoreConnection:
        return self._lost if self.now_s < self._late_s else replace(self._lost, is_connected=True, reason="")

    def view(self) -> FleetView:
        return EMPTY

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, time_s: float) -> None:
        self.now_s += time_s


GONE = "unix:/run/fleet.sock: No such file or directory"


@pytest.mark.parametrize(
    ("late_s", "reason", "is_answered"),
    [
        # Bug: a command failed that saw the first view before its connection.
        (0.001, NO_ANSWER, True),
        (CONNECT_S - 0.1, GONE, True),
        (CONNECT_S + 0.1, GONE, False),
        (CONNECT_S + 0.1, NO_ANSWER, True),
        (3 * CONNECT_S + 0.1, NO_ANSWER, False),
    ],
)
def test_a_store_that_is_gone_is_waited_for_and_a_busy_one_longer(
    late_s: float, reason: str, *, is_answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: Any = LateStore(late_s, reason)
    monkeypatch.setattr(client, "time", late)
    with nullcontext() if is_answered else pytest.raises(StoreUnreachable, match=reason):
        assert FleetStore(late, late, None).view() is EMPTY

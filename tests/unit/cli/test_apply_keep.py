"""What decides whether a change stays."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from xenoovs.cli.apply_rollback import rolled_back_on_error
from xenoovs.errors import RolledBack
from xenoovs.switch.watchdog import RollbackWatchdog


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nobody_on_the_way_swallows_an_interruption(number: signal.Signals) -> None:
    """click.echo did, which takes any Exception for a stream that it cannot remember: the change stayed."""
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    guard = RollbackWatchdog(lambda: None)
    with (
        pytest.raises(RolledBack, match=f"interrupted by {number.name}"),
        rolled_back_on_error(guard),
        suppress(Exception),
    ):
        os.kill(os.getpid(), number)
    assert not guard.keep()
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers

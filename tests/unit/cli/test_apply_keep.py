"""Whether `apply` keeps or reverts a change."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from xenoovs.cli.apply_rollback import rolled_back_on_error
from xenoovs.errors import RolledBack
from xenoovs.switch.watchdog import RollbackWatchdog


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_no_library_swallows_an_interrupt(number: signal.Signals) -> None:
    """click.echo catches any Exception when it caches a stream: it swallowed the interrupt, and the change stayed."""
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

"""The `ovs` package, imported so that it brings neither eventlet nor gevent with it, and heeds ctrl-c."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread

_ASKED_FOR = ("eventlet", "gevent")


def import_ovs() -> None:
    """To be called before the first import of `ovs`. May be called again.

    `ovs.poller` imports both wherever they are installed, as eventlet beside os-ken, to ask whether they have patched
    `select`. Imported in a thread that is not the main one, eventlet leaves asyncio unable to end its threads: the
    agent did not end on SIGTERM. Who uses one has imported it before.
    """
    if "ovs.poller" in sys.modules:
        return
    absent = [name for name in _ASKED_FOR if name not in sys.modules]
    sys.modules |= dict.fromkeys(absent)  # type: ignore[arg-type]
    try:
        with _interrupted_after():
            import ovs.poller  # noqa: F401
    finally:
        for name in absent:
            del sys.modules[name]


@contextmanager
def _interrupted_after() -> Iterator[None]:
    """`ovs.poller` and `ovs.timeval` take whatever goes wrong in an import for a missing module, and ctrl-c too."""
    if current_thread() is not main_thread():
        # Only the main thread is interrupted.
        yield
        return
    came = list[int]()
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        for number in came:
            signal.raise_signal(number)

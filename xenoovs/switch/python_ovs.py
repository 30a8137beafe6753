"""The `ovs` package, imported so that it does not bring eventlet with it."""

from __future__ import annotations

import sys


def import_ovs() -> None:
    """To be called before the first import of `ovs`. May be called again.

    `ovs.poller` imports eventlet wherever it is installed, as beside os-ken, to ask whether it has patched `select`.
    Imported in a thread that is not the main one, eventlet leaves asyncio unable to end its threads: the agent did not
    end on SIGTERM. Who uses eventlet has imported it before.
    """
    if "ovs.poller" in sys.modules or "eventlet" in sys.modules:
        return
    sys.modules["eventlet"] = None  # type: ignore[assignment]
    try:
        import ovs.poller  # noqa: F401
    finally:
        del sys.modules["eventlet"]

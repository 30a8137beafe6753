"""A certificate of a fleet ends, and the next one is written over it while all runs."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import trustme

from tests.ovs.certificates import certificates
from tests.ovs.stores import StoreServer, first_view, loopback, service, wait_generation
from tests.patience import eventually
from xenoovs.store.client import CommitOutcome, StoreClient
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import StorePort, create_databases, files_of
from xenoovs.store.view import Changes
from xenoovs.switch.certificates import Certificates

pytestmark = pytest.mark.ovs

NETWORK = 236


def replaced(old: Certificates, new: Certificates) -> None:
    """Write new files over the old ones, as a renewal does."""
    shutil.copy(new.key, old.key)
    shutil.copy(new.certificate, old.certificate)


@pytest.mark.parametrize("whose", ["server", "agent"])
def test_a_certificate_that_has_ended_is_named_and_its_successor_used_without_a_restart(
    tmp_path: Path, whose: str
) -> None:
    authority = trustme.CA()
    ended = datetime.now(timezone.utc) - timedelta(days=1)
    made = {
        name: certificates(authority, tmp_path, name, not_after=ended if name == whose else None)
        for name in ("server", "agent")
    }
    (tmp_path / "new").mkdir()
    renewed = certificates(authority, tmp_path / "new", whose)
    create_databases(tmp_path / "store", name="test")
    port = StorePort(loopback(1, NETWORK), 6661, is_read_only=True, is_tls=True)
    server = StoreServer(files_of(tmp_path / "store", StoreDatabase.FLEET), listen=[port], tls=made["server"])
    server.start()
    try:
        with (
            StoreClient(server.files.remote, with_intents=True) as writer,
            StoreClient(port.remote, tls=made["agent"]) as agent,
        ):
            first_view(writer)
            assert writer.commit(0, Changes({"dns": service("dns", "a")})) is CommitOutcome.COMMITTED
            eventually(lambda: "does not accept the certificate" in agent.connection.reason, "the reason")
            assert agent.view() is None
            replaced(made[whose], renewed)
            assert set(wait_generation(agent, 1).services) == {"dns"}
    finally:
        server.kill()

"""What a scrape gets: gzip where it can read that, plain text where not."""

from __future__ import annotations

import gzip
from pathlib import Path

from tests.agent_support import make_scene
from tests.unix_http import ask
from xenoovs.agent.control.app import Mount
from xenoovs.agent.daemon import Agent
from xenoovs.agent.telemetry import exposition, mount_metrics
from xenoovs.show.snapshot import TABLES


def scrape(path: Path, **headers: str) -> tuple[str | None, bytes]:
    answer = ask(path, "/metrics", headers={name.replace("_", "-"): value for name, value in headers.items()})
    assert answer.status == 200
    return answer.headers["Content-Encoding"], answer.body


def test_a_scrape_is_compressed_if_the_client_accepts_it(tmp_path: Path) -> None:
    def mounts(agent: Agent) -> tuple[Mount, ...]:
        return (mount_metrics(lambda: lambda: exposition(TABLES, agent.lazy_snapshot())),)

    with make_scene(tmp_path).agent(mounts=mounts) as (_, client):
        encoding, text = scrape(client.path, Accept_Encoding="identity")
        assert (encoding, text[:7]) == (None, b"# HELP ")
        encoding, packed = scrape(client.path, Accept_Encoding="gzip, deflate")
        assert (encoding, gzip.decompress(packed)[:7]) == ("gzip", b"# HELP ")
        assert len(packed) < len(text) / 2
        prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
        assert scrape(client.path, Accept=prometheus)[1].endswith(b"\n# EOF\n")
        assert not text.endswith(b"# EOF\n")

"""The test's end of a steady stream (`paced_client.py`) from the clients of a lab."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE_S
from xenoovs.lab.lab import Lab

VIP, PORT = "10.3.10.45", 53


@dataclass(frozen=True, slots=True)
class Stream:
    """`say`: a word that `paced_client.py` knows, answered by a number of packets."""

    process: subprocess.Popen[str]

    def say(self, word: str) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(word, file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def end(self) -> dict[str, list[str | None]]:
        """Client -> the machine that answered each of its packets, None for one that was lost; none came twice."""
        told = json.loads(self.process.communicate(timeout=PATIENCE_S)[0])
        assert told["twice"] == 0
        answers: dict[str, list[str | None]] = told["answers"]
        return answers


@contextmanager
def steady_stream(lab: Lab, *, clients: int, rate_pps: int) -> Iterator[Stream]:
    """UDP to VIP and PORT, in an open loop: `rate_pps` of each client."""
    first = lab.topology.clients.nets[0].split("/")[0].rsplit(".", 1)[0] + ".10"
    script = str(Path(__file__).parent / "paced_client.py")
    argv = ["ip", "netns", "exec", lab.topology.clients.namespace, sys.executable, script]
    facts = [VIP, str(PORT), str(clients), first, str(rate_pps)]
    process = subprocess.Popen([*argv, *facts], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Stream(process)
    finally:
        process.kill()
        process.communicate()

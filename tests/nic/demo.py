"""`make demo-nic`, recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

_SCRIPT = Path(__file__).parents[2] / "scripts" / "demo"
_TIMEOUT_S = 1800.0


class Demo:
    """One run of `scripts/demo nic`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def record(self) -> dict[str, Any]:
        """Run it; return `exit_code`, and as `output` all that it prints."""
        self._process = subprocess.Popen(
            [str(_SCRIPT), "nic"],
            env={**os.environ, "XENOOVS_PROGRAMS": str(Path(sys.executable).parent)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        output, _ = self._process.communicate(timeout=_TIMEOUT_S)
        return {"exit_code": self._process.returncode, "output": output}

    def kill(self) -> None:
        """Interrupt it; it removes its lab."""
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)

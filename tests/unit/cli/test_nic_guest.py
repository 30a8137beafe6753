"""What the first process of the guest imports for the commands to come."""

from __future__ import annotations

import subprocess
import sys

from xenoovs.cli.nic_guest import PRELOADED


def test_it_is_all_there_and_starts_no_thread() -> None:
    imports = "".join(f"import {module}\n" for module in PRELOADED)
    code = f"{imports}import os\nprint(len(os.listdir('/proc/self/task')))"
    environment = {"OPENBLAS_NUM_THREADS": "1", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"

"""What the guest imports before it forks for a command."""

from __future__ import annotations

import subprocess
import sys

import pytest

from xenoovs.config.templates import read_template

_COMMAND = """\
import importlib, sys
from xenoovs.lab.commands import nic_guest
nic_guest.read_first_config()
for module in nic_guest.PRELOADED:
    importlib.import_module(module)
before = set(sys.modules)
nic_guest.run(sys.argv[1:])
print("IMPORTED", *sorted(name for name in set(sys.modules) - before if name.startswith(("xenoovs.", "pydantic."))))
"""


@pytest.mark.parametrize("command", ["plan", "apply", "verify-offload", "why", "doctor"])
def test_bug_each_command_in_the_guest_imported_the_schema_of_configs(command: str) -> None:
    argv = [sys.executable, "-c", _COMMAND, command, "-", "--db", "unix:/nonexistent/db.sock"]
    done = subprocess.run(argv, input=read_template("quickstart"), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == ["IMPORTED"]

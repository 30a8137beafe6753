"""Commands that read no config must not pay for pydantic."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["load", "emit", "templates"])
def test_importing_does_not_import_pydantic(module: str) -> None:
    code = f"import sys, xenoovs.model.{module}; print('pydantic' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"

"""The same input gives the same bytes in every process, whatever the hash seed."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
from fractions import Fraction
from xenoovs.partition.solve import partition
weights = [Fraction(7, 3), 5, 11, 2, 2, 0, 19]
print(partition(weights, tolerance=Fraction(3, 100)))
"""


def run(seed: str) -> bytes:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True).stdout


def test_two_processes_agree_to_the_byte() -> None:
    first = run("1")
    assert b"Block(value=" in first
    assert first == run("2")

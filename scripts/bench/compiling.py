"""YAML to the config and to flows, as whole processes."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.bench.configs import large_config
from scripts.bench.measure import XENOOVS, Row, process

_LOAD = "import sys, yaml; yaml.load(open(sys.argv[1]), Loader=yaml.CSafeLoader)"


def rows() -> Iterator[Row]:
    """1,000 services x 16 backends. The bound on the ratio is 3 s where the C loader of PyYAML takes 1.6 s. `validate`
    once took 1.48 times this loader; the bound is 60 % of that."""
    with tempfile.TemporaryDirectory() as directory:
        config = large_config(Path(directory))
        read = process([XENOOVS, "validate", str(config)])
        compiled = process([XENOOVS, "validate", "--flows", str(config)])
        loaded = process([sys.executable, "-c", _LOAD, str(config)])
    yield Row("xenoovs validate / PyYAML's C loader alone", read.cpu_s / loaded.cpu_s, "x", 0.89)
    yield Row("xenoovs validate --flows, 1,000 services x 16 backends", compiled.wall_s, "s", 3)
    yield Row("xenoovs validate --flows / PyYAML's C loader alone", compiled.wall_s / loaded.wall_s, "x", 1.9)
    yield Row("xenoovs validate --flows, peak memory", compiled.peak_mib, "MiB", 300)

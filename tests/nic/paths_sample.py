"""Measures a path of a lab once: `python -m tests.nic.paths_sample LAB CONFIG` prints the sample as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from xenoovs.config.load import load_config
from xenoovs.measure.bed_paths import PathDirection
from xenoovs.measure.lab_bed import open_lab_bed
from xenoovs.measure.path_load import PathLoad
from xenoovs.measure.paths import paths_experiment


def main() -> None:
    name, config = sys.argv[1:]
    with open_lab_bed(name, load_config(Path(config), for_lab=True)) as bed:
        with paths_experiment(bed, directions=(PathDirection.IN,), quick=True, seed=0) as made:
            made.warm_up(bed, {})
            path = made.bench.paths[0]
            trial = made.bench.run([PathLoad(path, PathDirection.IN, 500.0)], seconds_s=1.0).trials[0]
            times = made.bench.round_trips(path, count=5)
            megaflows = bed.dpu.run("ovs-appctl", "dpctl/dump-flows", "-m").stdout.splitlines()
        left = bed.dpu.run("ovs-ofctl", "-O", "OpenFlow14", "dump-flows", bed.balancer.uplinks.bridge).stdout
    print(
        json.dumps(
            {
                "counts": [trial.sent, trial.received, trial.lost],
                "rtt_us": times,
                "megaflows": [line for line in megaflows if f"dst={path.inward}" in line],
                "left": [line for line in left.splitlines() if "0x7061746800000000" in line],
            }
        )
    )


if __name__ == "__main__":
    main()

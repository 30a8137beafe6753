"""Measures IPVS once on a lab: `python -m tests.nic.ipvs_sample LAB CONFIG` prints the sample as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from xenoovs.config.load import load_config
from xenoovs.measure.design_flows import Design
from xenoovs.measure.designs import designs_experiment, designs_profile
from xenoovs.measure.lab_bed import open_lab_bed
from xenoovs.measure.load import load_bench


def main() -> None:
    name, config = sys.argv[1:]
    balancer = load_config(Path(config), for_lab=True)
    with open_lab_bed(name, balancer) as bed, load_bench(bed, designs_profile(bed, clients=1, seed=0)) as bench:
        experiment = designs_experiment(bed, bench, quick=True, seed=0)
        values = experiment.measure(bed, {"design": Design.IPVS.value, "clients": 1000}, {}).values
        left = bed.dpu.run("cat", "/proc/net/ip_vs").stdout
    print(json.dumps({"why_not": experiment.why_no_ipvs, "values": values, "left": left}))


if __name__ == "__main__":
    main()

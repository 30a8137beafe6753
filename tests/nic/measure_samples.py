"""Measures once with IPVS, and once with pktgen: `python -m tests.nic.measure_samples LAB CONFIG` prints it as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from xenoovs.measure.bed import PKTGEN, Bed
from xenoovs.measure.bench import load_bench
from xenoovs.measure.compare import designs_experiment, designs_profile
from xenoovs.measure.design_flows import Design
from xenoovs.measure.machines_bed import open_lab_bed
from xenoovs.model.load import load_config


def ipvs(bed: Bed) -> dict[str, object]:
    with load_bench(bed, designs_profile(bed, clients=1, seed=0)) as bench:
        experiment = designs_experiment(bench, quick=True, seed=0, repeats=1)
        values = experiment.measure({"design": Design.IPVS.value, "clients": 1000}, {}).values
        return {
            "why_not": experiment.options["why_no_ipvs"],
            "values": values,
            "left": bed.dpu.run("cat", "/proc/net/ip_vs").stdout,
        }


def pktgen(bed: Bed) -> dict[str, object]:
    with load_bench(replace(bed, driver=PKTGEN), designs_profile(bed, clients=1024, seed=0)) as bench:
        bench.generator.prepare(bench.profile, frame_bytes=64)
        counted = bench.start(64, offered_pps=2000.0, seconds_s=0.5).wait().sent
        loads = [bench.trial(frame_bytes=64, offered_pps=pps, seconds_s=0.5).values for pps in (2000.0, None)]
        left = bed.generator.run("cat", "/proc/net/pktgen/kpktgend_0").stdout
        return {"counted": counted, "loads": loads, "left": left}


def main() -> None:
    name, config = sys.argv[1:]
    with open_lab_bed(name, load_config(Path(config), for_lab=True)) as bed:
        print(json.dumps({"pktgen": pktgen(bed), "ipvs": ipvs(bed)}))


if __name__ == "__main__":
    main()

"""The file of a bed: strict, with the line of each mistake; and the checks of its machines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.judged import assert_recorded
from xenoovs.errors import ConfigError, FileUnusable
from xenoovs.measure.check import EXPERIMENTS, judge_machine, machine_needs, script_of
from xenoovs.measure.machines_bed import BedFile, BedRole, HostName, load_bed_file

GOOD = """\
version: 1
generator: {host: ssh://root@fips4, interface: ens1f0}
client: {host: netns:client, interface: eth0, address: 10.3.10.42}
dpu: {host: "ssh://ubuntu@fips5:2222", uplinks: [p0, p1], mac: C4:70:bd:a0:56:ac}
backends:
  fips2: {host: ssh://root@fips2, interface: ens1f0}
  fips3: {host: lab:default, interface: eth0}
"""


@pytest.fixture
def parsed(tmp_path: Path) -> Callable[[str | bytes], BedFile]:
    def parse(text: str | bytes) -> BedFile:
        file = tmp_path / "bed.yaml"
        file.write_bytes(text.encode(errors="surrogatepass") if isinstance(text, str) else text)
        return load_bed_file(file)

    return parse


Parse = Callable[[str | bytes], BedFile]


def test_a_bed_file_is_read(parsed: Parse) -> None:
    bed = parsed(GOOD)
    assert (bed.generator.role, bed.generator.interfaces) == ("generator", ("ens1f0",))
    assert bed.generator.host == HostName("ssh://root@fips4", "ssh", "root@fips4")
    assert bed.client.host == HostName("netns:client", "netns", "client")
    assert bed.dpu.host == HostName("ssh://ubuntu@fips5:2222", "ssh", "ubuntu@fips5", 2222)
    assert (bed.dpu.interfaces, bed.dpu.mac) == (("p0", "p1"), "c4:70:bd:a0:56:ac")
    assert [(role.role, role.host.kind, role.host.name) for role in bed.backends] == [
        ("fips2", "ssh", "root@fips2"),
        ("fips3", "lab", "default"),
    ]
    assert bed.document["backends.fips2"] == {"host": "ssh://root@fips2", "interfaces": ["ens1f0"]}
    by_pktgen = parsed(GOOD.replace(SENDS, SENDS.replace("}", ", driver: pktgen}")))
    assert (by_pktgen.generator.driver, bed.generator.driver) == ("pktgen", "tcpreplay")
    sends = {"host": "ssh://root@fips4", "interfaces": ["ens1f0"]}
    assert bed.document["generator"] == sends
    assert by_pktgen.document["generator"] == {**sends, "driver": "pktgen"}


SENDS, RECEIVES = "interface: ens1f0}\nclient", "interface: ens1f0}\n  fips3"
MISTAKES: dict[str, tuple[str, str]] = {
    "another version": ("version: 1", "version: 2"),
    "no version": ("version: 1\n", ""),
    "a mistyped key": (SENDS, SENDS.replace("interface", "interfaze")),
    "a host without a scheme": ("ssh://root@fips4", "fips4"),
    "a port out of range": ("fips5:2222", "fips5:99999"),
    "half an address": ("address: 10.3.10.42", "address: 10.3.10"),
    "no address": (", address: 10.3.10.42", ""),
    "an uplink that is no list": ("[p0, p1]", "p0"),
    "a name that no interface has": ("interface: eth0, address", "interface: a/b, address"),
    "half a MAC": ("C4:70:bd:a0:56:ac", "C4:70"),
    "a text for a role": ("{host: ssh://root@fips4, interface: ens1f0}", "fips4"),
    "an unknown driver": (SENDS, SENDS.replace("}", ", driver: trafgen}")),
    "a driver of a backend": (RECEIVES, RECEIVES.replace("}", ", driver: pktgen}")),
    "no interface": ("{host: lab:default, interface: eth0}", "{host: lab:default}"),
    "a role twice": ("fips3:", "fips2:"),
    "no YAML": ("version: 1", "version: ["),
    "an empty file": (GOOD, ""),
}


def test_every_mistake_names_its_line_and_what_to_do(parsed: Parse, tmp_path: Path, *, update_golden: bool) -> None:
    said = dict[str, str]()
    for name, (before, after) in MISTAKES.items():
        assert before in GOOD
        with pytest.raises(ConfigError) as caught:
            parsed(GOOD.replace(before, after))
        said[name] = str(caught.value).replace(f"{tmp_path}/", "")
    assert_recorded("measure/bed.txt", said, update=update_golden)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileUnusable, match=r"missing\.yaml.*No such file"):
        load_bed_file(tmp_path / "missing.yaml")


@given(st.text() | st.binary())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_gives_a_bed_or_findings(parsed: Parse, text: str | bytes) -> None:
    with suppress(ConfigError):
        parsed(text)


ROLE = BedRole(HostName("netns:a", "netns", "a"), ("eth0",), role="fips2")
ANSWERS = "link=eth0 1 1500 100000 8 0\ngovernor=performance\ncpus=8\nnodes=1\ntime=1000.5\n"


# What a machine answers instead, and what is found.
LACKS: dict[str, tuple[str, str]] = {
    "backend: missing tcpreplay": ("link", "missing=tcpreplay\nlink"),
    "backend: missing bash": ("link", "missing=bash\nlink"),
    "backend: no interface": ("link", "absent=eth9\nlink"),
    "backend: no port of a bridge": ("link", "bridge=p0 \nlink"),
    "backend: no link": ("eth0 1", "eth0 0"),
    "backend: a small MTU": ("1500", "1400"),
    "backend: one queue": ("100000 8", "100000 1"),
    "backend: a slow link": ("100000", "1000"),
    "backend: a CPU that sleeps": ("performance", "powersave"),
    "backend: two nodes": ("nodes=1", "nodes=2"),
    "backend: another time": ("1000.5", "1100"),
    "generator: missing tcpreplay": ("link", "missing=tcpreplay\nlink"),
    "dpu: missing ovs-ofctl": ("link", "missing=ovs-ofctl\nlink"),
    "dpu: missing xenoovs": ("link", "missing=xenoovs\nlink"),
    "dpu: missing ip_vs": ("link", "missing=ip_vs\nlink"),
    "dpu: missing ipvsadm": ("link", "missing=ipvsadm\nlink"),
}


def findings(answers: str, kind: str = "backend", **chosen: Any) -> str:
    needs = machine_needs(kind, **({"driver": "tcpreplay", "experiments": EXPERIMENTS} | chosen))
    found = judge_machine(ROLE, answers, needs, clock_s=1000.0, took_s=1.0)
    return "\n".join(f"{one.role}: {'error' if one.is_error else 'warning'}: {one.problem}; {one.fix}" for one in found)


def test_what_is_missing_is_named_with_its_fix(*, update_golden: bool) -> None:
    missing = "".join(f"missing={name}\n" for name in ("tcpreplay", "gzip", "bash", "ethtool"))
    no_generator = f"missing=pktgen\nmissing=tcpreplay\n{ANSWERS}"
    said = {name: findings(ANSWERS.replace(*lack, 1), name.partition(":")[0]) for name, lack in LACKS.items()}
    said |= {
        "nothing is missing": findings(ANSWERS),
        "echo needs none of these": findings(missing + ANSWERS, experiments=("echo",)),
        "rate needs some": findings(missing + ANSWERS, experiments=("rate",)),
        "with pktgen only paths need tcpreplay": findings(no_generator, "generator", driver="pktgen"),
    }
    assert_recorded("measure/machines.txt", said, update=update_golden)


def test_the_script_reads_only_what_the_experiments_need() -> None:
    needs = machine_needs("generator", driver="tcpreplay", experiments=EXPERIMENTS)
    assert "tcpreplay" in script_of(ROLE, needs, is_dpu=False)
    assert "pktgen" not in script_of(ROLE, needs, is_dpu=False)
    assert "tcpreplay" not in script_of(
        ROLE, machine_needs("backend", driver="tcpreplay", experiments=("rate",)), is_dpu=False
    )

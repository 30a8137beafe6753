"""The file of a bed: strict, with the line of each mistake; and the checks of its machines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xenoovs.errors import ConfigError, FileUnusable
from xenoovs.measure.check import EXPERIMENTS, BedFinding, judge_machine, machine_needs, script_of
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


def test_the_generator_may_be_pktgen(parsed: Parse) -> None:
    text = GOOD.replace("interface: ens1f0}\nclient", "interface: ens1f0, driver: pktgen}\nclient")
    bed = parsed(text)
    assert (bed.generator.driver, parsed(GOOD).generator.driver) == ("pktgen", "tcpreplay")
    assert bed.document["generator"] == {"host": "ssh://root@fips4", "interfaces": ["ens1f0"], "driver": "pktgen"}


@pytest.mark.parametrize(
    ("before", "after", "finding"),
    [
        ("version: 1", "version: 2", "bed.yaml:1:10: version: 2 is not a version this xenoovs reads"),
        ("version: 1\n", "", "bed.yaml:1:1: version: this key is required"),
        ("interface: ens1f0}\nclient", "interfaze: ens1f0}\nclient", "did you mean interface"),
        ("ssh://root@fips4", "fips4", "bed.yaml:2:19: generator.host: 'fips4' is no host; write ssh://user@host"),
        ("fips5:2222", "fips5:99999", "dpu.host: 'ssh://ubuntu@fips5:99999' is no host"),
        ("address: 10.3.10.42", "address: 10.3.10", "client.address: '10.3.10' is not an IP address"),
        (", address: 10.3.10.42", "", "client: `address` is missing: requests come from it"),
        ("[p0, p1]", "p0", "dpu.uplinks: 'p0' is not a list"),
        ("interface: eth0, address", "interface: a/b, address", "'a/b' is not a port name"),
        ("C4:70:bd:a0:56:ac", "C4:70", "dpu.mac: 'C4:70' is not a MAC address"),
        ("{host: ssh://root@fips4, interface: ens1f0}", "fips4", "generator: 'fips4' is not a mapping"),
        ("interface: ens1f0}\nclient", "interface: ens1f0, driver: trafgen}\nclient", "trafgen sends the frames of a"),
        ("interface: ens1f0}\n  fips3", "interface: ens1f0, driver: pktgen}\n  fips3", "fips2.driver: unknown key"),
        (
            "{host: lab:default, interface: eth0}",
            "{host: lab:default}",
            "backends.fips3.interface: this key is required",
        ),
        ("fips3:", "fips2:", "backends.fips2: "),
        ("version: 1", "version: [", "bed.yaml:"),
    ],
)
def test_every_mistake_names_its_line_and_what_to_do(before: str, after: str, finding: str, parsed: Parse) -> None:
    assert before in GOOD
    with pytest.raises(ConfigError) as caught:
        parsed(GOOD.replace(before, after))
    assert finding.lower() in str(caught.value).lower()


def test_empty_and_missing_files_are_errors(tmp_path: Path, parsed: Parse) -> None:
    with pytest.raises(ConfigError, match=r"bed\.yaml:1:1: "):
        parsed("")
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
FOUND = """\
backend: missing tcpreplay: warning: tcpreplay not found: `measure paths` works only with --directions in; apt-get \
install tcpreplay
backend: missing bash: error: bash not found: needed by rate, latency, loss, designs, next-hops, entries, insert; \
apt-get install bash
backend: no interface: error: there is no interface eth9; ip -brief link
backend: no port of a bridge: error: p0 is no port of a bridge; ovs-vsctl add-port BRIDGE p0
backend: no link: error: eth0 is down or has no link; ip link set dev eth0 up
backend: a small MTU: error: eth0 has MTU 1400; frames of 1518 bytes need 1500; ip link set dev eth0 mtu 1500
backend: one queue: warning: eth0 has 1 receive queue and the machine 8 CPUs; ethtool -L eth0 combined 8
backend: a slow link: warning: eth0 runs at 1Gbit/s; ethtool eth0
backend: a CPU that sleeps: warning: the CPU governor is powersave: rates depend on how fast it reacts; cpupower \
frequency-set -g performance
backend: two nodes: warning: eth0 is on NUMA node 0 of 2: programs on others are slower; numactl --cpunodebind=0 \
COMMAND
backend: another time: warning: its clock is 100s ahead; timedatectl set-ntp true
generator: missing tcpreplay: error: tcpreplay not found: needed by rate, latency, loss, designs, next-hops, entries, \
insert, paths; apt-get install tcpreplay
dpu: missing ovs-ofctl: error: ovs-ofctl not found: needed by every experiment; apt-get install openvswitch-switch
dpu: missing xenoovs: warning: xenoovs not found: `measure echo` refuses --offload; apt-get install ./xenoovs_*.deb
dpu: missing ip_vs: warning: the kernel has no module ip_vs: `measure compare designs` leaves out IPVS; apt-get \
install linux-image-$(dpkg --print-architecture)
dpu: missing ipvsadm: warning: ipvsadm not found: `measure compare designs` leaves out IPVS; apt-get install ipvsadm
"""


def findings(answers: str, kind: str = "backend", **chosen: Any) -> list[BedFinding]:
    needs = machine_needs(kind, **({"driver": "tcpreplay", "experiments": EXPERIMENTS} | chosen))
    return list(judge_machine(ROLE, answers, needs, clock_s=1000.0, took_s=1.0))


def test_what_is_missing_is_named_with_its_fix() -> None:
    assert findings(ANSWERS) == []
    said = list[str]()
    for name, (before, after) in LACKS.items():
        (found,) = findings(ANSWERS.replace(before, after, 1), name.partition(":")[0])
        assert found.role == "fips2"
        said.append(f"{name}: {'error' if found.is_error else 'warning'}: {found.problem}; {found.fix}\n")
    assert "".join(said) == FOUND


def test_one_experiment_needs_less() -> None:
    missing = "".join(f"missing={name}\n" for name in ("tcpreplay", "gzip", "bash", "ethtool"))
    assert findings(missing + ANSWERS, "backend", experiments=("echo",)) == []
    by_rate = findings(missing + ANSWERS, "backend", experiments=("rate",))
    assert [each.problem for each in by_rate] == ["bash not found: needed by rate", "ethtool not found: needed by rate"]
    assert {tuple(each.experiments) for each in by_rate} == {("rate",)}


def test_with_pktgen_only_paths_need_tcpreplay() -> None:
    found = findings(f"missing=pktgen\nmissing=tcpreplay\n{ANSWERS}", "generator", driver="pktgen")
    assert [(each.problem, each.is_error) for each in found] == [
        ("the kernel has no module pktgen: needed by rate, latency, loss, designs, next-hops, entries, insert", True),
        ("tcpreplay not found: needed by paths", True),
    ]


def test_the_script_reads_only_what_the_experiments_need() -> None:
    needs = machine_needs("generator", driver="tcpreplay", experiments=EXPERIMENTS)
    assert "tcpreplay" in script_of(ROLE, needs, is_dpu=False)
    assert "pktgen" not in script_of(ROLE, needs, is_dpu=False)
    assert "tcpreplay" not in script_of(
        ROLE, machine_needs("backend", driver="tcpreplay", experiments=("rate",)), is_dpu=False
    )

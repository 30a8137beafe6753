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


def findings(answers: str, kind: str = "backend", **chosen: Any) -> list[BedFinding]:
    needs = machine_needs(kind, **({"driver": "tcpreplay", "experiments": EXPERIMENTS} | chosen))
    return list(judge_machine(ROLE, answers, needs, clock_s=1000.0, took_s=1.0))


def test_a_machine_that_has_everything_has_no_finding() -> None:
    assert findings(ANSWERS) == []


@pytest.mark.parametrize(
    ("before", "after", "problem", "fix", "is_error"),
    [
        (
            "link",
            "missing=tcpreplay\nlink",
            "tcpreplay not found: `measure paths` works only with --directions in",
            "apt-get install tcpreplay",
            False,
        ),
        (
            "link",
            "missing=bash\nlink",
            "bash not found: needed by rate, latency, loss, designs, next-hops, entries, insert",
            "apt-get install bash",
            True,
        ),
        ("link=eth0", "absent=eth9\nlink=eth0", "there is no interface eth9", "ip -brief link", True),
        ("link=eth0", "bridge=p0 \nlink=eth0", "p0 is no port of a bridge", "ovs-vsctl add-port BRIDGE p0", True),
        ("eth0 1", "eth0 0", "eth0 is down or has no link", "ip link set dev eth0 up", True),
        ("1500", "1400", "eth0 has MTU 1400; frames of 1518 bytes need 1500", "ip link set dev eth0 mtu 1500", True),
        (
            "100000 8",
            "100000 1",
            "eth0 has 1 receive queue and the machine 8 CPUs",
            "ethtool -L eth0 combined 8",
            False,
        ),
        ("100000", "1000", "eth0 runs at 1Gbit/s", "ethtool eth0", False),
        ("performance", "powersave", "the CPU governor is powersave", "cpupower frequency-set -g performance", False),
        ("nodes=1", "nodes=2", "eth0 is on NUMA node 0 of 2", "numactl --cpunodebind=0 COMMAND", False),
        ("1000.5", "1100", "its clock is 100s ahead", "timedatectl set-ntp true", False),
    ],
)
def test_what_is_missing_is_named_with_its_fix(before: str, after: str, problem: str, fix: str, is_error: bool) -> None:
    (found,) = findings(ANSWERS.replace(before, after, 1))
    assert problem in found.problem
    assert (found.role, found.fix, found.is_error) == ("fips2", fix, is_error)


_KERNEL = "apt-get install linux-image-$(dpkg --print-architecture)"


@pytest.mark.parametrize(
    ("kind", "name", "problem", "fix", "is_error"),
    [
        (
            "generator",
            "tcpreplay",
            "tcpreplay not found: needed by rate, latency, loss, designs, next-hops, entries, insert, paths",
            "",
            True,
        ),
        ("dpu", "ovs-ofctl", "ovs-ofctl not found: needed by every experiment", "openvswitch-switch", True),
        ("dpu", "xenoovs", "xenoovs not found: `measure echo` refuses --offload", "./xenoovs_*.deb", False),
        ("dpu", "ip_vs", "the kernel has no module ip_vs: `measure compare designs` leaves out IPVS", _KERNEL, False),
        ("dpu", "ipvsadm", "ipvsadm not found: `measure compare designs` leaves out IPVS", "ipvsadm", False),
    ],
)
def test_what_a_role_lacks_names_the_experiments(kind: str, name: str, problem: str, fix: str, is_error: bool) -> None:
    (found,) = findings(f"missing={name}\n{ANSWERS}", kind)
    assert (found.problem, found.is_error) == (problem, is_error)
    assert found.fix.endswith(fix or name)


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

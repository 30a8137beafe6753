"""A config that changes under the agent."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG
from xenoovs.agent.config_file import ConfigFile
from xenoovs.errors import ConfigError, ConfigUnreadable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "my.yaml"
    file.write_text(SMALL_CONFIG)
    return file


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


SPOILED: list[tuple[str, Callable[[Path], object]]] = [
    ("garbage", lambda path: path.write_bytes(b"\x00\xff{[")),
    ("empty", lambda path: path.write_text("")),
    ("another mistake", lambda path: path.write_text(SMALL_CONFIG.replace("weight: 70", "weight: -1"))),
    ("gone", lambda path: path.unlink()),
    ("a directory", make_directory),
    ("a pipe without a writer", make_pipe),
    ("a device without end", make_device),
]


@pytest.mark.parametrize(("name", "spoil"), SPOILED, ids=[name for name, _ in SPOILED])
def test_the_last_good_one_stays_and_a_valid_one_replaces_it(
    name: str, spoil: Callable[[Path], object], path: Path
) -> None:
    config = ConfigFile(path)
    good, digest = config.balancer, config.digest
    spoil(path)
    assert config.poll()
    assert isinstance(config.problem, ConfigError | ConfigUnreadable)
    assert (config.balancer, config.digest) == (good, digest)
    assert not config.poll()
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    path.write_text(SMALL_CONFIG.replace("70", "60"))
    assert config.poll()
    assert config.problem is None
    assert config.balancer == good
    config.accept()
    assert config.balancer != good
    assert config.candidate is None


def test_each_reason_why_it_cannot_be_read_is_reported_once(path: Path) -> None:
    config = ConfigFile(path)
    make_directory(path)
    assert config.poll()
    path.rmdir()
    assert config.poll()
    assert "No such file" in str(config.problem)
    assert not config.poll()
    path.write_text(SMALL_CONFIG)
    assert config.poll()
    assert config.problem is None


def test_the_same_text_written_again_is_no_change(path: Path) -> None:
    config = ConfigFile(path)
    path.write_text(SMALL_CONFIG)
    assert not config.poll(always=True)


def test_without_a_good_config_there_is_no_start(path: Path) -> None:
    path.write_text("")
    with pytest.raises(ConfigError):
        ConfigFile(path)


INCLUDING = SMALL_CONFIG.replace("services:", "include: conf.d\nservices:")
MAIL = """services:
  - name: mail
    vip: 10.3.10.46
    protocol: tcp
    ports: [25]
    backends:
      - {name: fips2, mac: 02:00:5e:10:00:02, weight: 1}
"""


def test_files_that_are_included_are_watched_too(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    path.write_text(INCLUDING)
    config = ConfigFile(path)
    digests = {config.digest}
    assert not config.is_touched

    (folder / "mail.yaml").write_text(MAIL)
    assert config.poll()
    assert [each.name for each in config.balancers[-1].services][1:] == ["mail"]
    config.accept()
    digests.add(config.digest)

    (folder / "mail.yaml").write_text(MAIL.replace("[25]", "[587]"))
    assert config.poll()
    config.accept()
    digests.add(config.digest)

    (folder / "mail.yaml").write_text("services: [")
    assert config.poll()
    assert "mail.yaml:2:1: not valid YAML" in str(config.problem)
    assert not config.poll(always=False)

    (folder / "mail.yaml").unlink()
    assert config.poll()
    config.accept()
    assert len(config.balancer.services) == 1
    assert len(digests | {config.digest}) == 3, "without mail the text is that of the beginning"

    folder.rmdir()
    assert config.poll()
    assert config.newer != config.digest


def test_a_missing_file_is_noticed_when_it_comes(path: Path, tmp_path: Path) -> None:
    (tmp_path / "mail.yaml").write_text(MAIL)
    path.write_text(INCLUDING.replace("conf.d", "mail.yaml"))
    config = ConfigFile(path)
    (tmp_path / "mail.yaml").unlink()
    assert config.poll()
    assert "mail.yaml cannot be read: No such file or directory" in str(config.problem)
    assert not config.poll()
    (tmp_path / "mail.yaml").write_text(MAIL)
    assert config.poll()
    assert config.problem is None


def test_a_link_that_leads_to_another_file_is_noticed(path: Path, tmp_path: Path) -> None:
    """A ConfigMap of Kubernetes exchanges a directory behind a link."""
    for name, ports in (("one", "[25]"), ("two", "[587]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mail.yaml").write_text(MAIL.replace("[25]", ports))
    (tmp_path / "conf.d").symlink_to("one")
    path.write_text(INCLUDING)
    config = ConfigFile(path)
    (tmp_path / "new").symlink_to("two")
    (tmp_path / "new").replace(tmp_path / "conf.d")
    assert config.poll()
    assert str(config.balancers[-1].services[1].claim.ports[0]) == "587"

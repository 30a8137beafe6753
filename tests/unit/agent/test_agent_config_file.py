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
    ("a pipe that nobody writes to", make_pipe),
    ("a device without end", make_device),
]


@pytest.mark.parametrize(("name", "spoil"), SPOILED, ids=[name for name, _ in SPOILED])
def test_the_last_good_one_is_kept_and_a_better_one_is_taken(
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


def test_each_reason_why_it_cannot_be_read_is_told_once(path: Path) -> None:
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

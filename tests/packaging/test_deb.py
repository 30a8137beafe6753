"""The Debian package in an empty Debian 12: installed without a network, upgraded, removed, purged."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from xenoovs import __version__

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("python3", "python3-venv", "iproute2")
pytestmark = [pytest.mark.dist, pytest.mark.timeout(1800)]


def build(architecture: str, python: str) -> Path:
    """Return dist/ for an architecture and a Python."""
    argv = [sys.executable, str(ROOT / "scripts/dist.py"), "--arch", architecture, "--python", python]
    subprocess.run(argv, check=True)
    return ROOT / "dist"


@pytest.fixture(scope="session")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Debian 12 with Python, iproute2 and nothing else; its commands run without a network."""
    root, built = tmp_path_factory.mktemp("debian"), build("amd64", "3.11")
    subprocess.run(["tar", "--extract", "--file", str(debian_archive()), "--directory", str(root)], check=True)
    (package,) = built.glob("*_amd64.deb")
    (archive,) = built.glob("*-linux-x86_64.tar.gz")
    (root / "xenoovs.deb").write_bytes(package.read_bytes())
    (root / "archive.tar.gz").write_bytes(archive.read_bytes())
    return root


def debian_archive() -> Path:
    """Return what `debian` begins as; a new Debian is made for other packages alone, as that takes minutes."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "xenoovs", "debian")
    archive = cache / f"bookworm-{'-'.join(PACKAGES)}.tar"
    if not archive.exists():
        cache.mkdir(parents=True, exist_ok=True)
        part = archive.with_suffix(".part.tar")
        command = [str(ROOT / "scripts/debian-root"), "bookworm", str(part), "--variant=minbase"]
        subprocess.run([*command, f"--include={','.join(PACKAGES)}"], check=True)
        part.rename(archive)
    return archive


def run(root: Path, command: str) -> subprocess.CompletedProcess[str]:
    argv = ["unshare", "--net", "chroot", str(root), "/bin/sh", "-c", command]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def ok(root: Path, command: str) -> str:
    done = run(root, command)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def files_of(root: Path) -> set[str]:
    found = ok(root, "find / -xdev -path /proc -prune -o -iname '*xenoovs*' -print")
    return set(found.split()) - {"/xenoovs.deb"}


def test_the_package_lives_from_install_to_purge(debian: Path) -> None:
    ok(debian, "dpkg -i /xenoovs.deb")
    assert ok(debian, "xenoovs --version") == f"xenoovs {__version__}\n"
    ok(debian, "xenoovs new quickstart > /etc/xenoovs/config.yaml && xenoovs validate /etc/xenoovs/config.yaml")
    for unit in ("agent", "fleet-server@", "fleet-relay", "fleet-controller"):
        ok(debian, f"test -f /usr/lib/systemd/system/xenoovs-{unit}.service")
    ok(debian, "test -f /usr/share/man/man1/xenoovs.1.gz")

    assert "the Python library `ovs`" in run(debian, "xenoovs fleet status").stderr
    ok(debian, "mkdir -p /usr/lib/python3/dist-packages/ovs; touch /usr/lib/python3/dist-packages/ovs/found.py")
    ok(debian, "/opt/xenoovs/bin/python -c 'import ovs.found'; rm -r /usr/lib/python3/dist-packages/ovs")

    ok(debian, "mkdir -p /var/lib/xenoovs && echo kept > /var/lib/xenoovs/state")
    ok(debian, "dpkg -i /xenoovs.deb")
    assert ok(debian, "cat /var/lib/xenoovs/state; ls -d /opt/xenoovs-*") == f"kept\n/opt/xenoovs-{__version__}\n"
    ok(debian, "xenoovs validate /etc/xenoovs/config.yaml")

    ok(debian, "dpkg --remove xenoovs")
    assert "/etc/xenoovs" in files_of(debian)
    assert run(debian, "xenoovs --version").returncode == 127

    ok(debian, "dpkg --purge xenoovs")
    assert files_of(debian) == set()


FOLDER = f"/tmp/xenoovs-{__version__}-linux-x86_64"


def test_the_archive_installs_and_removes_itself(debian: Path) -> None:
    ok(debian, f"tar -C /tmp -xzf /archive.tar.gz && {FOLDER}/install.sh")
    assert ok(debian, "xenoovs --version") == f"xenoovs {__version__}\n"
    ok(debian, f"{FOLDER}/install.sh --remove && rm -r {FOLDER} /etc/xenoovs")
    assert files_of(debian) == set()


def test_without_a_usable_python_nothing_is_installed(debian: Path) -> None:
    ok(debian, "tar -C /tmp -xzf /archive.tar.gz && mv /usr/bin/python3.11 /usr/bin/hidden")
    done = run(debian, f"{FOLDER}/install.sh")
    ok(debian, f"mv /usr/bin/hidden /usr/bin/python3.11 && rm -r {FOLDER}")
    reason = "no Python 3.10 to 3.14 with the module venv; install python3 and python3-venv"
    assert (done.returncode, done.stderr) == (1, f"install.sh: {reason}\n")
    assert files_of(debian) == set()


@pytest.mark.long
def test_wheels_of_the_other_architecture_are_complete() -> None:
    """For the Python of Ubuntu 22.04."""
    (archive,) = build("arm64", "3.10").glob("*-linux-aarch64.tar.gz")
    with tarfile.open(archive) as opened:
        wheels = {Path(name).name for name in opened.getnames() if name.endswith(".whl")}
    binary = {name for name in wheels if not name.endswith("-none-any.whl")}
    assert all("aarch64" in name and "-cp310-" in name for name in binary)
    assert {name.partition("-")[0] for name in binary} >= {"aiohttp", "pydantic_core", "pyyaml"}

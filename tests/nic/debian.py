"""What the virtual machine is made of, from Debian's archive: programs on the host, a kernel in a cache directory."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xenoovs.switch.process import run

_INSTALL_TIMEOUT_S = 600.0

# Program -> the Debian 12 package that brings it. gcc-12 is the compiler of Debian's kernel 6.1.
_PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "modprobe": "kmod",
    "gcc-12": "gcc-12",
    "make": "make",
    "ovs-vswitchd": "openvswitch-switch",
    "ip": "iproute2",
    "ethtool": "ethtool",
    "sysctl": "procps",
}


@dataclass(frozen=True, slots=True)
class Kernel:
    """Debian's kernel, unpacked below `root` and not installed. `release` is what `uname -r` says in the guest."""

    root: Path
    release: str

    @property
    def image(self) -> Path:
        """What QEMU boots."""
        return self.root / "boot" / f"vmlinuz-{self.release}"

    @property
    def headers(self) -> Path:
        """The directory to build modules in."""
        return self.root / "usr" / "src" / f"linux-headers-{self.release}"

    def modules(self, names: Sequence[str]) -> list[Path]:
        """The files of these modules and of all they need, in the order in which to load them."""
        argv = ["modprobe", "--show-depends", "-d", str(self.root), "-S", self.release, "-a", *names]
        lines = run(argv).stdout.splitlines()
        return list(dict.fromkeys(Path(line.split()[1]) for line in lines if line.startswith("insmod ")))


def cache_directory() -> Path:
    """`$XDG_CACHE_HOME/xenoovs/nic`; the cache of all of it may be deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xenoovs" / "nic"


def install_programs() -> None:
    """Install from Debian what is missing on the host. Needs root and the network only then."""
    missing = sorted({package for program, package in _PROGRAMS.items() if shutil.which(program) is None})
    if missing:
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
        run(["apt-get", "update", "-qq"], timeout_s=_INSTALL_TIMEOUT_S)
        run(install, timeout_s=_INSTALL_TIMEOUT_S, env={"DEBIAN_FRONTEND": "noninteractive"})


def unpacked_kernel() -> Kernel:
    """The newest kernel that an earlier call has unpacked; else download and unpack Debian's current one."""
    cached = sorted(cache_directory().glob("kernel-*"))
    if cached:
        return Kernel(cached[-1], cached[-1].name.removeprefix("kernel-"))
    run(["apt-get", "update", "-qq"], timeout_s=_INSTALL_TIMEOUT_S)
    return _download(_current_release())


def _current_release() -> str:
    # linux-image-amd64 is an empty package that depends on the image of the day (and its headers have the same name).
    depends = run(["apt-cache", "depends", "linux-image-amd64"]).stdout
    found = re.search(r"linux-image-(\d\S+)", depends)
    if found is None:
        raise RuntimeError(f"linux-image-amd64 depends on no kernel image here; apt-cache says: {depends!r}")
    return found.group(1)


def _download(release: str) -> Kernel:
    common = re.sub(r"-amd64$", "-common", release)
    kbuild = "linux-kbuild-" + ".".join(release.split(".")[:2])
    packages = [f"linux-image-{release}", f"linux-headers-{release}", f"linux-headers-{common}", kbuild]
    root = cache_directory() / f"kernel-{release}"
    work = root.with_name(f"unpacking-{os.getpid()}")
    packed = work / "packed"
    packed.mkdir(parents=True)
    run(["env", f"--chdir={packed}", "apt-get", "download", "-q", *packages], timeout_s=_INSTALL_TIMEOUT_S)
    for archive in sorted(packed.glob("*.deb")):
        run(["dpkg", "-x", str(archive), str(work)], timeout_s=_INSTALL_TIMEOUT_S)
    shutil.rmtree(packed)
    # The headers refer to each other by the absolute path of an installed package.
    makefile = work / "usr" / "src" / f"linux-headers-{release}" / "Makefile"
    makefile.write_text(makefile.read_text().replace("/usr/src/", f"{root}/usr/src/"))
    run(["depmod", "-b", str(work), release], timeout_s=120.0)
    work.rename(root)
    return Kernel(root, release)

"""The kernel of the virtual machine: Debian's own, downloaded and unpacked into a cache directory, never installed."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from xenoovs.errors import CommandFailed, LabError
from xenoovs.switch.process import run

_DOWNLOAD_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel unpacked below `root`. `release` is what `uname -r` says in the guest."""

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
    """`$XDG_CACHE_HOME/xenoovs/nic`; all of it may be deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xenoovs" / "nic"


def cached_kernel() -> Kernel | None:
    """The newest kernel that an earlier call has unpacked."""
    cached = sorted(cache_directory().glob("kernel-*"))
    return Kernel(cached[-1], cached[-1].name.removeprefix("kernel-")) if cached else None


def unpacked_kernel() -> Kernel:
    """The one in the cache; else download and unpack Debian's current one, about 100 MB.

    Raises LabError when Debian's archive cannot be used.
    """
    if kernel := cached_kernel():
        return kernel
    try:
        if os.geteuid() == 0:
            run(["apt-get", "update", "-qq"], timeout_s=_DOWNLOAD_TIMEOUT_S)
        return _download(_current_release())
    except CommandFailed as error:
        said = error.stderr.strip() or error.stdout.strip()
        raise LabError(f"no kernel from Debian's archive: {said}; see whether `apt-get update` works") from None


def _current_release() -> str:
    # linux-image-amd64 is an empty package that depends on the image of the day (and its headers have the same name).
    depends = run(["apt-cache", "depends", "linux-image-amd64"]).stdout
    found = re.search(r"linux-image-(\d\S+)", depends)
    if found is None:
        raise LabError(f"linux-image-amd64 depends on no kernel here; apt-cache says: {depends!r}; is this Debian?")
    return found.group(1)


def _download(release: str) -> Kernel:
    common = re.sub(r"-amd64$", "-common", release)
    kbuild = "linux-kbuild-" + ".".join(release.split(".")[:2])
    packages = [f"linux-image-{release}", f"linux-headers-{release}", f"linux-headers-{common}", kbuild]
    root = cache_directory() / f"kernel-{release}"
    work = root.with_name(f"unpacking-{os.getpid()}")
    packed = work / "packed"
    packed.mkdir(parents=True)
    try:
        run(["env", f"--chdir={packed}", "apt-get", "download", "-q", *packages], timeout_s=_DOWNLOAD_TIMEOUT_S)
        for archive in sorted(packed.glob("*.deb")):
            run(["dpkg", "-x", str(archive), str(work)], timeout_s=_DOWNLOAD_TIMEOUT_S)
        shutil.rmtree(packed)
        # The headers refer to each other by the absolute path of an installed package.
        makefile = work / "usr" / "src" / f"linux-headers-{release}" / "Makefile"
        makefile.write_text(makefile.read_text().replace("/usr/src/", f"{root}/usr/src/"))
        run(["depmod", "-b", str(work), release], timeout_s=120.0)
        # Another process may have been faster; its kernel is as good.
        with suppress(OSError):
            work.rename(root)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return Kernel(root, release)

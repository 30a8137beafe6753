"""Builds the two files of ours that the virtual machine boots with: the kernel module and the initial ram disk."""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path

from xenoovs.errors import CommandFailed, LabError
from xenoovs.lab.nic.debian import Kernel, cache_directory
from xenoovs.lab.nic.needs import COMPILER
from xenoovs.switch.process import run

_HERE = Path(__file__).parent
# What the guest needs before it sees the host's files, and to be talked to.
_BOOT_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console")


def module_path(kernel: Kernel) -> Path:
    """Where `eswitch.ko` for this kernel and this source is, once it was built."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in _sources())).hexdigest()[:16]
    return cache_directory() / f"eswitch-{kernel.release}-{digest}" / "eswitch.ko"


def build_module(kernel: Kernel) -> Path:
    """`eswitch.ko`; built anew only when its source has changed. Raises LabError with what the compiler said."""
    module = module_path(kernel)
    if not module.exists():
        work = module.parent.with_name(f"building-{os.getpid()}")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            for source in _sources():
                shutil.copy(source, work)
            run(["make", "-C", str(kernel.headers), f"M={work}", f"CC={COMPILER}", "modules"], timeout_s=300.0)
            # Another process may have been faster; its module is the same.
            with suppress(OSError):
                work.rename(module.parent)
        except CommandFailed as error:
            said = error.stderr.strip()[-2000:]
            raise LabError(f"the emulated NIC's kernel module does not build for {kernel.release}: {said}") from None
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return module


def build_initrd(kernel: Kernel, directory: Path, *, start: str) -> Path:
    """A ram disk of busybox, a few modules and `guest/init.sh`, as a newc archive in `directory`.

    start: the script with which the guest goes on once it has the host's files.
    """
    tree = directory / "initrd"
    for name in ("bin", "modules", "proc", "sys", "dev", "host", "top", "new"):
        (tree / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "/bin/busybox", tree / "bin" / "busybox")
    shutil.copy(_HERE / "guest" / "init.sh", tree / "init")
    (tree / "start").write_text(start)
    for script in ("init", "start"):
        (tree / script).chmod(0o755)
    modules = kernel.modules(_BOOT_MODULES)
    for module in modules:
        shutil.copy(module, tree / "modules")
    (tree / "modules" / "order").write_text("".join(f"{module.name}\n" for module in modules))
    names = "".join(f"{path.relative_to(tree)}\n" for path in sorted(tree.rglob("*")))
    archive = directory / "initrd.cpio"
    run(["env", f"--chdir={tree}", "busybox", "cpio", "-o", "-H", "newc", "-F", str(archive)], stdin=names)
    shutil.rmtree(tree)
    return archive


def _sources() -> list[Path]:
    here = (_HERE / "eswitch").iterdir()
    return sorted(file for file in here if file.suffix in (".c", ".h") or file.name == "Kbuild")

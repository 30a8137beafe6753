"""Builds the two files of ours that the virtual machine boots with: the kernel module and the initial ram disk."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from tests.nic.debian import Kernel, cache_directory
from xenoovs.switch.process import run

_HERE = Path(__file__).parent
# What the guest needs before it sees the host's files.
_BOOT_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")


def build_module(kernel: Kernel) -> Path:
    """`eswitch.ko` for this kernel; built anew only when its source has changed."""
    sources = sorted((_HERE / "eswitch").iterdir())
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    built = cache_directory() / f"eswitch-{kernel.release}-{digest}"
    module = built / "eswitch.ko"
    if not module.exists():
        built.mkdir(parents=True, exist_ok=True)
        for source in sources:
            shutil.copy(source, built)
        run(["make", "-C", str(kernel.headers), f"M={built}", "modules"], timeout_s=300.0)
    return module


def build_initrd(kernel: Kernel, directory: Path) -> Path:
    """A ram disk of busybox, a few modules and `guest/init.sh`, as a newc archive in `directory`."""
    tree = directory / "initrd"
    for name in ("bin", "modules", "proc", "sys", "dev", "host", "top", "new"):
        (tree / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "/bin/busybox", tree / "bin" / "busybox")
    shutil.copy(_HERE / "guest" / "init.sh", tree / "init")
    (tree / "init").chmod(0o755)
    modules = kernel.modules(_BOOT_MODULES)
    for module in modules:
        shutil.copy(module, tree / "modules")
    (tree / "modules" / "order").write_text("".join(f"{module.name}\n" for module in modules))
    names = "".join(f"{path.relative_to(tree)}\n" for path in sorted(tree.rglob("*")))
    archive = directory / "initrd.cpio"
    run(["env", f"--chdir={tree}", "busybox", "cpio", "-o", "-H", "newc", "-F", str(archive)], stdin=names)
    return archive

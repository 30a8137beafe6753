"""What the kernel tells in files: huge pages, modules, and of devices what an older ip(8) does not print."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterable
from pathlib import Path

from xenoovs.datapath.host import Kernel, Seen, Unknown

_PAGE_SIZE = re.compile(r"hugepages-([0-9]+)kB")
_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def read_kernel(modules: Iterable[str], *, root: Path = Path("/"), release: str | None = None) -> Kernel:
    """The kernel that runs. `root`: where its files are; `release`: as uname(2) has it."""
    name = release if release is not None else os.uname().release
    return Kernel(name, _modules(tuple(modules), root=root, release=name), _hugepages(root))


def read_text(path: Path) -> str | None:
    """A small file without its end of line; None where it is not or does not want to be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def device_pci(device: str, *, root: Path = Path("/")) -> str | None:
    """The PCI device behind a network device."""
    parent = (root / "sys/class/net" / device / "device").resolve().name
    return parent if _PCI.fullmatch(parent) else None


def device_attribute(device: str, name: str, *, root: Path = Path("/")) -> str | None:
    """An attribute as phys_switch_id; devices that have none fail with EOPNOTSUPP or do not have the file."""
    return read_text(root / "sys/class/net" / device / name) or None


def _hugepages(root: Path) -> Seen[int]:
    # Documentation/admin-guide/mm/hugetlbpage.rst
    sizes = [
        int(found[1]) * 1024 * int(read_text(pool / "nr_hugepages") or 0)
        for pool in (root / "sys/kernel/mm/hugepages").glob("hugepages-*")
        if (found := _PAGE_SIZE.fullmatch(pool.name))
    ]
    return sum(sizes) if sizes else Unknown("/sys/kernel/mm/hugepages cannot be read")


def _modules(names: tuple[str, ...], *, root: Path, release: str) -> Seen[dict[str, bool]]:
    """For each name whether the kernel has it; names that nothing tells of are left out."""
    loaded = read_text(root / "proc/modules")
    library = root / "lib/modules" / release
    built_in, on_disk = read_text(library / "modules.builtin"), read_text(library / "modules.dep")
    options = _options(root, release)
    if loaded is None and built_in is None and not options:
        return Unknown("neither /proc/modules nor modules.builtin nor the kernel's configuration can be read")
    present = {line.split()[0] for line in (loaded or "").splitlines()}
    present |= {_module_name(line) for text in (built_in, on_disk) for line in (text or "").splitlines()}
    found: dict[str, bool] = {}
    for name in names:
        option = options.get(f"CONFIG_NET_{name.upper()}")
        if name in present or option == "y":
            found[name] = True
        elif (built_in is not None and on_disk is not None) or option == "n":
            found[name] = False
    return found


def _options(root: Path, release: str) -> dict[str, str]:
    """The kernel's own configuration: option -> `y`, `m` or `n`."""
    text = read_text(root / "boot" / f"config-{release}")
    if text is None:
        try:
            text = gzip.decompress((root / "proc/config.gz").read_bytes()).decode(errors="replace")
        except (OSError, EOFError, gzip.BadGzipFile):
            return {}
    unset = re.findall(r"^# (CONFIG_\w+) is not set$", text, re.MULTILINE)
    return dict.fromkeys(unset, "n") | dict(re.findall(r"^(CONFIG_\w+)=([ym])$", text, re.MULTILINE))


def _module_name(line: str) -> str:
    """`kernel/net/sched/cls_flower.ko.zst: ...` is cls_flower; dashes and underscores are the same (modprobe(8))."""
    path = line.split(":", 1)[0]
    return path.rsplit("/", 1)[-1].split(".ko", 1)[0].replace("-", "_")

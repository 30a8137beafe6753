"""The virtual machine: required programs, its kernel and files, its start in the background."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from xenoovs.dataclass import dataclass
from xenoovs.errors import CommandFailed, LabError
from xenoovs.lab.host import environment_of, is_alive, kill_and_wait
from xenoovs.switch.process import PYTHON_MODULE, missing_programs, run, try_run

PORTS = 4
"""How many processes of the host can run commands in the guest at a time."""

PORT_NAME = "xenoovs."
"""Ports are called xenoovs.0, xenoovs.1, ... in /sys/class/virtio-ports."""

COMPILER = "gcc-12"
"""The compiler of Debian's kernel 6.1, with which modules must be built."""

PROGRAMS = (
    *("apt-get", "apt-cache", "dpkg", "qemu-system-x86_64", "busybox", "modprobe", "depmod", COMPILER, "make"),
    *("ovs-vswitchd", "ovsdb-server", "ovs-vsctl", "ip", "tc", "ethtool"),
)
"""The programs for building and booting. The guest uses the same files."""


def check_needs() -> None:
    """Raise LabError with all missing programs and the command that installs them."""
    if platform.machine() != "x86_64":
        raise LabError(f"the emulated NIC runs on x86_64 alone, this machine is {platform.machine()}")
    missing = missing_programs(PROGRAMS)
    if {"apt-get", "dpkg"} & missing.keys():
        raise LabError("the emulated NIC runs on a kernel from Debian's archive: apt-get and dpkg are not here")
    if missing:
        install = f"apt-get install --no-install-recommends {' '.join(sorted(set(missing.values())))}"
        raise LabError(f"the emulated NIC needs {', '.join(missing)}; on Debian: `{install}`")


_DOWNLOAD_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class GuestKernel:
    """A kernel unpacked below `root`. `release`: the output of `uname -r` in the guest."""

    root: Path
    release: str

    @property
    def image(self) -> Path:
        """Return the kernel image that QEMU boots."""
        return self.root / "boot" / f"vmlinuz-{self.release}"

    @property
    def headers(self) -> Path:
        """Return the directory in which modules are built."""
        return self.root / "usr" / "src" / f"linux-headers-{self.release}"


def cache_directory() -> Path:
    """Return `$XDG_CACHE_HOME/xenoovs/nic`. Users may delete it at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xenoovs" / "nic"


def unpacked_kernel() -> GuestKernel:
    """Return the newest kernel in the cache, or download Debian's current one (about 100 MB). Raises LabError."""
    with _cache_lock():
        if cached := sorted(cache_directory().glob("kernel-*")):
            return GuestKernel(cached[-1], cached[-1].name.removeprefix("kernel-"))
        try:
            if os.geteuid() == 0:
                run(["apt-get", "update", "-qq"], timeout_s=_DOWNLOAD_TIMEOUT_S)
            return _download(_current_release())
        except CommandFailed as error:
            message = error.stderr.strip() or error.stdout.strip()
            raise LabError(f"no kernel from Debian's archive: {message}; see whether `apt-get update` works") from None


@contextmanager
def _cache_lock() -> Iterator[None]:
    """Let only one process at a time fill the cache, as apt-get refuses to run twice."""
    cache_directory().mkdir(parents=True, exist_ok=True)
    with (cache_directory() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _current_release() -> str:
    # linux-image-amd64 is an empty package that depends on the image of the day (and its headers have the same name).
    depends = run(["apt-cache", "depends", "linux-image-amd64"]).stdout
    found = re.search(r"linux-image-(\d\S+)", depends)
    if found is None:
        raise LabError(f"linux-image-amd64 depends on no kernel here; apt-cache says: {depends!r}; is this Debian?")
    return found.group(1)


def _download(release: str) -> GuestKernel:
    common = re.sub(r"-amd64$", "-common", release)
    kbuild = "linux-kbuild-" + ".".join(release.split(".")[:2])
    packages = [f"linux-image-{release}", f"linux-headers-{release}", f"linux-headers-{common}", kbuild]
    root = cache_directory() / f"kernel-{release}"
    with _new_directory(root) as work:
        packed = work / "packed"
        packed.mkdir()
        run(["env", f"--chdir={packed}", "apt-get", "download", "-q", *packages], timeout_s=_DOWNLOAD_TIMEOUT_S)
        for archive in sorted(packed.glob("*.deb")):
            run(["dpkg", "-x", str(archive), str(work)], timeout_s=_DOWNLOAD_TIMEOUT_S)
        shutil.rmtree(packed)
        # The headers refer to each other by the absolute path of an installed package.
        makefile = work / "usr" / "src" / f"linux-headers-{release}" / "Makefile"
        makefile.write_text(makefile.read_text().replace("/usr/src/", f"{root}/usr/src/"))
        run(["depmod", "-b", str(work), release], timeout_s=120.0)
    return GuestKernel(root, release)


@contextmanager
def _new_directory(path: Path) -> Iterator[Path]:
    """Yield an empty directory, which becomes `path` at the end of the block. After an error `path` does not exist."""
    work = path.with_name("unfinished")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    yield work
    work.rename(path)


_HERE = Path(__file__).parent
_ESWITCH = _HERE / "eswitch"
# What the guest needs for the host's files, and for the ports to the host.
_BOOT_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console")

# Programs that the guest has in its memory. Opening one and its libraries among the host's files is 20 to 90 requests
# of 9p: a third of what starting it costs.
_LOCAL = (
    *("ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl", "ovs-appctl", "ovs-ofctl", "ovs-dpctl"),
    *("ip", "tc", "ethtool", "devlink", "sh", "cat", "tee"),
)


def build_module(kernel: GuestKernel) -> Path:
    """Return `eswitch.ko`, built if its source has changed. Raises LabError with the compiler's message."""
    sources = sorted(file for file in _ESWITCH.iterdir() if file.suffix in (".c", ".h") or file.name == "Kbuild")
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    directory = cache_directory() / f"eswitch-{kernel.release}-{digest}"
    with _cache_lock():
        if not directory.exists():
            try:
                with _new_directory(directory) as work:
                    for source in sources:
                        shutil.copy(source, work)
                    run(["make", "-C", str(kernel.headers), f"M={work}", f"CC={COMPILER}", "modules"], timeout_s=300.0)
            except CommandFailed as error:
                message = error.stderr.strip()[-2000:]
                raise LabError(
                    f"the emulated NIC's kernel module does not build for {kernel.release}: {message}"
                ) from None
    return directory / "eswitch.ko"


def build_initrd(kernel: GuestKernel, directory: Path, *, start: str) -> Path:
    """Build a ram disk of busybox, a few modules, `guest/init.sh` and `_LOCAL`, as a newc archive in `directory`."""
    tree = directory / "initrd"
    for name in ("bin", "modules", "proc", "sys", "dev", "host", "top", "new"):
        (tree / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "/bin/busybox", tree / "bin" / "busybox")
    shutil.copy(_HERE / "guest" / "init.sh", tree / "init")
    (tree / "start").write_text(start)
    for script in ("init", "start"):
        (tree / script).chmod(0o755)
    # With their dependencies, in the order of loading.
    depends = ["modprobe", "--show-depends", "-d", str(kernel.root), "-S", kernel.release, "-a", *_BOOT_MODULES]
    lines = run(depends).stdout.splitlines()
    modules = list(dict.fromkeys(Path(line.split()[1]) for line in lines if line.startswith("insmod ")))
    for module in modules:
        shutil.copy(module, tree / "modules")
    (tree / "modules" / "order").write_text("".join(f"{module.name}\n" for module in modules))
    for file in _local_files():
        copy = tree / "upper" / file.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    # Each path of a library goes through /lib or /lib64, and 9p reads a link again each time.
    for link in filter(Path.is_symlink, Path("/").iterdir()):
        shutil.copy(link, tree / "upper", follow_symlinks=False)
    names = "".join(f"{path.relative_to(tree)}\n" for path in sorted(tree.rglob("*")))
    archive = directory / "initrd.cpio"
    run(["env", f"--chdir={tree}", "busybox", "cpio", "-o", "-H", "newc", "-F", str(archive)], stdin=names)
    shutil.rmtree(tree)
    return archive


def _local_files() -> set[Path]:
    """Return the files of the installed programs in `_LOCAL`, and of their libraries (ldd(1))."""
    programs = [path for path in map(shutil.which, _LOCAL) if path]
    # The status is 1 where one of them is a static program.
    libraries = re.findall(r"(/\S+) \(0x", try_run(["ldd", *programs]).stdout)
    # A directory of the scratch layer would hide a link to one, as /lib is.
    files = (Path(name) for name in (*programs, *libraries, "/etc/ld.so.cache"))
    return {file.parent.resolve() / file.name for file in files}


_MEMORY_MIB = 2048
_LAST_LINES = 30
_SOCKET_PATH_BYTES = 107  # unix(7), sun_path less the closing zero

# One processor: emulated ones spend half of their time waiting for each other.
# Enough for numpy (x86-64-v2), and without what QEMU emulates at length: AVX in every memcpy, page tables of 5 levels.
_CPU = "Nehalem"
# Kernel parameters (kernel-parameters.txt): no checks that an emulated processor pays for, no long waits of RCU.
_CHEAPER = "mitigations=off apparmor=0 audit=0 init_on_alloc=0 nowatchdog rcupdate.rcu_expedited=1"

# Its value in the environment of QEMU is the machine's directory: process ids are used again.
MACHINE_MARK = "XENOOVS_MACHINE"


@dataclass(frozen=True, slots=True)
class VirtualMachine:
    """A virtual machine. `directory` has its sockets, its process id and its console's output."""

    directory: Path

    @property
    def console(self) -> Path:
        """Return the file with the output of the guest's kernel and its first process."""
        return self.directory / "console.log"

    @property
    def pid(self) -> int | None:
        """Return the process id of QEMU; None if it does not run."""
        with suppress(FileNotFoundError, ValueError):
            pid = int((self.directory / "pid").read_text())
            if is_alive(pid) and environment_of(pid).get(MACHINE_MARK) == str(self.directory):
                return pid
        return None

    def socket(self, port: int) -> Path:
        return self.directory / f"{port}.sock"

    def last_words(self) -> str:
        """Return the last lines of the console, for a message."""
        try:
            lines = self.console.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        shown = [line for line in lines if line.strip()][-_LAST_LINES:]
        return "\n".join([f"its console ({self.console}) said last:", *shown]) if shown else "its console says nothing"

    def kill(self) -> None:
        if (pid := self.pid) is not None:
            kill_and_wait([pid])


def boot(
    kernel: GuestKernel, directory: Path, *, module: str, marks: Mapping[str, str] | None = None
) -> VirtualMachine:
    """Start a machine that uses this host's root, read-only under a scratch layer. It is still booting at the return.
    `directory`: for its sockets, process id and console; it must exist. `module`: the Python module that the guest runs
    once it has its root. Raises LabError if QEMU does not start."""
    machine = VirtualMachine(directory)
    if len(os.fsencode(machine.socket(0))) > _SOCKET_PATH_BYTES:
        raise LabError(f"{directory} is too long a name for sockets: choose a shorter one")
    initrd = build_initrd(kernel, directory, start=_start_program(module, kernel))
    try:
        run(_argv(machine, kernel, initrd), timeout_s=60.0, env={**(marks or {}), MACHINE_MARK: str(directory)})
    except CommandFailed as error:
        raise LabError(f"QEMU does not start: {error.stderr.strip() or error.stdout.strip()}") from None
    return machine


def _start_program(module: str, kernel: GuestKernel) -> str:
    """Return the program that runs a Python module with the interpreter and packages of this process."""
    # A new root has no environment: PATH for the tools of Open vSwitch, and the Python that runs now.
    package, own = Path(__file__).parents[3], str(Path(sys.executable).parent)
    # The library below numpy starts threads by default, which forks do not have.
    agent = [*PYTHON_MODULE, module, str(kernel.root)]
    return (
        "#!/bin/sh\n"
        f"export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{shlex.quote(own)}\n"
        f"export HOME=/root PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1 PYTHONPATH={shlex.quote(str(package))}\n"
        f"exec {shlex.join(agent)}\n"
    )


def _argv(machine: VirtualMachine, kernel: GuestKernel, initrd: Path) -> list[str]:
    here = machine.directory
    argv = ["qemu-system-x86_64", "-M", "q35", "-cpu", _CPU, "-smp", "1", "-m", str(_MEMORY_MIB), "-no-reboot"]
    # Always emulated: /dev/kvm exists on many machines where a guest then hangs in its first instructions.
    argv += ["-accel", "tcg,thread=multi", "-nodefaults", "-display", "none"]
    argv += ["-daemonize", "-pidfile", str(here / "pid"), "-serial", f"file:{machine.console}"]
    argv += ["-kernel", str(kernel.image), "-initrd", str(initrd)]
    argv += ["-append", f"console=ttyS0 quiet panic=-1 {_CHEAPER}"]
    argv += ["-virtfs", "local,path=/,mount_tag=host,readonly=on,security_model=none,multidevs=remap"]
    argv += ["-device", "virtio-serial-pci"]
    for port in range(PORTS):
        argv += ["-chardev", f"socket,id=port{port},path={machine.socket(port)},server=on,wait=off"]
        argv += ["-device", f"virtserialport,chardev=port{port},name={PORT_NAME}{port}"]
    return argv

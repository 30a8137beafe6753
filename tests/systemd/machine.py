"""A virtual machine of this host's files that systemd runs, with xenoovs in /opt/xenoovs as a user has it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.machines import SYSTEMD
from tests.systemd.install import DEPENDENCIES, Installed
from xenoovs.lab.nic.machine import VirtualMachine, boot, unpacked_kernel
from xenoovs.lab.nic.up import wait_until_ready

_REPOSITORY = Path(__file__).parents[2]

# Nothing of this host's own services: those of Debian's packages that basic.target wants, and the port to the host.
_UNITS: Mapping[str, str] = {
    "default.target": "[Unit]\nRequires=basic.target port.service\nAfter=basic.target\nAllowIsolate=yes\n",
    "port.service": f"""\
[Service]
WorkingDirectory={_REPOSITORY}
Environment=PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={_REPOSITORY} HOME=/root
ExecStart={sys.executable} -P -m tests.systemd.guest.port
Restart=always
""",
}

# Fresh, as after an installation: what this machine has of it is its own.
_START = """\
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
rm -rf /.dockerenv /etc/fstab /usr/local/bin/xenoovs /var/lib/openvswitch /var/lib/xenoovs /etc/xenoovs
mkdir -p /lib/modules /opt /etc/systemd/system /etc/tmpfiles.d /var/lib/openvswitch
ln -sf /dev/null /etc/tmpfiles.d/tmp.conf
echo 0123456789abcdef0123456789abcdef >/etc/machine-id
mount -t tmpfs tmpfs /etc/systemd/system
cp {units}/* /etc/systemd/system
mount --bind {modules} /lib/modules
mount --bind {opt} /opt
mount --bind {site_packages} {dependencies}
exec {systemd}
"""


@contextmanager
def booted(directory: Path, installed: Installed) -> Iterator[VirtualMachine]:
    """Boot a machine that runs commands until the end of the block. `directory` is empty."""
    kernel = unpacked_kernel()
    units = directory / "units"
    units.mkdir()
    for name, text in _UNITS.items():
        (units / name).write_text(text)
    places = {
        "units": units,
        "modules": kernel.root / "lib" / "modules",
        "opt": installed.opt,
        "site_packages": installed.site_packages,
        "dependencies": DEPENDENCIES,
        "systemd": SYSTEMD,
    }
    machine = boot(kernel, directory, start=_START.format_map({k: shlex.quote(str(v)) for k, v in places.items()}))
    try:
        wait_until_ready(machine, timeout_s=1800.0)
        yield machine
    finally:
        machine.kill()

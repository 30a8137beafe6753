"""Real sshds without a port: ssh starts one for each connection, in a namespace, as inetd does (sshd(8), -i)."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from xenoovs.switch.process import run


@dataclass(frozen=True, slots=True)
class SshdKeys:
    """Keys of a server and of its user, in `directory`."""

    directory: Path

    def command(self, namespace: str, *, env: Mapping[str, str] | None = None) -> str:
        """Return the command of a server in a namespace. `env`: of what runs there."""
        here = self.directory
        # Of several lines with SetEnv the first one counts.
        settings = f"SetEnv {' '.join(f'{name}={value}' for name, value in env.items())}\n" if env else ""
        config = here / f"{namespace}.{len([*here.glob('*.sshd_config')])}.sshd_config"
        config.write_text(
            f"HostKey {here}/host\nAuthorizedKeysFile {here}/authorized\nStrictModes no\nUsePAM no\n"
            f"PermitRootLogin prohibit-password\nPasswordAuthentication no\nPidFile none\n{settings}"
        )
        return f"ip netns exec {namespace} /usr/sbin/sshd -i -f {config}"

    def options(self, command: str) -> list[str]:
        """Return the options of ssh that connect it to a server."""
        user = pwd.getpwuid(os.getuid()).pw_name
        return [
            *("-F", "none", "-o", f"ProxyCommand={command}", "-i", str(self.directory / "user"), "-l", user),
            *("-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={self.directory}/known"),
            *("-o", "LogLevel=ERROR"),
        ]

    def program(self, commands: Mapping[str, str]) -> Path:
        """Return the directory of an `ssh` that knows these servers by name."""
        user = pwd.getpwuid(os.getuid()).pw_name
        hosts = "".join(f"Host {name}\n  ProxyCommand {command}\n" for name, command in commands.items())
        (self.directory / "ssh_config").write_text(
            f"{hosts}Host *\n  User {user}\n  IdentityFile {self.directory}/user\n  StrictHostKeyChecking no\n"
            f"  UserKnownHostsFile {self.directory}/known\n  LogLevel ERROR\n"
        )
        program = self.directory / "bin" / "ssh"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {self.directory}/ssh_config "$@"\n')
        program.chmod(0o755)
        return program.parent


def new_keys(directory: Path) -> SshdKeys:
    """Make the keys."""
    for name in ("host", "user"):
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)])
    (directory / "authorized").write_text((directory / "user.pub").read_text())
    (directory / "authorized").chmod(0o600)
    Path("/run/sshd").mkdir(exist_ok=True)
    return SshdKeys(directory)

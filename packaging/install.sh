#!/bin/sh
# Installs xenoovs from the wheels beside this file into /opt/xenoovs, without a network. Run it as root, again to upgrade.
#
#   install.sh              install or upgrade, with unit, man page and completion; PYTHON=... chooses the Python
#   install.sh --venv-only  the virtual environment alone (the deb has the other files)
#   install.sh --remove     remove all of it; config in /etc/xenoovs and state in /var/lib/xenoovs stay
#   install.sh --remove-venv  the virtual environment alone
set -eu
umask 022

here=$(cd "$(dirname "$0")" && pwd)
link=/opt/xenoovs

fail() { echo "install.sh: $1" >&2; exit 1; }

python() {
    for candidate in ${PYTHON:-} /usr/bin/python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3; do
        command -v "$candidate" >/dev/null || continue
        "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null || continue
        "$candidate" -c 'import ensurepip' 2>/dev/null || continue
        command -v "$candidate"
        return
    done
    fail "no Python 3.10 to 3.14 with the module venv; install python3 and python3-venv"
}

remove() {
    [ -L "$link" ] && rm -f "$link"
    rm -rf "$link"-[0-9]*
}

files="usr/bin/xenoovs usr/share/man/man1/xenoovs.1
       usr/lib/systemd/system/xenoovs-agent.service usr/lib/systemd/system/xenoovs-fleet-controller.service
       usr/lib/systemd/system/xenoovs-fleet-relay.service usr/lib/systemd/system/xenoovs-fleet-server@.service
       usr/share/bash-completion/completions/xenoovs usr/share/zsh/vendor-completions/_xenoovs
       usr/share/fish/vendor_completions.d/xenoovs.fish"

[ "$(id -u)" = 0 ] || fail "run it as root"
case "${1:-}" in
    --remove)
        remove
        for file in $files; do rm -f "/$file"; done
        exit 0
        ;;
    --remove-venv)
        remove
        exit 0
        ;;
    --venv-only | "") ;;
    *) fail "unknown option $1; there are --venv-only and --remove" ;;
esac

[ ! -e "$link" ] || [ -L "$link" ] || fail "$link is there and is no link: move it away"
version=$(cat "$here/VERSION")
target=$link-$version
interpreter=$(python)
# A new directory, and then one rename: commands that run meanwhile find all of the old version or all of the new one.
rm -rf "$target.new"
trap 'rm -rf "$target.new"' EXIT
"$interpreter" -m venv "$target.new"
"$target.new/bin/pip" --isolated install --quiet --disable-pip-version-check --no-index --no-cache-dir \
    --find-links "$here/wheels" "xenoovs==$version"
# For a fleet: the library of Debian's openvswitch-switch, once that is there. PyPI has no wheel of it.
for module in ovs sortedcontainers; do
    ln -s "/usr/lib/python3/dist-packages/$module" "$target.new"/lib/python3*/site-packages/
done
"$target.new/bin/python" -m pip uninstall --quiet --yes pip setuptools 2>/dev/null || :
# Scripts and pyvenv.cfg name the directory.
grep -rlI "$target.new" "$target.new/bin" "$target.new/pyvenv.cfg" | xargs sed -i "s|$target\.new|$target|g"
rm -rf "$target"
mv "$target.new" "$target"
ln -sfn "$target" "$link.new"
mv -T "$link.new" "$link"
for old in "$link"-[0-9]*; do
    [ "$old" = "$target" ] || rm -rf "$old"
done

if [ "${1:-}" = "" ]; then
    for file in $files; do
        mkdir -p "/$(dirname "$file")"
        rm -f "/$file"
        cp -P "$here/files/$file" "/$file"
    done
    mkdir -p /etc/xenoovs
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
        systemctl try-restart xenoovs-agent.service xenoovs-fleet-controller.service
    fi
fi

#!/bin/sh
# The first process of the machine, in namespaces of its own: makes this host's files its root, under a scratch layer,
# and becomes systemd. Arguments: an empty directory, a name for its control group, what /opt is, what is mounted in
# that on which directory, and systemd.
set -eu
here=$1 group=$2 opt=$3 site_packages=$4 dependencies=$5 systemd=$6

mount --make-rprivate /
mount -t tmpfs tmpfs "$here"
mkdir "$here/control" "$here/upper" "$here/work" "$here/root"
mount -t cgroup2 cgroup2 "$here/control"
mkdir "$here/control/$group"
echo 0 >"$here/control/$group/cgroup.procs"
mount -t overlay -o "lowerdir=/,upperdir=$here/upper,workdir=$here/work" overlay "$here/root"
cd "$here/root"

mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/net dev/pts dev/shm
for device in null zero full random urandom tty; do cp -a "/dev/$device" dev; done
mknod dev/net/tun c 10 200
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd

# Fresh, as after an installation: what this host has of it is its own, and so are its services and kernel modules.
rm -rf .dockerenv etc/fstab usr/local/bin/xenoovs var/lib/openvswitch var/lib/xenoovs etc/xenoovs etc/systemd/system
mkdir -p opt etc/systemd/system etc/tmpfiles.d var/lib/openvswitch
# systemd-tmpfiles(8) would empty /tmp, where the files of the test are.
ln -sf /dev/null etc/tmpfiles.d/tmp.conf
echo 0123456789abcdef0123456789abcdef >etc/machine-id
printf '[Unit]\nRequires=basic.target\nAfter=basic.target\nAllowIsolate=yes\n' >etc/systemd/system/default.target
for unit in sys-kernel-debug sys-kernel-tracing sys-fs-fuse-connections dev-hugepages; do
    ln -s /dev/null "etc/systemd/system/$unit.mount"
done
ln -sf /bin/true usr/sbin/modprobe
mount --bind "$opt" opt
mount --bind "$site_packages" "./$dependencies"

mkdir run/host
pivot_root . run/host
umount -l /run/host
# A unit sees what is mounted after its start, as on a host.
mount --make-rshared /
exec unshare --cgroup sh -c 'mount -t cgroup2 cgroup2 /sys/fs/cgroup
    exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        setpriv --bounding-set=-sys_module,-sys_rawio,-sys_time,-syslog "$0"' "$systemd"

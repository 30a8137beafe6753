#!/bin/busybox sh
# The first program in the virtual machine: make the host's files its root (read-only, with a scratch layer on top) and
# go on there with the start script of this machine.
bb=/bin/busybox
$bb mount -t proc proc /proc
$bb mount -t sysfs sysfs /sys
$bb mount -t devtmpfs devtmpfs /dev
while read -r module; do $bb insmod "/modules/$module"; done </modules/order
$bb mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 host /host
$bb mount -t tmpfs tmpfs /top
$bb mkdir /top/work
$bb cp -a /upper /top/upper
$bb mount -t overlay -o lowerdir=/host,upperdir=/top/upper,workdir=/top/work overlay /new
$bb mount -t tmpfs -o mode=755 tmpfs /new/run
$bb cp /start /new/run/start
for directory in proc sys dev; do $bb mount --move /$directory /new/$directory; done
exec $bb switch_root /new /run/start

#!/bin/busybox sh
# First stage: process 1 of the guest, in the initial RAM disk.
#
# Loads the modules, mounts the host's root directory read-only by 9p with a writable layer of memory over it, and hands
# over to guest.sh inside that tree. Everything printed here goes to the console log; a line that starts with
# "softroce: FAILED:" is shown by the host if the guest dies.

/bin/busybox mkdir -p /bin /dev /proc /sys /host /layer /new
/bin/busybox --install -s /bin
export PATH=/bin

fail() {
    echo "softroce: FAILED: $*" >/dev/console
    sleep 1
    poweroff -f
    sleep 60
}

mount -t devtmpfs devtmpfs /dev || fail "no devtmpfs in this kernel"
mount -t proc proc /proc
mount -t sysfs sysfs /sys

# The trial of an accelerator: the kernel has reached user space, which is all that the host checks.
if [ -n "$SOFTROCE_PROBE" ]; then
    echo "softroce: probe passed"
    poweroff -f
    sleep 60
fi

# One line a module, in load order: "required NAME" or "optional NAME" (not every CPU can run crc32-pclmul).
while read -r need name; do
    insmod "/modules/$name.ko" || [ "$need" = optional ] || fail "insmod $name"
done </modules.list
echo "softroce: the modules are loaded"

mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 host /host || fail "9p mount of the host's root"
mount -t tmpfs -o mode=0755 tmpfs /layer || fail "tmpfs"
mkdir /layer/data /layer/spare
mount -t overlay -o lowerdir=/host,upperdir=/layer/data,workdir=/layer/spare overlay /new || fail "overlay mount"

mount -t tmpfs -o mode=0755 tmpfs /new/run || fail "tmpfs on /run"
mkdir /new/run/softroce
cp /bin/busybox /guest.sh /new/run/softroce/
for kept in dev proc sys; do
    mount -o move "/$kept" "/new/$kept" || fail "moving /$kept"
done
echo "softroce: the host's files are mounted"
exec switch_root /new /run/softroce/busybox sh /run/softroce/guest.sh

# Starts systemd as the first process of separate namespaces, in the folder ROOT.
#   boot.sh ROOT GROUP HIERARCHY
# GROUP is an empty control group for its processes. HIERARCHY is the mount point of the group's
# hierarchy.
set -eu
echo $$ > "$2/cgroup.procs"
exec unshare --fork --pid --kill-child --mount --propagation private --uts --ipc --cgroup \
  sh -euc '
    root=$1 hierarchy=$2
    hostname clean-root
    mount --bind "$root" "$root"
    mount -t tmpfs -o mode=755 none "$root/run"
    mount -t tmpfs -o mode=1777 none "$root/tmp"
    # Kernel settings would affect the whole host, so they are read-only here.
    mount -t proc proc "$root/proc"
    mount --bind "$root/proc/sys" "$root/proc/sys"
    mount -o remount,bind,ro "$root/proc/sys"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount -t tmpfs -o mode=755 none "$root/dev"
    for device in null zero full random urandom tty; do
      touch "$root/dev/$device"
      mount --bind "/dev/$device" "$root/dev/$device"
    done
    # In Debian, every user may open this device. Some hosts do not allow that.
    mknod -m 666 "$root/dev/fuse" c 10 229
    if [ -e "$hierarchy/cgroup.controllers" ]; then
      mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    else
      mount -t tmpfs -o mode=755 none "$root/sys/fs/cgroup"
      mkdir "$root/sys/fs/cgroup/systemd"
      mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
      # If this were writable, systemd would mount the other hierarchies and make control groups in
      # the host's hierarchies.
      mount -o remount,ro "$root/sys/fs/cgroup"
    fi
    mkdir -p "$root/run/systemd/system"
    for unit in dev-hugepages dev-mqueue sys-kernel-debug sys-kernel-tracing sys-kernel-config \
      sys-fs-fuse-connections; do
      ln -s /dev/null "$root/run/systemd/system/$unit.mount"
    done
    cd "$root"
    mount -t tmpfs none mnt
    mkdir mnt/old
    pivot_root . mnt/old
    umount -l /mnt/old
    umount /mnt
    export container=fslab-test
    exec /lib/systemd/systemd --system --unit=basic.target --log-target=null --show-status=0
  ' boot "$1" "$3"

# Repeats by hand what `fslab compare` does, without fslab: makes the same file system on an image,
# mounts it, and runs fio or the calls. Runs in namespaces of its own, so that nothing remains.
#   by_hand.sh OUT JOB...
# xtask sets: place (a directory), image, make (the command that makes the file system, without the
# device), mount (the options of mount), direct (whether the loop device uses direct I/O), fslab,
# calls, files and reads (counts), seed, jobs (a directory), targets, with_calls.
set -eu
out=$1
shift

# Makes the file system and mounts it; sets `root`.
fresh() {
  $make "$device" > "$out/mkfs" 2>&1
  mkdir -p "$place/lower" "$place/mount"
  mount_again "$1"
}

# About as fslab does on a virtual machine with much free memory.
touch_memory() {
  if [ -n "$provider" ]; then "$calls" touch / 256; fi
}

mount_again() {
  mount -t ext4 -o "$mount" "$device" "$place/lower"
  root=$place/lower
  if [ "$1" = null ]; then
    "$fslab" mount -l null "$place/lower" "$place/mount"
    root=$place/mount
  fi
}

unmounted() {
  # Unlike umount(8) without a helper, this waits until the daemon has ended.
  if [ "$1" = null ]; then "$fslab" umount "$place/mount"; fi
  umount "$place/lower"
  blockdev --flushbufs "$device"
}

device=$(losetup --show --find --direct-io="$direct" "$image")
provider=
trap '[ -z "$provider" ] || kill "$provider" || :; losetup --detach "$device"' EXIT
if grep -q "^flags.* hypervisor" /proc/cpuinfo; then
  exec 3< <(exec "$calls" provide / 1536)
  provider=$!
  read -r _ <&3
fi
for target in $targets; do
  for job in "$@"; do
    sync
    fresh "$target"
    touch_memory
    (cd "$root" && fio --output-format=json --randseed="$seed" "$jobs/$job.fio") > "$out/$target.$job"
    unmounted "$target"
  done
done
if [ "$with_calls" = no ]; then exit; fi
sync
fresh ext4
touch_memory
"$calls" create "$root" "$files" > "$out/calls"
unmounted ext4
mount_again ext4
"$calls" stat "$root" "$files" >> "$out/calls"
"$calls" delete "$root" "$files" >> "$out/calls"
unmounted ext4
sync
fresh ext4
touch_memory
"$calls" write "$root" 256 >> "$out/calls"
unmounted ext4
mount_again ext4
"$calls" random "$root" "$reads" >> "$out/calls"
unmounted ext4

# Makes the kernel, the initial RAM disk with a minimal Debian, and the disk of a virtual machine:
#   make.sh ARCHIVE KERNEL PACKAGE SCRIPTS PLACE
# ARCHIVE is the minimal Debian, KERNEL a Debian package, PACKAGE a folder with the files of fslab's
# package, SCRIPTS the folder of the guest's scripts, and PLACE an empty folder for the results.
set -eu
archive=$1 kernel=$2 package=$3 scripts=$4 place=$5
root=$place/root
mkdir "$root" "$place/kernel" "$place/seed"
tar --numeric-owner -xf "$archive" -C "$root"
dpkg-deb -x "$kernel" "$place/kernel"
mv "$place"/kernel/boot/vmlinuz-* "$place/vmlinuz"

# Keep only the needed modules, because the initial RAM disk is unpacked in memory.
modules=$(echo "$place"/kernel/lib/modules/*)
version=${modules##*/}
cp -r "$modules" "$root/usr/lib/modules.all"
mkdir -p "$root/usr/lib/modules"
mv "$root/usr/lib/modules.all" "$root/usr/lib/modules/$version"
rm -rf "$place/kernel"
chroot "$root" depmod "$version"
for module in virtio_blk ext4; do
  echo "$module" >> "$root/etc/modules-load.d/trial.conf"
  chroot "$root" modprobe -S "$version" --show-depends "$module"
done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | sort -u > "$place/needed"
(cd "$root" && find "lib/modules/$version/kernel/" -type f) | sed 's|^|/|' | sort > "$place/all"
comm -13 "$place/needed" "$place/all" | sed "s|^|$root|" | xargs rm
chroot "$root" depmod "$version"

rm -rf "$package/DEBIAN"
cp -r "$package/." "$root/"
rm -rf "$root"/usr/share/doc/* "$root"/usr/share/locale/* "$root"/usr/share/man/* \
  "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
mkdir -p "$root/etc/fslab" "$root/usr/local/lib/trial"
cp "$scripts"/*.sh "$scripts"/*.pl "$root/usr/local/lib/trial/"
cp "$scripts"/*.service "$root/etc/systemd/system/"
cp "$scripts/fstab" "$root/etc/fstab"
for stack in zstd ext2; do cp "$scripts/$stack.conf" "$root/etc/fslab/"; done
echo vm > "$root/etc/hostname"
ln -s /usr/lib/systemd/systemd "$root/init"
for unit in trial image fslab@zstd fslab@ext2; do
  systemctl --quiet --root="$root" enable "$unit.service" 2> "$place/enable" \
    || { cat "$place/enable" >&2; exit 1; }
done
(cd "$root" && find . | cpio --quiet -o -H newc) > "$place/initrd"

for folder in null zstd ext2 low-null low-zstd; do mkdir "$place/seed/$folder"; done
head -c 1M /dev/urandom > "$place/seed/static"
"$root/usr/bin/fslab" ext2 mkfs "$place/seed/image" 128MiB > /dev/null
truncate -s 1G "$place/disk"
mkfs.ext4 -q -d "$place/seed" "$place/disk"
rm -rf "$root" "$place/seed"

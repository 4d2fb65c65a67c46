# Mounts again, so that no supervisor has counted a death yet, and starts the programs of work.pl on
# all mounts: start.sh GENERATION
set -eu
rm -f /run/trial/stop /run/trial/errors /run/trial/counts
systemctl restart fslab@zstd.service fslab@ext2.service
umount /srv/null
mount /srv/null
dmesg --clear
for stack in null zstd ext2; do
  cp /srv/static "/srv/$stack/static"
  sync -f "/srv/$stack"
  systemctl reset-failed "work-$stack.service" 2> /dev/null || true
  systemd-run --quiet --slice=work.slice --unit="work-$stack" \
    perl /usr/local/lib/trial/work.pl "$stack" "$1"
done

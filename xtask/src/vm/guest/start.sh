# Starts the programs of work.pl on all mounts: start.sh GENERATION
set -eu
rm -f /run/trial/stop /run/trial/errors /run/trial/counts
dmesg --clear
for stack in null zstd ext2; do
  cp /srv/static "/srv/$stack/static"
  sync -f "/srv/$stack"
  systemctl reset-failed "work-$stack.service" 2> /dev/null || true
  systemd-run --quiet --slice=work.slice --unit="work-$stack" \
    perl /usr/local/lib/trial/work.pl "$stack" "$1"
done

# Ends the programs of work.pl, checks their files, and prints the counts of their operations:
#   stop.sh GENERATION
# Then kills each daemon once. The mounts allow one death, so they fail if another was counted.
set -eu
: > /run/trial/stop
for stack in null zstd ext2; do
  while systemctl is-active --quiet "work-$stack.service"; do sleep 0.2; done
done
if [ -s /run/trial/errors ]; then
  cat /run/trial/errors
  exit 1
fi
[ "$(wc -l < /run/trial/counts)" = 9 ] || { echo "a program has ended early"; exit 1; }
written() { awk -v stack="$1" -v role="$2" '$2 == stack && $3 == role { print $4 }' /run/trial/counts; }
for stack in null zstd ext2; do
  perl /usr/local/lib/trial/check.pl "$stack" "$1" "$(written $stack append)" \
    "$(written $stack names)" exact
done
if dmesg | grep -E 'blocked for more than|BUG|WARNING'; then exit 1; fi
for stack in null zstd ext2; do
  sh /usr/local/lib/trial/daemons.sh | awk -v stack="$stack" '$1 == stack { print $3 }' \
    | xargs kill -9
  cmp /srv/static "/srv/$stack/static"
done
cat /run/trial/counts

# Suspends once and prints `slept`, or `aborted` if the kernel could not freeze all processes:
#   suspend.sh STATE [freeze]
# With `freeze`, the programs are frozen before the kernel freezes all processes.
set -eu
stats=/sys/power/suspend_stats
group=/sys/fs/cgroup/work.slice
count() { cat "$stats/$1"; }
# A key press ends suspend to idle.
echo enabled > /sys/devices/platform/i8042/serio0/power/wakeup
# The default of 20 s would only take longer.
echo 2000 > /sys/power/pm_freeze_timeout
if [ "${2-}" = freeze ]; then
  echo 1 > "$group/cgroup.freeze"
  until grep -q 'frozen 1' "$group/cgroup.events"; do sleep 0.1; done
fi
slept=$(count success) aborted=$(count failed_freeze)
echo "$1" > /sys/power/state 2> /dev/null || true
echo 0 > "$group/cgroup.freeze"
if [ "$(count success)" -gt "$slept" ]; then
  echo slept
elif [ "$(count failed_freeze)" -gt "$aborted" ]; then
  echo aborted
else
  echo "suspend failed in the step $(cat $stats/last_failed_step)"
  exit 1
fi

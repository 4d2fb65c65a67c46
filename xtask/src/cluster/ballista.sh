# The role of a node of Ballista: the scheduler on the controller, an executor on each other node.
# xtask sets `programs` (the directory of Ballista), `pool` (bytes an executor may use for joins and
# sorts) and `groups` (a directory with a control group for each executor).
if [ "$name" = ctl ]; then
  "$programs/ballista-scheduler" --bind-host "$address" --external-host "$address" \
    --executor-timeout-seconds 30 &
else
  echo 0 > "$groups-$name/cgroup.procs"
  mkdir -p "$state/$name/work" "$state/$name/tmp"
  export TMPDIR="$state/$name/tmp"
  "$programs/ballista-executor" --scheduler-host 10.217.0.1 --bind-host "$address" \
    --external-host "$address" --scheduler-connect-timeout-seconds 60 --vcores 1 \
    --executor-heartbeat-interval-seconds 5 --memory-pool-size "$pool" \
    --work-dir "$state/$name/work" &
fi

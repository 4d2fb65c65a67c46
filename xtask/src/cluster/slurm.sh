# The role of a node of Slurm.
# Each node has its own munge socket and key, mounted at the path in the configuration that all
# nodes share.
mount --bind "$state/$name/munge" "$state/munge"
munged --foreground --force --socket="$state/munge/socket" --key-file="$state/$name/munge.key" \
  --log-file="$state/$name/munged.log" --pid-file="$state/$name/munged.pid" \
  --seed-file="$state/$name/munged.seed" &
until [ -S "$state/munge/socket" ]; do sleep 0.1; done
export SLURM_CONF="$state/slurm.conf"
if [ "$name" = ctl ]; then
  slurmctld -D -i &
else
  slurmd -D -N "$name" &
fi

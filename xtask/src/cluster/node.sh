# The first process of a node, in namespaces of its own: sets the node up, and runs its daemons.
# When it ends, the kernel ends everything else of the node.
#   node.sh STATE NAME ADDRESS
set -eu
state=$1 name=$2 address=$3
hostname "$name"
ip link set lo up
# munge has a socket and a key of its own, where the configuration that all nodes share looks.
mount --bind "$state/$name/munge" "$state/munge"
munged --foreground --force --socket="$state/munge/socket" --key-file="$state/$name/munge.key" \
  --log-file="$state/$name/munged.log" --pid-file="$state/$name/munged.pid" \
  --seed-file="$state/$name/munged.seed" &
until [ -S "$state/munge/socket" ]; do sleep 0.1; done
export SLURM_CONF="$state/slurm.conf"
if [ "$name" = ctl ]; then
  ip link add switch type bridge
  ip address add "$address/24" dev switch
  ip link set switch up
  slurmctld -D -i &
else
  # The other end of the cable comes from outside.
  until ip link show eth0 >/dev/null 2>&1; do sleep 0.1; done
  ip address add "$address/24" dev eth0
  ip link set eth0 up
  slurmd -D -N "$name" &
fi
wait

# The first process of a node, in namespaces of its own. It sets up the node and runs its daemons.
# When it exits, the kernel kills all other processes of the node.
#   node.sh STATE NAME ADDRESS
set -eu
state=$1 name=$2 address=$3
hostname "$name"
ip link set lo up
# Each node has its own munge socket and key, mounted at the path in the configuration that all
# nodes share.
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
  # xtask creates eth0 from outside, as one end of a virtual cable.
  until ip link show eth0 >/dev/null 2>&1; do sleep 0.1; done
  ip address add "$address/24" dev eth0
  ip link set eth0 up
  slurmd -D -N "$name" &
fi
wait

# The first process of a node, in namespaces of its own. It sets up the node's network and runs the
# commands of its role. When it exits, the kernel kills all other processes of the node.
#   node.sh STATE NAME ADDRESS
set -eu
state=$1 name=$2 address=$3
hostname "$name"
ip link set lo up
if [ "$name" = ctl ]; then
  ip link add switch type bridge
  ip address add "$address/24" dev switch
  ip link set switch up
else
  # xtask creates eth0 from outside, as one end of a virtual cable.
  until ip link show eth0 >/dev/null 2>&1; do sleep 0.1; done
  ip address add "$address/24" dev eth0
  ip link set eth0 up
fi
. "$state/role.sh"
wait

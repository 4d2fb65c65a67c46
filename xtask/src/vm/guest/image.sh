# Checks the ext2 image before it is mounted, repairs it, and checks it again.
mkdir -p /run/trial
check() { e2fsck -f "$1" /srv/image > "/run/trial/image$1" 2>&1; echo $?; }
before=$(check -n)
[ "$before" = 0 ] || check -y > /dev/null
echo "$before $(check -n)" > /run/trial/image

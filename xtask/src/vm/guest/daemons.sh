# Prints the supervisor and the daemon of each mount.
for stack in null zstd ext2; do
  supervisor=$(pgrep -o -f "^/usr/bin/fslab mount .*/srv/$stack( |\$)")
  echo "$stack $supervisor $(pgrep -P "$supervisor")"
done

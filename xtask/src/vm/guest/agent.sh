# Runs the commands that arrive on the second serial port. Prints their output and their exit codes
# there. The third serial port receives the acknowledgements of programs.
stty raw -echo < /dev/ttyS1
stty raw -echo < /dev/ttyS2
exec < /dev/ttyS1 > /dev/ttyS1 2>&1
mkdir -p /run/trial
echo "== ready"
while read -r line; do
  sh -c "$line" < /dev/null
  echo "== $?"
done

# Three programs that use a mount until the file /run/trial/stop exists:
#   work.pl STACK GENERATION
# One appends lines, one replaces a file under its name, and one reads. After each successful fsync,
# a line with the stack, the program and a number goes to the third serial port. An error is
# written to /run/trial/errors, and ends the program.
use strict;
use warnings;
use Fcntl;
use IO::Handle;

my ($stack, $generation) = @ARGV;
my $point = "/srv/$stack";
my $role;
open(my $port, ">", "/dev/ttyS2") or die "/dev/ttyS2: $!";

# The file that is only read, and the size of one read in bytes.
my $STATIC = "/srv/static";
my $PIECE = 65536;
# Arguments of posix_fadvise(2) on x86-64: its number, and the advice that drops cached pages.
my ($FADVISE, $DONTNEED) = (221, 4);

sub fail {
    my $text = "$stack $role: $_[0]: $!\n";
    open(my $errors, ">>", "/run/trial/errors") or die;
    print $errors $text;
    close($errors);
    exit 1;
}

sub acknowledge {
    my ($number) = @_;
    syswrite($port, "$generation $stack $role $number\n") or fail("write to the port");
}

sub write_all {
    my ($file, $text) = @_;
    my $written = syswrite($file, $text);
    fail("write") unless defined $written;
    fail("short write of $written bytes") unless $written == length $text;
}

sub append {
    my ($number) = @_;
    our $log;
    if (!$log) {
        my $flags = O_WRONLY | O_APPEND | O_CREAT;
        sysopen($log, "$point/append.$generation", $flags) or fail("create");
    }
    write_all($log, sprintf("%08d\n", $number));
    return if $number % 8;
    $log->sync or fail("fsync");
    acknowledge($number);
}

sub names {
    my ($number) = @_;
    my $flags = O_WRONLY | O_CREAT | O_EXCL;
    sysopen(my $file, "$point/new.$generation", $flags) or fail("create");
    write_all($file, sprintf("%08d\n", $number) x 500);
    $file->sync or fail("fsync");
    close($file) or fail("close");
    rename("$point/new.$generation", "$point/names.$generation") or fail("rename");
    sysopen(my $folder, $point, O_RDONLY | O_DIRECTORY) or fail("open the directory");
    $folder->sync or fail("fsync of the directory");
    acknowledge($number);
    mkdir("$point/folder.$generation") or fail("mkdir");
    rmdir("$point/folder.$generation") or fail("rmdir");
}

sub reads {
    our $expected;
    if (!$expected) {
        open(my $plain, "<:raw", $STATIC) or fail("open the original");
        local $/;
        $expected = <$plain>;
    }
    sysopen(my $file, "$point/static", O_RDONLY) or fail("open");
    syscall($FADVISE, fileno($file), 0, 0, $DONTNEED) == 0 or fail("fadvise");
    my ($found, $got) = ("", 1);
    while ($got) {
        $got = sysread($file, $found, $PIECE, length $found);
        fail("read") unless defined $got;
    }
    fail("the content differs") unless $found eq $expected;
}

my %roles = (append => \&append, names => \&names, reads => \&reads);
my @children;
for my $name (sort keys %roles) {
    my $child = fork;
    die "fork: $!" unless defined $child;
    if ($child) {
        push @children, $child;
        next;
    }
    $role = $name;
    my $number = 0;
    $roles{$role}->(++$number) until -e "/run/trial/stop";
    open(my $counts, ">>", "/run/trial/counts") or die;
    syswrite($counts, "$generation $stack $role $number\n");
    exit 0;
}
my $failed = 0;
for my $child (@children) {
    waitpid($child, 0);
    $failed = 1 if $?;
}
exit $failed;

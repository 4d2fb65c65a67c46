# Checks the files of the programs of work.pl:
#   check.pl STACK GENERATION APPENDED NAMED [exact]
# The two numbers are the last acknowledged ones. With `exact`, they are the last written ones.
use strict;
use warnings;

my ($stack, $generation, $appended, $named, $exact) = @ARGV;
my $point = "/srv/$stack";

sub content {
    my ($path) = @_;
    open(my $file, "<:raw", $path) or die "$path: $!\n";
    local $/;
    my $text = <$file>;
    return defined $text ? $text : "";
}

sub count {
    my ($what, $found, $expected) = @_;
    my $is_good = $exact ? $found == $expected : $found >= $expected;
    die "$stack: $what $found, expected $expected\n" unless $is_good;
}

if ($appended || $exact) {
    my @lines = split(/\n/, content("$point/append.$generation"));
    my $whole = 0;
    for my $line (@lines) {
        last unless $line eq sprintf("%08d", $whole + 1);
        $whole++;
    }
    count("lines", $whole, $appended);
    die "$stack: damaged line after $whole\n" if $exact && $whole != @lines;
}
if ($named || $exact) {
    my $text = content("$point/names.$generation");
    my ($number) = $text =~ /^(\d{8})\n/ or die "$stack: names.$generation is damaged\n";
    die "$stack: names.$generation is mixed\n" unless $text eq "$number\n" x 500;
    count("replacements", $number, $named);
}
die "$stack: static differs\n" unless content("$point/static") eq content("/srv/static");

# When a checkpoint is due (tenure_test.c), under AddressSanitizer.
#
# once: no server is started

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use File::Temp qw(tempdir);
use Sanitizers;
use Test::More;

my $dir = tempdir('dlXXXXXX', TMPDIR => 1, CLEANUP => 1);
my $flags = '-fsanitize=address,undefined -fno-sanitize-recover=all';
Sanitizers::need($dir, $flags);
system("cc -std=gnu11 -O1 -g -fno-omit-frame-pointer -Wall -Wextra -Werror $flags"
	  . " -Icore -Imysql_udf -o $dir/tenure_test t/mysql/tenure_test.c -lcmocka") == 0
  or die "could not build tenure_test.c\n";
my $said = `$dir/tenure_test 2>&1`;
is($?, 0, 'checkpoints are due when they are to be') or diag($said);
like($said, qr/^ok 6 /m, 'all cases were tried');
note($said);
done_testing();

# For a name that many hold, a request's outcome depends only on the leases that the
# engine gives to the core: random requests are decided by these and by all leases
# (name_model.c), under AddressSanitizer.  NAME_SEED repeats a
# run.
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
my $seed = $ENV{NAME_SEED} // int rand 2**31;
system("cc -std=gnu11 -O1 -g -fno-omit-frame-pointer -Wall -Wextra -Werror -Wno-unused-parameter $flags"
	  . " -Icore -Imysql_udf -o $dir/model t/mysql/name_model.c mysql_udf/image_*.c mysql_udf/array.c mysql_udf/hash.c mysql_udf/heap.c core/lease.c") == 0
  or die "could not build name_model.c\n";
my $said = `$dir/model $seed 120000 2>&1`;
is($?, 0, 'the same is decided') or diag("NAME_SEED=$seed $said");
like($said, qr/changes [1-9]\d{4,}, refusals [1-9]\d{3,}, at most [1-9]\d/, 'and much is changed and refused');
note($said);
done_testing();

# The image of the engine of the log: state.c and a naive model (state_model.c) get the
# same random changes, and appends that succeed or fail, under AddressSanitizer.
# STATE_SEED repeats a run.
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
my $seed = $ENV{STATE_SEED} // int rand 2**31;
chomp(my $include = `mariadb_config --include || mysql_config --include`);
system("cc -std=gnu11 -O1 -g -fno-omit-frame-pointer -Wall -Wextra -Wno-unused-parameter -Werror $flags"
	  . " -Icore -Imysql_udf -Imysql_udf/engine $include -o $dir/model t/mysql/state_model.c"
	  . " mysql_udf/image_accounts.c mysql_udf/array.c mysql_udf/hash.c mysql_udf/heap.c core/lease.c") == 0
  or die "could not build state_model.c\n";
my $said = `$dir/model $seed 6000 2>&1`;
is($?, 0, 'the image is what was changed, and what looks see is durable') or diag("STATE_SEED=$seed $said");
like($said, qr/^[1-9]\d+ failures, [1-9]\d* found, [1-9]\d+ releases answered, [1-9]\d+ times/, 'also after appends that failed');
done_testing();

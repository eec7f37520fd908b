# The library's image of the lock table agrees with table and journal: image.c and a
# naive model (image_model.c) get the same random changes, under AddressSanitizer,
# with a limit of few known leases, and of none.  IMAGE_SEED
# repeats a run.
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
my $seed = $ENV{IMAGE_SEED} // int rand 2**31;
# a small filter: that of the library takes more time to make than all the rest, and here
# names share counters too
for my $most (20, 100000)
{
	system("cc -std=gnu11 -O1 -g -fno-omit-frame-pointer -Wall -Wextra -Werror $flags -DIMAGE_LEASES_MAX=$most -DFILTER_SIZE=4096"
		  . " -Icore -Imysql_udf -o $dir/model$most t/mysql/image_model.c mysql_udf/image_*.c mysql_udf/array.c mysql_udf/hash.c mysql_udf/heap.c core/lease.c") == 0
	  or die "could not build image_model.c\n";
	my $said = `$dir/model$most $seed 50000 2>&1`;
	is($?, 0, "at most $most leases: all that is known is so") or diag("IMAGE_SEED=$seed $said");
	like($said, qr/^known [1-9]\d+ of/, 'and much is known');
	like($said, qr/; [1-9]\d* guards pin more/, 'guards outlive changes of their leases');
	like($said, qr/; [1-9]\d* rows left/, 'leases leave locked rows behind');
	like($said, qr/by the filter [1-9]/, 'some of it by the filter') if $most == 20;
}
done_testing();

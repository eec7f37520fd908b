# Rows of the log: what is written is read, whatever is read is checked, and all readers get
# the same (log_model.c, under AddressSanitizer); bytes from libFuzzer (log_fuzz.c), where
# clang can do that.  LOG_SEED repeats a run of the model, LOG_FUZZ_SECONDS says how long
# the fuzzer runs.
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
my $code = '-std=gnu11 -O1 -g -fno-omit-frame-pointer -Wall -Wextra -Werror -Icore -Imysql_udf/log $(mariadb_config --include)';
Sanitizers::need($dir, $flags);
my $seed = $ENV{LOG_SEED} // int rand 2**31;
system("cc $code $flags -o $dir/model t/mysql/log_model.c mysql_udf/log/encode.c") == 0
  or die "could not build log_model.c\n";
my $said = `$dir/model $seed 8000 mysql_udf/engine/install.sql 2>&1`;
is($?, 0, 'what is written is read') or diag("LOG_SEED=$seed $said");
note($said);
like($said, qr/^[1-9]\d* rows, [1-9]\d* deleted; [1-9]\d* conflicts; carried in [1-9]/, 'by several writers');
like($said, qr/ [1-9]\d* batches of several rows; [1-9]\d* loads; passed over [1-9]/, 'and loaders');

is(system("cc $code -fsyntax-only t/mysql/log_fuzz.c"), 0, 'the fuzzer compiles');
my $seconds = $ENV{LOG_FUZZ_SECONDS} // 5;
SKIP:
{
	my $why = `clang $code $flags -fsanitize=fuzzer -o $dir/fuzz t/mysql/log_fuzz.c 2>&1`;
	skip('clang does not build fuzzers here: ' . ($why =~ s/\n/ /gr), 1) if $? != 0;
	mkdir "$dir/corpus" or die "could not make $dir/corpus: $!\n";
	my $found = `$dir/fuzz -max_total_time=$seconds -max_len=1024 -artifact_prefix=$dir/ $dir/corpus 2>&1`;
	is($?, 0, 'no bytes break the reader') or diag($found);
}
done_testing();

# A server whose init_file calls dlock, before anybody can connect, the library's own
# connection included: it starts, whatever the calls wait for.  The kind of server is the
# argument.  Only the engine of the log is tested so.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

plan skip_all => 'of the engine of the log' if ($ENV{STORE} // '') ne 'log';

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
my $admin = $engine->control;
my $client = $engine->client('client');
like($client->value(q{SELECT dlock_acquire('held', 'me', 3600)}), qr/^\d+$/, 'a lease');
$client->quit;
$engine->end_control;
$engine->halt;
my $file = "$engine->{dir}/init.sql";
open(my $out, '>', $file) or die "$file: $!\n";
print $out "SELECT dlock_acquire('held', 'init', 60, -1);\nSELECT dlock_wait('held', -1);\nSELECT dlock_acquire('free', 'init', 60, -1);\n";
close($out);
push @{ $engine->{options} }, "--init-file=$file";
$engine->boot;
pass('a server starts, whose init_file waits for a lease without limit');
ok(Scenarios::Run::until(sub { ($engine->control->query(q{SELECT dlock_acquire('later', 'me', 60)})->{rows}[0][0] // '') =~ /^\d+$/ }), 'and leases are granted');
$engine->stop;
done_testing();

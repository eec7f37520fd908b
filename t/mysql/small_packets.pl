# A server that takes only small packets: the library writes in as many statements as
# needed, into the journal or, where there is none, directly into the lock table.  The
# kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

my ($kind) = @ARGV;
my $engine = Engines::start($kind, '--max-allowed-packet=1024');
my $session = $engine->client('session');
my @names = map { "name $_" } 10 .. 29;
my $list = join(',', map { qq{"$_"} } @names);

sub call { return $session->outcome("SELECT $_[0]") // 'NULL' }

for my $way ($engine->has_log ? 'by the log' : ('by the journal', 'at once'))
{
	# so the library finds no journal that it may append to
	$engine->control->value('RENAME TABLE dlock.journal_head TO dlock.closed_journal_head') if $way eq 'at once';
	Scenarios::Run::until(sub { call(q{dlock_acquire('first', 'a', 600)}) =~ /^\d+$/ }) or die "nothing is granted $way\n";
	my $tokens = call(qq{dlock_acquire_all('[$list]', 'a', 600)});
	is(scalar($engine->list($tokens)), 20, "$way: all at once");
	is(call(q{count(*) FROM dlock.locks WHERE owner = 'a'}), 21, "$way: they are there");
	is(call(q{dlock_renew_all('a', 900)}), 21, "$way: renewed");
	is(scalar($engine->list(call(qq{dlock_release_many('[$list]', 'a')}))), 20, "$way: released");
	is(() = call(qq{dlock_acquire_any('[$list]', 'b', 600, 20)}) =~ /"token"/g, 20, "$way: any of them");
	is(call(q{dlock_release_all('b')}), 20, "$way: all dropped");
	is(call(q{dlock_release('first', 'a')}), 1, "$way: the first, too");
	ok(Scenarios::Run::until(sub { $engine->is_written && $engine->control->value('SELECT count(*) FROM dlock.lease_table') == 0 }),
		"$way: nothing is left");
}
$session->quit;
$engine->stop;
done_testing();

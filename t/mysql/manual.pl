# Every SQL example of doc/mysql.md, in its order and in one session, an
# administrator's: it answers what the manual says.  t/Manual.pm says how it says
# that.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Manual;
use Scenarios;
use Test::More;

my $path = 'doc/mysql.md';
my @statements = Manual::read_file($path);
cmp_ok(scalar(@statements), '>', 50, 'the manual has examples');

my $engine = Engines::start(@ARGV);
my $session = $engine->client('admin');
for my $statement (@statements)
{
	my $name = "$path, line $statement->{line}";
	my $answer = $session->query($statement->{sql} =~ s/;\s*$//r);
	my $is = defined $answer->{error} ? 'ERROR ' . $answer->{error} =~ s/ .*//r : $answer->{rows}[0][0] // '';

	if (defined $statement->{expected})
	{
		is(Manual::alike($is), Manual::alike($statement->{expected}), $name) or diag($answer->{message} // ());
	}
	else
	{
		unlike($is, qr/^ERROR/, "$name: no error") or diag($answer->{message});
	}
}
is($session->value(q{SELECT group_concat(name) FROM dlock.locks}), 'NULL', 'and what it takes it gives back');
$session->quit;
$engine->stop;
done_testing();

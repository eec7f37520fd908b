# InTime.pm: a client is answered within a time, whatever else the server cannot do.

package InTime;

use strict;
use warnings;

use Exporter qw(import);
use Test::More;
use Time::HiRes qw(time);

our @EXPORT = qw(answers);

# Run a client's SELECTs, given without that word: the answer of each within so many
# seconds.
sub answers
{
	my ($client, $what, $seconds, @statements) = @_;
	while (my ($sql, $wanted) = splice(@statements, 0, 2))
	{
		my $before = time;
		my $got = $client->outcome("SELECT $sql") // '';
		my $took = time - $before;
		ref $wanted ? like($got, $wanted, "$what: $sql") : is($got, $wanted, "$what: $sql");
		cmp_ok($took, '<', $seconds, "$what: $sql: in time");
	}
	return;
}

1;

# InTime.pm: what a client asks is answered within a time, whatever the server is kept from.

package InTime;

use strict;
use warnings;

use Exporter qw(import);
use Test::More;
use Time::HiRes qw(time);

our @EXPORT = qw(answers);

# A client's SELECTs, without that word, and what each is answered within so many seconds.
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

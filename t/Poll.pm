# Poll.pm: ask again and again, until something has come true.

package Poll;

use strict;
use warnings;

use Time::HiRes qw(time usleep);

# Call something until it returns true, for so many seconds; false if it never does.  What
# comes late is asked for less often: a question may be costly, and asking all the time
# keeps a busy machine from getting there.
sub until
{
	my ($seconds, $check) = @_;
	my $began = time;
	while (1)
	{
		return 1 if $check->();
		my $waited = time - $began;
		return 0 if $waited > $seconds;
		usleep(1e6 * _pause_after($waited));
	}
}

# How long to wait before the next question, after asking in vain for so long.
sub _pause_after
{
	my ($waited) = @_;
	return 0.0002 if $waited < 0.001;
	return $waited / 5 if $waited < 0.015;
	return $waited < 0.06 ? 0.003 : $waited < 1 ? $waited / 20 : 0.05;
}

1;

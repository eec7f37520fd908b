# LogRows.pm: rows of dlock.log as another run of the library would have written them, and
# what their headers say.  encode.c has the format.
#
#   my $last = LogRows::last_of($engine);      # number, writer, before, counter, from
#   LogRows::append($engine, counter => $tokens);

package LogRows;

use strict;
use warnings;

# the sum over a row, as in encode.c
sub _sum
{
	my ($number, $writer, $data) = @_;
	my $sum = 5 + length $data;

	for my $word ($number, $writer, unpack('Q<*', $data . "\0" x (-length($data) % 8)), length($data) % 8 ? () : 0)
	{
		$sum ^= $word;
		{
			use integer;
			$sum *= -7046029254386353131;    # 0x9e3779b97f4a7c15
		}
		$sum = unpack('Q', pack('q', $sum));
		$sum ^= $sum >> 29;
	}
	return ($sum ^ $sum >> 32) & 0xffffffff;
}

sub last_of
{
	my ($engine) = @_;
	my ($number, $writer, $hex) = @{ $engine->control->query(
		'SELECT number, writer, HEX(entries) FROM dlock.log ORDER BY number DESC LIMIT 1')->{rows}[0] };
	my (undef, undef, $before, $counter, $from) = unpack('C V Q< Q< Q<', pack('H*', $hex));
	return { number => $number, writer => $writer, before => $before, counter => $counter, from => $from };
}

# A row without entries, of run 1; "skip" says how many numbers are left out before it.
sub append
{
	my ($engine, %header) = @_;
	my $last = last_of($engine);
	my $number = $last->{number} + 1 + ($header{skip} // 0);
	my $data = pack('Q< Q< Q< Q<', $last->{writer}, $header{counter} // $last->{counter}, $last->{from}, 1e6 * time);
	my $row = unpack('H*', pack('C V', 1, _sum($number, 1, $data)) . $data);
	$engine->control->value("INSERT INTO dlock.log VALUES ($number, 1, x'$row')");
	return $number;
}

1;

# dlock log: what is held, from the table of a server and from dumps of it, also where the
# library is not.  The kind of server is the argument; see CommandCases.pm.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use CommandCases;
use JSON::PP;
use Test::More;

my $kind = $ARGV[0];
plan skip_all => 'of the engine of the log' if $kind eq 'postgres' || ($ENV{STORE} // '') ne 'log';

start_server($kind);
my $engine = engine();
my $dump_program = readlink("$engine->{dir}/mysql") . 'dump';
$dump_program =~ s{mariadbdump$}{mariadb-dump};

sub dump_to
{
	my ($file, @options) = @_;
	push @options, '--set-gtid-purged=OFF' if $kind eq 'mysql';
	system("$dump_program --defaults-file=$engine->{dir}/client.cnf --user=root @options >$file 2>$file.err") == 0
	  or die "could not dump\n" . `cat $file.err`;
	return $file;
}

# What it says, as "name owner mode kind version token leaving account" of each lease; or what is wrong.
sub said
{
	my @arguments = @_;
	my $run = launch('log', '--json', '--url', url(undef, 'root'), @arguments);
	my $status = finish($run);
	return "$status " . errors($run) if $status ne '0';
	return [ map { join(' ', @$_{qw(name owner mode kind version token)}, $_->{leaving} ? 'leaving' : 'held', $_->{account}) }
		@{ decode_json(output($run)) } ];
}

query('CREATE DATABASE other');
query('CREATE TABLE other.log (number BIGINT, writer BIGINT, entries VARBINARY(100))');
query(q{INSERT INTO other.log VALUES (7, 7, 'not a row of ours; INSERT INTO `log` VALUES (1)')});
my %token;
$token{$_} = query("SELECT dlock_acquire('$_', 'own', 600)") for "it''s; -- a \\\\name", 'gone', 'later', 'plain';
query(q{SELECT dlock_acquire('plain', 'own', 600)});
$token{"shared$_"} = query("SELECT dlock_acquire_shared('shared', 'o$_', 600)") for 1, 2;
query(q{SELECT dlock_renew_all('own', 3600)});
query(q{SELECT dlock_release('gone', 'own')});
query(q{SELECT dlock_release_after('later', 'own', 600)});
query(q{SELECT dlock_settle()});
my @wanted = map { "$_ root\@localhost" } (
	q{it's; -- a \\name own exclusive plain 1 } . $token{"it''s; -- a \\\\name"} . ' held', "later own exclusive plain 1 $token{later} leaving",
	"plain own exclusive plain 2 $token{plain} held", "shared o1 shared plain 1 $token{shared1} held", "shared o2 shared plain 1 $token{shared2} held");

is_deeply(said(), \@wanted, 'from the server');
my $all = dump_to(scratch('all'), '--all-databases');
is_deeply(said($all), \@wanted, 'from a dump of everything');
is_deeply(said(dump_to(scratch('hex'), '--hex-blob', '--complete-insert', 'dlock', 'log')), \@wanted, 'from one of the table, in hexadecimal digits');
is_deeply(said(dump_to(scratch('each'), '--skip-extended-insert', '--databases', 'dlock')), \@wanted, 'from one of the database, a statement for each row');
like(`@{[dlock()]} log - <$all`, qr/^NAME +OWNER +MODE +KIND +HOLDS +TOKEN +TTL +EXPIRES +ACCOUNT\nit's; -- a \\\\name +own.*\nlater +own +exclusive +leaving /, 'a table for people, from standard input');

# Without the library: the same server, started without it.
$engine->end_control;
$engine->halt;
rename "$engine->{dir}/plugins/dlock.so", "$engine->{dir}/plugins/away" or die "could not rename the library: $!\n";
$engine->boot;
is_deeply(said(), \@wanted, 'from a server without the library');

# What is not whole is an error.
open(my $file, '<:raw', scratch('hex')) or die "$!\n";
my $text = do { local $/; <$file> };
close($file);
for my $case (
	[ 'no rows', qr/has no rows here/, sub { $_[0] =~ s/^INSERT.*$//mr } ],
	[ 'the first rows', qr/rows 2 to 3 of dlock\.log are missing/, sub { $_[0] =~ s/\(1,.*?\),\s*\(2,.*?\),\s*\(3,.*?\),//sr } ],
	[ 'a row in the middle', qr/row 3 of dlock\.log is missing/, sub { $_[0] =~ s/\(3,\d+,0x\w+\),//r } ],
	[ 'a byte', qr/row 3 of dlock\.log is damaged/, sub { $_[0] =~ s/(\(3,\d+,0x\w*)(\w)\)/$1 . ($2 eq '0' ? 1 : 0) . ')'/er } ],
	[ 'a row that is none', qr/row of dlock\.log that cannot be read/, sub { $_[0] =~ s/\(3,\d+,0x\w+\)/(3,NULL,4)/r } ])
{
	my ($what, $error, $change) = @$case;
	my $changed = $change->($text);
	isnt($changed, $text, "$what: taken away");
	open($file, '>:raw', scratch('changed')) or die "$!\n";
	print $file $changed;
	close($file);
	like(said(scratch('changed')), qr/^70 .*$error/, 'is seen');
}
like(said(scratch('nothing')), qr/^71 .*could not open/, 'a file that is not there');
rename "$engine->{dir}/plugins/away", "$engine->{dir}/plugins/dlock.so" or die "could not rename the library: $!\n";
stop_server();
done_testing();

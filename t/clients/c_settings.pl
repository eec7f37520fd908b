# The client library for C, on a server of the kind that is the argument: no setting of the
# environment, of the program, of an account or of the server makes another name of a name.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/..";
use CProgram;
use Test::More;

my ($kind) = @ARGV;
my $is_postgres = $kind eq 'postgres';
my $dir = CProgram::build();
# a server that greets each client in another character set
my $engine = CProgram::start_server($kind, '--init-connect=SET NAMES cp932');

sub value { return $engine->control->value($engine->translate($_[0])) }

sub url { return CProgram::url($engine, @_) }

# The bytes of a text, which this file has in UTF-8, as a word of the program's.
sub word
{
	my ($text) = @_;
	return join '', map { sprintf '%%%02x', ord } split //, $text;
}

# A name is the one that SQL has, as a lease, in a list and in an answer; it is in one piece.
my @names = ('café', 'Ünïcødé €', q{it's}, q{C:\jobs\x}, q{\\}, q{x' OR '1'='1}, q{a\' OR 1=1 -- }, q{"}, q{`a`}, '%s?$1;', '/* x */ -- #', '表ソ');

sub keeps_names
{
	my ($p, $what, @of) = @_;
	for my $name (@of)
	{
		my $hex = unpack('H*', pack('(H2)*', word($name) =~ /%(..)/g));
		my $literal = $is_postgres ? "convert_from('\\x$hex', 'UTF8')" : "x'$hex'";
		$p->say('new l name=' . word($name) . ' owner=' . word("o$name") . ' ttl=600', 'start l');
		$p->next_is('l', qr/^held /);
		my $is = value("SELECT count(*) FROM dlock.locks WHERE name = $literal");
		is($is, 1, "$what: $name");
		is(value('SELECT count(*) FROM dlock.locks'), 1, "$what: and nothing else");
		my $bytes = pack('H*', $hex);
		like($p->ask('call dlock_holders t:' . word($name)), qr/^\Q$bytes\E o\Q$bytes\E exclusive /, "$what: and the answer");
		# in a list, by the same owner, it is one more hold
		like($p->ask('call dlock_acquire_all T:' . word($name) . ',b t:' . word("o$name") . ' d:60'), qr/^\d+\|\d+$/, "$what: in a list");
		is(value("SELECT max(version) FROM dlock.locks WHERE name = $literal"), 2, "$what: the same");
		is($p->ask('call dlock_release_all t:' . word("o$name")), '2', "$what: given back");
		$p->say('release l', 'free l');
	}
	return;
}

if ($is_postgres)
{
	value('CREATE ROLE latin LOGIN');
	value(q{ALTER ROLE latin SET client_encoding = 'LATIN1'});
	value(q{ALTER ROLE latin SET standard_conforming_strings = off});
	value(q{CREATE DATABASE latin ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0});
	open(my $file, '>', "$dir/services") or die "could not write: $!\n";
	print $file "[latin]\nclient_encoding=LATIN1\n";
	close $file;
	my %ways = (
		'a variable' => [ url(), PGCLIENTENCODING => 'LATIN1' ],
		'an option' => [ url(), PGOPTIONS => '-c client_encoding=LATIN1' ],
		'the URL' => [ url() . '?client_encoding=LATIN1' ],
		'a service' => [ url() . '?service=latin', PGSERVICEFILE => "$dir/services" ],
		'the role' => [ url(undef, 'latin') ]);
	for my $what (sort keys %ways)
	{
		my ($url, %environment) = @{ $ways{$what} };
		my $p = CProgram->start(DLOCK_URL => $url, %environment);
		$p->ask('connect');
		keeps_names($p, $what, $what eq 'the role' ? @names : @names[ 0, 3 ]);
		is($p->end, 0, "$what: the program ends well");
	}
	# a database that can have only some names
	my $node = $engine->{node};
	$node->safe_psql('latin', 'CREATE EXTENSION dlock');
	my $p = CProgram->start(DLOCK_URL => url() =~ s{/postgres$}{/latin}r);
	$p->ask('connect');
	$p->say('new l name=' . word('café') . ' ttl=600', 'start l');
	$p->next_is('l', qr/^held /);
	is($node->safe_psql('latin', q{SELECT count(*) FROM dlock.locks WHERE name = chr(99) || 'af' || chr(233)}), '1', 'a LATIN1 database has the same name');
	like($p->ask('call dlock_holders t:' . word('café')), qr/^caf\xc3\xa9 /, 'and answers in UTF-8');
	$p->say('new m name=' . word('€') . ' ttl=600 wait=-1', 'start m');
	$p->next_is('m', qr/^failed misuse 22P05 /);
	$p->say('release l', 'free l');
	is($p->end, 0, 'the program ends well');
}
else
{
	open(my $file, '>', "$dir/options.cnf") or die "could not write: $!\n";
	print $file "[client]\ndefault-character-set=latin1\ninit-command=SET NAMES latin1\n";
	close $file;
	for my $mode ('', 'ANSI_QUOTES', 'NO_BACKSLASH_ESCAPES', 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT')
	{
		value("SET GLOBAL sql_mode = '$mode'");
		my $p = CProgram->start(DLOCK_URL => url() . ($mode eq '' ? '' : "?default-file=$dir/options.cnf"));
		$p->ask('connect');
		keeps_names($p, "sql_mode '$mode'", @names);
		is($p->ask('query SELECT @@character_set_client, @@character_set_results'), 'utf8mb4 utf8mb4', "sql_mode '$mode': UTF-8");
		is($p->end, 0, "sql_mode '$mode': the program ends well");
	}
	# people read the list of processes
	value(q{SELECT dlock_acquire('nightly report', 'admin', 600)});
	my $p = CProgram->start(DLOCK_URL => url());
	$p->say('new l name=nightly%20report ttl=30 wait=-1', 'start l');
	my $shown = '';
	Scenarios::Run::until(sub {
		$shown = value(q{SELECT max(info) FROM information_schema.processlist WHERE info LIKE 'SELECT dlock_acquire(%' AND info LIKE '%-1.000%'});
		$shown ne 'NULL' });
	like($shown, qr/nightly report/, 'the list of processes shows the name');
	value(q{SELECT dlock_release_all('admin')});
	$p->next_is('l', qr/^held /);
	$p->say('release l');
	$p->hear(qr/^l done$/);
	is($p->end, 0, 'the program ends well');
}

$engine->end_control;
$engine->stop;
done_testing();

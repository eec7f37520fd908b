# The symbols of dlock.so that the server sees, which loads it together with other
# libraries: the functions that uninstall.sql names, with their init and deinit
# functions, MariaDB's plugin, and nothing that could clash with another library.  In
# a server that lacks what it needs it refuses every call.

use strict;
use warnings;

use File::Temp;
use FindBin;
use lib "$FindBin::RealBin/..";
use Exports;
use Test::More;

my $tree = "$FindBin::RealBin/../..";
my $library = "$tree/mysql_udf/dlock.so";
# uninstall.sql also drops those of old releases, whose objects may be in use
open(my $file, '<', "$tree/mysql_udf/uninstall.sql") or die "uninstall.sql: $!";
my %functions = map { $_ => 1 } join('', <$file>) =~ /^DROP FUNCTION IF EXISTS (dlock_\w+);/mg;
my @others = ($ENV{STORE} // '') eq 'log' ? qw(dlock_unwritten dlock_may_see dlock_waiters_json dlock_stats_json)
  : qw(dlock_release_after dlock_view_pages dlock_view_page);
delete @functions{@others};	# the other engine's
my @functions = sort keys %functions;
cmp_ok(scalar(@functions), '>', 30, 'uninstall.sql names functions');

my @plugin = map { "_${_}_" } qw(maria_plugin_interface_version maria_sizeof_struct_st_plugin maria_plugin_declarations);
is_deeply([ Exports::of($library) ],
	[ sort @plugin, map { $_, "${_}_init", "${_}_deinit" } @functions ], 'the library shows them, and nothing else');

# A program that loads it and prints what each function says when it is prepared: it
# may be no server, or an old one.
my $work = File::Temp->newdir;
open(my $source, '>', "$work/server.c") or die "server.c: $!";
print $source <<'END';
#include <dlfcn.h>
#include <stdio.h>
#include "server_abi.h"

#ifdef OLD
/* has sessions, and that is all */
extern THD *_current_thd(void);
THD *_current_thd(void) { return NULL; }
#endif

int main(int argc, char **argv)
{
	void *library = dlopen(argv[1], RTLD_NOW);

	if (library == NULL)
		return printf("%s\n", dlerror()), 1;
	for (int i = 2; i < argc; i++)
	{
		char name[256], message[UDF_MESSAGE_SIZE] = "";
		bool (*init)(UDF_INIT *, UDF_ARGS *, char *);
		UDF_INIT it = {0};
		UDF_ARGS args = {0};

		snprintf(name, sizeof(name), "%s_init", argv[i]);
		*(void **) &init = dlsym(library, name);
		printf("%d %s\n", init(&it, &args, message), message);
	}
	return 0;
}
END
close($source);

for my $case ([ '', 'thd_get_current_thd' ], [ '-DOLD', 'thd_get_thread_id' ])
{
	my ($flag, $lacks) = @$case;
	is(system("cc $flag -rdynamic -I$tree/mysql_udf -o $work/server $work/server.c -ldl"), 0, "a program is built, $flag");
	is( `$work/server $library @functions`,
		"1 dlock cannot work in this server, which lacks \"$lacks\"; it needs MySQL 9.7 or MariaDB 10.11, or later\n" x @functions,
		"every function refuses to be called for want of $lacks");
}

# A server with all that the library knows of but one of the two forms of a function, or
# both.
my @connected = map { "_ZN3THD12is_connectedE$_" } qw(b v);
open($file, '<', "$tree/mysql_udf/server_abi.h") or die "server_abi.h: $!";
my @symbols = join('', <$file>) =~ /SERVER_SYMBOL\("(\w+)"\)/g;
for my $case ([ '', @connected ], [ $connected[0], $connected[1] ], [ $connected[1], $connected[0] ])
{
	my ($form, @without) = @$case;
	my %without = map { $_ => 1 } @without;
	my @has = grep { !$without{$_} } @symbols;

	is(scalar(@has), @symbols - @without, 'the header has both forms');
	open($file, '>', "$work/symbols.c") or die "symbols.c: $!";
	print $file "void *f$_(void) __asm__(\"$has[$_]\");\nvoid *f$_(void) { return 0; }\n" for 0 .. $#has;
	close($file);
	is(system("cc -rdynamic -I$tree/mysql_udf -o $work/server $work/server.c $work/symbols.c -ldl"),
		0, "a server is built, with \"$form\"");
	my $said = `$work/server $library dlock_is_free`;
	if ($form)
	{
		like($said, qr/^1 (?!.*lacks)./, "$form is enough, and the call goes on to its arguments");
	}
	else
	{
		like($said, qr/lacks "THD::is_connected"/, 'without both it refuses');
	}
}

# It refuses a server of a series with which it was not tried, unless it is told otherwise.
for my $case ([ '9.7.12', 1 ], [ '9.8.1', 0 ], [ '8.4.7', 0 ], [ '10.11.6-MariaDB-log', 0 ])
{
	my ($version, $is_tried) = @$case;

	open($file, '>', "$work/symbols.c") or die "symbols.c: $!";
	print $file $_ eq 'server_version' ? "char server_version[] = \"$version\";\n"
	  : "void *f_$_(void) __asm__(\"$_\");\nvoid *f_$_(void) { return 0; }\n" for grep { $_ ne $connected[0] } @symbols;
	close($file);
	is(system("cc -rdynamic -I$tree/mysql_udf -o $work/server $work/server.c $work/symbols.c -ldl"), 0, "a server $version");
	my $untried = qr/^1 dlock was not tried in a server of this version, but in MySQL 9\.7 /;
	my $said = `$work/server $library dlock_is_free`;
	$is_tried ? unlike($said, $untried, 'it was tried') : like($said, $untried, 'it was not tried');
	unlike(`DLOCK_UNTRIED_SERVER=1 $work/server $library dlock_is_free`, $untried, 'and can be used all the same');
}

done_testing();

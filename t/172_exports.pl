# The symbols of dlock.so that PostgreSQL sees, whose processes load it together with
# other libraries: the SQL functions that the extension's scripts name, the workers,
# and nothing that could clash with another library.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Exports;
use Test::More;

chomp(my $folder = `pg_config --pkglibdir`);
my @exports = Exports::of("$folder/dlock.so");

# the functions of all the scripts, old ones too: their objects may be in use
my %functions;
for my $script (glob("$FindBin::RealBin/../pg_extension/dlock--*.sql"))
{
	open(my $file, '<', $script) or die "$script: $!";
	my $sql = join('', <$file>);
	$functions{$1} = 1 while $sql =~ /'MODULE_PATHNAME',\s*'(\w+)'/g;

	# without a name it is that of the SQL function
	$functions{$1} = 1 while $sql =~ /FUNCTION\s+(?:\@extschema\@\.|dlock\.)?(\w+)\s*\((?:(?!FUNCTION).)*?'MODULE_PATHNAME'(?!\s*,)/gs;
}
cmp_ok(scalar(keys %functions), '>', 30, 'the scripts name functions');

my @others = qw(Pg_magic_func _PG_init dlock_launcher_main dlock_worker_main);
is_deeply([ grep { !/^pg_finfo_/ } @exports ],
	[ sort keys %functions, @others ], 'it shows what the scripts name, and the workers');
is_deeply([ map { /^pg_finfo_(.*)/ ? $1 : () } @exports ],
	[ sort keys %functions ], 'and that these functions have the interface of version 1');

done_testing();

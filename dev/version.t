#!/usr/bin/perl
# dev/version.t : META.json is valid for PGXN and the one source of the version.

use strict;
use warnings;
use JSON::PP;
use Test::More;

sub slurp
{
	my ($path) = @_;
	open(my $file, '<:raw', $path) or return '';
	local $/;
	return scalar <$file>;
}

my $meta = eval { JSON::PP->new->decode(slurp('META.json')) } || {};
is($@, '', 'META.json is JSON');

# what the PGXN Meta Spec 1.0.0 requires
my $semver = qr/^(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)$/a;
my @missing = grep { !defined $meta->{$_} }
  qw(name abstract maintainer license version provides meta-spec);
is("@missing", '', 'META.json has what PGXN requires');
is($meta->{name}, 'dlock', 'name');
is($meta->{license}, 'postgresql', 'license');
is($meta->{'meta-spec'}{version}, '1.0.0', 'version of the Meta Spec');
my $version = $meta->{version} // '';
like($version, $semver, 'version is a semantic version');
like($meta->{prereqs}{runtime}{requires}{PostgreSQL},
	$semver, 'required PostgreSQL is a semantic version');

my $provides = $meta->{provides}{dlock};
is($provides->{version}, $version, 'version provided');
is($provides->{file}, "pg_extension/dlock--$version.sql",
	'install script of that version');
for my $file (@$provides{qw(file docfile)})
{
	ok(-s $file, "$file is there");
}

my ($default) =
  slurp('pg_extension/dlock.control') =~ /^default_version\s*=\s*'(.*?)'/m;
is($default, $version, 'default_version of the control file');
my ($line) =
  grep { !/\\echo/ } split(/\n/, slurp($provides->{file}));
like($line, qr/dlock--\Q$version\E\.sql/, 'the install script names itself');

for my $file ('README.md', $provides->{docfile})
{
	my @named = slurp($file) =~ /\bdlock (\d+\.\d+\.\d+)/g;
	ok(scalar(@named), "$file says which version it is of");
	is_deeply([ grep { $_ ne $version } @named ], [], "$file names no other");
}
my ($python) = slurp('clients/python/dlock.py') =~ /^__version__ = "(.*)"$/m;
is($python, $version, 'version of the client for Python');
my $node = eval { JSON::PP->new->decode(slurp('clients/node/package.json')) } || {};
is($node->{version}, $version, 'version of the client for Node.js');
my @released =
  slurp('Changes') =~ /^(\d+\.\d+\.\d+)\s+\d\d\d\d-\d\d-\d\d$/mg;
is($released[0], $version,
	'the newest entry of Changes is of that version, with a date');

# the packages
my ($debian) = slurp('debian/changelog') =~ /^dlock \(([^)]*)\)/;
is($debian, $version, 'debian/changelog');
my ($rpm) = slurp('dlock.spec') =~ /^Version:\s*(\S+)/m;
is($rpm, $version, 'dlock.spec');
my ($rpm_changes) = slurp('dlock.spec') =~ /^%changelog\n\*.* - (\S+)-\d+$/m;
is($rpm_changes, $version, 'its changelog');
like(slurp('clients/python/pyproject.toml'), qr/^version = \{ attr = "dlock\.__version__" \}$/m, 'pyproject.toml goes by dlock.py');

# more of the PGXN Meta Spec: what it says of terms, tags and resources
is($meta->{release_status}, 'stable', 'release_status');
like($_, qr{^[^/\\\p{Cc}]{1,255}$}, "tag $_") for @{ $meta->{tags} };
my @unknown = grep { !/^x_/i } grep
{
	my $key = $_;
	!grep { $_ eq $key }
	  qw(name abstract maintainer license version provides meta-spec description
	  generated_by no_index prereqs release_status resources tags)
} keys %$meta;
is("@unknown", '', 'META.json has only what the specification knows');
# there is no public address yet, so none may be made up
is($meta->{resources}, undef, 'no resources');

# What a release has: dev/dist packs it.  In a release itself it is the MANIFEST.
my @release = split(/\n/, `dev/release-files 2>/dev/null`);
SKIP:
{
	skip 'neither a checkout of git nor a release', 5 if !@release;
	my %has = map { $_ => 1 } @release;
	my @lacks = grep { !$has{$_} } qw(Changes LICENSE META.json Makefile README.md SECURITY.md
	  debian/control debian/rules dlock.spec mysql_udf/install.sql pg_extension/dlock.control
	  clients/c/dlock.h cli/dlock.1), $provides->{file}, $provides->{docfile};
	is("@lacks", '', 'a release has what it needs');
	is(join(' ', grep { /^\.|\.(o|so|bc|zip|deb)$|^bench\/results\/.*\.csv$/ } @release),
		'', 'and nothing that is only for the checkout');
	is(join(' ', grep { !-e } @release), '', 'and all of it is there');
	ok(scalar(@release) > 400, scalar(@release) . ' files');

	# names of documents that could clash with those of others go into a folder of our own
	like(slurp('Makefile'), qr/^docmoduledir = dlock$/m, 'PGXS installs documents into a folder of their own');
}

done_testing();

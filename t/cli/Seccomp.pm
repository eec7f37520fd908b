# Seccomp.pm: forbid a process system calls, as a service manager or a container does.
#
#   launch({ before => sub { forbid(kill => 'sched_setscheduler') } }, ...)
#
# "kill" ends the process that makes the call, "refuse" has it fail with EPERM.  The filter is
# for this process and all that it starts or becomes.

package Seccomp;

use strict;
use warnings;

use Exporter 'import';
use POSIX ();

our @EXPORT = qw(forbid can_forbid);

# Calls by number; prctl() makes the filter.
my %numbers = (
	x86_64 => { prctl => 157, sched_setscheduler => 144, timerfd_create => 283, pipe2 => 293 },
	aarch64 => { prctl => 167, sched_setscheduler => 119, timerfd_create => 85, pipe2 => 59 });
my $numbers = $numbers{ (POSIX::uname())[4] };

# Of linux/seccomp.h, linux/prctl.h and linux/bpf_common.h.
my %actions = (kill => 0x80000000, refuse => 0x00050000 | POSIX::EPERM());
use constant { SET_SECCOMP => 22, FILTER => 2, SET_NO_NEW_PRIVS => 38 };
use constant { LOAD_WORD => 0x20, JUMP_IF_EQUAL => 0x15, RETURN => 0x06, ALLOW => 0x7fff0000 };

# Are the numbers known on this machine?
sub can_forbid { return defined $numbers }

sub forbid
{
	my ($action, @calls) = @_;
	my @filter = ([ LOAD_WORD, 0, 0, 0 ]);
	push @filter, [ JUMP_IF_EQUAL, 0, 1, $numbers->{$_} // die "$_: no number\n" ], [ RETURN, 0, 0, $actions{$action} ] for @calls;
	push @filter, [ RETURN, 0, 0, ALLOW ];
	my $filter = join '', map { pack('SCCL', @$_) } @filter;
	my $program = pack('Sx![P]P', scalar @filter, $filter);
	syscall($numbers->{prctl}, SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 or die "no_new_privs: $!\n";
	syscall($numbers->{prctl}, SET_SECCOMP, FILTER, $program, 0, 0) == 0 or die "seccomp: $!\n";
	return;
}

1;

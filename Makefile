# dlock for PostgreSQL: an ordinary PGXS extension, and a few commands that
# need nothing installed beforehand ("make help").

MODULE_big = dlock
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard pg_extension/*.c pg_extension/*/*.c) core/lease.c core/stuck.c))
EXTENSION = pg_extension/dlock
DATA = $(wildcard pg_extension/dlock--*.sql)
DOCS := $(wildcard doc/*.md doc/*.svg)
PG_CPPFLAGS = -I$(srcdir)/core -I$(srcdir)/pg_extension
# the library's visible functions only; and no name of the build folder
SHLIB_LINK = -Wl,--version-script=$(srcdir)/pg_extension/exports.map
PG_CFLAGS = -ffile-prefix-map=$(abspath $(srcdir))=.

# For "make installcheck", on a running server.  The first test leaves the extension
# behind for the others.
REGRESS = install $(filter-out install,$(basename $(notdir $(sort $(wildcard sql/*.sql)))))
ISOLATION = $(basename $(notdir $(sort $(wildcard specs/*.spec))))
ISOLATION_OPTS = --load-extension=$(MODULE_big)
TAP_TESTS = 1

# Compilers differ in their warnings, so only our own tests make them errors: WERROR=1.
# Not for parameters that a callback does not use.
ifdef WERROR
PG_CFLAGS += -Wall -Wextra -Werror -Wno-unused-parameter
endif

# No bitcode for the server's JIT compiler: it takes a clang of the server's version, and
# as long again to build, and calls that wait for locks and pages gain nothing from it.
override with_llvm = no

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)

ifeq ($(MAKECMDGOALS),check)
# For the loop while editing.  PGXS has a target of this name, which only refuses.
check:
	@ONLY="$(or $(ONLY),version core regress isolation pgtap scenario)" dev/test
else ifneq ($(wildcard $(PGXS)),)
include $(PGXS)
# A folder of our own: others have an operations.md, too.
docmoduledir = dlock
# PGXS looks for them under the names that they have here
uninstall: uninstall-docs
uninstall-docs:
	rm -f $(addprefix '$(DESTDIR)$(docdir)/$(docmoduledir)'/, $(notdir $(DOCS)))
$(shlib): pg_extension/exports.map
$(OBJS): $(wildcard core/*.h pg_extension/*.h pg_extension/*/*.h)
else
all install installcheck clean uninstall:
	@echo 'PostgreSQL'"'"'s server development files were not found by way of "$(PG_CONFIG)".' >&2
	@echo 'Install them (on Debian 12: postgresql-server-dev-15), or say where they are:' >&2
	@echo '  make $@ PG_CONFIG=/path/to/pg_config' >&2
	@exit 1
endif

.PHONY: help demo demo-mysql demo-ha shell check test matrix torture lint bench mysql client install-client \
	uninstall-client uninstall-docs dist \
	deb packages reproducible

help:
	@echo 'make demo       play a narrated session on a throw-away server'
	@echo 'make demo-mysql the same on MariaDB, or with KIND=mysql on MySQL'
	@echo 'make demo-ha    lose the primaries of Patroni, Galera and Group Replication behind HAProxy, with'
	@echo '                dlock on top; KIND=postgres|mariadb|mysql picks one; see doc/high-availability.md'
	@echo 'make shell      open psql on such a server'
	@echo 'make test       run every test; ONLY=core|version|regress|isolation|pgtap|scenario|examples|tap|'
	@echo '                mysql|drivers|clients|cli|monitoring picks groups, TESTS="t/31*.pl" picks files'
	@echo 'make check      a part of it, for the loop while editing: no crash, no standby, no cluster'
	@echo 'make matrix     run every test on PostgreSQL 15, 17 and 18, MariaDB 10.11 and 11.8, MySQL;'
	@echo '                those of plain/dlock.sql on PostgreSQL 13, too'
	@echo 'make torture    kill servers under load for DURATION=60 minutes on each engine, or only'
	@echo '                on ENGINE=core|postgres|mariadb|mysql|ha; see doc/reliability.md'
	@echo 'make lint       read the code with clang-tidy, cppcheck, scan-build and shellcheck'
	@echo 'make bench      measure'
	@echo 'make            build; make install installs it; PG_CONFIG=... says where'
	@echo 'make mysql      build mysql_udf/dlock.so for MySQL and MariaDB; see mysql_udf/install.sql'
	@echo 'make client     build the command cli/dlock; make install-client installs it, with prefix=...'
	@echo '                and DESTDIR=...; it needs libpq, libmariadb and ncurses, and no server'
	@echo 'make installcheck   test an installed dlock on a running server'
	@echo 'make dist       pack the sources for PGXN'
	@echo 'make deb        build the Debian packages, into the folder "packages"'
	@echo 'make packages   that, and try all kinds of packages; PARTS="deb rpm" picks some'
	@echo 'make reproducible   build twice, and compare'
	@echo 'The first ten, deb, packages and reproducible install what they lack (Debian 12).'
	@echo 'PG_CONFIG=... uses another PostgreSQL, but not for demo-ha.'

demo:
	@dev/server dev/demo

demo-mysql:
	@dev/demo-mysql $(or $(KIND),mariadb)

demo-ha:
	@dev/demo-ha $(KIND)

shell:
	@dev/server psql

test:
	@dev/test

matrix:
	@dev/matrix

torture:
	@dev/torture $(or $(DURATION),60) $(ENGINE)

lint:
	@dev/lint

bench:
	@bench/run

mysql:
	@$(MAKE) --no-print-directory -C mysql_udf

# The command, whose Makefile knows nothing of PGXS and its variables.
client:
	@$(MAKE) --no-print-directory -C cli

install-client:
	@$(MAKE) --no-print-directory -C cli install

uninstall-client:
	@$(MAKE) --no-print-directory -C cli uninstall

dist:
	@dev/dist

# Debian's packages, into the folder "packages"
deb:
	@dev/deb

packages:
	@dev/packages $(PARTS)

reproducible:
	@dev/reproducible

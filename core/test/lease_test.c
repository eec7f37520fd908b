/*
 * lease_test.c
 *	  The contract of the lease state machine: a table of cases.
 *
 * A case is a claim and a script that shows it.  A script plays with the holders
 * of one free name, statement by statement, separated by ";".  The expected
 * result of a request follows "=".  Times count from the start of the script,
 * times to live are 10 unless said otherwise, and the first token is 101.
 *
 *	at N                    the clock comes to N; "delay N" sets the lock delay
 *	tokens N                the last token that was granted
 *	a x, a s, a p3          owner a acquires: exclusive, shared, a permit of limit 3;
 *	                        options: for N (time to live), id W, take N (permits),
 *	                        session, xact, by N (in which session), behind, claim,
 *	                        again (only a repetition), next N (the token)
 *	a renew, a release, a drop, a drop-after, a down, a leave
 *	                        options: for N, #N (token), holds N, kept (unless the
 *	                        request id was repeated), by N
 *	evict, evict a, reap
 *	= granted               and the other outcomes; then, if wanted: #N (token),
 *	                        changed N, retry N or retry never
 *	place a x ...           a holder that no request has made: stranger, acts (for
 *	                        its principal), vN, until N, #N, session, xact, by N,
 *	                        bound, stranded, left, lost, pinned, leaving
 *	guard a, unguard a      a guard pins all holds of a in its mode; its guards end
 *	ends a, before a N      what a is bound to ends now; or was in a server before
 *	                        this one, which started now, with a time to live of N
 *	has a ...               a's holder is as said, in the words of place, and idW,
 *	                        repeated, guarded N x (holds and mode)
 *	none a, count N         a has no holder; there are N
 *	counted ended           the last holder that was removed counts so, or as expired
 *	free, busy, owner a, owner -
 *	                        what one sees who only looks
 *
 * Numbers may be max (most holds), end (the last token), ttl (the longest), first
 * and last (of all times), with something added or taken away: "end-1".
 *
 * do_request() stands in for an engine: it calls lease_apply(), holds the call
 * against lease_invariants.h, and removes what has ended but for its guards.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease.h"
#include "lease_invariants.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define ROOM	16
#define START	INT64_C(1000)
#define LENGTH(array)	(sizeof(array) / sizeof((array)[0]))

/* The bytes of a string literal, NUL bytes inside included. */
#define BYTES(literal)	((lease_bytes) {(literal), sizeof(literal) - 1})
#define NO_BYTES		((lease_bytes) {NULL, 0})

typedef struct script_case
{
	const char *claim;
	const char *script;
} script_case;

static const script_case cases[] = {
	/* rule 1: exclusion */
	{"a free name is granted in any mode",
		"a x id r = granted #101 changed 1; has a x v1 until 10 idr; a drop = released;"
		"a s = granted; has a s; a drop = released; a p1 = granted; has a p v1"},
	{"an exclusive holder excludes everybody else",
		"a x = granted; b x = busy; b s = busy; b p100 = busy; count 1"},
	{"shared holders admit one another, and nobody else",
		"a s = granted; b s = granted; c s = granted; count 3;"
		"d x = busy; d p100 = busy"},
	{"permits exclude the other modes",
		"a p100 = granted; b x = busy; b s = busy"},
	{"permits are granted below the limit",
		"a p2 = granted; b p2 = granted; c p2 = busy; a release = released;"
		"c p2 = granted"},
	{"each caller is judged by its own limit",
		"a p1 = granted; b p1 = busy; b p2 = granted; c p2 = busy; c p5 = granted;"
		"d p1 = busy; count 3"},
	{"every permit of a holder counts",
		"a p3 = granted; a p3 = re-entered; b p2 = busy; b p3 = granted;"
		"c p3 = busy; a release = released; c p3 = granted"},
	{"expired permits do not count",
		"a p2 = granted; b p2 for 20 = granted; at 10; c p2 = granted; d p2 = busy"},
	{"a sum of permits does not wrap",
		"place a p vmax stranger; place b p vmax stranger; place c p v2 stranger;"
		"d pmax = busy; d p1 = busy; d pmax take max = busy"},
	{"owners are compared byte for byte",
		"a x = granted; A x = busy; aa x = busy; A release = not-yours"},

	/* several permits */
	{"several permits are taken together, all or none",
		"a p5 take 3 = granted #101; has a p v3; b p5 take 3 = busy;"
		"b p5 take 2 = granted; has b v2; c p5 = busy"},
	{"a holder takes several more",
		"a p5 take 2 = granted; a p5 take 3 = re-entered #101; has a v5;"
		"a p6 take 2 = busy; a p6 take 1 = re-entered; has a v6"},
	{"no number is one permit, and other modes have no numbers",
		"a p2 take 0 = granted; has a v1; a drop = released; a s take 7 = granted;"
		"has a v1; a s take 7 = re-entered; has a v2"},
	{"more permits than the limit are never free",
		"a p2 take 3 = busy retry never; count 0"},
	{"a repetition ignores the number",
		"a p5 take 3 id r = granted; a p5 take 2 id r = replayed; has a v3;"
		"a p1 take 9 id r = replayed; has a v3"},
	{"guarded permits count against several",
		"a p5 take 3 = granted; guard a; a drop = released; b p5 take 3 = busy;"
		"b p5 take 2 = granted; unguard a; c p5 take 3 = granted"},

	/* rule 2: lease */
	{"a hold lasts to its last microsecond",
		"a x = granted; at 9; b x = busy retry 10; a renew for 1 = renewed;"
		"a release = released"},
	{"a hold is over once its deadline has come",
		"a x = granted; at 10; b x = granted changed 2; count 1; none a"},
	{"renewing or releasing afterwards does nothing and says so",
		"a x = granted; at 10; a renew = not-held; a renew #101 = not-held;"
		"a release = not-held; a drop #101 = not-held; a down = not-held;"
		"a leave = not-held; count 1"},
	{"afterwards, a name held by another is not yours",
		"a s = granted; b s for 20 = granted; at 10; a renew #101 = not-yours;"
		"a release #101 = not-yours; a drop = not-yours; a down = not-yours"},
	{"a name never held is held by nobody",
		"a renew = not-held; a release = not-held; a drop = not-held; a down = not-held;"
		"a leave = not-held; evict = not-held; evict a = not-held; reap = not-held"},
	{"a holder that is over acquires anew",
		"a x id r = granted; a x = re-entered; at 10; a x id r = granted #102;"
		"count 1; has a v1"},
	{"a grant clears away all that is over, and nothing else",
		"a s = granted; b s for 20 = granted; c s = granted; at 10;"
		"d s = granted changed 3; none a; has b; none c"},
	{"a refusal leaves what is over alone",
		"a s = granted; b s for 20 = granted; at 10; c x = busy changed 0; count 2"},
	{"the longest time to live is granted to the microsecond",
		"at last-ttl; a x for ttl = granted; has a until last;"
		"a x for ttl = re-entered; a renew for ttl = renewed; b x for 1 = busy retry last"},

	/* rule 3: re-entry */
	{"acquiring again adds a hold and keeps the token",
		"a x = granted #101; a x = re-entered #101; has a v2 #101; a drop = released;"
		"b s = granted; a s = granted #103; a s = re-entered #103; has a v2; has b v1"},
	{"re-entry extends the deadline and never shrinks it",
		"a x = granted; at 5; a x = re-entered changed 1; has a until 15;"
		"a x for 3 = re-entered changed 1; has a until 15"},
	{"each release gives one hold back and leaves the deadline",
		"a x = granted; a x = re-entered; a x = re-entered; at 5; a release = released #101;"
		"has a v2 until 10; a release #101 = released; b x = busy;"
		"a release = released #101; count 0; a release = not-held; b x = granted"},
	{"re-entry leaves other holders alone",
		"a s for 5 = granted; b s = granted; at 5; b s = re-entered changed 1; count 2"},
	{"a permit holder takes one more permit",
		"a p3 = granted; at 5; a p3 = re-entered #101; has a v2 until 15; b p3 = granted;"
		"a p3 for 20 = busy; a p4 for 1 = re-entered; has a v3 until 15"},
	{"a permit of limit 1 is a mutex without re-entry",
		"a p1 = granted; a p1 = busy; b p1 = busy; a release = released; b p1 = granted"},
	{"a shared acquire by the exclusive holder is a re-entry",
		"a x = granted; a s = re-entered #101; has a x v2; a release = released;"
		"has a x; b s = busy"},
	{"an exclusive acquire by a shared holder is misuse",
		"a s = granted; a x = upgrade; b s = granted; a x = upgrade; c x = busy"},
	{"permits and the rest do not mix in one holder",
		"a x = granted; a p9 = mixed; a drop = released; a s = granted; a p9 = mixed;"
		"a drop = released; a p9 = granted; a x = mixed; a s = mixed"},
	{"there is no misuse after the deadline",
		"a s = granted; at 10; a x = granted; at 20; a p1 = granted; at 30; a s = granted;"
		"count 1"},
	{"holds end at their largest number",
		"place a x vmax-1; a x = re-entered; a x for 20 = too-many; a s = too-many;"
		"a release = released; a x = re-entered; has a vmax; a drop = released; count 0"},
	{"permits end there too",
		"place a p vmax-1; a pmax take 2 = busy; a pmax = re-entered; a pmax = busy"},

	/* several holds given back */
	{"several holds are given back together",
		"a x = granted; a x = re-entered; a x = re-entered; a release holds 2 = released;"
		"has a v1; a release holds 1 = released; count 0"},
	{"the last holds end the lease",
		"a p5 take 3 = granted; a release #101 holds 3 = released #101; count 0"},
	{"more than there are is not yours, and changes nothing",
		"a x = granted; a x = re-entered; a release holds 3 = not-yours changed 0; has a v2;"
		"a release holds max = not-yours; a release holds 0 = released; has a v1"},

	/* rule 4: request id */
	{"a repeated request id adds no hold",
		"a x id r = granted; a x id r = replayed #101; has a v1; a release = released;"
		"count 0"},
	{"it extends the deadline",
		"a x id r = granted; at 5; a x id r = replayed changed 1; has a until 15;"
		"a x id r for 3 = replayed changed 0; has a until 15"},
	{"only the id of the last acquire counts",
		"a x id q = granted; a x id r = re-entered; a x id r = replayed;"
		"a x id q = re-entered; a x = re-entered; a x id q = re-entered; has a v5"},
	{"an acquire without id is never a repetition",
		"a x = granted; a x = re-entered; has a v2"},
	{"a refusal leaves the id, and so do release, renewal and downgrade",
		"a p1 id q = granted; a p1 id r = busy; a p1 id q = replayed; a drop = released;"
		"a x id q = granted; a x id r = re-entered; a release = released;"
		"a renew = renewed; a x id r = replayed; a down = downgraded;"
		"a s id r = replayed; has a v1"},
	{"the id of another owner is no repetition",
		"a p3 id r = granted; b p3 id r = granted; c x id r = busy"},
	{"a repetition needs no room and no hold",
		"a p2 id r = granted; b p2 = granted; a p1 id r = replayed; has a v1;"
		"evict = released; place a x vmax idr; a x id r for 20 = replayed; has a vmax until 20"},
	{"a request id does not excuse misuse",
		"a s id r = granted; a x id r = upgrade; a p9 id r = mixed;"
		"a s id r session = mixed-kinds"},
	{"it is noted that a repetition was answered, once",
		"a x id r = granted; a x id r = replayed changed 1; has a repeated;"
		"a x id r = replayed changed 0; a x id q = re-entered; has a repeated"},
	{"what is added to a hold with an id is not what made the holder",
		"a x id q = granted; a x id r = re-entered; a x id r = replayed changed 0;"
		"a release kept = released; has a v1"},
	{"of permits it is not known, so they count as repeated",
		"a p5 take 2 id r = granted; a p5 take 2 id r = replayed changed 1; has a repeated"},
	{"a lease that was repeated can be left alone",
		"a x id r = granted; a release kept = released; a x id r = granted;"
		"a x id r = replayed; a release #102 kept = not-yours; a release #102 = released"},

	/* claims */
	{"a claim skips what its holder has, whatever that is",
		"a x = granted; a x claim = busy retry 10; a drop = released; a s = granted;"
		"a x claim = busy; a drop = released; a p9 = granted; a x claim = busy;"
		"a drop = released; a x session = granted; a x claim = busy retry never"},
	{"but not under the same request id",
		"a x id r claim = granted; at 5; a x id r claim = replayed #101; has a v1 until 15;"
		"a x id q claim = busy; a x claim = busy; has a until 15"},
	{"only a repeated claim is wanted",
		"a x again id r = busy; a x id r claim = granted; at 5; a x again id r = replayed #101;"
		"has a v1 until 15; a x again id q = busy retry 15; a x again = busy; b x again id r = busy"},
	{"a lease that was downgraded since is no claim's",
		"a x id r claim = granted; a down = downgraded; a x id r claim = busy"},
	{"a claim skips what others hold, and their line",
		"b x = granted; a x claim = busy; b drop = released; a x claim behind = busy;"
		"a x claim = granted"},
	{"a claim takes what its holder let expire",
		"delay 100; a x = granted; at 10; a x claim = granted #102"},

	/* rule 5: token */
	{"a grant hands out the next token",
		"a s = granted #101; b s = granted #102; has a #101; has b #102"},
	{"the last token is granted, and none beyond",
		"tokens end-1; a x id r = granted #end; a x id r = replayed; a x = re-entered;"
		"a renew #end = renewed; a release = released; a release = released;"
		"a x = no-tokens changed 0; a x next 0 = no-tokens"},
	{"the right token or none finds the holder",
		"a x = granted; a renew #101 = renewed #101; a renew = renewed #101;"
		"a down #101 = downgraded #101; a release #101 = released"},
	{"a wrong token is not yours",
		"a x = granted; at 10; a x = granted #102; a renew #103 = not-yours;"
		"a renew #101 = not-yours; a release #101 = not-yours; a drop #101 = not-yours;"
		"a down #101 = not-yours"},
	{"the token of another owner is not yours",
		"a s = granted; b s = granted; b renew #101 = not-yours; b release #101 = not-yours;"
		"c drop #101 = not-yours; b down #101 = not-yours"},

	/* renewal, drop, downgrade */
	{"renewal sets the deadline sooner or later",
		"a x = granted; a renew for 100 = renewed; has a until 100; a renew for 1 = renewed;"
		"has a until 1; a renew for 1 = renewed changed 1; at 1; a renew = not-held"},
	{"renewal leaves holds, token and mode",
		"a s = granted; a s = re-entered; b s = granted; a renew for 20 = renewed;"
		"has a s v2 #101; has b until 10"},
	{"drop gives all holds of one holder back",
		"a p5 take 3 = granted; b p5 = granted; a drop = released #101 changed 1; count 1;"
		"a drop = not-yours"},
	{"a downgrade keeps all but the mode",
		"a x id r = granted; a x id q = re-entered; at 5; a down = downgraded #101 changed 1;"
		"has a s v2 #101 until 10 idq; a s = re-entered; a x = upgrade"},
	{"it lets shared newcomers in, and nobody else",
		"a x = granted; b s = busy; a down = downgraded; b x = busy; b p9 = busy;"
		"b s = granted; a release = released; has b s"},
	{"a shared lease is downgraded already",
		"a s = granted; a down = downgraded #101 changed 0; has a s v1"},
	{"permits are not downgraded",
		"a p9 = granted; a down = is-permit changed 0; a down #101 = is-permit;"
		"a down #102 = not-yours; b down = not-yours"},
	{"sessions' and transactions' leases are downgraded too",
		"a x session = granted; a down = downgraded; has a s session bound;"
		"b s xact = granted; has b s xact bound"},

	/* given back with effect later */
	{"a lease given back later keeps everybody out until then",
		"a x = granted; at 3; a drop-after #101 for 4 = will-end #101 changed 1;"
		"has a x leaving until 7; b x = busy retry 7; a x = busy retry 7; a s = busy;"
		"a p9 = busy; a x session = busy; busy; owner a; at 6; b x = busy; at 7; free;"
		"owner -; b x = granted; counted ended"},
	{"later than its deadline would have been, too",
		"a x for 5 = granted; a drop-after for 50 = will-end; at 49; b x = busy; at 50;"
		"a x = granted #102"},
	{"with all its holds",
		"a p5 take 3 = granted; a drop-after for 4 = will-end; has a v3; b p5 take 3 = busy retry 4;"
		"a p5 take 2 = granted #102; count 2; at 4; b p5 take 3 = granted changed 2"},
	{"nobody speaks for it any more",
		"a x id r = granted; a drop-after for 4 = will-end; a renew #101 = not-yours;"
		"a release #101 = not-yours; a drop = not-yours; a down = not-yours;"
		"a leave = not-yours; a x id r = busy; a x again id r = busy; a x claim id r = busy;"
		"a drop-after = not-yours; b drop-after #101 = not-yours; has a leaving until 4"},
	{"who repeats it by its token changes nothing",
		"a x = granted; a drop-after #101 for 4 = will-end; at 1;"
		"a drop-after #101 for 9 = will-end #101 changed 0; has a until 4;"
		"a drop-after #102 = not-yours; at 4; a drop-after #101 = not-held"},
	{"an owner's other leases stay its own",
		"a s = granted; a drop-after for 4 = will-end; b s = granted; a s = granted #103;"
		"a renew = renewed #103; a release = released #103; b x = upgrade; c x = busy retry 4"},
	{"its end is a release: no lock delay",
		"delay 100; a x = granted; a drop-after for 4 = will-end; b x = busy retry 4; at 4;"
		"free; reap = released; counted ended; b x = granted"},
	{"an operator ends it sooner",
		"a x = granted; a drop-after for 4 = will-end; evict c = not-yours;"
		"evict a = released changed 1; count 0; at 4; evict = not-held"},
	{"only a plain lease is given back later",
		"a x session = granted; a drop-after = is-bound changed 0; a drop-after #102 = not-yours;"
		"before a 7; a drop-after #101 = is-bound; evict = released;"
		"a x xact = granted; a drop-after #102 = is-bound; has a xact bound"},
	{"its guards go on",
		"a x = granted; guard a; a drop-after for 4 = will-end; at 4; b x = busy retry never;"
		"reap = released; has a pinned; a x = granted; a drop = released; unguard a;"
		"b x = granted"},
	{"of a name held by nobody there is nothing to give back",
		"a drop-after = not-held; b x = granted; a drop-after = not-yours"},

	/* principals */
	{"a stranger with the same owner is another holder",
		"place a s stranger; a renew = not-yours; a release #101 = not-yours;"
		"a drop = not-yours; a down = not-yours; a x = busy; a p9 = busy; a s = granted;"
		"count 2"},
	{"a principal acts for one whose privileges it has",
		"place a x acts; a x = re-entered #101; a renew #101 = renewed;"
		"a release #101 = released; a down = downgraded; a drop = released; count 0"},
	{"acting for another still takes the same owner",
		"place a x acts; b x = busy; b release = not-yours"},
	{"its own holder comes first, then the lowest token",
		"place a s acts #7; place a s stranger #4; place a s #9; place a s acts #5;"
		"a s = re-entered #9; a drop = released #9; a drop = released #5;"
		"a drop = released #7; a drop = not-yours"},
	{"a token overrides the preference",
		"place a s acts; place a s; place a s acts; a release #103 = released #103"},
	{"a holder that is over is not found",
		"place a s until 0; place a s acts until 1; a release #101 = not-yours;"
		"a release = released #102; a release = not-held"},
	{"misuse is judged by the holder acted for",
		"place a s acts; a x = upgrade; a p9 = mixed; a s session = mixed-kinds"},

	/* eviction and the reaper */
	{"eviction ends all live holders, whoever they are",
		"place a s stranger; place b s v3; place c s acts; place d s stranger until 0;"
		"evict = released changed 3; count 1; has d; evict = not-held"},
	{"eviction of an owner ends all its holders",
		"place a s stranger; place b s stranger; place a s acts; place b s stranger;"
		"evict a = released changed 2; count 2; evict a = not-yours; evict b = released;"
		"evict b = not-held"},
	{"an evicted holder has nothing left",
		"a x = granted; evict = released; a release = not-held; b x = granted;"
		"a release = not-yours"},
	{"the reaper ends exactly what is over",
		"place a s until -1; place b s until 0; place c s until 1; place d s until first;"
		"reap = released changed 3; count 1; has c; reap = not-held changed 0"},

	/* kinds */
	{"a lease is of the kind that was asked for, in every mode",
		"a x session = granted; has a x session bound until 10; a drop = released;"
		"a s session = granted; a s session = re-entered; has a s session v2;"
		"b s xact = granted; has b s xact bound; c s = granted; count 3; evict = released;"
		"a p2 xact = granted; a p2 xact = re-entered; b p2 session = busy"},
	{"kinds do not mix in one holder",
		"a s = granted; a s session = mixed-kinds; a s xact = mixed-kinds; evict = released;"
		"a s session = granted; a s = mixed-kinds; a s xact = mixed-kinds;"
		"evict = released; a p9 xact = granted; a p9 = mixed-kinds;"
		"a p1 session = mixed-kinds; a p1 behind = mixed-kinds"},
	{"a lease that is over has no kind to mix with",
		"a x = granted; at 10; a x session = granted; ends a; a x xact = granted;"
		"ends a; a x = granted; count 1"},

	/* sessions and transactions */
	{"a bound holder is renewed, released and evicted as any",
		"a x session = granted; a x session = re-entered; reap = not-held;"
		"a renew for 3 = renewed; has a until 3 session bound; a release = released;"
		"a release = released; a x xact = granted; evict = released; count 0"},
	{"a bound holder outlives any time to live",
		"place a x session bound until last; at last-ttl; b x = busy retry never;"
		"reap = not-held; a x session = re-entered"},
	{"another session of the same owner is in the way like a stranger",
		"a x session = granted; a x session by 1 = busy retry never;"
		"a x xact by 1 = mixed-kinds; a drop = released; a x session by 1 = granted"},
	{"shared leases of an owner's sessions are beside each other",
		"a s session = granted #101; a s session by 1 = granted #102; count 2;"
		"a s session = re-entered #101; a s session by 1 = re-entered #102;"
		"a x session = upgrade; b x = busy"},
	{"to release, its own session's lease comes first",
		"a s session = granted #101; a s session by 1 = granted #102;"
		"a release by 1 = released #102; a release by 1 = released #101"},
	{"shared leases of an owner's transactions likewise",
		"a s xact = granted; a s xact by 1 = granted; count 2; ends a; b x = busy;"
		"a drop by 1 = released #102; b x = granted"},
	{"a transaction's end counts as a release",
		"delay 100; a x xact = granted; ends a; has a xact left; b x = granted changed 2;"
		"none a; counted ended"},
	{"the reaper counts it so too",
		"delay 100; a x xact = granted; ends a; reap = released; counted ended"},
	{"nothing speaks for a transaction that has ended",
		"delay 100; a x xact = granted; ends a; a renew = not-held; a release = not-held;"
		"a drop #101 = not-held; a leave = not-held; evict a = not-held; count 1;"
		"a x xact = granted #102; count 1"},
	{"a session's end without a lock delay counts as a release",
		"a x session = granted; ends a; has a session lost; b x = granted; counted ended"},
	{"with a lock delay it has expired, and others are kept out",
		"delay 5; a x session = granted; at 3; ends a; b x = busy retry 8;"
		"reap = not-held; at 8; reap = released; counted expired; b x = granted"},
	{"the lock delay that counts is that of the removal",
		"delay 5; a x session = granted; ends a; delay 0; b x = granted; counted ended"},
	{"a lost session's owner takes its lease anew at once",
		"delay 100; a x session = granted; ends a; a x session by 1 = granted #102;"
		"count 1; counted expired"},
	{"what a session has ended itself is a release, whatever the lock delay",
		"delay 100; a x session = granted; discards a; has a session left;"
		"b x = granted; counted ended"},
	{"leaving without a lock delay is a release",
		"a x session = granted; a x session = re-entered; a leave #101 = released #101;"
		"count 0; counted ended"},
	{"leaving with a lock delay makes a plain lease that is over",
		"delay 5; a x session = granted; at 3; a leave #101 = delayed #101 changed 1;"
		"has a plain timed until 3 v1; b x = busy retry 8; a renew = not-held; at 8;"
		"b x = granted; counted expired"},
	{"a transaction leaves without a delay",
		"delay 5; a s xact = granted; a leave = released; count 0; b x = granted"},
	{"only what is bound to something leaves",
		"a x = granted; a leave = not-yours; b leave = not-yours; has a x v1;"
		"a drop = released; a leave = not-held"},
	{"a guard outlives the transaction that took the lease",
		"a x xact = granted; guard a; ends a; b x = busy retry never; reap = released;"
		"has a pinned; b x = busy; a x xact = granted"},
	{"none gets what another transaction had before its outcome is seen",
		"a x xact = granted; guard a; a leave = released; a x xact by 1 = busy retry never;"
		"a x session by 1 = busy; a s by 1 = busy; a p5 by 1 = busy; a x claim by 1 = busy;"
		"a renew by 1 = not-held; a release by 1 = not-held; a x xact = granted #102;"
		"a drop = released; unguard a; a x xact by 1 = granted #103"},
	{"whether it has ended by itself, or was released or evicted before",
		"a x xact = granted; guard a; a drop = released; a x by 1 = busy; unguard a;"
		"a x xact = granted; guard a; evict = released; a x by 1 = busy"},
	{"what it had shared, others share meanwhile",
		"a s xact = granted; guard a; a leave = released; a s xact by 1 = granted;"
		"a drop by 1 = released; a x xact by 1 = busy"},
	{"nor is a guard of another session's lease, which is shared now",
		"a x session = granted; guard a; a down = downgraded; a s session by 1 = granted;"
		"b s = busy"},
	{"but that of another transaction's is",
		"a x xact = granted; guard a; a down = downgraded; a s xact by 1 = busy retry never"},
	{"a guard of any other lease is not in its owner's way",
		"a x session = granted; guard a; a drop = released; a x session by 1 = granted;"
		"a drop by 1 = released; a x by 1 = granted"},

	/* after a restart */
	{"what a server before has left lives for its time to live",
		"a x session = granted; before a 7; has a session stranded until 7;"
		"b x = busy retry 7; a renew #101 for 9 = renewed; at 9; b x = granted;"
		"counted expired"},
	{"so does a transaction's",
		"a x xact = granted; before a 7; b x = busy retry 7; at 7; reap = released;"
		"counted expired"},
	{"its owner's next session takes it anew, which ends it",
		"delay 100; a x session = granted; before a 7; a x session by 1 = granted #102;"
		"count 1; has a session bound #102; counted ended"},
	{"before all who stand in line",
		"a x session = granted; before a 7; b x behind = busy retry 7;"
		"a x behind = mixed-kinds; a x session by 1 behind = granted #102; b x behind = busy retry never"},
	{"in any mode",
		"a s session = granted; before a 7; a x session = granted #102; before a 7;"
		"a p1 session = granted #103; has a p session"},
	{"but not past others, who are told when to come back by theirs",
		"a s session = granted; before a 7; b s for 20 = granted; a x session = busy retry 20;"
		"a s session = granted #103; count 2"},
	{"nor by another kind, nor as somebody else",
		"a x session = granted; before a 7; a x = mixed-kinds; a x xact = mixed-kinds;"
		"b x session = busy"},
	{"nor once its time has run out: then it has expired",
		"a x session = granted; before a 7; at 7; a x session = granted; counted expired"},
	{"what is changed becomes a plain lease",
		"a s session = granted; a s session = re-entered; before a 7; a release = released;"
		"has a plain timed until 7 v1; a s = re-entered; a leave = not-yours"},
	{"a downgrade makes it one too",
		"a x xact = granted; before a 7; a down = downgraded; has a s plain timed until 7"},
	{"the lock delay applies when its time has run out",
		"delay 5; a x session = granted; before a 7; at 11; b x = busy retry 12; at 12;"
		"b x = granted"},

	/* rule 8: queue */
	{"a newcomer does not overtake the queue, in any mode",
		"a x behind = busy retry never; a s behind = busy; a p5 behind = busy; count 0;"
		"a s = granted; b s behind = busy; b s = granted"},
	{"who was a holder queues like a newcomer",
		"a x id r = granted; at 10; a x id r behind = busy; count 1"},
	{"re-entry never queues, nor does a repetition or misuse",
		"a x id r = granted; a x behind = re-entered; a s behind = re-entered;"
		"a p1 behind = mixed; a drop = released; a s id r = granted; b s = granted;"
		"a s behind id r = replayed; a s behind = re-entered; a x behind = upgrade;"
		"evict = released; a p5 id r = granted; a p1 id r behind = replayed"},
	{"one more permit queues",
		"a p5 id r = granted; a p5 behind = busy; a p5 behind id q = busy; has a v1;"
		"a p5 = re-entered"},

	/* rule 11: guard */
	{"a guard keeps strangers out after the deadline",
		"a x = granted; guard a; at 99; b x = busy; b s = busy; b p9 = busy; unguard a;"
		"b x = granted"},
	{"after a release, an eviction and the reaper",
		"a x = granted; guard a; a release = released; has a pinned; b x = busy; b s = busy;"
		"b p9 = busy; a renew = not-held; unguard a; b x = granted; guard b;"
		"evict = released; a s = busy; unguard b; a x = granted; guard a; at 10;"
		"reap = released; b x = busy"},
	{"a guard does not make a lease live",
		"a x = granted; guard a; at 10; a renew #101 = not-held; a release = not-held;"
		"evict = not-held; b renew = not-held"},
	{"a guard does not keep its own holder out",
		"a x = granted; guard a; a drop = released; a s = granted; b s = busy;"
		"a drop = released; a p1 = granted; b p9 = busy; b s = busy; count 2"},
	{"nor one that acts for its principal; but a stranger",
		"place a x acts; guard a; a drop = released; a s = granted; a drop = released;"
		"unguard a; place a x stranger until 0; guard a; a s = busy"},
	{"a shared guard admits shared newcomers",
		"a s = granted; guard a; at 10; b x = busy; b p9 = busy; b s = granted;"
		"has a pinned; b release = released; b x = busy"},
	{"a guard keeps the mode in which it was taken",
		"a x = granted; guard a; a down = downgraded; has a s guarded 1 x; b s = busy;"
		"b x = busy; a s = re-entered; a drop = released; b s = busy retry never;"
		"a s = granted; unguard a; b s = granted"},
	{"of several guards the strictest and largest counts",
		"a x = granted; guard a; a x = re-entered; a down = downgraded; guard a;"
		"has a guarded 2 x; b s = busy; unguard a; guard a; has a guarded 2 s; b s = granted;"
		"c x = busy"},
	{"guarded permits count though they are over",
		"a p9 take 2 = granted; guard a; a p9 take 5 = re-entered; at 10; b x = busy;"
		"b s = busy; b p2 = busy; b p3 = granted; b p3 = busy; b p4 = re-entered; c p4 = busy"},
	{"permits count by the holds or the guard, whichever are more",
		"a p9 take 3 = granted; guard a; a release holds 2 = released; has a v1;"
		"b p3 = busy; b p4 = granted; evict = released; unguard a; a p9 = granted; guard a;"
		"a p9 take 2 = re-entered; b p3 = busy; b p4 = granted"},
	{"its own guard takes no permit from a holder",
		"a p2 take 2 = granted; guard a; a release = released; a p2 = re-entered;"
		"a p2 = busy; b p2 = busy; a drop = released; has a pinned; b p2 = busy;"
		"a p2 take 2 = granted; a p2 = busy"},
	{"sums with guarded permits do not wrap",
		"place a p vmax stranger; guard a; place b p vmax stranger; guard b;"
		"place c p vmax stranger; guard c; evict = released; d pmax = busy"},
	{"a pinned holder never changes",
		"delay 100; a s = granted; guard a; a drop = released; a renew #101 = not-held;"
		"a release #101 = not-held; a down = not-held; a leave = not-held; evict a = not-held;"
		"reap = not-held; b s = granted; a s = granted; count 3; evict = released changed 2;"
		"has a pinned"},
	{"a live holder is guarded without a difference",
		"a x = granted; guard a; a x for 20 = re-entered; a renew for 30 = renewed;"
		"a release = released; has a guarded 1 x v1; b x = busy"},

	/* rule 12: lock delay */
	{"the lock delay keeps strangers out to its last microsecond",
		"delay 5; a x = granted; at 10; b x = busy retry 15; b s = busy; b p9 = busy; at 14;"
		"b x = busy; at 15; b x = granted; count 1"},
	{"it does not make a lease live",
		"delay 100; a x = granted; at 10; a renew #101 = not-held; a release = not-held;"
		"a drop = not-held; a down = not-held; b release = not-held; count 1"},
	{"it is nothing to its own holder, in any mode",
		"delay 100; a x = granted; at 10; a s = granted changed 2; at 20; a p1 = granted;"
		"at 30; a x = granted; count 1; b x = busy"},
	{"nor to one that acts for its principal; but to a stranger",
		"delay 100; place a x acts until -1; a x = granted; evict = released;"
		"place a x stranger until -1; a x = busy"},
	{"others' rows stay for it when a name is granted",
		"delay 5; a s = granted; b s for 12 = granted; at 14; c s = granted; count 3; at 15;"
		"d s = granted; none a; has b; b s = granted changed 2; count 3"},
	{"permits count for it, then their guard",
		"delay 5; a p9 = granted; guard a; a p9 = re-entered; at 10; b p2 = busy retry 15;"
		"at 15; b p1 = busy; b p2 = granted"},
	{"the reaper leaves rows for it",
		"delay 5; a x = granted; at 14; reap = not-held; at 15; reap = released; count 0"},
	{"eviction cuts it short",
		"delay 5; a s = granted; b s = granted; at 14; evict c = not-yours;"
		"evict b = released changed 1; c x = busy; evict = released; count 0; c x = granted;"
		"at 29; evict = not-held; count 1"},
	{"release and eviction leave none",
		"delay 100; a x = granted; a release = released; b x = granted; b drop = released;"
		"a x = granted; evict a = released; b x = granted"},
	{"it may be changed at any time",
		"a x = granted; at 20; delay 11; b x = busy; delay 10; b x = granted"},
	{"the longest fits any time",
		"delay ttl; at first; place a x stranger until first; b x = busy retry first+ttl;"
		"at first+ttl; b x = granted"},
	{"and the last",
		"delay ttl; at last-ttl; a x for ttl = granted; b x = busy retry never"},

	/* when to come back */
	{"at the first deadline that changes something",
		"a s for 30 = granted; b s = granted; c s for 20 = granted; d x = busy retry 10;"
		"at 10; d x = busy retry 20"},
	{"no delay is waited for after an own deadline",
		"delay 5; a p2 = granted; b p2 for 100 = granted; a p2 = busy retry 10;"
		"c p2 = busy retry 15; b p2 = busy retry 15"},
	{"an own delay is no time to come back at",
		"delay 5; a s = granted; b s for 100 = granted; at 12; a x = busy retry 105;"
		"c x = busy retry 15"},
	{"who waits for an event is told no time",
		"delay 5; place a s session bound; place b s xact bound; place c s stranger until -10;"
		"guard c; place d s stranger until 0 pinned; guard d; e x = busy retry never;"
		"place f s stranger until 7; e x = busy retry 12"},

	/* looking */
	{"a name is free if nobody is in anybody's way",
		"free; owner -; a x = granted; busy; owner a; a down = downgraded; busy; owner -;"
		"at 10; free; delay 1; busy; at 11; free"},
	{"a guard alone keeps it from being free",
		"a x = granted; guard a; a drop = released; busy; owner -; unguard a; free"},
	{"an ended transaction's is free, a lost session's after the delay",
		"delay 5; a x xact = granted; ends a; free; b x session = granted; owner b; ends b;"
		"busy; owner -; at 5; free"},
};

/* ---- reading scripts ---- */

static const char *const outcome_word[] = {
	"granted", "re-entered", "replayed", "busy", "renewed", "released",
	"will-end", "downgraded", "delayed", "not-yours", "not-held", "upgrade",
	"mixed", "mixed-kinds", "is-permit", "is-bound", "too-many", "no-tokens"
};
static const char *const life_word[] = {
	"timed", "bound", "stranded", "left", "lost", "pinned", "leaving"
};
static const char *const kind_word[] = {"", "plain", "session", "xact"};
static const char mode_letter[] = "?xsp";

/* The words of the statement being played, and where the next one is. */
static char text[200];
static const char *word[40];
static int	nwords;
static int	next_word;

/* The name, and which session each holder belongs to. */
static lease_holder name[ROOM + 1];
static int	session_of[ROOM + 1];
static size_t count;
static int64_t now_us;
static int64_t delay_us;
static uint64_t last_token;
static lease_change last_removal;

/* The script after the statement being played; NULL: no script is. */
static const char *unplayed;

/* Split the next statement of a script into words; false at its end. */
static bool
read_statement(const char **script)
{
	size_t		length = strcspn(*script, ";");

	if (**script == '\0')
		return false;
	assert_true(length < sizeof(text));
	memcpy(text, *script, length);
	text[length] = '\0';
	*script += length + ((*script)[length] == ';');
	nwords = next_word = 0;
	for (char *p = strtok(text, " "); p != NULL; p = strtok(NULL, " "))
		word[nwords++] = p;
	return true;
}

/* The next word, or NULL at the end. */
static const char *
peek(void)
{
	return next_word < nwords ? word[next_word] : NULL;
}

static const char *
take(void)
{
	assert_true(next_word < nwords);
	return word[next_word++];
}

/* Take the next word if it is this one. */
static bool
is_next(const char *expected)
{
	if (peek() == NULL || strcmp(peek(), expected) != 0)
		return false;
	next_word++;
	return true;
}

/* Take the next word if it is one of a list: its place, or -1. */
static int
take_of(const char *const *list, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (*list[i] != '\0' && is_next(list[i]))
			return (int) i;
	return -1;
}

/* Read a number with a name or a difference in it. */
static int64_t
read_number(const char *s)
{
	static const struct
	{
		const char *name;
		int64_t		value;
	}			names[] = {
		{"max", LEASE_VERSION_MAX}, {"end", (int64_t) LEASE_TOKEN_MAX},
		{"ttl", LEASE_TTL_MAX_US}, {"first", INT64_MIN}, {"last", INT64_MAX},
	};
	char	   *rest;

	for (size_t i = 0; i < LENGTH(names); i++)
	{
		size_t		length = strlen(names[i].name);

		if (strncmp(s, names[i].name, length) != 0)
			continue;
		s += length;
		return names[i].value + (*s == '\0' ? 0 : *s == '-' ?
								 -read_number(s + 1) : read_number(s + 1));
	}
	return strtoll(s, &rest, 10);
}

/* A time counts from the start of the script, if it is not one of the extremes. */
static int64_t
read_time(const char *s)
{
	return strncmp(s, "first", 5) == 0 || strncmp(s, "last", 4) == 0 ?
		read_number(s) : START + read_number(s);
}

/* Take "what N", or "whatN", if it comes next: says whether, and the number. */
static bool
is_next_number(const char *what, int64_t *number)
{
	size_t		length = strlen(what);

	if (is_next(what))
		*number = read_number(take());
	else if (peek() != NULL && strncmp(peek(), what, length) == 0 &&
			 strchr("0123456789m-e", peek()[length]) != NULL)
		*number = read_number(take() + length);
	else
		return false;
	return true;
}

/* A mode by its letter, and the limit after it; 0: it is no mode. */
static lease_mode
take_mode(uint32_t *limit)
{
	const char *s = peek();
	const char *letter = s == NULL ? NULL : strchr("xsp", s[0]);

	if (letter == NULL || (s[1] != '\0' && s[0] != 'p') ||
		(s[1] != '\0' && strchr("0123456789m", s[1]) == NULL))
		return 0;
	if (s[1] != '\0')
		*limit = (uint32_t) read_number(s + 1);
	next_word++;
	return (lease_mode) (strchr(mode_letter, *letter) - mode_letter);
}

/* An owner or id, as bytes that are not those of the holders. */
static lease_bytes
bytes_of(const char *s)
{
	return (lease_bytes) {s, strlen(s)};
}

/* Bytes that stay when the script goes on. */
static lease_bytes
keep(lease_bytes bytes)
{
	static char kept[4096];
	static size_t used = 0;

	if (used + bytes.length > sizeof(kept))
		used = 0;
	if (bytes.length > 0)
		memcpy(kept + used, bytes.data, bytes.length);
	used += bytes.length;
	return (lease_bytes) {kept + used - bytes.length, bytes.length};
}

/* The first holder of an owner, or NULL. */
static lease_holder *
find_holder(const char *owner)
{
	for (size_t i = 0; i < count; i++)
		if (bytes_equal(name[i].owner, bytes_of(owner)))
			return &name[i];
	return NULL;
}

static lease_holder *
take_holder(void)
{
	lease_holder *h = find_holder(take());

	assert_non_null(h);
	return h;
}

/* Take a holder out of the name. */
static void
remove_holder(size_t i)
{
	count--;
	memmove(&name[i], &name[i + 1], (count - i) * sizeof(name[0]));
	memmove(&session_of[i], &session_of[i + 1],
			(count - i) * sizeof(session_of[0]));
}

/* ---- playing scripts ---- */

/* Do a request as an engine does. */
static lease_result
do_request(const lease_request *request, int session)
{
	lease_holder before[ROOM + 1];
	lease_result result;
	const char *fault;

	assert_true(count < ROOM);
	for (size_t i = 0; i < count; i++)
		name[i].elsewhere = name[i].kind != LEASE_PLAIN &&
			session_of[i] != session;
	memcpy(before, name, sizeof(before));
	result = lease_apply(request, name, count, now_us);
	fault = lease_step_fault(request, before, count, name, &result, now_us);
	if (fault != NULL)
		fail_msg("%s", fault);

	if (result.outcome == LEASE_GRANTED)
	{
		last_token = result.token;
		session_of[count] = session;
		name[count].owner = keep(name[count].owner);
	}
	count = result.count;
	for (size_t i = count; i-- > 0;)
	{
		lease_holder *h = &name[i];

		if (h->change == LEASE_ADDED || h->change == LEASE_UPDATED)
			h->request = keep(h->request);
		if (!lease_is_removed(h->change))
			continue;
		last_removal = h->change;
		if (h->guarded == 0)
			remove_holder(i);
		else
		{
			h->life = LEASE_PINNED;
			h->deadline_us = now_us;
		}
	}
	return result;
}

/* Read the options of a request, up to "=". */
static int
take_options(lease_request *request)
{
	int			session = 0;
	int64_t		number;
	int			kind;

	while (!is_next("="))
	{
		if (is_next("behind"))
			request->behind = true;
		else if (is_next("claim"))
			request->claim = true;
		else if (is_next("again"))
			request->only_repeated = true;
		else if (is_next("kept"))
			request->unless_repeated = true;
		else if (is_next("id"))
			request->request = bytes_of(take());
		else if (is_next_number("for", &number))
			request->ttl_us = number;
		else if (is_next_number("take", &number))
			request->permits = (uint32_t) number;
		else if (is_next_number("holds", &number))
			request->holds = (uint32_t) number;
		else if (is_next_number("next", &number))
			request->next_token = (uint64_t) number;
		else if (is_next_number("by", &number))
			session = (int) number;
		else if (is_next_number("#", &number))
			request->token = (uint64_t) number;
		else if ((kind = take_of(kind_word, LENGTH(kind_word))) > 0)
			request->kind = (lease_kind) kind;
		else
			fail_msg("no option: %s", take());
	}
	return session;
}

/* Play a request of an owner, or of an operator, and check its result. */
static void
play_request(lease_request request)
{
	static const char *const ops[] = {
		"", "renew", "release", "drop", "drop-after", "down", "leave"
	};
	lease_result result;
	int			session;
	int			expected;
	int64_t		number;

	request.kind = LEASE_PLAIN;
	request.ttl_us = 10;
	request.delay_us = delay_us;
	request.next_token = last_token + 1;
	if (request.op == LEASE_ACQUIRE)
	{
		request.mode = take_mode(&request.limit);
		if (request.mode == 0)
		{
			int			op = take_of(ops, LENGTH(ops));

			assert_true(op >= 0);
			request.op = (lease_op) op;
		}
	}
	session = take_options(&request);
	result = do_request(&request, session);

	expected = take_of(outcome_word, LENGTH(outcome_word));
	assert_true(expected >= 0);
	assert_string_equal(outcome_word[result.outcome], outcome_word[expected]);
	while (peek() != NULL)
	{
		if (is_next_number("#", &number))
			assert_int_equal(result.token, number);
		else if (is_next_number("changed", &number))
			assert_int_equal(result.changed, number);
		else if (is_next("retry"))
			assert_int_equal(result.retry_us, is_next("never") ? INT64_MAX :
							 read_time(take()));
		else
			fail_msg("no result: %s", take());
	}
}

/* Put a holder on the name without a request. */
static void
play_place(void)
{
	lease_holder *h = &name[count];
	lease_holder holder = {.kind = LEASE_PLAIN, .standing = LEASE_SELF};
	int64_t		number;
	uint32_t	limit;
	int			i;

	holder.owner = keep(bytes_of(take()));
	holder.mode = take_mode(&limit);
	holder.version = 1;
	holder.token = last_token + 1;
	holder.deadline_us = now_us < INT64_MAX - 10 ? now_us + 10 : INT64_MAX;
	session_of[count] = 0;
	while (peek() != NULL)
	{
		if (is_next("stranger"))
			holder.standing = LEASE_STRANGER;
		else if (is_next("acts"))
			holder.standing = LEASE_ACTS_FOR;
		else if (is_next("until"))
			holder.deadline_us = read_time(take());
		else if (strncmp(peek(), "id", 2) == 0)
			holder.request = keep(bytes_of(take() + 2));
		else if (is_next_number("v", &number))
			holder.version = (uint32_t) number;
		else if (is_next_number("#", &number))
			holder.token = (uint64_t) number;
		else if ((i = take_of(kind_word, LENGTH(kind_word))) > 0)
			holder.kind = (lease_kind) i;
		else if ((i = take_of(life_word, LENGTH(life_word))) >= 0)
			holder.life = (lease_life) i;
		else
			fail_msg("no property: %s", take());
	}
	assert_true(count < ROOM && holder.mode != 0);
	last_token = lease_merge_marks(last_token, holder.token);
	*h = holder;
	count++;
}

/* Check a holder. */
static void
play_has(void)
{
	const lease_holder *h = take_holder();
	int64_t		number;
	uint32_t	limit;
	lease_mode	mode;
	int			i;

	while (peek() != NULL)
	{
		if ((mode = take_mode(&limit)) != 0)
			assert_int_equal(h->mode, mode);
		else if (is_next("until"))
			assert_int_equal(h->deadline_us, read_time(take()));
		else if (is_next("repeated"))
			assert_true(h->repeated);
		else if (is_next_number("guarded", &number))
		{
			assert_int_equal(h->guarded, number);
			assert_int_equal(h->guard_mode, take_mode(&limit));
		}
		else if (strncmp(peek(), "id", 2) == 0)
			assert_true(bytes_equal(h->request, bytes_of(take() + 2)));
		else if (is_next_number("v", &number))
			assert_int_equal(h->version, number);
		else if (is_next_number("#", &number))
			assert_int_equal(h->token, number);
		else if ((i = take_of(kind_word, LENGTH(kind_word))) > 0)
			assert_int_equal(h->kind, i);
		else if ((i = take_of(life_word, LENGTH(life_word))) >= 0)
			assert_int_equal(h->life, i);
		else
			fail_msg("no property: %s", take());
	}
}

/* Let the clock come to a time. */
static void
play_clock(void)
{
	now_us = read_time(take());
	for (size_t i = 0; i < count; i++)
		if (name[i].life == LEASE_BOUND && name[i].deadline_us <= now_us)
			name[i].deadline_us = now_us + 1;
}

/* End the guards of a holder. */
static void
play_unguard(void)
{
	lease_holder *h = take_holder();

	while (h->guarded == 0)		/* it may have a younger holder */
		h++;
	h->guarded = 0;
	if (h->life == LEASE_PINNED)
		remove_holder((size_t) (h - name));
}

/* Play one statement. */
static void
play(void)
{
	lease_holder *h;

	if (is_next("at"))
		play_clock();
	else if (is_next("delay"))
		delay_us = read_number(take());
	else if (is_next("tokens"))
		last_token = (uint64_t) read_number(take());
	else if (is_next("place"))
		play_place();
	else if (is_next("has"))
		play_has();
	else if (is_next("none"))
		assert_null(find_holder(take()));
	else if (is_next("count"))
		assert_int_equal(count, read_number(take()));
	else if (is_next("counted"))
		assert_int_equal(last_removal, is_next("ended") ? LEASE_ENDED :
						 is_next("expired") ? LEASE_EXPIRED : LEASE_ADDED);
	else if (is_next("guard"))
	{
		h = take_holder();
		lease_merge_guard(h, h->mode, h->version);
	}
	else if (is_next("unguard"))
		play_unguard();
	else if (is_next("ends"))
	{
		h = take_holder();
		lease_judge(h, h->kind == LEASE_SESSION ? LEASE_BOND_LOST :
					LEASE_BOND_ENDED, 10, now_us, now_us);
	}
	else if (is_next("discards"))
		lease_judge(take_holder(), LEASE_BOND_ENDED, 10, now_us, now_us);
	else if (is_next("before"))
	{
		h = take_holder();
		lease_judge(h, LEASE_BOND_BEFORE, read_number(take()), now_us, now_us);
	}
	else if (is_next("free"))
		assert_true(lease_is_free(name, count, delay_us, now_us));
	else if (is_next("busy"))
		assert_false(lease_is_free(name, count, delay_us, now_us));
	else if (is_next("owner"))
	{
		size_t		i = lease_find_exclusive(name, count, now_us);
		const char *owner = take();

		if (i == count)
			assert_string_equal(owner, "-");
		else
			assert_true(bytes_equal(name[i].owner, bytes_of(owner)));
	}
	else if (is_next("evict"))
		play_request((lease_request) {
			.op = LEASE_EVICT,
			.owner = strcmp(peek(), "=") == 0 ? NO_BYTES : bytes_of(take()),
		});
	else if (is_next("reap"))
		play_request((lease_request) {.op = LEASE_REAP});
	else
		play_request((lease_request) {
			.op = LEASE_ACQUIRE, .owner = bytes_of(take())
		});
	if (peek() != NULL)
		fail_msg("what is \"%s\"?", peek());
}

/* Begin with a free name at a time that is not zero. */
static void
set_up(void)
{
	memset(name, 0, sizeof(name));
	count = 0;
	now_us = START;
	last_token = 100;
	delay_us = 0;
	last_removal = LEASE_UNCHANGED;
}

/* Play a script. */
static void
play_all(const char *script)
{
	while (read_statement(&script))
	{
		unplayed = script;
		play();
	}
	unplayed = NULL;
}

static void
play_case(void **state)
{
	set_up();
	play_all(((const script_case *) *state)->script);
}

/* After a failure, say where it was. */
static int
tell_failure(void **state)
{
	(void) state;
	if (unplayed != NULL)
		print_error("failed before \"%s\"\n", unplayed);
	unplayed = NULL;
	return 0;
}

/* ---- what has no history ---- */

static void
strings_are_1_to_255_bytes(void **state)
{
	(void) state;
	assert_int_equal(LEASE_STRING_MAX, 255);
	assert_false(lease_check_string(0));
	assert_true(lease_check_string(1));
	assert_true(lease_check_string(255));
	assert_false(lease_check_string(256));
	assert_false(lease_check_string(SIZE_MAX));
}

static void
ttl_is_above_zero_and_at_most_a_billion_seconds(void **state)
{
	(void) state;
	assert_int_equal(LEASE_TTL_MAX_US, INT64_C(1000000000) * 1000000);
	assert_false(lease_check_ttl(INT64_MIN));
	assert_false(lease_check_ttl(0));
	assert_true(lease_check_ttl(1));
	assert_true(lease_check_ttl(LEASE_TTL_MAX_US));
	assert_false(lease_check_ttl(LEASE_TTL_MAX_US + 1));
	assert_false(lease_check_ttl(INT64_MAX));
}

static void
strings_are_the_same_byte_for_byte(void **state)
{
	static const struct
	{
		lease_bytes a;
		lease_bytes b;
		bool		same;
	}			pairs[] = {
		{{"worker", 6}, {"workers", 6}, true},
		{{"worker", 6}, {"Worker", 6}, false},
		{{"worker", 6}, {"worker ", 7}, false},
		{{"caf\xc3\xa9", 5}, {"cafe\xcc\x81", 6}, false},
		{{"a\0b", 3}, {"a\0b", 3}, true},
		{{"a\0b", 3}, {"a\0c", 3}, false},
		{{"a\0", 2}, {"a", 1}, false},
		{{NULL, 0}, {"", 0}, true},
		{{NULL, 0}, {"a", 1}, false},
	};

	(void) state;
	for (size_t i = 0; i < LENGTH(pairs); i++)
	{
		assert_int_equal(lease_same(pairs[i].a, pairs[i].b), pairs[i].same);
		assert_int_equal(lease_same(pairs[i].b, pairs[i].a), pairs[i].same);
	}
}

static void
owners_are_compared_to_their_last_byte(void **state)
{
	static const char one[LEASE_STRING_MAX] = {0};
	static const char same[LEASE_STRING_MAX] = {0};
	static const char other[LEASE_STRING_MAX] = {[LEASE_STRING_MAX - 1] = 'y'};
	lease_request request = {
		.op = LEASE_ACQUIRE, .owner = {one, sizeof(one)}, .ttl_us = 10,
		.mode = LEASE_EXCLUSIVE, .kind = LEASE_PLAIN, .next_token = 1,
	};

	(void) state;
	set_up();
	assert_int_equal(do_request(&request, 0).outcome, LEASE_GRANTED);
	request.owner.data = same;
	assert_int_equal(do_request(&request, 0).outcome, LEASE_REENTERED);
	request.owner.data = other;
	assert_int_equal(do_request(&request, 0).outcome, LEASE_BUSY);
}

static void
marks_of_the_last_call_are_forgotten(void **state)
{
	lease_holder two[3] = {
		{.owner = {"a", 1}, .mode = LEASE_SHARED, .kind = LEASE_PLAIN,
			.version = 1, .token = 1, .deadline_us = 10,
		.change = LEASE_EXPIRED},
		{.owner = {"b", 1}, .mode = LEASE_SHARED, .kind = LEASE_PLAIN,
			.version = 1, .token = 2, .deadline_us = 10,
		.change = LEASE_EVICTED},
	};
	lease_request request = {.op = LEASE_REAP};

	(void) state;
	assert_int_equal(lease_apply(&request, two, 2, 0).changed, 0);
	assert_int_equal(two[0].change, LEASE_UNCHANGED);
	assert_int_equal(two[1].change, LEASE_UNCHANGED);
}

/* What is left of the name may come in any order: all of four, and each answers. */
static void
holders_may_come_in_any_order(void **state)
{
	static const char *const placed =
		"place a p v2;place a p acts;place b p stranger;place c p v9 stranger until 0;";
	static const char *const asked =
		"a p4 = busy;d p4 = busy;a p5 = re-entered #101;d p6 = granted changed 2;"
		"a drop = released #101;a drop = released #102;count 2;";

	(void) state;
	for (int order = 0; order < 24; order++)
	{
		int			digits = order;

		set_up();
		play_all(placed);
		for (int i = 4; i > 1; i--)
		{
			lease_holder moved = name[digits % i];

			name[digits % i] = name[i - 1];
			name[i - 1] = moved;
			digits /= i;
		}
		play_all(asked);
	}
}

/* Pass the holders one at a time; return how many changed. */
static size_t
walk(lease_request request)
{
	size_t		changed = 0;

	for (size_t i = 0; i < count; i++)
		changed += lease_apply(&request, &name[i], 1, now_us).changed;
	return changed;
}

static void
holders_may_be_passed_one_at_a_time(void **state)
{
	(void) state;
	set_up();
	play_all("place a s v3; place a s acts; place a s stranger; place b s;"
			 "place a s until 0");
	assert_int_equal(walk((lease_request) {
		.op = LEASE_RENEW, .owner = BYTES("a"), .ttl_us = 5,
	}), 2);
	assert_int_equal(name[1].deadline_us, now_us + 5);
	assert_int_equal(name[2].deadline_us, now_us + 10);
	assert_int_equal(walk((lease_request) {.op = LEASE_REAP}), 1);
	assert_int_equal(name[4].change, LEASE_EXPIRED);
	assert_int_equal(walk((lease_request) {
		.op = LEASE_DROP, .owner = BYTES("a"),
	}), 2);
	assert_int_equal(name[0].change, LEASE_ENDED);
	assert_int_equal(name[2].change, LEASE_UNCHANGED);
}

static void
what_is_known_of_a_bond_says_what_becomes_of_its_lease(void **state)
{
	/* all at 100, with a time to live of 30, of a deadline of 7 if it is plain */
	static const struct
	{
		lease_kind	kind;
		lease_bond	bond;
		int64_t		since_us;
		lease_life	life;
		int64_t		deadline_us;
	}			judged[] = {
		{LEASE_PLAIN, LEASE_BOND_THERE, 0, LEASE_TIMED, 7},
		{LEASE_PLAIN, LEASE_BOND_ENDED, 0, LEASE_TIMED, 7},
		{LEASE_SESSION, LEASE_BOND_THERE, 0, LEASE_BOUND, 130},
		{LEASE_SESSION, LEASE_BOND_ENDED, 60, LEASE_LEFT, 100},
		{LEASE_SESSION, LEASE_BOND_LOST, 60, LEASE_LOST, 60},
		{LEASE_SESSION, LEASE_BOND_LOST, 101, LEASE_LOST, 100},
		{LEASE_SESSION, LEASE_BOND_BEFORE, 90, LEASE_STRANDED, 120},
		{LEASE_TRANSACTION, LEASE_BOND_THERE, 0, LEASE_BOUND, 130},
		{LEASE_TRANSACTION, LEASE_BOND_ENDED, 60, LEASE_LEFT, 100},
		{LEASE_TRANSACTION, LEASE_BOND_BEFORE, 60, LEASE_STRANDED, 90},
	};

	(void) state;
	for (size_t i = 0; i < LENGTH(judged); i++)
	{
		lease_holder h = {.kind = judged[i].kind, .deadline_us = 7};

		lease_judge(&h, judged[i].bond, 30, judged[i].since_us, 100);
		assert_int_equal(h.life, judged[i].life);
		assert_int_equal(h.deadline_us, judged[i].deadline_us);
	}
}

static void
when_a_lease_ends_and_how_much_is_left(void **state)
{
	/* at 100, of a deadline of 110 or 90, and a lock delay of 5 */
	static const struct
	{
		lease_life	life;
		int64_t		deadline_us;
		int64_t		end_us;
		int64_t		remaining_us;
	}			ends[] = {
		{LEASE_TIMED, 110, 115, 10},
		{LEASE_TIMED, 100, 105, 0},
		{LEASE_TIMED, INT64_MAX - 4, INT64_MAX, INT64_MAX - 104},
		{LEASE_STRANDED, 110, 115, 10},
		{LEASE_LOST, 90, 95, 0},
		{LEASE_LEFT, 90, 90, 0},
		{LEASE_BOUND, 110, INT64_MAX, 10},
		{LEASE_PINNED, 90, INT64_MAX, 0},
		{LEASE_LEAVING, 110, 110, 10},
		{LEASE_LEAVING, 90, 90, 0},
	};

	(void) state;
	for (size_t i = 0; i < LENGTH(ends); i++)
	{
		lease_holder h = {.life = ends[i].life, .deadline_us = ends[i].deadline_us};

		assert_int_equal(lease_end_us(&h, 5), ends[i].end_us);
		assert_int_equal(lease_remaining_us(&h, 100), ends[i].remaining_us);
	}
}

static void
the_holds_seen_at_a_call_have_ended(void **state)
{
	/* after what was there at the call: "a s; b s for 20; c s session" */
	static const struct
	{
		const char *script;
		bool		ended;
		int64_t		next_us;
	}			later[] = {
		{"count 3", false, START + 10},
		{"at 10", false, START + 20},
		{"at 20", false, INT64_MAX},
		{"a renew for 50 = renewed; at 20; c drop = released", false, START + 50},
		{"at 20; c drop = released", true, INT64_MAX},
		{"d s for 90 = granted; at 20; c drop = released", true, INT64_MAX},
		{"a drop = released; a s for 90 = granted; at 20; ends c", true, INT64_MAX},
		{"guard a; evict = released; b s = granted", true, INT64_MAX},
		{"delay 100; at 20; c leave = delayed", true, INT64_MAX},
		{"delay 100; c drop = released; a drop-after for 50 = will-end; at 20",
		false, START + 50},
	};

	(void) state;
	for (size_t i = 0; i < LENGTH(later); i++)
	{
		uint64_t	youngest;
		int64_t		next_us;

		set_up();
		assert_int_equal(lease_youngest(name, count, now_us), 0);
		assert_true(lease_have_ended(name, count, 0, now_us, &next_us));
		play_all("a s = granted; b s for 20 = granted; c s session = granted");
		youngest = lease_youngest(name, count, now_us);
		assert_int_equal(youngest, 103);
		play_all(later[i].script);
		assert_int_equal(lease_have_ended(name, count, youngest, now_us,
										  &next_us), later[i].ended);
		assert_int_equal(next_us, later[i].next_us);
	}
}

static void
another_transactions_lease_has_ended_once_it_is_seen(void **state)
{
	int64_t		next_us;

	(void) state;
	set_up();
	/* what somebody asks sets which session looks */
	play_all("a x xact = granted; guard a; a leave = released; b renew by 1 = not-held");
	assert_int_equal(lease_youngest(name, count, now_us), 101);
	assert_false(lease_have_ended(name, count, 101, now_us, &next_us));
	assert_int_equal(next_us, INT64_MAX);
	play_all("b renew = not-held");
	assert_int_equal(lease_youngest(name, count, now_us), 0);
	assert_true(lease_have_ended(name, count, 101, now_us, &next_us));
	play_all("unguard a; b renew by 1 = not-held");
	assert_true(lease_have_ended(name, count, 101, now_us, &next_us));
}

static void
what_is_in_a_requests_way(void **state)
{
	/* whether the first holder, of "a", blocks an acquire of an owner's */
	static const struct
	{
		const char *script;
		const char *owner;
		lease_mode	mode;
		bool		blocks;
	}			ways[] = {
		{"a x = granted", "b", LEASE_SHARED, true},
		{"a s = granted", "b", LEASE_SHARED, false},
		{"a s = granted", "b", LEASE_EXCLUSIVE, true},
		{"a s = granted; guard a", "b", LEASE_SHARED, false},
		{"a x = granted; guard a; a down = downgraded", "b", LEASE_SHARED, true},
		{"a s = granted; guard a; a drop = released", "b", LEASE_SHARED, false},
		{"a x = granted; guard a; a drop = released", "b", LEASE_SHARED, true},
		{"a x = granted; guard a; a drop = released", "a", LEASE_SHARED, false},
		{"a p5 = granted", "b", LEASE_PERMIT, true},
		{"a p5 = granted", "b", LEASE_SHARED, true},
		{"a p5 = granted", "a", LEASE_PERMIT, true},
		{"a x = granted; at 10", "b", LEASE_SHARED, false},
		{"a x = granted; a drop-after = will-end", "a", LEASE_SHARED, true},
		{"a s = granted; a drop-after = will-end", "a", LEASE_SHARED, false},
		{"delay 5; a x = granted; at 10", "b", LEASE_SHARED, true},
		{"delay 5; a x = granted; at 10", "a", LEASE_SHARED, false},
		{"delay 5; a p5 = granted; at 10", "a", LEASE_PERMIT, false},
	};

	(void) state;
	for (size_t i = 0; i < LENGTH(ways); i++)
	{
		lease_request request = {
			.op = LEASE_ACQUIRE, .owner = bytes_of(ways[i].owner),
			.mode = ways[i].mode, .kind = LEASE_PLAIN, .limit = 5,
		};

		set_up();
		play_all(ways[i].script);
		request.delay_us = delay_us;
		if (lease_blocks(&request, &name[0], now_us) != ways[i].blocks)
			fail_msg("%s, for %s", ways[i].script, ways[i].owner);
	}
}

static void
what_an_unlearnt_acquire_gives_back_and_leaves(void **state)
{
	static const struct
	{
		lease_outcome outcome;
		lease_mode	mode;
		uint32_t	permits;
		bool		has_id;
		uint32_t	added;
		bool		leaves_room;
	}			ends[] = {
		{LEASE_GRANTED, LEASE_EXCLUSIVE, 0, false, 1, false},
		{LEASE_GRANTED, LEASE_EXCLUSIVE, 3, true, 1, false},
		{LEASE_GRANTED, LEASE_SHARED, 0, false, 1, true},
		{LEASE_GRANTED, LEASE_PERMIT, 0, true, 1, true},
		{LEASE_GRANTED, LEASE_PERMIT, 3, true, 3, true},
		{LEASE_REENTERED, LEASE_PERMIT, 3, false, 3, true},
		{LEASE_REENTERED, LEASE_PERMIT, 3, true, 0, true},
		{LEASE_REENTERED, LEASE_EXCLUSIVE, 0, false, 1, true},
		{LEASE_REPLAYED, LEASE_EXCLUSIVE, 0, true, 0, true},
		{LEASE_BUSY, LEASE_EXCLUSIVE, 0, false, 0, true},
	};

	(void) state;
	for (size_t i = 0; i < LENGTH(ends); i++)
	{
		lease_request request = {
			.op = LEASE_ACQUIRE, .owner = BYTES("a"), .mode = ends[i].mode,
			.permits = ends[i].permits,
			.request = ends[i].has_id ? BYTES("r") : NO_BYTES,
		};

		assert_int_equal(lease_holds_added(&request, ends[i].outcome),
						 ends[i].added);
		assert_int_equal(lease_leaves_room(&request, ends[i].outcome,
										   BYTES("b")), ends[i].leaves_room);
		assert_true(lease_leaves_room(&request, ends[i].outcome, BYTES("a")));
	}
}

static void
tokens_grow_over_the_mark_and_the_floor(void **state)
{
	(void) state;
	assert_int_equal(lease_next_token(0, 0), 1);
	assert_int_equal(lease_next_token(7, 5), 8);
	assert_int_equal(lease_next_token(5, 7), 8);
	assert_int_equal(lease_next_token(UINT64_MAX, 7), 0);	/* is none */
	assert_int_equal(lease_merge_marks(5, 7), 7);
	assert_int_equal(lease_merge_marks(7, 5), 7);
	assert_true(lease_is_of_before(7, 7));
	assert_false(lease_is_of_before(lease_next_token(0, 7), 7));
	assert_true(LEASE_TOKEN_MAX == UINT64_C(9007199254740991));
}

/* ---- taking a lock table over ---- */

#define SECOND_US	INT64_C(1000000)
#define STEP		LEASE_TOKENS_PER_SECOND

static void
a_server_starts_its_tokens_from_the_clock_or_waits_for_it(void **state)
{
	/* some year, in seconds since 2020 */
	static const int64_t year = 200000000;
	static const struct
	{
		uint64_t	last;
		int64_t		wall_us;
		uint64_t	floor;
		int64_t		least_wait_us;
		int64_t		most_wait_us;
		bool		clock_is_behind;
	}			tables[] = {
		/* a new table, and one that was last raised long ago */
		{0, year * SECOND_US, year * STEP, 0, 0, false},
		{(year - 5) * STEP, year * SECOND_US, year * STEP, 0, 0, false},
		/* with the second's fraction */
		{0, year * SECOND_US + SECOND_US / 2, year * STEP + STEP / 2, 0, 0, false},
		/* a second ago: not above the clock; just after that, wait */
		{(year - 1) * STEP, year * SECOND_US, year * STEP, 0, 0, false},
		{(year - 1) * STEP + 1, year * SECOND_US, year * STEP + 1, 1, 2, true},
		{year * STEP - STEP / 4, year * SECOND_US, year * STEP + STEP / 4 * 3,
		750000, 750001, true},
		{year * STEP, year * SECOND_US, (year + 1) * STEP, SECOND_US, SECOND_US,
		true},
		/* a clock that was set back: no wait helps */
		{year * STEP + 1, year * SECOND_US, (year + 1) * STEP + 1, 0, 0, true},
		{(year + 3600) * STEP, year * SECOND_US, (year + 3601) * STEP, 0, 0, true},
		/* a clock before 2020, or past belief */
		{7, -SECOND_US, 7 + STEP, 0, 0, true},
		{7, INT64_MAX, 7 + STEP, 0, 0, true},
		/* the end of all tokens */
		{LEASE_TOKEN_MAX - 1, year * SECOND_US, LEASE_TOKEN_MAX, 0, 0, true},
		{LEASE_TOKEN_MAX, year * SECOND_US, LEASE_TOKEN_MAX, 0, 0, true},
	};

	(void) state;
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
	{
		lease_takeover t = lease_take_over(tables[i].last, tables[i].wall_us);

		assert_int_equal(t.floor, tables[i].floor);
		assert_true(t.wait_us >= tables[i].least_wait_us &&
					t.wait_us <= tables[i].most_wait_us);
		assert_int_equal(t.clock_is_behind, tables[i].clock_is_behind);
	}
}

static void
after_the_wait_a_server_need_not_wait_again(void **state)
{
	(void) state;
	for (uint64_t ahead = 0; ahead <= STEP; ahead += STEP / 64 + 1)
	{
		int64_t		wall_us = 200000000 * SECOND_US + 333333;
		uint64_t	last = lease_take_over(0, wall_us).floor - ahead;
		lease_takeover t = lease_take_over(last, wall_us);

		while (t.wait_us > 0)
		{
			wall_us += t.wait_us;
			t = lease_take_over(last, wall_us);
			assert_int_equal(t.wait_us, 0);
		}
		assert_false(t.clock_is_behind);
		assert_true(t.floor >= last + STEP);
	}
}

#define TEST(function)	cmocka_unit_test_teardown(function, tell_failure)

int
main(void)
{
	const struct CMUnitTest others[] = {
		TEST(strings_are_1_to_255_bytes),
		TEST(ttl_is_above_zero_and_at_most_a_billion_seconds),
		TEST(strings_are_the_same_byte_for_byte),
		TEST(owners_are_compared_to_their_last_byte),
		TEST(marks_of_the_last_call_are_forgotten),
		TEST(holders_may_come_in_any_order),
		TEST(holders_may_be_passed_one_at_a_time),
		TEST(what_is_known_of_a_bond_says_what_becomes_of_its_lease),
		TEST(when_a_lease_ends_and_how_much_is_left),
		TEST(the_holds_seen_at_a_call_have_ended),
		TEST(another_transactions_lease_has_ended_once_it_is_seen),
		TEST(what_is_in_a_requests_way),
		TEST(what_an_unlearnt_acquire_gives_back_and_leaves),
		TEST(tokens_grow_over_the_mark_and_the_floor),
		TEST(a_server_starts_its_tokens_from_the_clock_or_waits_for_it),
		TEST(after_the_wait_a_server_need_not_wait_again),
	};
	struct CMUnitTest tests[LENGTH(cases)] = {0};
	int			failed;

	for (size_t i = 0; i < LENGTH(cases); i++)
	{
		tests[i].name = cases[i].claim;
		tests[i].test_func = play_case;
		tests[i].teardown_func = tell_failure;
		tests[i].initial_state = (void *) &cases[i];
	}
	failed = cmocka_run_group_tests_name("core/lease: cases", tests, NULL, NULL);
	return failed +
		cmocka_run_group_tests_name("core/lease", others, NULL, NULL);
}

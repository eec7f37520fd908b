/*
 * lease_trie.h
 *	  Find the bucket of a name, and let the lock table grow.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_TRIE_H
#define DLOCK_LEASE_TRIE_H

#include "compat.h"
#include "lease_page.h"
#include "storage/buf.h"

/* A function that is shown every entry of a bucket, overflow included. */
typedef void (*LeaseEntryVisitor) (Buffer buffer, OffsetNumber offset,
								   LeaseEntry *entry, void *context);

/*
 * A function that is shown every page of a bucket before its entries; true: the
 * visitor need not see these.
 */
typedef bool (*LeasePageVisitor) (Buffer buffer, void *context);

/* To lease_trie_make_room(): for several entries, for which no page has room. */
#define LEASE_PAGE_MORE		BLCKSZ

/* lease_trie.c */
extern bool lease_trie_exists(Relation rel);
extern void lease_trie_create(Relation rel, uint64 seed);
extern uint32 lease_trie_hash(Relation rel, lease_bytes name);
extern Buffer lease_trie_lock(Relation rel, uint32 hash, int mode);
extern Buffer lease_trie_lock_more(Relation rel, uint32 hash);
extern Buffer lease_trie_lock_at(Relation rel, uint64 *cursor, int mode);
extern Buffer lease_trie_lock_block(Relation rel, BlockNumber block);
extern void lease_trie_visit(Relation rel, Buffer bucket, const uint32 *hash,
							 LeaseEntryVisitor visitor, void *context);
extern void lease_trie_visit_pages(Relation rel, Buffer bucket,
								   const uint32 *hash,
								   LeasePageVisitor page_visitor,
								   LeaseEntryVisitor visitor, void *context);
extern void lease_trie_look(Relation rel, uint32 hash,
							LeaseEntryVisitor visitor, void *context);
extern bool lease_trie_has_chain(Buffer bucket, uint32 hash);
extern Buffer lease_trie_find_room(Relation rel, Buffer bucket, uint32 hash,
								   Size size, BlockNumber roomiest);
extern bool lease_trie_compact(Relation rel, Buffer bucket, uint32 hash,
							   Size size);
extern void lease_trie_make_room(Relation rel, Buffer bucket, uint32 hash,
								 Size size);
extern void lease_trie_clear(Relation rel, Buffer bucket);
extern void lease_trie_free_overflow(Relation rel, Buffer bucket);
extern void lease_trie_summarize(Relation rel, Buffer bucket);
extern void lease_trie_note(Relation rel, Buffer bucket, int64 deadline_us,
							lease_bytes owner);
extern void lease_trie_insert(Relation rel, const LeaseEntry *entry);
extern BlockNumber lease_trie_blocks(Relation rel);
extern uint64 lease_trie_largest_mark(Relation rel);

#endif							/* DLOCK_LEASE_TRIE_H */

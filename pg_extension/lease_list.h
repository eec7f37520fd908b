/*
 * lease_list.h
 *	  Doubly linked lists in the area of shared memory.
 *
 * Like lib/ilist.h, but the area is at another address in each process, so a link is a
 * place in the area.  The list is a ring that its head belongs to; an item has its link
 * in a field "link".
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_LIST_H
#define DLOCK_LEASE_LIST_H

#include "lease_area.h"

typedef struct LeaseLink
{
	LeasePlace	previous;
	LeasePlace	next;
} LeaseLink;

#define lease_list_item(type, place) \
	((type *) ((char *) lease_area_at(place) - offsetof(type, link)))

/* Go through a list, which must not change meanwhile. */
#define lease_list_foreach(type, item, list) \
	for (type *item = lease_list_item(type, (list)->next); \
		 &item->link != (list); \
		 item = lease_list_item(type, item->link.next))

static inline void
lease_list_init(LeaseLink *list)
{
	list->previous = list->next = lease_area_place(list);
}

static inline bool
lease_list_is_empty(const LeaseLink *list)
{
	return list->next == lease_area_place(list);
}

/* Put an item in front of all others; or, given another's link, behind that. */
static inline void
lease_list_push_head(LeaseLink *list, LeaseLink *new_link)
{
	new_link->previous = lease_area_place(list);
	new_link->next = list->next;
	((LeaseLink *) lease_area_at(list->next))->previous =
		lease_area_place(new_link);
	list->next = lease_area_place(new_link);
}

static inline void
lease_list_push_tail(LeaseLink *list, LeaseLink *new_link)
{
	lease_list_push_head(lease_area_at(list->previous), new_link);
}

static inline void
lease_list_delete(LeaseLink *link)
{
	((LeaseLink *) lease_area_at(link->previous))->next = link->next;
	((LeaseLink *) lease_area_at(link->next))->previous = link->previous;
}

#endif							/* DLOCK_LEASE_LIST_H */

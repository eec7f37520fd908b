/*
 * image_filter.h
 *	  Counts the rows of each name of a table that is too large to be known.
 *
 * Names share counters.  A name whose counter is 0 has no row.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_IMAGE_FILTER_H
#define DLOCK_IMAGE_FILTER_H

#include "lease.h"

typedef struct image_filter image_filter;

/* image_filter.c */
extern image_filter *image_filter_create(void);
extern void image_filter_free(image_filter *filter);
extern void image_filter_add(image_filter *filter, lease_bytes name);
extern void image_filter_remove(image_filter *filter, lease_bytes name);
extern bool image_filter_has(const image_filter *filter, lease_bytes name);

#endif							/* DLOCK_IMAGE_FILTER_H */

/*
 * histogram.h
 *	  Durations, counted in buckets that are at most 1/128 of their value wide.
 *
 * Debian 12 has no package of HdrHistogram_c.  This is the same idea and no
 * more: each power of two is divided into 128 buckets of equal width, so what
 * percentile() answers, a bucket's middle, is off by less than 0.4 %.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_SUB_BITS	7
#define HISTOGRAM_MAX_BITS	42	/* 73 minutes; what is longer counts as that */
#define HISTOGRAM_BUCKETS \
	((HISTOGRAM_MAX_BITS - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS)

typedef struct Histogram
{
	uint64_t	count;			/* sum of all buckets */
	uint64_t	max_ns;			/* exact */
	uint64_t	buckets[HISTOGRAM_BUCKETS];
} Histogram;

extern void histogram_add(Histogram *h, uint64_t ns);
extern void histogram_merge(Histogram *h, const Histogram *other);
extern double histogram_percentile_us(const Histogram *h, double percentile);

#endif

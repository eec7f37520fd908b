/*
 * histogram.c
 *	  Durations, counted in buckets that are at most 1/128 of their value wide.
 *
 * No locks: each thread has histograms of its own, and they are merged when
 * the threads are gone.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "histogram.h"

#define SUB_BUCKETS		(UINT64_C(1) << HISTOGRAM_SUB_BITS)
#define MAX_NS			((UINT64_C(1) << HISTOGRAM_MAX_BITS) - 1)

/*
 * The bucket of a duration.  Those below 128 ns have one each.  Of the others,
 * the highest bit picks a group of 128 and the next 7 bits one of these.
 */
static unsigned
bucket_of(uint64_t ns)
{
	unsigned	shift;

	if (ns > MAX_NS)
		ns = MAX_NS;
	if (ns < SUB_BUCKETS)
		return (unsigned) ns;
	shift = 63 - __builtin_clzll(ns) - HISTOGRAM_SUB_BITS;
	return (shift << HISTOGRAM_SUB_BITS) + (unsigned) (ns >> shift);
}

/* The duration in the middle of a bucket. */
static double
middle_of(unsigned bucket)
{
	unsigned	shift;

	if (bucket < 2 * SUB_BUCKETS)
		return bucket;
	shift = (bucket >> HISTOGRAM_SUB_BITS) - 1;
	return ((double) (bucket - (shift << HISTOGRAM_SUB_BITS)) + 0.5) *
		(double) (UINT64_C(1) << shift);
}

/* Count a duration. */
void
histogram_add(Histogram *h, uint64_t ns)
{
	h->count++;
	h->buckets[bucket_of(ns)]++;
	if (ns > h->max_ns)
		h->max_ns = ns;
}

/* Count another histogram's durations too. */
void
histogram_merge(Histogram *h, const Histogram *other)
{
	h->count += other->count;
	if (other->max_ns > h->max_ns)
		h->max_ns = other->max_ns;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		h->buckets[i] += other->buckets[i];
}

/* The duration that "percentile" % do not exceed; 0 if there are none. */
double
histogram_percentile_us(const Histogram *h, double percentile)
{
	uint64_t	wanted = (uint64_t) ((double) h->count * percentile / 100);
	uint64_t	seen = 0;

	if (wanted >= h->count)
		return (double) h->max_ns / 1000;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
	{
		seen += h->buckets[i];
		if (seen > wanted)
			return middle_of(i) / 1000;
	}
	return 0;
}

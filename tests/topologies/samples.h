/* Shared by the tests of clusters: opening, a profile, random graphs. */
#ifndef TY_TEST_SAMPLES_H
#define TY_TEST_SAMPLES_H

#include "ty_topologies.h"

/** Opens a description (with sample_profile as this host's profile) or, if it starts with '{',
 * parses JSON. */
ty_cluster *sample_open(const char *text);

/** Imports a file of another tool; the test fails if it is refused.
 * @param notes [out] may be NULL */
ty_cluster *sample_import(const char *path, const ty_cluster_import_options *options,
                          ty_import_notes *notes);

/** Four cores; messages take 2 us + bytes / 4 GB/s exactly. */
ty_profile sample_profile(void);

/** A cluster as JSON; to be freed with ty_free. */
char *sample_json(const ty_cluster *cluster);

/**
 * A random graph of `devices` devices on two or three hosts, with a few switches and NICs.
 * Latencies and bandwidths come from small sets, so that ties are common. NULL if the graph is
 * refused because a vertex cannot be reached.
 */
ty_cluster *sample_random(uint64_t seed, uint32_t devices);

uint64_t sample_next(uint64_t *state); /* xorshift64* */

#endif

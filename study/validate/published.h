/**
 * @file published.h
 * What the names in published measurements stand for in the catalogue and the zoo:
 * study/catalogue/published.json. Internal to planner/validate/.
 */
#ifndef TY_PLANNER_PUBLISHED_H
#define TY_PLANNER_PUBLISHED_H

#include "ty_topologies.h"
#include "ty_validate.h"
#include "ty_workloads.h"

/**
 * The hosts that a record ran on, as a one-line description: as many as its devices fill, hosts of
 * the catalogue where the record names one that has the record's devices per host, else devices
 * with one adapter each.
 * @param cluster [out] NULL with a reason where the device or the network is not known
 */
ty_status ty_published_cluster(const ty_record *record, ty_cluster **cluster,
                               char reason[TY_SKIP_REASON_SIZE], ty_error *error) TY_MUST_CHECK;
/** That description. @param line [out] NULL with a reason as above; owned by the caller */
ty_status ty_published_cluster_line(const ty_record *record, char **line,
                                    char reason[TY_SKIP_REASON_SIZE],
                                    ty_error *error) TY_MUST_CHECK;

/** The zoo's workload of a record's model; NULL with a reason. */
ty_status ty_published_workload(const ty_record *record, ty_workload **workload,
                                char reason[TY_SKIP_REASON_SIZE], ty_error *error) TY_MUST_CHECK;

/** The software that trained a language model, and what it usually does. */
typedef struct ty_published_software {
    char stack[32];                           /* "": none is known */
    char device[64], inside[32], network[32]; /* of the catalogue */
    double zero;
    bool sequence_parallel;
} ty_published_software;
/** The first entry of `language_stacks` whose family and device the record has. */
ty_status ty_published_software_of(const ty_record *record, ty_published_software *out,
                                   ty_error *error) TY_MUST_CHECK;

/** How the record's software exchanges gradients. */
typedef struct ty_published_exchange {
    uint64_t bucket_bytes;   /* sent at once; today's usual ones where the software is not known */
    bool is_server;          /* summed by a server in each host and by servers on all hosts */
    double root_bytes_per_s; /* of all roots of a host together, per direction; servers only */
    double passes; /* how often a gradient crosses the slowest link of a ring; 0: a collective's */
} ty_published_exchange;
ty_status ty_published_exchange_of(const ty_record *record, ty_published_exchange *out,
                                   ty_error *error) TY_MUST_CHECK;

/** What a layer profile calls a record's model, and the samples of its batch where it does not say
 * (0: it does). */
typedef struct ty_published_profile {
    char model[64];
    double samples;
} ty_published_profile;
ty_status ty_published_profile_of(const ty_record *record, ty_published_profile *out,
                                  ty_error *error) TY_MUST_CHECK;

/** Whether constants of image networks were fitted to rows of the record's model. */
ty_status ty_published_is_fitted(const ty_record *record, bool *out, ty_error *error) TY_MUST_CHECK;

#endif

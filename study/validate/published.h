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

#define TY_PUBLISHED_NAME 64

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

/** The zoo's name of a record's model; "" with a reason. */
ty_status ty_published_workload(const ty_record *record, char name[TY_PUBLISHED_NAME],
                                char reason[TY_SKIP_REASON_SIZE], ty_error *error) TY_MUST_CHECK;

/** The software that trained a language model, and what it usually does. */
typedef struct ty_published_software {
    char stack[32];                           /* "": none is known */
    char device[64], inside[32], network[32]; /* of the catalogue */
    double zero;
    bool sequence_parallel;
    char precision[16];     /* of records that state none; "": bf16 */
    char recompute[16];     /* what it recomputes where a record does not say; "": nothing */
    double pod;             /* devices of a host in the question; 0: as stated */
    char sharded_stack[32]; /* that ran what has its states sharded; "": the same */
    double hidden;          /* width of models of which a record states the size alone; 0: none */
    double interleave;      /* chunks a stage, of pipelines that state none; 0: one */
    bool is_local_batch;    /* a stated micro-batch beside a pipeline is the batch of a replica */
} ty_published_software;
/** The first entry of `language_stacks` whose family and device the record has. */
ty_status ty_published_software_of(const ty_record *record, ty_published_software *out,
                                   ty_error *error) TY_MUST_CHECK;

/**
 * A language model that its name tells: words of a workload, without the sequence.
 * @param words [out] "" where the name is not known
 */
typedef struct ty_published_model {
    char words[320]; /* "": the name is not known */
    bool is_whole;   /* they stand even where the record has sizes, which then lack something that
                        is needed: sizes of heads, of latents */
    double sequence; /* of records that state none; 0: not known */
    double tokens;   /* of a sample that are not padding, where padding is left out; 0: all */
} ty_published_model;
ty_status ty_published_language_model(const ty_record *record, ty_published_model *out,
                                      ty_error *error) TY_MUST_CHECK;

/** How the record's software exchanges gradients. */
typedef struct ty_published_exchange {
    uint64_t bucket_bytes; /* sent at once; today's usual ones where the software is not known */
    char algorithm[32];    /* "automatic", "parameter-server" */
    char stack[TY_PUBLISHED_NAME]; /* whose exchanges are as fast as the software's; "": not told */
} ty_published_exchange;
ty_status ty_published_exchange_of(const ty_record *record, ty_published_exchange *out,
                                   ty_error *error) TY_MUST_CHECK;

/** What is known of a network beside its name: the parameters whose gradients are exchanged. */
typedef struct ty_published_gradients {
    double parameters; /* 0: not known */
    double items;      /* of the measure in one sample of a batch: tokens of a sequence; else 1 */
} ty_published_gradients;
ty_status ty_published_gradients_of(const ty_record *record, ty_published_gradients *out,
                                    ty_error *error) TY_MUST_CHECK;

/** Whether constants of image networks were fitted to rows of the record's model. */
ty_status ty_published_is_fitted(const ty_record *record, bool *out, ty_error *error) TY_MUST_CHECK;

#endif

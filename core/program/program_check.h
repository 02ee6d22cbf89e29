/*
 * Shared by the parts of ty_program_check: the rules of one instruction (program_check_fields.c),
 * of one pipeline rank (program_check.c, program_check_buckets.c for its buckets), and the walk of
 * all stage replicas (program_walk.c). Below, `at` is the pipeline rank of the current list,
 * `index` a place in it, and `stage` a stage of the plan. Internal to core.
 */
#ifndef TY_PROGRAM_CHECK_H
#define TY_PROGRAM_CHECK_H

#include "ty_program.h"

/* A stage's instructions for one micro-batch: indices, or TY_NO_INSTRUCTION. */
typedef struct pass_places {
    uint32_t load;
    uint32_t sends[TY_DIRECTION_COUNT], receives[TY_DIRECTION_COUNT];
    uint32_t forward_end, backward_end; /* the part with the last (first) layer of the stage */
    uint32_t weight_end; /* the same for the weights' part of a backward in two parts */
    uint32_t forward_next, backward_next, weight_next; /* next layer expected; backward: one above
                                                        */
} pass_places;

/* A stage's instructions for one bucket. */
typedef struct bucket_places {
    uint32_t encodes[TY_MOST_PHASES], collectives[TY_MOST_PHASES], decode, update;
    uint32_t gather; /* the last one so far */
} bucket_places;

typedef struct stage_facts {
    uint32_t micro_batches; /* per replica */
    uint32_t lead;          /* rounds the pipeline rank runs ahead */
    uint32_t begin;         /* or TY_NO_INSTRUCTION */
    uint32_t *sequence; /* [instruction]: the list in the order of one step: the most rounds ahead
                           first */
    uint32_t *turns;    /* [instruction]: its place in that order */
    uint32_t stream_lengths[TY_STREAM_COUNT];
    uint32_t *streams[TY_STREAM_COUNT]; /* [stream_length]: instructions of the stream in order */
    uint32_t *order;                    /* [instruction]: place in its stream */
    /* [instruction][TY_STREAM_COUNT]: the prefix of each stream, in that order, that is done when
     * the instruction ends: 1 + turn, 0 for nothing. */
    uint32_t *clocks;
    uint32_t *last_backward; /* [layers of the workload]: 1 + turn, 0 for none */
    pass_places *passes;     /* [virtual stages][micro_batches] */
    bucket_places *buckets;  /* [buckets of the plan] */
} stage_facts;

typedef struct program_checker {
    const ty_plan *plan;
    const ty_program *program;
    const char *place; /* prefix of messages: "job.json:/program" */
    uint32_t pipeline_size;
    uint32_t first_backward; /* ty_workload_first_backward */
    stage_facts *stages;     /* [pipeline rank] */
    ty_error *error;
} program_checker;

/* ---- One instruction (program_check_fields.c) ---- */

/** The fields of an operation; the others must be absent. */
typedef struct ty_op_use {
    bool is_pass, is_transfer, is_bucket;
} ty_op_use;
extern const ty_op_use ty_op_uses[TY_OP_COUNT];

/** TY_EPARSE for an instruction, and for a missing one: "expected ...". */
ty_status ty_program_complain(const program_checker *checker, uint32_t at, uint32_t index,
                              const char *format, ...) TY_PRINTF(4, 5);
ty_status ty_program_complain_missing(const program_checker *checker, uint32_t at,
                                      const char *format, ...) TY_PRINTF(3, 4);
ty_status ty_instruction_check(const program_checker *checker, uint32_t at,
                               uint32_t index) TY_MUST_CHECK;

/** The lowest layer of a stage in backward; the layer after the stage: none. */
uint32_t ty_program_lowest_backward(const program_checker *checker, uint32_t stage);
bool ty_program_has_backward(const program_checker *checker, uint32_t stage);
/** Whether a gradient crosses the cut before a stage: something before it is trained. */
bool ty_program_has_gradient_before(const program_checker *checker, uint32_t stage);

static inline const ty_instruction *ty_program_instruction(const program_checker *checker,
                                                           uint32_t at, uint32_t index)
{
    return &checker->program->stages[at].instructions[index];
}

static inline bool ty_bucket_is_of_stage(const ty_bucket *bucket, uint32_t stage)
{
    return bucket->stage == stage || bucket->tied_stage == stage;
}

static inline bool ty_bucket_has_layer(const ty_bucket *bucket, uint32_t layer)
{
    return layer >= bucket->first_layer && layer - bucket->first_layer < bucket->layer_count;
}

/* ---- One pipeline rank ---- */

/** Checks that `needed`, which may be absent, is certainly done when `index` starts. */
ty_status ty_program_require(const program_checker *checker, uint32_t at, uint32_t index,
                             uint32_t needed, const char *what) TY_MUST_CHECK;
/** Records the place of an instruction that must occur once. */
ty_status ty_program_note_once(const program_checker *checker, uint32_t at, uint32_t index,
                               uint32_t *place) TY_MUST_CHECK;
/** Records the place of an instruction of a bucket; after all, checks that none is missing and that
 * each waits for its inputs (program_check_buckets.c). */
ty_status ty_program_bucket_note(const program_checker *checker, uint32_t at,
                                 uint32_t index) TY_MUST_CHECK;
ty_status ty_program_bucket_check(const program_checker *checker, uint32_t at,
                                  uint32_t bucket) TY_MUST_CHECK;

/** Whether a pass has layers of a bucket. */
bool ty_program_overlaps(const ty_bucket *bucket, const ty_instruction *pass);
/** Checks the plan's `exchange_order`, if it has one (program_check_order.c). */
ty_status ty_program_check_order(const program_checker *checker, uint32_t at) TY_MUST_CHECK;

/** A pipeline rank's instructions for a micro-batch of one of its stages. */
pass_places *ty_program_pass(const program_checker *checker, uint32_t stage, uint32_t micro_batch);

/**
 * ty_program_check for a program inside a document.
 * @param place prefix of messages, from ty_json_place
 */
ty_status ty_program_check_at(const ty_plan *plan, const ty_program *program, const char *place,
                              ty_error *error) TY_MUST_CHECK;

/** "receive of the activation of micro-batch 2 from stage 0". */
void ty_instruction_describe(const ty_instruction *instruction, char *text, size_t size);

/** TY_OK if all stage replicas reach their ends, else TY_EPARSE naming two that wait. */
ty_status ty_program_walk(const program_checker *checker) TY_MUST_CHECK;

#endif

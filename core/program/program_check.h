/*
 * What the parts of ty_program_check share: the rules of one instruction (program_check_fields.c),
 * of one pipeline rank (program_check.c, of its buckets program_check_buckets.c), and the walk of
 * all ranks (program_walk.c). Below, `at` is a pipeline rank, whose list is looked at, `index` a
 * place in it, and `stage` one of the plan. Internal to core.
 */
#ifndef TY_PROGRAM_CHECK_H
#define TY_PROGRAM_CHECK_H

#include "ty_program.h"

/* Where a stage handles one micro-batch. Indices of instructions, or TY_NO_INSTRUCTION. */
typedef struct pass_places {
    uint32_t load;
    uint32_t sends[TY_DIRECTION_COUNT], receives[TY_DIRECTION_COUNT];
    uint32_t forward_end, backward_end; /* the piece with the last (first) layer of the stage */
    uint32_t weight_end; /* the same of the weights' part of backward, if it is apart */
    uint32_t forward_next, backward_next, weight_next; /* next layer expected; backward: one above
                                                        */
} pass_places;

/* Where a stage handles one bucket. */
typedef struct bucket_places {
    uint32_t encodes[TY_MOST_PHASES], collectives[TY_MOST_PHASES], decode, update;
    uint32_t gather; /* the last one so far */
} bucket_places;

typedef struct stage_facts {
    uint32_t micro_batches; /* of one replica */
    uint32_t lead;          /* rounds the pipeline rank runs ahead */
    uint32_t begin;         /* or TY_NO_INSTRUCTION */
    uint32_t *sequence;     /* [instruction]: the list in the order in which one step goes through
                               it: what is most rounds ahead first */
    uint32_t *turns;        /* [instruction]: its place there */
    uint32_t stream_lengths[TY_STREAM_COUNT];
    uint32_t *streams[TY_STREAM_COUNT]; /* [stream_length]: instructions of the stream in order */
    uint32_t *order;                    /* [instruction]: place in its stream */
    /* [instruction][TY_STREAM_COUNT]: how much of the sequence, seen from each stream, is over when
     * the instruction ends: 1 + turn, 0 for nothing. */
    uint32_t *clocks;
    uint32_t *last_backward; /* [layers of the workload]: 1 + turn, 0 for none */
    pass_places *passes;     /* [stages of the pipeline rank][micro_batches] */
    bucket_places *buckets;  /* [buckets of the plan] */
} stage_facts;

typedef struct program_checker {
    const ty_plan *plan;
    const ty_program *program;
    const char *place; /* how messages begin: "job.json:/program" */
    uint32_t pipeline_size;
    uint32_t first_backward; /* ty_workload_first_backward */
    stage_facts *stages;     /* [pipeline rank] */
    ty_error *error;
} program_checker;

/* ---- One instruction (program_check_fields.c) ---- */

/** Which fields an operation has; the others must be absent. */
typedef struct ty_op_use {
    bool is_pass, is_transfer, is_bucket;
} ty_op_use;
extern const ty_op_use ty_op_uses[TY_OP_COUNT];

/** TY_EPARSE, of an instruction, and of what is not there: "expected ...". */
ty_status ty_program_complain(const program_checker *checker, uint32_t at, uint32_t index,
                              const char *format, ...) TY_PRINTF(4, 5);
ty_status ty_program_complain_missing(const program_checker *checker, uint32_t at,
                                      const char *format, ...) TY_PRINTF(3, 4);
ty_status ty_instruction_check(const program_checker *checker, uint32_t at,
                               uint32_t index) TY_MUST_CHECK;

/** The lowest layer of a stage that backward comes to; the layer behind the stage: none. */
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

/** `needed`, which may be absent, must be surely over when `index` starts. */
ty_status ty_program_require(const program_checker *checker, uint32_t at, uint32_t index,
                             uint32_t needed, const char *what) TY_MUST_CHECK;
/** An instruction that must be there once: notes its place. */
ty_status ty_program_note_once(const program_checker *checker, uint32_t at, uint32_t index,
                               uint32_t *place) TY_MUST_CHECK;
/** Notes the place of an instruction of a bucket; when all are noted, that none is missing and each
 * waits for what it needs (program_check_buckets.c). */
ty_status ty_program_bucket_note(const program_checker *checker, uint32_t at,
                                 uint32_t index) TY_MUST_CHECK;
ty_status ty_program_bucket_check(const program_checker *checker, uint32_t at,
                                  uint32_t bucket) TY_MUST_CHECK;

/** Whether a pass has layers of a bucket. */
bool ty_program_overlaps(const ty_bucket *bucket, const ty_instruction *pass);
/** With the plan's order of exchanges, where it has one (program_check_order.c). */
ty_status ty_program_check_order(const program_checker *checker, uint32_t at) TY_MUST_CHECK;

/** Where a pipeline rank handles a micro-batch of one of its stages. */
pass_places *ty_program_pass(const program_checker *checker, uint32_t stage, uint32_t micro_batch);

/**
 * ty_program_check for a program inside a document.
 * @param place what messages begin with, as ty_json_place gives it
 */
ty_status ty_program_check_at(const ty_plan *plan, const ty_program *program, const char *place,
                              ty_error *error) TY_MUST_CHECK;

/** "receive of the activation of micro-batch 2 from stage 0". */
void ty_instruction_describe(const ty_instruction *instruction, char *text, size_t size);

/** TY_OK when all ranks reach their ends, else TY_EPARSE naming who waits for whom. */
ty_status ty_program_walk(const program_checker *checker) TY_MUST_CHECK;

#endif

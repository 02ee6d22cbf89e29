/* The state of a rank that the files of the interpreter share: its place, its stages, and the
 * progress of its steps. State that only one file needs is in that file. */
#ifndef TY_EXECUTE_INTERPRETER_STATE_H
#define TY_EXECUTE_INTERPRETER_STATE_H

#include "device_link.h"
#include "interpreter.h"
#include "scenario.h"

#include <pthread.h>

#define NO_INDEX UINT32_MAX

/* Tags: class, direction, then the fields that distinguish messages in flight together: the step's
 * index in the window, the cut, the micro-batch. */
enum {
    TAG_PARALLEL = 1 << 27,
    TAG_TRANSFER = 1 << 28,
    TAG_BUCKET = 2 << 28,
    TAG_CONTROL = 3 << 28
};
_Static_assert(TAG_PARALLEL == TY_TAG_OF_PASSES, "what ranks exchange has an inbox of its own");
enum { TAG_SERVERS = TAG_CONTROL | 1 << 26 }; /* orders to servers; above all tags of a window */
enum { TAG_GRADIENT = 1 << 27, TAG_GATHER = 1 << 27, TAG_INDEX_LIMIT = 1 << 27 };

/* Steps that may be in flight in addition to those that a schedule without a flush overlaps: one
 * may start before the last one has ended on all ranks. */
enum { STEPS_AT_ONCE = 2 };

/* The next instruction of a stream; used by one thread only. It runs for step round + lead; rounds
 * before the first step are the warm-up of the pipeline. */
typedef struct stream_cursor {
    int64_t round;
    uint32_t position;
    bool is_ready; /* since ready_s */
    double ready_s;
} stream_cursor;

typedef struct stream_order {
    uint32_t count;
    uint32_t *instructions; /* indices, in order */
} stream_order;

/* A replica's micro-batch of one step. It owns its slot from binding until all its instructions
 * except sends are done. Sends then still read the slot's output and input gradient, and the slot's
 * next owner waits for them. */
typedef struct micro_batch_state {
    uint32_t slot;       /* NO_INDEX: not bound yet */
    uint32_t held, left; /* instructions not done: all except sends; all */
    bool is_placed;      /* a received input is in the slot */
    uint32_t version;    /* weight version that its forward used */
} micro_batch_state;

typedef struct slot_state {
    bool is_output_busy, is_gradient_busy; /* being sent */
} slot_state;

/* A virtual stage of this pipeline rank: its layers, and the micro-batches in it. */
typedef struct virtual_stage_state {
    uint32_t stage; /* of the plan */
    ty_stage_device *device;
    float *optimizer_state;  /* NULL: the device stores it */
    uint32_t version_count;  /* weight versions */
    bool sends_gradient;     /* a parameter before the stage is trained */
    uint32_t first_backward; /* the micro-batch whose backward overwrites the gradients */
    uint32_t slot_count;
    uint32_t *forward_order; /* [local_micro_batches]: as compute first meets them in a step */
    uint32_t *micro_batch_left, *micro_batch_held; /* [local_micro_batches]: instructions */

    /* Under the interpreter's lock. */
    micro_batch_state *micro_batches; /* [window][local_micro_batches] */
    slot_state *slots;
    uint32_t *free_slots, free_count;
    uint64_t bound_count; /* micro-batches of all steps that have got a slot */

    float *gathered; /* between runs: all weights or gradients, unsharded, in the host's memory */
} virtual_stage_state;

typedef struct step_control { /* summed over all ranks after each step */
    double gradient_square, gradient_variance, noise_count;
    double lost_square, whole_square; /* lost by compression; before it */
    double loss_sum, label_count, stop_count;
    double overflow_count;      /* updates left out because of gradients beyond fp16 */
    double switch_count, cpu_s; /* see busy_steps.c */
} step_control;
enum { CONTROL_COUNT = sizeof(step_control) / sizeof(double) };

typedef struct process_group { /* ranks of this replica that differ in TP, CP or EP rank only */
    uint32_t count, rank;
    uint32_t *members; /* [count] */
} process_group;

/* One unsharded sample; a context-parallel rank takes its tokens from it. NULL: without CP. */
typedef struct whole_sample {
    float *input;
    int32_t *tokens, *labels;
} whole_sample;

struct ty_interpreter {
    ty_interpreter_options options;
    scenario_run scenario;
    uint32_t stage_replica, replica_rank, pipeline_rank,
        replica;                                /* `replica`: index among those of its stages */
    process_group groups[TY_PARALLELISM_COUNT]; /* this rank's group of each kind */
    whole_sample sample;
    const ty_stage_program *program;
    const ty_device_memory *memory; /* NULL: the devices' memory is the host's */
    ty_device_link *link;           /* NULL: messages go through the transport */
    ty_device_link *parallel_link;  /* the compute thread's; NULL: one rank, or host memory */
    virtual_stage_state
        *virtual_stages; /* [virtual_stage_count]: stages p, p + PP, ... of pipeline rank p */
    uint32_t virtual_stage_count;
    uint32_t window;                       /* steps whose state is stored at a time */
    uint32_t lead;                         /* rounds by which this pipeline rank runs ahead */
    uint32_t gradient_sets;                /* one per step whose gradients are in use */
    bool shares_weights, shares_gradients; /* sharded in device memory, which has places for them */
    uint32_t state_count;
    uint32_t local_micro_batches;
    uint64_t labels_per_sample;
    stream_order streams[TY_STREAM_COUNT];
    bool *is_awaited;             /* [instruction]: the communication thread waits for it */
    struct bucket_state *buckets; /* [plan->bucket_count] */
    ty_server_map servers;        /* the server that sums each bucket */

    /* Under `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t for_compute, for_communication;
    uint64_t generation;     /* counts every event that may let an instruction start */
    bool is_compute_waiting; /* the compute thread sleeps until a message wakes it */
    ty_status failure;
    ty_error error;
    uint32_t first_step;     /* of this run: all before have ended on all ranks */
    uint32_t target;         /* steps after which to return */
    uint32_t controls_done;  /* steps that ended on all ranks */
    uint32_t origin_step;    /* first step with this plan's global batch, */
    uint64_t origin_samples; /* and samples before it */
    uint32_t origin_ranks;   /* of the checkpoint that it resumes from; 0: none */
    uint32_t steps_done;     /* steps that ended here */
    uint32_t *done;          /* [instruction]: steps in which it was done */
    uint32_t *left_in_step;  /* [window] */
    step_control *sums;      /* [window]: this rank's */
    double *loss_scales;     /* [window]: of the steps in it */
    double loss_scale;       /* of the steps after it, and of all steps at the start of a run */
    uint32_t clean_steps;    /* consecutive steps without an overflow */
    ty_event *events;
    uint64_t event_count;

    /* Compute thread. */
    stream_cursor compute, input;

    /* Communication thread. */
    ty_collective *control_running;
    step_control control;
    double *losses;
    bool is_stopped, is_diverged;

    /* Each file's own; NULL if unused. */
    struct messages *messages;
    struct exchange *exchange;
    struct replay *replay;
    struct input_ahead *ahead;
    struct noise_watch *noise;
    struct distortion_watch *distortion;
    struct busy_watch *busy;
};

/* ---- Shared steps (interpreter_steps.c); all but the first need the lock held -------------- */

/* Marks the interpreter as failed and wakes both threads. Takes the lock. */
void interpreter_fail(ty_interpreter *interpreter, ty_status status, const ty_error *error);
/* End of the steps that may start now: a window after the last one that ended on all ranks. */
uint32_t interpreter_step_limit(const ty_interpreter *interpreter);
/* The virtual stage of an instruction; needs no lock. */
virtual_stage_state *interpreter_virtual_stage(ty_interpreter *interpreter,
                                               const ty_instruction *instruction);
micro_batch_state *interpreter_micro_batch(ty_interpreter *interpreter,
                                           const ty_instruction *instruction, uint32_t step);
/* Whether an instruction uses a micro-batch's slot; those of buckets and of weights sent to actors
 * do not. */
bool interpreter_has_slot(const ty_interpreter *interpreter, const ty_instruction *instruction);
/* The next instruction of a stream and its step, or NO_INDEX when the step may not start yet or
 * none is left. Skips instructions of steps outside this run. */
uint32_t interpreter_head(const ty_interpreter *interpreter, ty_stream stream, stream_cursor *at,
                          uint32_t *step);
/* The same for any step of this run, whether it may start or not. */
uint32_t interpreter_next(const ty_interpreter *interpreter, ty_stream stream, stream_cursor *at,
                          uint32_t *step);
void interpreter_advance(const ty_interpreter *interpreter, ty_stream stream, stream_cursor *at);
bool interpreter_is_finished(const ty_interpreter *interpreter, ty_stream stream,
                             const stream_cursor *at);
/* Whether all instructions that this one waits for are done in this step. */
bool interpreter_waits_done(const ty_interpreter *interpreter, uint32_t instruction, uint32_t step);
/* Counts it as done, records its times, and releases its slot if it was the last. */
void interpreter_done(ty_interpreter *interpreter, uint32_t instruction, uint32_t step,
                      double start_s, double end_s);
/* The set of gradients of a step, if they are not sharded in device memory. Needs no lock. */
float *interpreter_gradients(const ty_interpreter *interpreter,
                             const virtual_stage_state *virtual_stage, uint32_t step);
/* Steps that may be in flight together. */
uint32_t interpreter_window(const ty_plan *plan, const ty_program *program);
/* Gives free slots of all stages to the next micro-batches in forward order. */
void interpreter_bind_slots(ty_interpreter *interpreter);
bool interpreter_is_timed(const ty_interpreter *interpreter);
void interpreter_wake(ty_interpreter *interpreter);
/* Wakes only the communication thread, which sleeps at the transport's bell if there is one. */
void interpreter_wake_communication(ty_interpreter *interpreter);
/* Frees memory of the device or the host, depending on the backend. */
void interpreter_memory_free(ty_interpreter *interpreter, void *memory);
/* A host copy of `count` floats of the device, or the floats themselves if they are in host memory.
 * The caller frees `*owned`. */
ty_status interpreter_host_floats(ty_interpreter *interpreter, const float *from, uint64_t count,
                                  const float **out, float **owned, ty_error *error);

/* ---- Before anything runs (interpreter_checks.c) ------------------------------------------- */

/* TY_EUNSUPPORTED if this runtime, or its backend, does not support the plan. */
ty_status interpreter_plan_check(const ty_interpreter_options *options,
                                 ty_error *error) TY_MUST_CHECK;
/* Once the stages are open: checks that tags suffice and a device has a buffer for each message. */
ty_status interpreter_virtual_stages_check(ty_interpreter *interpreter,
                                           ty_error *error) TY_MUST_CHECK;

/* ---- The threads --------------------------------------------------------------------------- */

void *interpreter_compute(void *interpreter);
ty_status interpreter_communicate(ty_interpreter *interpreter, ty_error *error);
/* Cancels the communication in flight, after a failure. */
void interpreter_cancel(ty_interpreter *interpreter);

#endif

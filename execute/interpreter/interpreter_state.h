/* The rank that the files of the interpreter share: its place, its stages, and the progress of its
 * steps. What only one concern needs is that concern's own. */
#ifndef TY_EXECUTE_INTERPRETER_STATE_H
#define TY_EXECUTE_INTERPRETER_STATE_H

#include "device_link.h"
#include "interpreter.h"
#include "scenario.h"

#include <pthread.h>

#define NO_INDEX UINT32_MAX

/* Tags: class, direction, then what tells messages apart that may be under way together: the step's
 * place in the window, the cut, the micro-batch. */
enum {
    TAG_PARALLEL = 1 << 27,
    TAG_TRANSFER = 1 << 28,
    TAG_BUCKET = 2 << 28,
    TAG_CONTROL = 3 << 28
};
_Static_assert(TAG_PARALLEL == TY_TAG_OF_PASSES, "what ranks exchange has an inbox of its own");
enum { TAG_SERVERS = TAG_CONTROL | 1 << 26 }; /* what they are told: behind all steps of a window */
enum { TAG_GRADIENT = 1 << 27, TAG_GATHER = 1 << 27, TAG_INDEX_LIMIT = 1 << 27 };

/* Steps that may be under way beside those that a schedule without a flush overlaps: one may start
 * before the last one has ended everywhere. */
enum { STEPS_AT_ONCE = 2 };

/* Where a stream is; used by one thread only. An instruction there is done for step round + lead;
 * rounds before the first step are what fills the pipe. */
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

/* A replica's micro-batch of one step. Its slot is its own from binding until the last instruction
 * but its sends is done; sends then still read the slot's output and input gradient, which the
 * slot's next owner waits for. */
typedef struct micro_batch_state {
    uint32_t slot;       /* NO_INDEX: not bound yet */
    uint32_t held, left; /* instructions not done: all but sends; all */
    bool is_placed;      /* a received input is in the slot */
    uint32_t version;    /* set of weights its forward used */
} micro_batch_state;

typedef struct slot_state {
    bool is_output_busy, is_gradient_busy; /* being sent */
} slot_state;

/* A stage of this rank's position: its part of the network, and which micro-batches are in it. */
typedef struct virtual_stage_state {
    uint32_t stage; /* of the plan */
    ty_stage_device *device;
    float *optimizer_state;  /* NULL: the device keeps it */
    uint32_t version_count;  /* sets of weights */
    bool sends_gradient;     /* something before the stage is trained */
    uint32_t first_backward; /* the micro-batch whose backward starts the gradients anew */
    uint32_t slot_count;
    uint32_t *forward_order; /* [local_micro_batches]: as compute first meets them in a step */
    uint32_t *micro_batch_left, *micro_batch_held; /* [local_micro_batches]: instructions */

    /* Under the interpreter's lock. */
    micro_batch_state *micro_batches; /* [window][local_micro_batches] */
    slot_state *slots;
    uint32_t *free_slots, free_count;
    uint64_t bound_count; /* micro-batches of all steps that have got a slot */

    float *gathered; /* between runs: weights or gradients in the host's memory, all of them */
} virtual_stage_state;

typedef struct step_control { /* summed over all ranks after each step */
    double gradient_square, gradient_variance, noise_count;
    double lost_square, whole_square; /* by and before compression */
    double loss_sum, label_count, stop_count;
    double overflow_count;      /* updates left out because of gradients beyond fp16 */
    double switch_count, cpu_s; /* see busy_steps.c */
} step_control;
enum { CONTROL_COUNT = sizeof(step_control) / sizeof(double) };

typedef struct process_group { /* processes of this rank that differ in one rank number only */
    uint32_t count, rank;
    uint32_t *members; /* [count] */
} process_group;

/* One whole sample, of which each context-parallel rank takes its tokens. NULL: without them. */
typedef struct whole_sample {
    float *input;
    int32_t *tokens, *labels;
} whole_sample;

struct ty_interpreter {
    ty_interpreter_options options;
    scenario_run scenario;
    uint32_t stage_replica, replica_rank, pipeline_rank,
        replica;                                /* rank of the plan, position of the pipeline */
    process_group groups[TY_PARALLELISM_COUNT]; /* this rank's row of each kind */
    whole_sample sample;
    const ty_stage_program *program;
    const ty_device_memory *memory; /* NULL: the devices' memory is the host's */
    ty_device_link *link;           /* NULL: messages go through the transport */
    ty_device_link *parallel_link;  /* the compute thread's; NULL: no ranks, or host memory */
    virtual_stage_state
        *virtual_stages; /* [virtual_stage_count]: stages position, position + positions, ... */
    uint32_t virtual_stage_count;
    uint32_t window;                       /* steps whose state is kept side by side */
    uint32_t lead;                         /* rounds this position runs ahead */
    uint32_t gradient_sets;                /* one for each step whose gradients are under way */
    bool shares_weights, shares_gradients; /* out in device memory, which has places for them */
    uint32_t state_count;
    uint32_t local_micro_batches;
    uint64_t labels_per_sample;
    stream_order streams[TY_STREAM_COUNT];
    bool *is_awaited;             /* [instruction]: by the communication thread */
    struct bucket_state *buckets; /* [plan->bucket_count] */
    ty_server_map servers;        /* which server sums which bucket */

    /* Under `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t for_compute, for_communication;
    uint64_t generation;     /* counts everything that may let something else go on */
    bool is_compute_waiting; /* the compute thread sleeps until a message brings it on */
    ty_status failure;
    ty_error error;
    uint32_t first_step;     /* of this stretch: all before are over everywhere */
    uint32_t target;         /* steps after which to return */
    uint32_t controls_done;  /* steps that ended on all ranks */
    uint32_t origin_step;    /* from which on steps are of this plan's batch, */
    uint64_t origin_samples; /* and samples before it */
    uint32_t origin_ranks;   /* of the checkpoint it goes on from; 0: none */
    uint32_t steps_done;     /* steps that ended here */
    uint32_t *done;          /* [instruction]: steps it was done in */
    uint32_t *left_in_step;  /* [window] */
    step_control *sums;      /* [window]: this rank's */
    double *loss_scales;     /* [window]: of the steps in it */
    double loss_scale;       /* of the steps behind it, and of all that a stretch begins with */
    uint32_t clean_steps;    /* without an overflow, one after the other */
    ty_event *events;
    uint64_t event_count;

    /* Compute thread. */
    stream_cursor compute, input;

    /* Communication thread. */
    ty_collective *control_running;
    step_control control;
    double *losses;
    bool is_stopped, is_diverged;

    /* Each file's own; NULL where it has nothing to do. */
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
/* Steps that may be started now: a window from what has ended on all ranks. */
uint32_t interpreter_step_limit(const ty_interpreter *interpreter);
/* The stage an instruction is of; needs no lock. */
virtual_stage_state *interpreter_virtual_stage(ty_interpreter *interpreter,
                                               const ty_instruction *instruction);
micro_batch_state *interpreter_micro_batch(ty_interpreter *interpreter,
                                           const ty_instruction *instruction, uint32_t step);
/* Whether it is of a micro-batch's slot, unlike a bucket's and weights on their way to actors. */
bool interpreter_has_slot(const ty_interpreter *interpreter, const ty_instruction *instruction);
/* The next instruction of a stream and its step, or NO_INDEX when the step may not start yet or
 * there is none left. Passes over instructions of steps that are not of this stretch. */
uint32_t interpreter_head(const ty_interpreter *interpreter, ty_stream stream, stream_cursor *at,
                          uint32_t *step);
/* The same of any step of this stretch, whether it may start or not. */
uint32_t interpreter_next(const ty_interpreter *interpreter, ty_stream stream, stream_cursor *at,
                          uint32_t *step);
void interpreter_advance(const ty_interpreter *interpreter, ty_stream stream, stream_cursor *at);
bool interpreter_is_finished(const ty_interpreter *interpreter, ty_stream stream,
                             const stream_cursor *at);
/* Whether everything the instruction names has been done in this step. */
bool interpreter_waits_done(const ty_interpreter *interpreter, uint32_t instruction, uint32_t step);
/* Counts it as done, records its times, and passes on what it held. */
void interpreter_done(ty_interpreter *interpreter, uint32_t instruction, uint32_t step,
                      double start_s, double end_s);
/* The gradients of a step, in their set, where they are not shared out in device memory. Needs no
 * lock. */
float *interpreter_gradients(const ty_interpreter *interpreter,
                             const virtual_stage_state *virtual_stage, uint32_t step);
/* Steps that may be under way at once. */
uint32_t interpreter_window(const ty_plan *plan, const ty_program *program);
/* Gives free slots of all stages to the next micro-batches in forward order. */
void interpreter_bind_slots(ty_interpreter *interpreter);
bool interpreter_is_timed(const ty_interpreter *interpreter);
void interpreter_wake(ty_interpreter *interpreter);
/* The communication thread alone, which sleeps at the transport's bell where there is one. */
void interpreter_wake_communication(ty_interpreter *interpreter);
/* Of the device or the host, as the backend has it. */
void interpreter_memory_free(ty_interpreter *interpreter, void *memory);
/* A copy on the host of `count` floats of the device, or the floats themselves where they are the
 * host's; `*owned` is to be freed. */
ty_status interpreter_host_floats(ty_interpreter *interpreter, const float *from, uint64_t count,
                                  const float **out, float **owned, ty_error *error);

/* ---- Before anything runs (interpreter_checks.c) ------------------------------------------- */

/* What a plan may say and this runtime, or its backend, does not do: TY_EUNSUPPORTED. */
ty_status interpreter_plan_check(const ty_interpreter_options *options,
                                 ty_error *error) TY_MUST_CHECK;
/* Once the stages are open: that tags suffice, and a device has a buffer for each message. */
ty_status interpreter_virtual_stages_check(ty_interpreter *interpreter,
                                           ty_error *error) TY_MUST_CHECK;

/* ---- The threads --------------------------------------------------------------------------- */

void *interpreter_compute(void *interpreter);
ty_status interpreter_communicate(ty_interpreter *interpreter, ty_error *error);
/* Gives up what is under way, after a failure. */
void interpreter_cancel(ty_interpreter *interpreter);

#endif

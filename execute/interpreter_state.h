/* What the two threads of an interpreter share. Private to interpreter*.c. */
#ifndef TY_EXECUTE_INTERPRETER_STATE_H
#define TY_EXECUTE_INTERPRETER_STATE_H

#include "codec.h"
#include "device_link.h"
#include "interpreter.h"

#include <pthread.h>

#define NO_INDEX UINT32_MAX

/* Tags: class, parity of the step, then what tells messages of one step apart. */
enum { TAG_TRANSFER = 1 << 28, TAG_BUCKET = 2 << 28, TAG_CONTROL = 3 << 28 };
enum { TAG_PARITY = 1 << 27, TAG_GRADIENT = 1 << 26, TAG_INDEX_LIMIT = 1 << 26 };

/* Steps whose state is kept side by side: one may start before the last one has ended everywhere.
 */
enum { PARITIES = 2 };

typedef struct stream_cursor { /* of a stream; used by one thread only */
    uint32_t step, position;
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
} micro_batch_state;

typedef struct slot_state {
    bool is_output_busy, is_gradient_busy; /* being sent */
} slot_state;

typedef struct arrival { /* of a receive of one step; communication thread only */
    bool is_posted, is_here;
    ty_request *request;
    void *staging; /* where it lands when its slot is not free yet */
} arrival;

typedef struct departure { /* a send under way */
    uint32_t instruction, step;
    double started_s;
    ty_request *request;
} departure;

typedef struct bucket_state {
    bool is_member;
    uint64_t offset, count; /* in the gradients */
    uint32_t member_count, position;
    uint32_t *members;
    ty_codec *codec; /* NULL: not compressed, or compressed where the gradients are: */
    ty_device_codec *device_codec;
} bucket_state;

typedef struct step_control { /* summed over all ranks after each step */
    double loss_sum, label_count, stop_count;
    double overflow_count; /* updates left out because of gradients beyond fp16 */
} step_control;
enum { CONTROL_COUNT = sizeof(step_control) / sizeof(double) };

struct ty_interpreter {
    ty_interpreter_options options;
    uint32_t rank, stage, replica;
    const ty_stage_program *program;
    ty_stage_device *device;
    const ty_device_memory *memory;  /* NULL: the device's memory is the host's */
    ty_device_link *link;            /* NULL: messages go through the transport */
    uint64_t *orders, *order_counts; /* [instruction]: see ty_transfer; per step */
    float *optimizer_state;
    uint32_t state_count;
    uint32_t slot_count, local_micro_batches;
    uint64_t labels_per_sample;
    stream_order streams[TY_STREAM_COUNT];
    uint32_t *forward_order; /* [local_micro_batches]: as compute first meets them */
    bool sends_gradient;     /* something before the stage is trained */
    uint32_t first_backward; /* the micro-batch whose backward starts the gradients anew */
    uint32_t *micro_batch_left, *micro_batch_held; /* [local_micro_batches]: instructions */
    bool *is_awaited;                              /* [instruction]: by the communication thread */
    bucket_state *buckets;                         /* [plan->bucket_count] */

    /* Under `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t for_compute, for_communication;
    uint64_t generation;     /* counts everything that may let something else go on */
    bool is_compute_waiting; /* the compute thread sleeps until a message brings it on */
    ty_status failure;
    ty_error error;
    uint32_t target;        /* steps after which to return */
    uint32_t controls_done; /* steps that ended on all ranks */
    uint32_t steps_done;    /* steps that ended here */
    uint32_t *done;         /* [instruction]: steps it was done in */
    uint32_t left_in_step[PARITIES];
    micro_batch_state *micro_batches; /* [PARITIES][local_micro_batches] */
    slot_state *slots;
    uint32_t *free_slots, free_count;
    uint64_t bound_count;         /* micro-batches of all steps that have got a slot */
    step_control sums[PARITIES];  /* this rank's */
    double loss_scales[PARITIES]; /* of the steps of each parity */
    uint32_t clean_steps;         /* without an overflow, one after the other */
    ty_event *events;
    uint64_t event_count;

    /* Compute thread. */
    stream_cursor compute, input;

    /* Communication thread. */
    stream_cursor send, receive, collective;
    arrival *arrivals;     /* [PARITIES][instruction] */
    departure *departures; /* ring of `departure_capacity` */
    uint32_t departure_capacity, departure_first, departure_count;
    double last_departure_s;
    uint32_t receives_under_way;
    void **staging; /* free buffers */
    uint32_t staging_free, staging_used, staging_capacity;
    uint64_t staging_bytes;
    uint64_t scanned_generation;
    ty_collective *running; /* the collective stream's */
    ty_request *exchange;   /* the same over a link */
    double running_since_s;
    ty_collective *control_running;
    step_control control;
    double *losses;
    bool is_stopped, is_diverged;
};

/* ---- Shared steps; all but the first need the lock held -------------------------------- */

/* Marks the interpreter as failed and wakes both threads. Takes the lock. */
void interpreter_fail(ty_interpreter *interpreter, ty_status status, const ty_error *error);
/* Steps that may be started now: at most one ahead of what has ended on all ranks. */
uint32_t interpreter_step_limit(const ty_interpreter *interpreter);
micro_batch_state *interpreter_micro_batch(ty_interpreter *interpreter, uint32_t step,
                                           uint32_t index);
/* The next instruction of a stream, or NO_INDEX when its step may not start yet. */
uint32_t interpreter_head(const ty_interpreter *interpreter, ty_stream stream,
                          const stream_cursor *at);
void interpreter_advance(const ty_interpreter *interpreter, ty_stream stream, stream_cursor *at);
/* Whether everything the instruction names has been done in this step. */
bool interpreter_waits_done(const ty_interpreter *interpreter, uint32_t instruction, uint32_t step);
/* Counts it as done, records its times, and passes on what it held. */
void interpreter_done(ty_interpreter *interpreter, uint32_t instruction, uint32_t step,
                      double start_s, double end_s);
/* Gives free slots to the next micro-batches in forward order. */
void interpreter_bind_slots(ty_interpreter *interpreter);
void interpreter_wake(ty_interpreter *interpreter);
/* Numbers the messages between each pair of ranks. */
ty_status interpreter_orders_make(ty_interpreter *interpreter, ty_error *error);
/* A copy on the host of `count` floats of the device, or the floats themselves where they are the
 * host's; `*owned` is to be freed. */
ty_status interpreter_host_floats(ty_interpreter *interpreter, const float *from, uint64_t count,
                                  const float **out, float **owned, ty_error *error);
/* Bytes of a micro-batch's tensor across the cut before `layer`. Needs no lock. */
uint64_t interpreter_cut_bytes(const ty_plan *plan, uint32_t layer);

/* ---- The threads ------------------------------------------------------------------------ */

void *interpreter_compute(void *interpreter);
ty_status interpreter_communicate(ty_interpreter *interpreter, ty_error *error);
/* Gives up what is under way, after a failure. */
void interpreter_cancel(ty_interpreter *interpreter);

#endif

/* What the two threads of an interpreter share. Private to interpreter*.c. */
#ifndef TY_EXECUTE_INTERPRETER_STATE_H
#define TY_EXECUTE_INTERPRETER_STATE_H

#include "busy.h"
#include "codec.h"
#include "device_link.h"
#include "interpreter.h"
#include "scenario.h"

#include <pthread.h>

#define NO_INDEX UINT32_MAX

/* Tags: class, direction, then what tells messages apart that may be under way together: the step's
 * place in the window, the cut, the micro-batch. */
enum { TAG_LANES = 1 << 27, TAG_TRANSFER = 1 << 28, TAG_BUCKET = 2 << 28, TAG_CONTROL = 3 << 28 };
_Static_assert(TAG_LANES == TY_TAG_OF_PASSES, "what lanes exchange has an inbox of its own");
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

/* A stage of this rank's position: its part of the network, and which micro-batches are in it. */
typedef struct held_stage {
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
} held_stage;

typedef struct bucket_state {
    bool is_member;
    held_stage *held;       /* whose parameters they are */
    uint64_t offset, count; /* in the gradients */
    uint32_t member_count, position;
    uint32_t *members; /* processes: of the plan's ranks, the lanes that have these gradients */
    uint32_t *hosts;   /* [member_count] of a hierarchical exchange; else NULL */
    bool is_sharded;
    uint64_t share_offset, share_count; /* this rank's share, in the gradients */
    bool is_shared;         /* another bucket's layers use a matrix of it: kept for a whole step */
    uint32_t gathered_step; /* of a shared bucket: one more than the last it was gathered for */
    uint32_t place;         /* where a device has all of it while it is used; see device.h */
    bool is_in_use;         /* gathered for a pass that is not over (ZeRO 3); under the lock */
    bool is_made;           /* gradients in its place, not exchanged yet; likewise */
    double own_square;      /* of this rank's gradients, before they are exchanged */
    ty_codec *codec;        /* where the gradients are; NULL: not compressed */
    ty_codec *probe;        /* tells what compression loses, if asked for; else NULL */
    float *probe_sum;
} bucket_state;

typedef struct step_control { /* summed over all ranks after each step */
    double gradient_square, gradient_variance, noise_count;
    double lost_square, whole_square; /* by and before compression */
    double loss_sum, label_count, stop_count;
    double overflow_count;      /* updates left out because of gradients beyond fp16 */
    double switch_count, cpu_s; /* see busy_steps.c */
} step_control;
enum { CONTROL_COUNT = sizeof(step_control) / sizeof(double) };

typedef struct lane_row { /* processes of this rank that differ in one lane number only */
    uint32_t count, position;
    uint32_t *members; /* [count] */
} lane_row;

/* One whole sample, of which each context lane takes its tokens. NULL: without them. */
typedef struct whole_sample {
    float *input;
    int32_t *tokens, *labels;
} whole_sample;

typedef struct busy_watch {         /* busy_steps.c */
    double own_cpu_s, own_switches; /* of this process, by the last step */
    /* Rank 0 only, about all ranks: */
    bool is_watching;
    ty_cpu_clock first, from;      /* of the run, of the interval under way */
    double all_cpu_s, whole_cpu_s; /* of the interval, of those before it */
    double switches;
    uint32_t first_step, end_step, step_count;
    bool *is_disturbed; /* [options.steps] */
} busy_watch;

/* Batches of the input stream, made before slots are free for them (interpreter_input.c). */
enum { BATCHES_AHEAD = 2 };
typedef struct ahead_batch {
    whole_sample rows; /* NULL: no load of this rank reads it */
    void *room;        /* owned: the first memory of its input */
    ty_status status;
    ty_error error;
} ahead_batch;
typedef struct input_ahead {
    ahead_batch batches[BATCHES_AHEAD];
    bool is_allowed, is_worthwhile, is_running; /* compute thread */
    uint32_t slow_batches;                      /* likewise: made by it, in a row */
    pthread_t thread;
    stream_cursor at; /* the thread's */
    double begun_s;   /* when a source with a pace of its own began its next batch; 0: now */
    /* Under the interpreter's lock. */
    pthread_cond_t for_input;
    bool is_ending;
    uint64_t made, taken; /* batches since the thread began */
} input_ahead;

struct ty_interpreter {
    ty_interpreter_options options;
    scenario_run scenario;
    uint32_t rank, lane, position, replica; /* rank of the plan, position of the pipeline */
    lane_row lanes[TY_LANE_KIND_COUNT];     /* this lane's row of each kind */
    whole_sample sample;
    const ty_stage_program *program;
    const ty_device_memory *memory; /* NULL: the devices' memory is the host's */
    ty_device_link *link;           /* NULL: messages go through the transport */
    ty_device_link *lane_link;      /* the compute thread's; NULL: no lanes, or host memory */
    uint32_t *pairs;                /* [instruction]: equal for messages between the same ranks */
    held_stage *held;               /* [held_count]: stages position, position + positions, ... */
    uint32_t held_count;
    uint32_t window;                       /* steps whose state is kept side by side */
    uint32_t lead;                         /* rounds this position runs ahead */
    uint32_t gradient_sets;                /* one for each step whose gradients are under way */
    bool shares_weights, shares_gradients; /* out in device memory, which has places for them */
    uint32_t state_count;
    uint32_t local_micro_batches;
    uint64_t labels_per_sample;
    stream_order streams[TY_STREAM_COUNT];
    bool *is_awaited;      /* [instruction]: by the communication thread */
    bucket_state *buckets; /* [plan->bucket_count] */
    ty_server_map servers; /* who sums what, where there are servers of their own */

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
    input_ahead ahead;

    /* Communication thread. */
    stream_cursor send, receive, collective;
    arrival *arrivals;     /* [window][instruction] */
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
    bool is_passing;       /* of a timed backend: an encode or decode takes its time */
    void *payload;         /* likewise: of all exchanges; only one runs at a time */
    void *lane_payload;    /* likewise: of what lanes exchange inside passes; compute thread */
    bool *takes_part;      /* likewise: [layers] in backward */
    ty_layer_again *again; /* likewise: what recomputing makes again of each */
    ty_collective *control_running;
    step_control control;
    ty_gradient_noise noise;        /* sums over the steps it was measured in */
    ty_noise_sample *noise_samples; /* [noise.steps], with room for interpreter_noise_most */
    busy_watch busy;
    double distortion_sum;
    uint32_t distortion_steps;
    double *losses;
    bool is_stopped, is_diverged;
};

/* By the clock of ty_now_s, so that ranks on the same core are not kept from it. */
void interpreter_sleep_until(double end_s);

/* ---- Others on this machine (busy_steps.c) -------------------------------------------------- */

ty_status interpreter_busy_open(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
void interpreter_busy_count(ty_interpreter *interpreter, step_control *control);
void interpreter_busy_add(ty_interpreter *interpreter, const step_control *control);

/* ---- Shared steps (interpreter_steps.c); all but the first need the lock held -------------- */

/* Marks the interpreter as failed and wakes both threads. Takes the lock. */
void interpreter_fail(ty_interpreter *interpreter, ty_status status, const ty_error *error);
/* Steps that may be started now: a window from what has ended on all ranks. */
uint32_t interpreter_step_limit(const ty_interpreter *interpreter);
/* The stage an instruction is of; needs no lock. */
held_stage *interpreter_held(ty_interpreter *interpreter, const ty_instruction *instruction);
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
float *interpreter_gradients(const ty_interpreter *interpreter, const held_stage *held,
                             uint32_t step);
/* Steps that may be under way at once. */
uint32_t interpreter_window(const ty_plan *plan, const ty_program *program);
/* Of a bucket's exchange in a step, of all that may be under way its own. */
uint32_t interpreter_bucket_tag(const ty_plan *plan, uint32_t window, uint32_t bucket,
                                uint32_t step);
/* Fills in the servers of a bucket's exchange, where the plan has some. */
void interpreter_servers_name(const ty_interpreter *interpreter, uint32_t bucket,
                              ty_collective_options *options);
/* Gives free slots of all stages to the next micro-batches in forward order. */
void interpreter_bind_slots(ty_interpreter *interpreter);
void interpreter_wake(ty_interpreter *interpreter);
/* The communication thread alone, which sleeps at the transport's bell where there is one. */
void interpreter_wake_communication(ty_interpreter *interpreter);
ty_status interpreter_no_memory(ty_error *error); /* TY_ENOMEM */
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
/* That the program's transfers have the sizes of the devices' buffers. */
ty_status interpreter_program_check(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
/* Once the stages are open: that tags suffice, and a device has a buffer for each message. */
ty_status interpreter_held_check(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;

/* ---- Buckets (interpreter_buckets.c) ------------------------------------------------------- */

/* Where a bucket's part of some of its layers lies: what is not experts, or what is. */
void interpreter_bucket_slice(const ty_interpreter *interpreter, uint32_t bucket,
                              uint32_t first_layer, uint32_t layer_count, uint64_t *offset,
                              uint64_t *count);
/* All of the plan's that are of this rank's stages, and the optimizer's state on a device. */
ty_status interpreter_buckets_open(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
void interpreter_buckets_close(ty_interpreter *interpreter);

/* ---- Of the communication thread ----------------------------------------------------------- */

/* Starts, and ends, sends and receives as far as they go (interpreter_messages.c). */
ty_status interpreter_sends_start(ty_interpreter *interpreter, bool *is_moved, ty_error *error);
ty_status interpreter_sends_finish(ty_interpreter *interpreter, bool *is_moved, ty_error *error);
ty_status interpreter_receives_start(ty_interpreter *interpreter, bool *is_moved, ty_error *error);
ty_status interpreter_receives_finish(ty_interpreter *interpreter, bool *is_moved, ty_error *error);
/* Before the first run: over a direct link nothing can be allocated later. */
ty_status interpreter_staging_open(ty_interpreter *interpreter, ty_error *error);
/* Cancels all requests; then memory that they used may be freed. */
void interpreter_messages_cancel(ty_interpreter *interpreter);
void interpreter_staging_release(ty_interpreter *interpreter);
/* The collective stream, as far as it goes (interpreter_exchange.c). */
ty_status interpreter_exchange_advance(ty_interpreter *interpreter, bool *is_moved,
                                       ty_error *error);

/* ---- Order and sizes of messages (interpreter_order.c, interpreter_checks.c) ---------------- */

/* Which messages are between the same pair of ranks. */
ty_status interpreter_pairs_make(ty_interpreter *interpreter, ty_error *error);
/* The message's place among all between its pair since this process began, in the order in which
 * rounds come; see ty_transfer. Communication thread; needs no lock. */
uint64_t interpreter_order(const ty_interpreter *interpreter, uint32_t instruction, uint32_t step);

/* ---- Timed backends (interpreter_replay.c); none needs the lock ---------------------------- */

bool interpreter_is_timed(const ty_interpreter *interpreter);
/* Lets this thread's sleeps end when they should. */
void interpreter_sleep_finely(void);
/* Returns when an instruction of the compute or input stream has taken its time since `start_s`,
 * and its lanes have exchanged what the plan says. */
ty_status interpreter_play(ty_interpreter *interpreter, uint32_t instruction, double start_s,
                           ty_error *error) TY_MUST_CHECK;
/* Whether an instruction of the collective stream has, since it began. */
bool interpreter_is_over(const ty_interpreter *interpreter, uint32_t instruction);
/* Room for what is exchanged. Freed by interpreter_payload_close. */
ty_status interpreter_payload_open(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
void interpreter_payload_close(ty_interpreter *interpreter);
/* Starts a collective or gather of as many bytes as the program says. */
ty_status interpreter_replay_exchange(ty_interpreter *interpreter, const ty_instruction *exchange,
                                      uint32_t tag, ty_error *error) TY_MUST_CHECK;

/* ---- Local steps --------------------------------------------------------------------------- */

/* What a step does with a bucket: its gradients are summed before the update, or replicas update
 * alone, or they do and then average their weights. */
typedef enum exchange_kind { EXCHANGE_GRADIENTS, EXCHANGE_NOTHING, EXCHANGE_WEIGHTS } exchange_kind;
exchange_kind interpreter_exchange_kind(const ty_interpreter *interpreter, uint32_t bucket,
                                        uint32_t step);
/* The optimizer's step on a bucket. By the thread that nobody else's instructions wait for. */
ty_status interpreter_update(ty_interpreter *interpreter, uint32_t bucket, uint32_t step,
                             ty_error *error) TY_MUST_CHECK;

/* ---- Sharded buckets (sharding.c) -------------------------------------------------------- */

/* The own share of a bucket, and whether it must be kept. */
void interpreter_share_find(const ty_interpreter *interpreter, uint32_t bucket);
/* What this rank keeps of a stage's parameters, ascending: all but the others' shares.
 * @param out room as interpreter_kept_room makes it; @return how many */
uint32_t interpreter_kept_ranges(const ty_interpreter *interpreter, const held_stage *held,
                                 ty_parameter_range *out);
ty_parameter_range *interpreter_kept_room(const ty_interpreter *interpreter); /* or NULL */
/* Whether the gather has nothing to do: a shared bucket was gathered before in this step. */
bool interpreter_gather_is_done(ty_interpreter *interpreter, const ty_instruction *gather,
                                uint32_t step);
/* Whether the gather may overwrite its bucket: no pass uses what the last one brought. Marks the
 * bucket as in use. With the lock. */
bool interpreter_gather_may_start(ty_interpreter *interpreter, const ty_instruction *gather);
/* Whether a backward may make its gradients: their place is free. With the lock, as the next. */
bool interpreter_backward_may_start(ty_interpreter *interpreter, const ty_instruction *backward);
void interpreter_backward_starts(ty_interpreter *interpreter, const ty_instruction *backward);
/* After a pass: what was gathered for it alone is given up. With the lock. */
void interpreter_pass_over(ty_interpreter *interpreter, const ty_instruction *pass);
/* After an exchange: all but the own share is given up (ZeRO 2 and 3). */
ty_status interpreter_exchange_over(ty_interpreter *interpreter, bucket_state *bucket,
                                    ty_error *error) TY_MUST_CHECK;
/* Whether devices of this plan's stages have memory for shares alone, and of what. */
void interpreter_sharing_find(ty_interpreter *interpreter);
/* Takes that memory. */
ty_status interpreter_sharing_open(ty_interpreter *interpreter, held_stage *held,
                                   ty_error *error) TY_MUST_CHECK;
/* Where numbers from `offset` on are kept, up to the end of their range, and where gradients of a
 * bucket are made. Need no lock. */
float *interpreter_weights_at(const ty_interpreter *interpreter, const held_stage *held,
                              uint64_t offset);
float *interpreter_gradients_at(const ty_interpreter *interpreter, const held_stage *held,
                                uint32_t step, uint64_t offset);
float *interpreter_bucket_gradients(const ty_interpreter *interpreter, const bucket_state *bucket,
                                    uint32_t step);
/* The gather of a bucket's weights, with the own share where the others' will come. */
ty_status interpreter_gather_begin(ty_interpreter *interpreter, const bucket_state *bucket,
                                   uint32_t tag, ty_collective_options *out,
                                   ty_error *error) TY_MUST_CHECK;
/* Behind it: passes find them. */
ty_status interpreter_gather_end(ty_interpreter *interpreter, const bucket_state *bucket,
                                 ty_error *error) TY_MUST_CHECK;
/* All ranks, between runs: passes find whole weights, if interpreter_forward_alone does not bring
 * them together itself. */
ty_status interpreter_weights_together(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
/* All ranks, between runs: brings weights, or gradients, together from their shares; in the host's
 * memory (`gathered` of each stage) where devices have no room for them. */
ty_status interpreter_gather_all(ty_interpreter *interpreter, bool is_gradients,
                                 ty_error *error) TY_MUST_CHECK;
/* Gives the others' shares of weights up again (ZeRO 3), and what is in the host's memory. */
void interpreter_shares_only(ty_interpreter *interpreter);
/* All replicas of a stage, between runs: forward of slot 0, bucket by bucket if need be.
 * @param has_batch false: this one only takes part in gathers */
ty_status interpreter_forward_alone(ty_interpreter *interpreter, const held_stage *held,
                                    bool has_batch, ty_error *error) TY_MUST_CHECK;

/* All ranks, between runs: puts a variant's weights in the place of those that are kept; whoever
 * reads others' has to bring them together anew.
 * @param trained [out] the weights that were there, also after a failure; interpreter_variant_free
 */
ty_status interpreter_variant_make(ty_interpreter *interpreter, const ty_variant *variant,
                                   float ***trained, ty_error *error) TY_MUST_CHECK;
/* Puts them back. */
ty_status interpreter_variant_over(ty_interpreter *interpreter, float *const *trained,
                                   ty_error *error) TY_MUST_CHECK;
void interpreter_variant_free(const ty_interpreter *interpreter, float **trained);

/* ---- Whole layers (gradients.c) ---------------------------------------------------------- */

/* All ranks, between runs: brings weights together from their shares, newest set, and averages
 * statistics over replicas. interpreter_shares_only afterwards. */
ty_status interpreter_weights_ready(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
/* All ranks: a layer's weights, as one device has them (layer_tensors.h; a tied matrix only its
 * owner's), to the end of the text on process 0. A failure is this rank's alone. */
ty_status interpreter_weights_move(ty_interpreter *interpreter, uint32_t layer, ty_text *text,
                                   ty_error *error) TY_MUST_CHECK;
/* Of a stage, over replicas and expert lanes (evaluate.c). */
ty_status interpreter_statistics_average(ty_interpreter *interpreter, const held_stage *held,
                                         ty_error *error) TY_MUST_CHECK;

/* ---- Lanes (interpreter_lanes.c) ------------------------------------------------------------- */

/* The rows of lanes, and the room for a sample. */
ty_status interpreter_lanes_open(ty_interpreter *in, ty_error *error) TY_MUST_CHECK;
void interpreter_lanes_close(ty_interpreter *in);
/* The process of the same lane of a rank. */
uint32_t interpreter_process(const ty_interpreter *in, uint32_t rank);
/* Whether this process speaks for a rank. */
bool interpreter_is_first_lane(const ty_interpreter *in, uint32_t rank);
/* Finds the processes that exchange a bucket with this one, and this one among them. */
ty_status interpreter_members_find(const ty_interpreter *in, const ty_bucket *bucket,
                                   bucket_state *state, ty_error *error) TY_MUST_CHECK;
/* Samples of a micro-batch that this lane has, and the first of them: expert lanes divide it. */
uint32_t interpreter_lane_samples(const ty_interpreter *in);
uint32_t interpreter_first_sample(const ty_interpreter *in);
/* Numbers, or tokens, and labels of a row of this process's batches. */
uint64_t interpreter_row_inputs(const ty_interpreter *in);
uint64_t interpreter_row_labels(const ty_interpreter *in);
/* The rows of a slot's batch; NULL for what the stage has not. */
whole_sample interpreter_slot_rows(const ty_interpreter *in, const held_stage *held, uint32_t slot);
/* Writes one sample into a row of the batch; of a sequence the tokens of this process. */
ty_status interpreter_sample_load(ty_interpreter *in, const whole_sample *batch,
                                  const ty_dataset *dataset, uint64_t sample, uint64_t row,
                                  ty_error *error) TY_MUST_CHECK;
/* The place of a row in the batch. */
whole_sample interpreter_row_at(const ty_interpreter *in, const whole_sample *batch, uint64_t row);
/* What a stage device is told of its lanes. */
ty_lane_group interpreter_lane_group(ty_interpreter *in);
/* A collective of this lane's row of a kind, start to end; on the thread of the passes. */
ty_status interpreter_lane_collective(ty_interpreter *in, ty_lane_kind among,
                                      ty_collective_kind kind, ty_element element, uint64_t count,
                                      void *data, ty_error *error) TY_MUST_CHECK;
/* For ty_lane_group: `context` is the interpreter. */
ty_status interpreter_lane_exchange(void *context, const ty_lane_exchange *exchange,
                                    ty_error *error);
ty_status interpreter_lane_record(void *context, ty_stage_device *stage,
                                  const ty_lane_exchange *exchange, ty_error *error);
ty_status interpreter_lane_launch(void *context, ty_stage_device *stage, ty_lane_run *run,
                                  void *argument, ty_error *error);
/* Brings a step's gradients of a bucket's undivided parameters together, where the plan says so
 * (ty_bucket_lane_bytes). By the thread of the passes, before the bucket's update. */
ty_status interpreter_lanes_sum(ty_interpreter *in, uint32_t bucket, uint32_t step,
                                ty_error *error) TY_MUST_CHECK;
/* Squared norm of some of a bucket's gradients, those from `offset` on, such that those of all
 * lanes add up to the rank's: undivided parameters count once, or not at all where each lane knows
 * them of its part of the sequence only. */
double interpreter_lane_square(const ty_interpreter *in, uint32_t bucket, const float *gradients,
                               uint64_t offset, uint64_t count);

/* ---- Batches (interpreter_input.c) --------------------------------------------------------- */

/* Once devices are open; before they are closed. */
ty_status interpreter_input_open(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
void interpreter_input_close(ty_interpreter *interpreter);
/* Around the instructions of a stretch, by the compute thread. */
ty_status interpreter_input_start(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
void interpreter_input_stop(ty_interpreter *interpreter);
/* Whether a load has nothing to wait for. With the lock. */
bool interpreter_batch_is_ready(const ty_interpreter *interpreter);
/* The instruction, on the compute thread. */
ty_status interpreter_load(ty_interpreter *interpreter, const ty_instruction *load, uint32_t step,
                           uint32_t slot, ty_error *error);

/* ---- Gradient noise (noise.c) ------------------------------------------------------------ */

/* In how many of the first `steps` steps it may be measured. */
uint32_t interpreter_noise_most(uint32_t steps);
ty_status interpreter_noise_open(ty_interpreter *interpreter, ty_error *error) TY_MUST_CHECK;
/* Around an exchange, in the steps in which it is measured. */
void interpreter_noise_before(ty_interpreter *interpreter, uint32_t bucket, uint32_t step);
void interpreter_noise_after(ty_interpreter *interpreter, uint32_t bucket, uint32_t step);
/* What all ranks measured in a step. */
void interpreter_noise_add(ty_interpreter *interpreter, const step_control *control);

/* ---- Compression distortion (distortion.c) ------------------------------------------------ */

/* With the options of the bucket's own compressor. */
ty_status interpreter_distortion_open(ty_interpreter *interpreter, const ty_codec_options *options,
                                      bucket_state *bucket, ty_error *error) TY_MUST_CHECK;
/* Before an exchange, in the steps in which it is measured. */
void interpreter_distortion_measure(ty_interpreter *interpreter, uint32_t bucket, uint32_t step);
/* What all ranks measured in a step. */
void interpreter_distortion_add(ty_interpreter *interpreter, const step_control *control);

/* ---- The threads ------------------------------------------------------------------------ */

void *interpreter_compute(void *interpreter);
ty_status interpreter_communicate(ty_interpreter *interpreter, ty_error *error);
/* Gives up what is under way, after a failure. */
void interpreter_cancel(ty_interpreter *interpreter);

#endif

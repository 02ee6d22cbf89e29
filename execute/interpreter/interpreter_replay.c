/* Instructions on a timed backend: those that compute take the job's times, collectives of buckets
 * have the program's message sizes, and collectives inside passes have the plan's. */
#include "interpreter_replay.h"
#include "interpreter_buckets.h"
#include "interpreter_parallel.h"

#include <time.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

/* A wait stops sleeping this long before its end: a sleep overshoots by about that, even if the
 * kernel may lengthen it by no more than a microsecond. */
static const double spin_s = 20e-6;

enum { TIMER_SLACK_NS = 1000 };

struct replay {
    void *payload;         /* one buffer for every bucket: one runs at a time */
    void *inner_payload;   /* likewise for collectives inside passes; compute thread */
    bool *takes_part;      /* [layers] in backward */
    ty_layer_again *again; /* [layers]: the part that is recomputed */
};

static double seconds_of(const ty_interpreter *in, uint32_t instruction)
{
    return in->options.instruction_s[in->pipeline_rank][instruction];
}

void interpreter_sleep_finely(void)
{
#ifdef __linux__
    prctl(PR_SET_TIMERSLACK, (unsigned long)TIMER_SLACK_NS);
#endif
}

/* Sleeps while there is time, so that other ranks can use the core. ty_now_s is CLOCK_MONOTONIC's.
 */
void interpreter_sleep_until(double end_s)
{
    double left_s;

    while ((left_s = end_s - ty_now_s()) > 0) {
        if (left_s > spin_s) {
            const double nap_s = left_s - spin_s;
            const time_t whole = (time_t)nap_s;
            nanosleep(&(struct timespec){.tv_sec = whole,
                                         .tv_nsec = (long)((nap_s - (double)whole) * 1e9)},
                      NULL);
        }
    }
}

static void take_time(const ty_interpreter *in, uint32_t instruction, double start_s)
{
    interpreter_sleep_until(start_s + seconds_of(in, instruction));
}

/* ---- Collectives inside passes ---------------------------------------------------------- */

/* Collectives of one layer in a pass; none for other instructions. @return their number */
static uint32_t exchanges_of(const ty_interpreter *in, const ty_instruction *pass, uint32_t layer,
                             ty_inner_collective out[TY_MAX_INNER_COLLECTIVES])
{
    const bool is_backward = pass->op == TY_OP_BACKWARD || pass->op == TY_OP_BACKWARD_INPUT;

    if (pass->op == TY_OP_RECOMPUTE)
        return ty_layer_recompute_collectives(in->options.plan, layer,
                                              in->replay->again[layer].what, out);
    if (is_backward ? !in->replay->takes_part[layer] : pass->op != TY_OP_FORWARD)
        return 0;
    return ty_layer_inner_collectives(in->options.plan, layer, is_backward, out);
}

/* The collective before an update: gradients of parameters that TP does not shard. */
static ty_inner_collective exchange_before(const ty_interpreter *in, const ty_instruction *update)
{
    const ty_plan *plan = in->options.plan;

    return (ty_inner_collective){.among = TY_TENSOR_PARALLEL,
                                 .kind = TY_ALL_REDUCE,
                                 .bytes =
                                     ty_bucket_rank_bytes(plan, &plan->buckets[update->bucket]),
                                 .count = 1};
}

/* Zeros, which stay zeros however often they are summed. */
static ty_status exchange(ty_interpreter *in, const ty_inner_collective *inner, ty_error *error)
{
    const bool is_half = in->options.plan->workload->element_bytes == sizeof(uint16_t);
    const uint64_t size = is_half ? sizeof(uint16_t) : sizeof(float);
    const bool is_sum = inner->kind == TY_ALL_REDUCE || inner->kind == TY_REDUCE_SCATTER;
    ty_element element = TY_ELEMENT_BYTE;
    uint64_t count = inner->bytes;
    ty_status status = TY_OK;

    if (inner->kind == TY_ALL_TO_ALL)
        count /= in->groups[inner->among].count;
    if (is_sum) {
        element = is_half ? TY_ELEMENT_HALF : TY_ELEMENT_FLOAT;
        count /= size;
    }
    for (uint32_t i = 0; i < inner->count && count > 0 && status == TY_OK; i++)
        status = interpreter_parallel_collective(in, inner->among, inner->kind, element, count,
                                                 in->replay->inner_payload, error);
    return status;
}

ty_status interpreter_play(ty_interpreter *in, uint32_t index, double start_s, ty_error *error)
{
    const ty_instruction *instruction = &in->program->instructions[index];
    ty_inner_collective inner[TY_MAX_INNER_COLLECTIVES];

    if (instruction->op == TY_OP_UPDATE) {
        inner[0] = exchange_before(in, instruction);
        TY_TRY(exchange(in, &inner[0], error));
        start_s = ty_now_s();
    }
    take_time(in, index, start_s);
    for (uint32_t l = 0; instruction->op != TY_OP_UPDATE && l < instruction->layer_count; l++) {
        const uint32_t count = exchanges_of(in, instruction, instruction->first_layer + l, inner);
        for (uint32_t i = 0; i < count; i++)
            TY_TRY(exchange(in, &inner[i], error));
    }
    return TY_OK;
}

/* ---- Collectives of buckets ------------------------------------------------------------- */

bool interpreter_is_over(const ty_interpreter *in, uint32_t instruction, double start_s)
{
    return ty_now_s() >= start_s + seconds_of(in, instruction);
}

/* Bytes of a rank's buffer for a collective or gather. */
static uint64_t payload_of(const ty_plan *plan, const ty_bucket *bucket, ty_collective_kind kind,
                           uint64_t bytes)
{
    return kind == TY_ALL_GATHER ? bytes * ty_bucket_device_count(plan, bucket) : bytes;
}

static ty_collective_kind kind_of(const ty_plan *plan, const ty_instruction *exchange)
{
    return exchange->op == TY_OP_GATHER
               ? TY_ALL_GATHER
               : ty_plan_exchange_kind(plan, &plan->buckets[exchange->bucket], exchange->phase);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Bytes of a rank's buffer for the collectives inside an instruction. */
static uint64_t parallel_bytes(const ty_interpreter *in, const ty_instruction *instruction)
{
    ty_inner_collective inner[TY_MAX_INNER_COLLECTIVES];
    uint64_t largest = 0;

    if (instruction->op == TY_OP_UPDATE)
        return exchange_before(in, instruction).bytes;
    for (uint32_t l = 0; l < instruction->layer_count; l++) {
        const uint32_t count = exchanges_of(in, instruction, instruction->first_layer + l, inner);
        for (uint32_t i = 0; i < count; i++) {
            const uint64_t parts =
                inner[i].kind == TY_ALL_GATHER ? in->groups[inner[i].among].count : 1;
            largest = larger(largest, inner[i].bytes * parts);
        }
    }
    return largest;
}

ty_status interpreter_replay_open(ty_interpreter *in, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    uint64_t largest = 0, largest_parallel = 0;
    ty_status status;

    in->replay = ty_alloc(1, sizeof *in->replay);
    TY_TRY(ty_check_memory(in->replay != NULL, error));
    in->replay->takes_part = ty_alloc(plan->workload->layer_count, sizeof *in->replay->takes_part);
    in->replay->again = ty_alloc(plan->workload->layer_count, sizeof *in->replay->again);
    TY_TRY(ty_check_memory(in->replay->takes_part != NULL && in->replay->again != NULL, error));
    ty_workload_mark_backward(plan->workload, in->replay->takes_part);
    if ((status = ty_plan_mark_again(plan, in->replay->again, error)) != TY_OK)
        return status;
    for (uint32_t i = 0; i < in->program->instruction_count; i++) {
        const ty_instruction *exchanged = &in->program->instructions[i];

        if (exchanged->op == TY_OP_COLLECTIVE || exchanged->op == TY_OP_GATHER)
            largest = larger(largest, payload_of(plan, &plan->buckets[exchanged->bucket],
                                                 kind_of(plan, exchanged), exchanged->bytes));
        else
            largest_parallel = larger(largest_parallel, parallel_bytes(in, exchanged));
    }
    in->replay->payload = ty_alloc(1, largest);
    in->replay->inner_payload = ty_alloc(1, largest_parallel);
    return in->replay->payload != NULL && in->replay->inner_payload != NULL
               ? TY_OK
               : ty_fail(error, TY_ENOMEM, "out of memory for exchanges of %llu and %llu bytes",
                         (unsigned long long)largest, (unsigned long long)largest_parallel);
}

void interpreter_replay_close(ty_interpreter *in)
{
    if (in->replay == NULL)
        return;
    ty_free(in->replay->payload);
    ty_free(in->replay->inner_payload);
    ty_free(in->replay->takes_part);
    ty_free(in->replay->again);
    ty_free(in->replay);
}

/* Zeros, which stay zeros however often they are summed. */
ty_collective_options interpreter_replay_exchange(ty_interpreter *in,
                                                  const ty_instruction *exchange, uint32_t tag)
{
    const ty_plan *plan = in->options.plan;
    const ty_bucket *planned = &plan->buckets[exchange->bucket];
    const bucket_state *bucket = &in->buckets[exchange->bucket];
    const bool is_half = ty_compression_at(planned->compression.kind)->summed != TY_PRECISION_FP32;
    ty_collective_options options = {.kind = kind_of(plan, exchange),
                                     .algorithm = planned->algorithm,
                                     .members = bucket->members,
                                     .hosts = bucket->hosts,
                                     .member_count = bucket->member_count,
                                     .data = in->replay->payload,
                                     .count = exchange->bytes,
                                     .element = TY_ELEMENT_BYTE,
                                     .tag = tag};

    interpreter_servers_name(in, exchange->bucket, &options);
    if (options.kind == TY_ALL_TO_ALL)
        options.count /= options.member_count;
    if (options.kind == TY_ALL_REDUCE || options.kind == TY_REDUCE_SCATTER) {
        options.element = is_half ? TY_ELEMENT_HALF : TY_ELEMENT_FLOAT;
        options.count /= is_half ? sizeof(uint16_t) : sizeof(float);
    }
    return options;
}

/* What a timed backend makes of instructions: those that compute take as long as the job says,
 * exchanges move as many bytes as the program says. */
#include "interpreter_state.h"

#include <time.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

/* How long before its end a wait stops sleeping: what a sleep overshoots once the kernel may
 * lengthen it by no more than a microsecond. */
static const double spin_s = 20e-6;

enum { TIMER_SLACK_NS = 1000 };

bool interpreter_is_timed(const ty_interpreter *in)
{
    return in->options.backend->is_timed;
}

static double seconds_of(const ty_interpreter *in, uint32_t instruction)
{
    return in->options.instruction_s[in->position][instruction];
}

void interpreter_sleep_finely(void)
{
#ifdef __linux__
    prctl(PR_SET_TIMERSLACK, (unsigned long)TIMER_SLACK_NS);
#endif
}

/* Sleeps while there is time to, so that ranks on the same core are not kept from it. ty_now_s is
 * CLOCK_MONOTONIC's. */
void interpreter_take_time(const ty_interpreter *in, uint32_t instruction, double start_s)
{
    const double end_s = start_s + seconds_of(in, instruction);
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

bool interpreter_is_over(const ty_interpreter *in, uint32_t instruction)
{
    return ty_now_s() >= in->running_since_s + seconds_of(in, instruction);
}

/* What a member has of an exchange or gather, in bytes of its buffer. */
static uint64_t payload_of(const ty_plan *plan, const ty_bucket *bucket, ty_collective_kind kind,
                           uint64_t bytes)
{
    return kind == TY_ALL_GATHER ? bytes * ty_bucket_member_count(plan, bucket) : bytes;
}

static ty_collective_kind kind_of(const ty_plan *plan, const ty_instruction *exchange)
{
    return exchange->op == TY_OP_GATHER
               ? TY_ALL_GATHER
               : ty_plan_exchange_kind(plan, &plan->buckets[exchange->bucket], exchange->phase);
}

ty_status interpreter_payload_open(ty_interpreter *in, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    uint64_t largest = 0;

    for (uint32_t i = 0; i < in->program->instruction_count; i++) {
        const ty_instruction *exchange = &in->program->instructions[i];
        uint64_t bytes;

        if (exchange->op != TY_OP_COLLECTIVE && exchange->op != TY_OP_GATHER)
            continue;
        bytes = payload_of(plan, &plan->buckets[exchange->bucket], kind_of(plan, exchange),
                           exchange->bytes);
        largest = bytes > largest ? bytes : largest;
    }
    in->payload = ty_alloc(1, largest);
    return in->payload != NULL ? TY_OK
                               : ty_fail(error, TY_ENOMEM,
                                         "out of memory for exchanges of %llu "
                                         "bytes",
                                         (unsigned long long)largest);
}

/* Zeros, which stay zeros however often they are summed. */
ty_status interpreter_replay_exchange(ty_interpreter *in, const ty_instruction *exchange,
                                      uint32_t tag, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const ty_bucket *planned = &plan->buckets[exchange->bucket];
    const bucket_state *bucket = &in->buckets[exchange->bucket];
    const bool is_half = planned->compression.kind == TY_COMPRESSION_FP16 ||
                         planned->compression.kind == TY_COMPRESSION_BF16;
    ty_collective_options options = {.kind = kind_of(plan, exchange),
                                     .algorithm = planned->algorithm,
                                     .members = bucket->members,
                                     .hosts = bucket->hosts,
                                     .member_count = bucket->member_count,
                                     .data = in->payload,
                                     .count = exchange->bytes,
                                     .element = TY_ELEMENT_BYTE,
                                     .tag = tag};

    if (options.kind == TY_ALL_TO_ALL)
        options.count /= options.member_count;
    if (options.kind == TY_ALL_REDUCE || options.kind == TY_REDUCE_SCATTER) {
        options.element = is_half ? TY_ELEMENT_HALF : TY_ELEMENT_FLOAT;
        options.count /= is_half ? sizeof(uint16_t) : sizeof(float);
    }
    return ty_collective_start(in->options.transport, &options, &in->running, error);
}

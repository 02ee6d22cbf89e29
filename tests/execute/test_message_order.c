/* The order of messages between two ranks on both sides. Links between devices without tags
 * (device_link.h) match messages by their order, also if steps overlap. */
#include "interpreter_messages.h"
#include "plans.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { MOST_RANKS = 8, STRETCH = 5, STRETCHES = 2 };

static const plan_shape shapes[] = {
    {.name = "gpipe 3 stages", .schedule = TY_GPIPE, .replicas = {1, 1, 1}, .cuts = {2, 4}},
    {.name = "1f1b 2+1", .schedule = TY_ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {3}},
    {.name = "zb-h1 3 stages", .schedule = TY_ZERO_BUBBLE, .replicas = {1, 1, 1}, .cuts = {2, 4}},
    {.name = "zb-2p 3 stages",
     .schedule = TY_ZERO_BUBBLE_2P,
     .replicas = {1, 1, 1},
     .cuts = {2, 4}},
    {.name = "pipedream 3 stages", .schedule = TY_PIPEDREAM, .replicas = {1, 1, 1}, .cuts = {2, 4}},
    {.name = "pipedream 2+1", .schedule = TY_PIPEDREAM, .replicas = {2, 1}, .cuts = {3}},
    {.name = "2bw 3 stages", .schedule = TY_PIPEDREAM_2BW, .replicas = {1, 1, 1}, .cuts = {2, 4}},
    {.name = "interleaved 2 x 2",
     .schedule = TY_INTERLEAVED,
     .replicas = {1, 1, 1, 1},
     .cuts = {2, 4, 5},
     .virtual_stages = 2},
};

/* All ranks of a plan; none of them runs. */
typedef struct ranks {
    ty_plan *plan;
    ty_program *program;
    uint32_t count;
    ty_transport *transports[MOST_RANKS];
    ty_interpreter *of[MOST_RANKS];
} ranks;

static ranks ranks_open(const plan_shape *shape)
{
    plan_shape whole = *shape;
    ranks r = {0};
    ty_error error = {0};

    whole.buckets = 1;
    whole.global_batch = 8;
    whole.micro_batch_size = 1;
    r.plan = make_plan("mlp", &whole);
    r.count = ty_plan_stage_replica_count(r.plan);
    cr_assert_eq(ty_plan_lower(r.plan, &r.program, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_transport_local(r.count, r.transports, &error), TY_OK, "%s", error.message);
    for (uint32_t i = 0; i < r.count; i++) {
        const ty_interpreter_options options = {.plan = r.plan,
                                                .program = r.program,
                                                .backend = &ty_device_cpu,
                                                .transport = r.transports[i],
                                                .steps = STRETCH * STRETCHES};

        cr_assert_eq(ty_interpreter_open(&options, &r.of[i], &error), TY_OK, "%s", error.message);
    }
    return r;
}

static void ranks_close(ranks *r)
{
    for (uint32_t i = 0; i < r->count; i++) {
        ty_interpreter_close(r->of[i]);
        r->transports[i]->close(r->transports[i]);
    }
    ty_program_free(r->program);
    ty_plan_free(r->plan);
}

/* The receive for a send of rank `from`; NO_INDEX if there is none. */
static uint32_t receive_of(const ranks *r, uint32_t from, const ty_instruction *send, uint32_t to)
{
    const ty_interpreter *own = r->of[from], *peer = r->of[to];
    const uint32_t m =
        ty_program_global_micro_batch(r->plan, send->stage, own->replica, send->micro_batch);

    for (uint32_t i = 0; i < peer->program->instruction_count; i++) {
        const ty_instruction *t = &peer->program->instructions[i];

        if (t->op == TY_OP_RECEIVE && t->direction == send->direction &&
            t->stage == send->peer_stage && t->peer_stage == send->stage &&
            ty_program_peer_replica(r->plan, to, t) == from &&
            ty_program_global_micro_batch(r->plan, t->stage, peer->replica, t->micro_batch) == m)
            return i;
    }
    return NO_INDEX;
}

/* @return number of messages compared */
static uint32_t rank_check(const ranks *r, const char *name, uint32_t from, uint32_t first)
{
    const ty_interpreter *own = r->of[from];
    const uint32_t count = own->program->instruction_count;
    bool *is_met = calloc((size_t)MOST_RANKS * 2 * count * STRETCH * STRETCHES, sizeof *is_met);
    uint32_t compared = 0;

    for (uint32_t i = 0; i < count; i++) {
        const ty_instruction *send = &own->program->instructions[i];
        uint32_t to, receive;

        if (send->op != TY_OP_SEND)
            continue;
        to = ty_program_peer_replica(r->plan, from, send);
        receive = receive_of(r, from, send, to);
        cr_assert_neq(receive, NO_INDEX, "%s: a send of rank %u is received by nobody", name, from);
        for (uint32_t step = first; step < first + STRETCH; step++) {
            const uint64_t sent = interpreter_order(own, i, step);
            const uint64_t received = interpreter_order(r->of[to], receive, step);
            bool *met = &is_met[((size_t)to * 2 + (send->direction == TY_GRADIENT)) * count *
                                    STRETCH * STRETCHES +
                                sent];

            cr_assert_eq(sent, received,
                         "%s: rank %u, instruction %u, step %u: sent as message %u, received as %u",
                         name, from, i, step, (unsigned)sent, (unsigned)received);
            cr_assert_lt(sent, (uint64_t)count * STRETCH * STRETCHES);
            cr_assert_not(*met, "%s: rank %u has two messages %u", name, from, (unsigned)sent);
            *met = true;
            compared++;
        }
    }
    free(is_met);
    return compared;
}

Test(message_order, is_the_same_at_both_ends)
{
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        ranks r = ranks_open(&shapes[s]);
        uint32_t compared = 0;

        for (uint32_t first = 0; first < STRETCH * STRETCHES; first += STRETCH) {
            for (uint32_t i = 0; i < r.count; i++) {
                r.of[i]->first_step = first;
                r.of[i]->target = first + STRETCH;
            }
            for (uint32_t i = 0; i < r.count; i++)
                compared += rank_check(&r, shapes[s].name, i, first);
        }
        cr_assert_gt(compared, 0, "%s: no messages", shapes[s].name);
        ranks_close(&r);
    }
}

/* The n-th message of a pair in its sender's own order of rounds is message n. There is no gap, so
 * each can start after the previous one. */
Test(message_order, has_no_gaps)
{
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        ranks r = ranks_open(&shapes[s]);

        for (uint32_t i = 0; i < r.count; i++) {
            ty_interpreter *own = r.of[i];
            const uint32_t count = own->program->instruction_count;
            uint64_t *next = calloc(count, sizeof *next);

            own->first_step = 0;
            own->target = STRETCH;
            for (int64_t round = -(int64_t)own->lead; round < STRETCH; round++)
                for (uint32_t k = 0; k < count; k++) {
                    const int64_t step = round + own->program->instructions[k].lead;

                    if (interpreter_pair(own, k) == NO_INDEX || step < 0 || step >= STRETCH)
                        continue;
                    cr_assert_eq(
                        interpreter_order(own, k, (uint32_t)step), next[interpreter_pair(own, k)],
                        "%s: rank %u, instruction %u, step %d", shapes[s].name, i, k, (int)step);
                    next[interpreter_pair(own, k)]++;
                }
            free(next);
        }
        ranks_close(&r);
    }
}

/* Programs: matching of stage replicas against brute force, the proof against programs with one
 * error each, files and listings. */
#include "toy.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ty_instruction *at(ty_program *program, uint32_t stage, uint32_t index)
{
    cr_assert_lt(index, program->stages[stage].instruction_count);
    return &program->stages[stage].instructions[index];
}

/* The n-th instruction of an operation in a stage. */
static uint32_t nth(const ty_program *program, uint32_t stage, ty_op op, uint32_t n)
{
    for (uint32_t i = 0; i < program->stages[stage].instruction_count; i++)
        if (program->stages[stage].instructions[i].op == op && n-- == 0)
            return i;
    cr_assert_fail("no such %s in stage %u", ty_op_name(op), stage);
    return 0;
}

/* Removes an instruction. Those that waited for it no longer do; later indices shift. */
static void drop(ty_program *program, uint32_t stage, uint32_t index)
{
    ty_stage_program *s = &program->stages[stage];
    ty_free(s->instructions[index].waits);
    memmove(&s->instructions[index], &s->instructions[index + 1],
            (s->instruction_count - index - 1) * sizeof *s->instructions);
    s->instruction_count--;
    for (uint32_t i = index; i < s->instruction_count; i++) {
        ty_instruction *in = &s->instructions[i];
        for (uint32_t w = 0; w < in->wait_count;)
            if (in->waits[w] == index)
                in->waits[w] = in->waits[--in->wait_count];
            else
                in->waits[w] -= in->waits[w] > index, w++;
    }
}

static void repeat(ty_program *program, uint32_t stage, uint32_t index)
{
    ty_instruction in = *at(program, stage, index);
    uint32_t waits[] = {index};
    cr_assert_eq(ty_program_append(program, stage, &in, waits, 1, NULL, NULL), TY_OK);
}

/* ---- Building ------------------------------------------------------------------------------ */

Test(program, append_keeps_order_and_waits)
{
    ty_plan *plan = toy_plan_named("alone");
    ty_program *program;
    ty_instruction load = ty_instruction_of(TY_OP_LOAD);
    const uint32_t waits[] = {TY_NO_INSTRUCTION, 3, TY_NO_INSTRUCTION, 7};
    const uint32_t forward[] = {100};
    uint32_t index;
    ty_error error = {0};

    cr_assert_eq(ty_program_new(plan, &program, NULL), TY_OK);
    for (uint32_t i = 0; i < 100; i++) {
        load.micro_batch = i;
        cr_assert_eq(ty_program_append(program, 0, &load, waits, i > 7 ? 4 : 0, &index, NULL),
                     TY_OK);
        cr_assert_eq(index, i);
    }
    for (uint32_t i = 0; i < 100; i++) {
        cr_assert_eq(at(program, 0, i)->micro_batch, i);
        cr_assert_eq(at(program, 0, i)->wait_count, i > 7 ? 2 : 0);
        if (i > 7)
            cr_assert(at(program, 0, i)->waits[0] == 3 && at(program, 0, i)->waits[1] == 7);
    }
    cr_assert_eq(ty_program_append(program, 0, &load, forward, 1, NULL, &error), TY_EINVAL);
    cr_assert_str_eq(error.message, "stage 0: instruction 100 cannot wait for 100");
    cr_assert_eq(ty_program_append(program, 1, &load, NULL, 0, NULL, &error), TY_EINVAL);
    cr_assert_eq(program->stages[0].instruction_count, 100);
    ty_program_free(program);
    ty_plan_free(plan);
}

/* Every send for every micro-batch has exactly one receive, which names the sender. */
Test(program, transfers_match_one_to_one)
{
    for (size_t t = 0; t < toy_spec_count; t++) {
        ty_plan *plan = toy_plan(&toy_specs[t]);
        ty_program *program = toy_program(plan);
        uint32_t stage_replicas = ty_plan_stage_replica_count(plan);

        for (uint32_t stage_replica = 0; stage_replica < stage_replicas; stage_replica++) {
            uint32_t stage = ty_plan_stage_of_replica(plan, stage_replica);
            uint32_t replica = stage_replica - ty_plan_first_replica(plan, stage);
            for (uint32_t i = 0; i < program->stages[stage].instruction_count; i++) {
                const ty_instruction *send = at(program, stage, i);
                uint32_t peer, global, found = 0;
                if (send->op != TY_OP_SEND)
                    continue;
                peer = ty_program_peer_replica(plan, stage_replica, send);
                global = ty_program_global_micro_batch(plan, stage, replica, send->micro_batch);
                cr_assert_lt(global, plan->micro_batches);
                cr_assert_eq(global % plan->stages[stage].replicas, replica);
                for (uint32_t r = 0; r < stage_replicas; r++) {
                    uint32_t s = ty_plan_stage_of_replica(plan, r);
                    for (uint32_t j = 0; j < program->stages[s].instruction_count; j++) {
                        const ty_instruction *receive = at(program, s, j);
                        if (s == send->peer_stage && receive->op == TY_OP_RECEIVE &&
                            receive->direction == send->direction &&
                            ty_program_global_micro_batch(plan, s,
                                                          r - ty_plan_first_replica(plan, s),
                                                          receive->micro_batch) == global) {
                            cr_assert_eq(r, peer, "%s", toy_specs[t].name);
                            cr_assert_eq(ty_program_peer_replica(plan, r, receive), stage_replica);
                            found++;
                        }
                    }
                }
                cr_assert_eq(found, 1, "%s stage replica %u", toy_specs[t].name, stage_replica);
            }
        }
        ty_program_free(program);
        ty_plan_free(plan);
    }
}

Test(program, gpipe_keeps_all_micro_batches_in_flight)
{
    for (size_t t = 0; t < toy_spec_count; t++) {
        ty_plan *plan = toy_plan(&toy_specs[t]);
        ty_program *program = toy_program(plan);
        uint64_t events = 0;
        for (uint32_t s = 0; s < plan->stage_count; s++) {
            cr_assert_eq(ty_program_peak_in_flight(program, s),
                         plan->micro_batches / plan->stages[s].replicas);
            for (uint32_t q = 0; q < plan->stages[s].replicas; q++)
                events += program->stages[s].instruction_count;
        }
        cr_assert_eq(ty_program_event_count(plan, program), events);
        ty_program_free(program);
        ty_plan_free(plan);
    }
}

/* Forward in two pieces, backward in three: activations live from the first piece to the last. */
Test(program, peak_in_flight_counts_pieces_once)
{
    const struct {
        ty_op op;
        uint32_t first_layer, layer_count;
    } pieces[] = {
        {TY_OP_FORWARD, 0, 3},  {TY_OP_FORWARD, 3, 3},  {TY_OP_FORWARD, 0, 3},
        {TY_OP_BACKWARD, 4, 2}, {TY_OP_BACKWARD, 1, 3}, {TY_OP_BACKWARD, 0, 1},
        {TY_OP_FORWARD, 3, 3},  {TY_OP_FORWARD, 0, 3},  {TY_OP_BACKWARD, 0, 6},
    };
    ty_plan *plan = toy_plan_named("alone");
    ty_program *program;

    cr_assert_eq(ty_program_new(plan, &program, NULL), TY_OK);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        ty_instruction in = ty_instruction_of(pieces[i].op);
        in.first_layer = pieces[i].first_layer;
        in.layer_count = pieces[i].layer_count;
        cr_assert_eq(ty_program_append(program, 0, &in, NULL, 0, NULL, NULL), TY_OK);
    }
    cr_assert_eq(ty_program_peak_in_flight(program, 0), 2);
    ty_program_free(program);
    ty_plan_free(plan);
}

/* ---- The proof ----------------------------------------------------------------------------- */

Test(program, check_accepts_every_shape)
{
    for (size_t t = 0; t < toy_spec_count; t++) {
        ty_plan *plan = toy_plan(&toy_specs[t]);
        ty_program *program = toy_program(plan);
        ty_error error = {0};
        cr_expect_eq(ty_program_check(plan, program, "toy", &error), TY_OK, "%s: %s",
                     toy_specs[t].name, error.message);
        ty_program_free(program);
        ty_plan_free(plan);
    }
}

/* Each error below is inserted into a valid program. */

static void drop_receive(ty_program *p)
{
    drop(p, 1, nth(p, 1, TY_OP_RECEIVE, 0));
}
static void drop_last_receive(ty_program *p) /* of the gradient, which backward then lacks */
{
    drop(p, 0, nth(p, 0, TY_OP_RECEIVE, 1));
}
static void drop_send(ty_program *p)
{
    drop(p, 0, nth(p, 0, TY_OP_SEND, 1));
}
static void drop_gradient_send(ty_program *p)
{
    drop(p, 1, nth(p, 1, TY_OP_SEND, 0));
}
static void forget_wait_for_receive(ty_program *p)
{
    ty_instruction *in = at(p, 1, nth(p, 1, TY_OP_FORWARD, 0));
    in->waits[1] = in->waits[0];
}
static void forget_wait_for_load(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_FORWARD, 1))->wait_count = 0;
}
static void drop_load(ty_program *p)
{
    drop(p, 0, nth(p, 0, TY_OP_LOAD, 0));
}
static void drop_labels(ty_program *p)
{
    drop(p, 1, nth(p, 1, TY_OP_LOAD, 1));
}
static void send_early(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_SEND, 0))->wait_count = 0;
}
static void send_twice(ty_program *p)
{
    repeat(p, 0, nth(p, 0, TY_OP_SEND, 0));
}
static void receive_twice(ty_program *p)
{
    repeat(p, 1, nth(p, 1, TY_OP_RECEIVE, 0));
}
static void load_twice(ty_program *p)
{
    repeat(p, 1, nth(p, 1, TY_OP_LOAD, 0));
}
static void send_wrong_bytes(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_SEND, 0))->bytes++;
}
static void load_too_much(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_LOAD, 0))->bytes = 49;
}
static void compute_with_bytes(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_FORWARD, 0))->bytes = 1;
}
static void send_too_far(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_SEND, 0))->peer_stage = 0;
}
static void send_off_the_end(ty_program *p)
{
    at(p, 1, nth(p, 1, TY_OP_SEND, 0))->direction = TY_ACTIVATION;
}
static void send_nowhere(ty_program *p)
{
    at(p, 1, nth(p, 1, TY_OP_SEND, 0))->direction = TY_NO_DIRECTION;
}
static void forward_with_peer(ty_program *p)
{
    at(p, 1, nth(p, 1, TY_OP_FORWARD, 0))->peer_stage = 0;
}
static void wait_for_later(ty_program *p)
{
    ty_instruction *in = at(p, 1, nth(p, 1, TY_OP_FORWARD, 0));
    in->waits[0] = nth(p, 1, TY_OP_FORWARD, 0);
}
static void wrong_stream(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_SEND, 0))->stream = TY_STREAM_COMPUTE;
}
static void no_such_op(ty_program *p)
{
    at(p, 0, 0)->op = (ty_op)77;
}
static void too_many_micro_batches(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_FORWARD, 1))->micro_batch = 2;
}
static void micro_batch_of_update(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_UPDATE, 0))->micro_batch = 0;
}
static void bucket_of_forward(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_FORWARD, 0))->bucket = 0;
}
static void no_such_bucket(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_UPDATE, 0))->bucket = 99;
}
static void bucket_of_other_stage(ty_program *p)
{
    ty_instruction *in = at(p, 0, nth(p, 0, TY_OP_UPDATE, 0));
    in->bucket = 2;
    in->first_layer = 2;
}
static void layers_of_other_stage(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_FORWARD, 0))->layer_count = 3;
}
static void layers_of_send(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_SEND, 0))->layer_count = 2;
}
static void layers_of_update(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_UPDATE, 0))->layer_count = 1;
}
static void forward_in_part(ty_program *p)
{
    ty_instruction *in = at(p, 1, nth(p, 1, TY_OP_FORWARD, 1));
    in->layer_count--;
}
static void forward_without_start(ty_program *p)
{
    ty_instruction *in = at(p, 1, nth(p, 1, TY_OP_FORWARD, 1));
    in->first_layer++;
    in->layer_count--;
}
static void forward_again(ty_program *p)
{
    repeat(p, 0, nth(p, 0, TY_OP_FORWARD, 0));
}
static void backward_again(ty_program *p)
{
    repeat(p, 0, nth(p, 0, TY_OP_BACKWARD, 0));
}
static void backward_in_part(ty_program *p)
{
    ty_instruction *in = at(p, 0, nth(p, 0, TY_OP_BACKWARD, 1));
    in->first_layer++;
    in->layer_count--;
    drop(p, 0, nth(p, 0, TY_OP_UPDATE, 0));
}
static void backward_from_middle(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_BACKWARD, 1))->layer_count--;
}
static void drop_backward(ty_program *p)
{
    drop(p, 0, nth(p, 0, TY_OP_BACKWARD, 0));
}
static void drop_forward(ty_program *p)
{
    drop(p, 0, nth(p, 0, TY_OP_FORWARD, 0));
}
static void recompute_unasked(ty_program *p)
{
    repeat(p, 0, nth(p, 0, TY_OP_FORWARD, 0));
    at(p, 0, p->stages[0].instruction_count - 1)->op = TY_OP_RECOMPUTE;
}
static void update_twice(ty_program *p)
{
    repeat(p, 0, nth(p, 0, TY_OP_UPDATE, 0));
}
static void drop_update(ty_program *p)
{
    drop(p, 1, nth(p, 1, TY_OP_UPDATE, 0));
}
static void other_plan(ty_program *p)
{
    p->plan_digest.hex[0] = p->plan_digest.hex[0] == '0' ? '1' : '0';
}
static void stage_too_few(ty_program *p)
{
    p->stage_count--;
    for (uint32_t i = 0; i < p->stages[1].instruction_count; i++)
        ty_free(p->stages[1].instructions[i].waits);
    ty_free(p->stages[1].instructions);
}

static void nothing_to_do(ty_program *p)
{
    while (p->stages[1].instruction_count > 0)
        drop(p, 1, p->stages[1].instruction_count - 1);
}

/* "pipeline recomputed" */
static void drop_recompute(ty_program *p)
{
    drop(p, 1, nth(p, 1, TY_OP_RECOMPUTE, 2));
}
static void recompute_in_part(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_RECOMPUTE, 0))->layer_count--;
}
static void recompute_before_forward(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_FORWARD, 2))->op = TY_OP_RECOMPUTE;
}

/* "hybrid tied": top-k */
static void drop_encode(ty_program *p)
{
    drop(p, 0, nth(p, 0, TY_OP_ENCODE, 0));
}
static void drop_collective(ty_program *p)
{
    drop(p, 1, nth(p, 1, TY_OP_COLLECTIVE, 0));
}
static void drop_decode(ty_program *p)
{
    drop(p, 1, nth(p, 1, TY_OP_DECODE, 1));
}
static void drop_tied_update(ty_program *p)
{
    drop(p, 1, nth(p, 1, TY_OP_UPDATE, 2));
}
static void collective_twice(ty_program *p)
{
    repeat(p, 1, nth(p, 1, TY_OP_COLLECTIVE, 0));
}
static void collective_wrong_bytes(ty_program *p)
{
    ty_instruction *in = at(p, 1, nth(p, 1, TY_OP_COLLECTIVE, 0));
    in->bytes = at(p, 1, nth(p, 1, TY_OP_ENCODE, 0))->bytes;
}
static void exchange_early(ty_program *p)
{
    at(p, 1, nth(p, 1, TY_OP_ENCODE, 0))->wait_count = 0;
}
static void exchange_before_last_backward(ty_program *p)
{
    at(p, 1, nth(p, 1, TY_OP_ENCODE, 0))->waits[0] = nth(p, 1, TY_OP_BACKWARD, 4);
}
static void update_early(ty_program *p)
{
    at(p, 1, nth(p, 1, TY_OP_UPDATE, 1))->wait_count = 0;
}
static void decode_before_collective(ty_program *p)
{
    ty_instruction *collective = at(p, 1, nth(p, 1, TY_OP_COLLECTIVE, 0));
    ty_instruction *decode = at(p, 1, nth(p, 1, TY_OP_DECODE, 0)), swapped = *collective;
    collective->op = TY_OP_DECODE;
    collective->bytes = decode->bytes;
    decode->op = TY_OP_COLLECTIVE;
    decode->bytes = swapped.bytes;
}

/* "hybrid up": stage 0 has one replica, so it has no gradient all-reduce */
static void exchange_alone(ty_program *p)
{
    repeat(p, 0, nth(p, 0, TY_OP_UPDATE, 0));
    at(p, 0, p->stages[0].instruction_count - 1)->op = TY_OP_COLLECTIVE;
    at(p, 0, p->stages[0].instruction_count - 1)->stream = TY_STREAM_COLLECTIVE;
    at(p, 0, p->stages[0].instruction_count - 1)->bytes = 128;
}

/* "hybrid": no compression */
static void encode_unasked(ty_program *p)
{
    repeat(p, 0, nth(p, 0, TY_OP_COLLECTIVE, 0));
    at(p, 0, p->stages[0].instruction_count - 1)->op = TY_OP_ENCODE;
}

/* "data parallel one-bit": without the second phase, and with invalid phases */
static void drop_second_collective(ty_program *p)
{
    uint32_t decode = nth(p, 0, TY_OP_DECODE, 0), second = nth(p, 0, TY_OP_COLLECTIVE, 1);
    at(p, 0, decode)->waits[0] = nth(p, 0, TY_OP_ENCODE, 1);
    drop(p, 0, second);
}
static void second_phase_first(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_ENCODE, 0))->phase = 1;
    at(p, 0, nth(p, 0, TY_OP_ENCODE, 1))->phase = 0;
}
static void third_phase(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_ENCODE, 1))->phase = 2;
}
static void phase_of_decode(ty_program *p)
{
    at(p, 0, nth(p, 0, TY_OP_DECODE, 0))->phase = 1;
}

/* "pipeline of four": inner stages have no input to load */
static void load_inside(ty_program *p)
{
    ty_instruction in = ty_instruction_of(TY_OP_LOAD);
    in.micro_batch = 0;
    cr_assert_eq(ty_program_append(p, 1, &in, NULL, 0, NULL, NULL), TY_OK);
}

/* Deadlocks: every stage is valid by itself. */
static void forward_after_gradient(ty_program *p)
{
    /* stage 0 delays micro-batch 1 until the gradient of 0 arrives; stage 1 runs both forward
     * passes first */
    ty_instruction receive = *at(p, 0, nth(p, 0, TY_OP_RECEIVE, 1));
    uint32_t forward = nth(p, 0, TY_OP_FORWARD, 1);
    ty_stage_program *s = &p->stages[0];
    ty_instruction in;

    cr_assert_eq(receive.micro_batch, 0);
    drop(p, 0, nth(p, 0, TY_OP_RECEIVE, 1));
    in = ty_instruction_of(TY_OP_UPDATE); /* space for one more */
    cr_assert_eq(ty_program_append(p, 0, &in, NULL, 0, NULL, NULL), TY_OK);
    s = &p->stages[0];
    for (uint32_t i = s->instruction_count - 1; i > forward; i--) {
        s->instructions[i] = s->instructions[i - 1];
        for (uint32_t w = 0; w < s->instructions[i].wait_count; w++)
            s->instructions[i].waits[w] += s->instructions[i].waits[w] >= forward;
    }
    receive.wait_count = 0;
    receive.waits = NULL;
    s->instructions[forward] = receive;
    /* forward 1 waits for it in addition to its load; backward 0 already follows it */
    in = s->instructions[forward + 1];
    in.waits = ty_resize(in.waits, 2, sizeof *in.waits);
    in.waits[1] = forward;
    in.wait_count = 2;
    s->instructions[forward + 1] = in;
}
static void collectives_crossed(ty_program *p)
{
    /* the two tied buckets in opposite orders on the two stages that share them */
    uint32_t first = nth(p, 1, TY_OP_COLLECTIVE, 0), second = nth(p, 1, TY_OP_COLLECTIVE, 1);
    ty_instruction *a = at(p, 1, first), *b = at(p, 1, second), swapped = *a;
    ty_instruction *ua = at(p, 1, nth(p, 1, TY_OP_UPDATE, 1));
    ty_instruction *ub = at(p, 1, nth(p, 1, TY_OP_UPDATE, 2));
    ty_instruction update = *ua;
    uint32_t *waits_a = a->waits, *waits_b = b->waits, *waits_ua = ua->waits, *waits_ub = ub->waits;
    *a = *b;
    a->waits = waits_a;
    *b = swapped;
    b->waits = waits_b;
    *ua = *ub;
    ua->waits = waits_ua;
    *ub = update;
    ub->waits = waits_ub;
}

Test(program, check_refuses_each_flaw)
{
    const struct {
        const char *plan;
        void (*spoil)(ty_program *);
        const char *message;
    } rows[] = {
        {"pipeline", drop_receive,
         "forward of micro-batch 0 through layers 2 to 5: expected the "
         "receive of its activation before it"},
        {"pipeline", drop_last_receive, "expected the receive of its gradient before it"},
        {"pipeline", drop_send,
         "toy:/stages/0/instructions: expected a send of the activation of "
         "micro-batch 1, to match stage 1"},
        {"pipeline", drop_gradient_send,
         "toy:/stages/1/instructions: expected a send of the "
         "gradient of micro-batch 1, to match stage 0"},
        {"pipeline", forget_wait_for_receive,
         "toy:/stages/1/instructions/2: forward of micro-batch 0 through layers 2 to 5: does not "
         "wait for the receive of its activation, instruction 1"},
        {"pipeline", forget_wait_for_load, "does not wait for the load of its data"},
        {"pipeline", drop_load, "expected the load of its data before it"},
        {"pipeline", drop_labels, "expected the load of its data before it"},
        {"pipeline", send_early,
         "send of the activation of micro-batch 0 to stage 1: does not wait for the forward"},
        {"pipeline", send_twice, "is already instruction 2"},
        {"pipeline", receive_twice, "is already instruction 1"},
        {"pipeline", load_twice, "load of micro-batch 0: is already instruction 0"},
        {"pipeline", send_wrong_bytes, "found 97 bytes, expected 96"},
        {"pipeline", load_too_much, "found 49 bytes, expected at most 48"},
        {"pipeline", compute_with_bytes, "found 1 bytes, expected 0"},
        {"pipeline", send_too_far, "expected stage 1"},
        {"pipeline", send_off_the_end, "there is no stage after stage 1"},
        {"pipeline", send_nowhere, "expected direction"},
        {"pipeline", forward_with_peer, "has neither peer stage nor direction"},
        {"pipeline", wait_for_later,
         "toy:/stages/1/instructions/2: forward of micro-batch 0 "
         "through layers 2 to 5: waits for instruction 2, expected an "
         "earlier one"},
        {"pipeline", wrong_stream, "found stream \"compute\", expected \"send\""},
        {"pipeline", no_such_op, "toy:/stages/0/instructions/0: operation 77"},
        {"pipeline", too_many_micro_batches, "a replica of the stage has 2 micro-batches"},
        {"pipeline", micro_batch_of_update, "a bucket belongs to no micro-batch"},
        {"pipeline", bucket_of_forward, "belongs to no bucket"},
        {"pipeline", no_such_bucket, "the plan has 3 buckets"},
        {"pipeline", bucket_of_other_stage, "the bucket belongs to stage 1"},
        {"pipeline", layers_of_other_stage, "expected layers of the stage, 0 to 1"},
        {"pipeline", layers_of_send, "found layers 0 + 2, expected 0 + 0"},
        {"pipeline", layers_of_update, "found layers 0 + 1, expected 0 + 2"},
        {"pipeline", forward_in_part,
         "toy:/stages/1/instructions/6: backward of micro-batch 1 through layers 2 to 5: expected "
         "all forwards of the micro-batch before it"},
        {"pipeline", forward_without_start, "expected layer 2 next"},
        {"pipeline", forward_again, "is done already at instruction 1"},
        {"pipeline", backward_again, "is done already at instruction 7"},
        {"pipeline", backward_in_part,
         "toy:/stages/0/instructions: expected a backward of layer 0 for micro-batch 0"},
        {"pipeline", backward_from_middle, "expected layer 1 next"},
        {"pipeline", drop_backward, "expected a backward of layer 1 for micro-batch 1"},
        {"pipeline", drop_forward, "expected the forward that makes it before it"},
        {"pipeline", recompute_unasked, "the plan does not recompute this stage"},
        {"pipeline", update_twice, "update of bucket 0: is already instruction"},
        {"pipeline", drop_update, "expected one update of bucket 1, found none"},
        {"pipeline", other_plan, "toy:/plan_digest: found "},
        {"pipeline", stage_too_few, "toy:/stages: found 1, expected the plan's 2"},
        {"pipeline", nothing_to_do,
         "toy:/stages/1/instructions: expected a forward and a backward "
         "for each of 2 micro-batches"},
        {"pipeline recomputed", drop_recompute, "expected a recompute of its segment, from layer"},
        {"pipeline recomputed", recompute_in_part,
         "expected a recompute of its segment, from layer"},
        {"pipeline recomputed", recompute_before_forward,
         "expected all forwards of the micro-batch before it"},
        {"hybrid tied", drop_encode, "expected one encode of bucket 0, found none"},
        {"hybrid tied", drop_collective, "expected one collective of bucket 2, found none"},
        {"hybrid tied", drop_decode, "expected one decode of bucket 3, found none"},
        {"hybrid tied", drop_tied_update,
         "toy:/stages/1/instructions: expected one update of bucket 4, found none"},
        {"hybrid tied", collective_twice, "is already instruction"},
        {"hybrid tied", collective_wrong_bytes, "found 16 bytes, expected 8"},
        {"hybrid tied", exchange_early,
         "does not wait for the last backward that adds to its "
         "bucket"},
        {"hybrid tied", exchange_before_last_backward,
         "does not wait for the last backward that adds to its bucket"},
        {"hybrid tied", update_early, "does not wait for the decode of its bucket"},
        {"hybrid tied", decode_before_collective, "does not wait for the collective of its bucket"},
        {"hybrid up", exchange_alone, "the bucket has one member and is not exchanged"},
        {"hybrid", encode_unasked, "encode of bucket 0: the bucket is not compressed"},
        {"data parallel one-bit", drop_second_collective,
         "expected one collective of bucket 0 in phase 1, found none"},
        {"data parallel one-bit", second_phase_first, "does not wait for"},
        {"data parallel one-bit", third_phase, "found phase 2, expected less than 2"},
        {"data parallel one-bit", phase_of_decode, "found phase 1, expected less than 1"},
        {"pipeline of four", load_inside, "only the first and the last stage load"},
        {"pipeline", forward_after_gradient,
         "deadlock: stage replica 0 (stage 0) is stuck at the receive of the gradient of "
         "micro-batch 0 from "
         "stage 1 and waits for stage replica 1 (stage 1), which is stuck at instruction"},
        {"pipeline tied", collectives_crossed,
         "deadlock: stage replica 0 (stage 0) is stuck at the collective of bucket 3 and waits for "
         "stage replica 1 "
         "(stage 1), which is stuck at instruction"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_plan *plan = toy_plan_named(rows[i].plan);
        ty_program *program = toy_program(plan);
        ty_error error = {0};
        rows[i].spoil(program);
        cr_expect_eq(ty_program_check(plan, program, "toy", &error), TY_EPARSE, "row %zu: %s", i,
                     rows[i].message);
        cr_expect_not_null(strstr(error.message, rows[i].message), "row %zu: \"%s\" lacks \"%s\"",
                           i, error.message, rows[i].message);
        ty_program_free(program);
        ty_plan_free(plan);
    }
}

/* A backward pass split at bucket boundaries, with each bucket sent at once, is as valid as an
 * unsplit one. */
Test(program, backward_may_be_cut_at_buckets)
{
    ty_plan *plan = toy_plan_named("data parallel");
    ty_program *program;
    ty_instruction in = ty_instruction_of(TY_OP_LOAD);
    uint32_t last = 0, wait;
    ty_error error = {0};

    cr_assert_eq(ty_program_new(plan, &program, NULL), TY_OK);
    in.micro_batch = 0;
    in.bytes = 48;
    cr_assert_eq(ty_program_append(program, 0, &in, NULL, 0, &last, NULL), TY_OK);
    for (uint32_t first = 0; first < 6; first += 3) { /* forward in two pieces */
        in = ty_instruction_of(TY_OP_FORWARD);
        in.micro_batch = 0;
        in.first_layer = first;
        in.layer_count = 3;
        wait = 0;
        cr_assert_eq(ty_program_append(program, 0, &in, &wait, 1, &last, NULL), TY_OK);
    }
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        in = ty_instruction_of(TY_OP_BACKWARD);
        in.micro_batch = 0;
        in.first_layer = plan->buckets[b].first_layer;
        in.layer_count = plan->buckets[b].layer_count;
        cr_assert_eq(ty_program_append(program, 0, &in, NULL, 0, &last, NULL), TY_OK);
        in.op = TY_OP_COLLECTIVE;
        in.stream = TY_STREAM_COLLECTIVE;
        in.micro_batch = TY_NO_MICRO_BATCH;
        in.bucket = b;
        in.bytes = plan->buckets[b].gradient_bytes;
        cr_assert_eq(ty_program_append(program, 0, &in, &last, 1, NULL, NULL), TY_OK);
    }
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        in = ty_instruction_of(TY_OP_UPDATE);
        in.first_layer = plan->buckets[b].first_layer;
        in.layer_count = plan->buckets[b].layer_count;
        in.bucket = b;
        wait = nth(program, 0, TY_OP_COLLECTIVE, b);
        cr_assert_eq(ty_program_append(program, 0, &in, &wait, 1, NULL, NULL), TY_OK);
    }
    cr_assert_eq(ty_program_check(plan, program, "toy", &error), TY_OK, "%s", error.message);
    ty_program_free(program);
    ty_plan_free(plan);
}

/* Linear in the number of events: 3000 stage replicas, a quarter of a million events. */
Test(program, check_of_many_replicas)
{
    const plan_shape spec = {"many",
                             .replicas = {500, 1500, 1000},
                             .cuts = {2, 4},
                             .buckets = 1,
                             .micro_batches = 30000,
                             .compression.kind = TY_COMPRESSION_FP16,
                             .recompute = TY_RECOMPUTE_FULL};
    ty_plan *plan = toy_plan(&spec);
    ty_program *program = toy_program(plan);
    ty_error error = {0};

    cr_assert_gt(ty_program_event_count(plan, program), 250000);
    cr_assert_eq(ty_program_check(plan, program, "many", &error), TY_OK, "%s", error.message);
    ty_program_free(program);
    ty_plan_free(plan);
}

/* ---- Files and listings -------------------------------------------------------------------- */

static ty_status parse(const char *text, ty_program **out, ty_error *error)
{
    ty_json_document *document = NULL;
    ty_status status = ty_json_parse(text, strlen(text), "program.json", &document, error);
    if (status == TY_OK)
        status = ty_program_from_json(ty_json_root(document), out, error);
    ty_json_free(document);
    return status;
}

Test(program, files_go_there_and_back)
{
    for (size_t t = 0; t < toy_spec_count; t++) {
        ty_plan *plan = toy_plan(&toy_specs[t]);
        ty_program *program = toy_program(plan), *read = NULL;
        char *first = toy_program_json(program), *second;
        ty_error error = {0};

        cr_assert_eq(parse(first, &read, &error), TY_OK, "%s", error.message);
        cr_assert_eq(ty_program_check(plan, read, "read", &error), TY_OK, "%s", error.message);
        second = toy_program_json(read);
        cr_assert_str_eq(first, second);
        ty_free(first);
        ty_free(second);
        ty_program_free(read);
        ty_program_free(program);
        ty_plan_free(plan);
    }
}

Test(program, bad_files_are_refused_with_pointer)
{
    const struct {
        const char *old, *new, *message;
    } rows[] = {
        {"trainyard.program/1", "trainyard.plan/1", "program.json:/schema"},
        {"\"plan_digest\": \"", "\"plan_digest\": \"0", "program.json:/plan_digest: found \"0"},
        {"\"op\": \"load\"", "\"op\": \"laod\"",
         "program.json:/stages/0/instructions/0/op: found "
         "\"laod\""},
        {"\"stream\": \"input\"", "\"stream\": \"imput\"", "/stages/0/instructions/0/stream"},
        {"\"stream\": \"input\", ", "", "stream"},
        {"\"waits\": [0]", "\"waits\": [1]", "/stages/0/instructions/1/waits/0: found 1"},
        {"\"waits\": [0]", "\"waits\": [-1]", "/stages/0/instructions/1/waits/0: found -1"},
        {"\"waits\": [0]", "\"waits\": 0", "/stages/0/instructions/1/waits"},
        {"\"waits\": [0]", "\"wait\": [0]", "/stages/0/instructions/1"},
        {"\"bytes\": 24", "\"bytes\": 24, \"waits\": [0]",
         "/stages/0/instructions/0: found an "
         "object, expected no waits"},
        {"\"bytes\": 24", "\"bytes\": 2.5", "/stages/0/instructions/0/bytes: found 2.5"},
        {"\"micro_batch\": 0", "\"micro_batch\": 4294967295", "/micro_batch: found 4294967295"},
        {"\"direction\": \"activation\"", "\"direction\": \"up\"", "/direction: found \"up\""},
        {"\"instructions\": [", "\"instructions\": [7, ", "/stages/0/instructions/0"},
        {"\"instructions\": [", "\"instructions\": [], \"notes\": [", "/stages/0/instructions"},
    };
    ty_plan *plan = toy_plan_named("pipeline");
    ty_program *program = toy_program(plan);
    char *good = toy_program_json(program);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *bad = toy_replace(good, rows[i].old, rows[i].new);
        ty_program *out = NULL;
        ty_error error = {0};
        cr_expect_eq(parse(bad, &out, &error), TY_EPARSE, "row %zu", i);
        cr_expect_null(out);
        cr_expect_not_null(strstr(error.message, rows[i].message), "row %zu: \"%s\" lacks \"%s\"",
                           i, error.message, rows[i].message);
        ty_free(bad);
    }
    ty_free(good);
    ty_program_free(program);
    ty_plan_free(plan);
}

Test(program, listing_is_readable)
{
    static const char expected[] =
        "stage 0: stage replicas 0-1, layers 0-1, 2 micro-batches of 2 each, at most 2 in flight\n"
        "     0  input      load        micro-batch 0  24 B\n"
        "     1  compute    forward     micro-batch 0  layers 0-1 (embed .. down)  after 0\n"
        "     2  send       send        micro-batch 0  activation to stage 1  96 B  after 1\n"
        "     3  input      load        micro-batch 1  24 B\n"
        "     4  compute    forward     micro-batch 1  layers 0-1 (embed .. down)  after 3\n"
        "     5  send       send        micro-batch 1  activation to stage 1  96 B  after 4\n"
        "     6  receive    receive     micro-batch 1  gradient from stage 1  96 B\n"
        "     7  compute    backward    micro-batch 1  layers 0-1 (embed .. down)  after 6\n"
        "     8  receive    receive     micro-batch 0  gradient from stage 1  96 B\n"
        "     9  compute    backward    micro-batch 0  layers 0-1 (embed .. down)  after 8\n"
        "    10  collective collective  bucket 0  ring all_reduce of 2  layers 0-1 (embed .. "
        "down)  256 B  after 9\n"
        "    11  compute    update      bucket 0  layers 0-1 (embed .. down)  after 10\n"
        "stage 1: stage replica 2, layers 2-5, 4 micro-batches of 2 each, at most 4 in flight\n"
        "     0  input      load        micro-batch 0  24 B\n";
    ty_plan *plan = toy_plan_named("hybrid");
    ty_program *program = toy_program(plan);
    ty_text text = {0};
    char *listing;

    ty_program_print(plan, program, &text);
    cr_assert_eq(ty_text_take(&text, &listing, NULL), TY_OK);
    cr_assert_eq(strncmp(listing, expected, strlen(expected)), 0, "%s", listing);
    ty_free(listing);
    ty_program_free(program);
    ty_plan_free(plan);
}

Test(program, survives_each_failing_allocation)
{
    ty_plan *plan = toy_plan_named("hybrid tied");
    ty_program *program = toy_program(plan), *out;
    char *json = toy_program_json(program);
    ty_costs *costs = NULL;
    ty_status status = TY_ENOMEM;

    for (long count = 1; status != TY_OK; count++) {
        ty_error error = {0};
        out = NULL;
        ty_memory_fail_after(count);
        status = parse(json, &out, &error);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM, "%ld: %s", count, error.message);
        cr_assert_eq(out == NULL, status != TY_OK);
        ty_program_free(out);
    }
    status = TY_ENOMEM;
    for (long count = 1; status != TY_OK; count++) {
        ty_memory_fail_after(count);
        status = ty_program_check(plan, program, "toy", NULL);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM);
    }
    status = TY_ENOMEM;
    for (long count = 1; status != TY_OK; count++) {
        ty_memory_fail_after(count);
        status = ty_costs_new(plan, program, &costs, NULL);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM);
    }
    cr_assert_eq(costs->stage_replica_count, 5);
    cr_assert_eq(costs->instruction_counts[1], program->stages[1].instruction_count);
    cr_assert_eq(costs->instructions[1][costs->instruction_counts[1] - 1].seconds, 0);
    ty_costs_free(costs);
    ty_free(json);
    ty_program_free(program);
    ty_plan_free(plan);
}

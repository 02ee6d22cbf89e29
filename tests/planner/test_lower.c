/* Lowering: orders written by hand, the number of in-flight micro-batches, and the proof of
 * ty_program_check on random plans. */
#include "lowering.h"
#include "plans.h"

#include <criterion/criterion.h>

#include <string.h>

/* ---- A program as one line --------------------------------------------------------------- */

static const char *const letters[TY_OP_COUNT] = {
    [TY_OP_LOAD] = "L",   [TY_OP_FORWARD] = "F", [TY_OP_RECOMPUTE] = "R", [TY_OP_BACKWARD] = "B",
    [TY_OP_SEND] = "S",   [TY_OP_RECEIVE] = "r", [TY_OP_ENCODE] = "E",    [TY_OP_COLLECTIVE] = "C",
    [TY_OP_DECODE] = "D", [TY_OP_UPDATE] = "U",  [TY_OP_BEGIN] = "N",
};

/* Letter, > or < for a transfer to the next or previous stage's direction, micro-batch or bucket,
 * [layers] of a backward and a recompute, and after @ the instructions it waits for. */
static void add_instruction(ty_text *line, const ty_instruction *instruction, bool has_waits)
{
    const char *direction = instruction->direction == TY_ACTIVATION ? ">" : "<";
    ty_text_addf(line, "%s%s%s%u", line->length > 0 ? " " : "", letters[instruction->op],
                 instruction->direction == TY_NO_DIRECTION ? "" : direction,
                 instruction->bucket == TY_NO_BUCKET ? instruction->micro_batch
                                                     : instruction->bucket);
    if (instruction->op == TY_OP_BACKWARD || instruction->op == TY_OP_RECOMPUTE)
        ty_text_addf(line, "[%u-%u]", instruction->first_layer,
                     instruction->first_layer + instruction->layer_count - 1);
    for (uint32_t i = 0; has_waits && i < instruction->wait_count; i++)
        ty_text_addf(line, "%s%u", i == 0 ? "@" : ",", instruction->waits[i]);
}

static void expect_stage(const char *name, const ty_program *program, uint32_t stage,
                         bool compute_only, const char *expected)
{
    ty_text line = {0};
    const ty_stage_program *s = &program->stages[stage];

    for (uint32_t i = 0; i < s->instruction_count; i++)
        if (!compute_only || s->instructions[i].stream == TY_STREAM_COMPUTE)
            add_instruction(&line, &s->instructions[i], !compute_only);
    cr_assert(!line.failed);
    cr_expect_str_eq(line.data, expected, "%s, stage %u:\n  found    %s\n  expected %s", name,
                     stage, line.data, expected);
    ty_text_clear(&line);
}

static ty_program *lower(const char *name, const ty_plan *plan)
{
    ty_program *program = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_plan_lower(plan, &program, &error), TY_OK, "%s: %s", name, error.message);
    cr_assert_eq(ty_program_check(plan, program, "program", &error), TY_OK, "%s: %s", name,
                 error.message);
    return program;
}

/* ---- By hand ----------------------------------------------------------------------------- */

static const struct {
    const char *name;
    plan_shape shape;
    const char *stages[MAX_STAGES];
} programs[] = {
    {"data parallel, two fp16 buckets",
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {2},
      .layers = {3},
      .buckets = 2,
      .micro_batches = 4,
      .compression.kind = TY_COMPRESSION_FP16},
     {"L0 F0@0 B0[0-2] L1 F1@3 B1[1-2] E0@5 C0@6 D0@7 B1[0-0] E1@9 C1@10 D1@11 U0@8 U1@12"}},
    {"one device, nothing to exchange",
     {.schedule = TY_GPIPE,
      .replicas = {1},
      .layers = {3},
      .buckets = 2,
      .micro_batches = 3,
      .compression.kind = TY_COMPRESSION_TOP_K},
     {"L0 F0@0 L1 F1@2 L2@1 F2@4 B2[0-2] B1[0-2] B0[0-2] U0 U1"}},
    {"gpipe 2+1 with recompute",
     {.schedule = TY_GPIPE,
      .replicas = {2, 1},
      .layers = {2, 2},
      .buckets = 1,
      .micro_batches = 2,
      .recompute = TY_RECOMPUTE_FULL},
     {"L0 F0@0 S>0@1 r<0 R0[0-1] B0[0-1]@3 C0@5 U0@6",
      "L0 r>0 F0@0,1 L1 r>1 F1@3,4 R1[2-3] B1[2-3] S<1@7 R0[2-3] B0[2-3] S<0@10 U1"}},
    /* Blocks of two layers from 1 on, since no other layer is like 0. The forward pass has just
     * computed the layers after them. A bucket is reduced as soon as its layers are done: inside a
     * segment, whose other layers still have their activations. */
    {"data parallel, segments of blocks",
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {2},
      .layers = {6},
      .buckets = 3,
      .micro_batches = 4,
      .recompute = TY_RECOMPUTE_FULL,
      .recompute_blocks = 1},
     {"L0 F0@0 B0[5-5] R0[3-4] B0[3-4] R0[0-2] B0[0-2] L1 F1@7 B1[5-5] R1[3-4] B1[4-4] C0@11 "
      "B1[3-3] R1[0-2] B1[2-2] C1@15 B1[0-1] C2@17 U0@12 U1@16 U2@18"}},
    /* The first stage's gradient is in flight during the recomputation of its last segment. */
    {"gpipe 1+1, segments of blocks",
     {.schedule = TY_GPIPE,
      .replicas = {1, 1},
      .layers = {4, 3},
      .buckets = 1,
      .micro_batches = 2,
      .recompute = TY_RECOMPUTE_FULL,
      .recompute_blocks = 1},
     {"L0 F0@0 S>0@1 L1 F1@3 S>1@4 r<1 R1[3-3] B1[3-3]@6 R1[0-2] B1[0-2] r<0 R0[3-3] B0[3-3]@11 "
      "R0[0-2] B0[0-2] U0",
      "L0 r>0 F0@0,1 L1 r>1 F1@3,4 B1[5-6] R1[4-4] B1[4-4] S<1@8 R0[5-6] B0[5-6] R0[4-4] B0[4-4] "
      "S<0@13 U1"}},
    {"1f1b 1+2, tied weight",
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {1, 2},
      .layers = {2, 3},
      .stage_buckets = {1, 2},
      .micro_batches = 2,
      .is_tied = true},
     {"L0 F0@0 S>0@1 L1 F1@3 S>1@4 r<0 B0[0-1]@6 r<1 B1[0-1]@8 C3@9 U0 U3@10",
      "L0 r>0 F0@0,1 B0[3-4] C1@3 B0[2-2] S<0@5 C2@5 C3@5 U1@4 U2@7 U3@8"}},
    {"middle stage loads nothing",
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {1, 1, 1},
      .layers = {1, 1, 1},
      .buckets = 1,
      .micro_batches = 1},
     {"L0 F0@0 S>0@1 r<0 B0[0-0]@3 U0", "r>0 F0@0 S>0@1 r<0 B0[1-1]@3 S<0@4 U1",
      "L0 r>0 F0@0,1 B0[2-2] S<0@3 U2"}},
};

Test(lower, programs_by_hand)
{
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        ty_plan *plan = make_plan(&programs[i].shape);
        ty_program *program = lower(programs[i].name, plan);
        for (uint32_t s = 0; s < plan->stage_count; s++)
            expect_stage(programs[i].name, program, s, false, programs[i].stages[s]);
        ty_program_free(program);
        ty_plan_free(plan);
    }
}

/* PipeDream's warm-up and its generalization to unequal replicas: R = 4, w = 3, 1, 0 for 1+2+1. */
static const struct {
    const char *name;
    plan_shape shape;
    const char *compute[MAX_STAGES];
} orders[] = {
    {"1f1b 1+1+1",
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {1, 1, 1},
      .layers = {1, 1, 1},
      .buckets = 1,
      .micro_batches = 4},
     {"F0 F1 F2 B0[0-0] F3 B1[0-0] B2[0-0] B3[0-0] U0",
      "F0 F1 B0[1-1] F2 B1[1-1] F3 B2[1-1] B3[1-1] U1",
      "F0 B0[2-2] F1 B1[2-2] F2 B2[2-2] F3 B3[2-2] U2"}},
    {"1f1b 1+2+1",
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {1, 2, 1},
      .layers = {1, 1, 1},
      .buckets = 1,
      .micro_batches = 4},
     {"F0 F1 F2 F3 B0[0-0] B1[0-0] B2[0-0] B3[0-0] U0", "F0 F1 B0[1-1] B1[1-1] U1",
      "F0 B0[2-2] F1 B1[2-2] F2 B2[2-2] F3 B3[2-2] U2"}},
    {"fewer micro-batches than stages",
     {.schedule = TY_ONE_F_ONE_B,
      .replicas = {1, 1, 1},
      .layers = {1, 1, 1},
      .buckets = 1,
      .micro_batches = 2},
     {"F0 F1 B0[0-0] B1[0-0] U0", "F0 F1 B0[1-1] B1[1-1] U1", "F0 B0[2-2] F1 B1[2-2] U2"}},
};

Test(lower, compute_orders_by_hand)
{
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        ty_plan *plan = make_plan(&orders[i].shape);
        ty_program *program = lower(orders[i].name, plan);
        for (uint32_t s = 0; s < plan->stage_count; s++)
            expect_stage(orders[i].name, program, s, true, orders[i].compute[s]);
        ty_program_free(program);
        ty_plan_free(plan);
    }
}

/* In-flight micro-batches of stage i of p. GPipe: m; 1F1B: min(p - i, m); zero bubble H1: as the
 * first stage of 1F1B; H2: 2p - 1; without a flush: p - i, of this step or later ones. */
static uint32_t expected_in_flight(ty_schedule schedule, uint32_t p, uint32_t i, uint32_t m)
{
    const uint32_t few = p - i < m ? p - i : m;

    if (schedule == TY_GPIPE)
        return m;
    if (schedule == TY_ZERO_BUBBLE)
        return p < m ? p : m;
    if (schedule == TY_ZERO_BUBBLE_2P)
        return 2 * p - 1 < m ? 2 * p - 1 : m;
    return ty_schedule_at(schedule)->is_asynchronous ? p - i : few;
}

Test(lower, micro_batches_in_flight)
{
    for (uint32_t p = 1; p <= MAX_STAGES; p++) {
        for (uint32_t m = 1; m <= 2 * MAX_STAGES; m++) {
            for (int schedule = 0; schedule < TY_SCHEDULE_COUNT; schedule++) {
                plan_shape shape = {
                    .schedule = (ty_schedule)schedule, .buckets = 1, .micro_batches = m};
                ty_plan *plan;
                ty_program *program;
                if (schedule == TY_INTERLEAVED || (schedule == TY_PIPEDREAM_2BW && m < p))
                    continue;
                for (uint32_t s = 0; s < p; s++)
                    shape.replicas[s] = shape.layers[s] = 1;
                plan = make_plan(&shape);
                program = lower("in flight", plan);
                for (uint32_t s = 0; s < p; s++) {
                    uint32_t expected = expected_in_flight((ty_schedule)schedule, p, s, m);
                    uint32_t found = ty_program_peak_in_flight(program, s);
                    cr_expect_eq(found, expected, "%s, %u stages, %u micro-batches, stage %u: %u",
                                 ty_schedule_name((ty_schedule)schedule), p, m, s, found);
                }
                ty_program_free(program);
                ty_plan_free(plan);
            }
        }
    }
}

Test(lower, payloads)
{
    plan_shape shape = {.schedule = TY_GPIPE,
                        .replicas = {2, 2},
                        .layers = {2, 2},
                        .buckets = 1,
                        .micro_batches = 2,
                        .compression.kind = TY_COMPRESSION_FP16};
    ty_plan *plan = make_plan(&shape);
    ty_program *program = lower("payloads", plan);
    /* Two samples per micro-batch; parameters of layers 2 and 3: 3000 + 4000. */
    const struct {
        ty_op op;
        uint64_t bytes;
    } rows[] = {{TY_OP_LOAD, 2 * 4},      {TY_OP_RECEIVE, 2 * 400}, {TY_OP_SEND, 2 * 400},
                {TY_OP_ENCODE, 7000 * 4}, {TY_OP_DECODE, 7000 * 4}, {TY_OP_COLLECTIVE, 7000 * 2},
                {TY_OP_FORWARD, 0},       {TY_OP_BACKWARD, 0},      {TY_OP_UPDATE, 0}};

    cr_expect_eq(program->stages[0].instructions[0].bytes, 2 * 404, "whole samples");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t count = 0;
        for (uint32_t j = 0; j < program->stages[1].instruction_count; j++) {
            const ty_instruction *instruction = &program->stages[1].instructions[j];
            if (instruction->op != rows[i].op)
                continue;
            count++;
            cr_expect_eq(instruction->bytes, rows[i].bytes, "%s: %llu bytes",
                         ty_op_name(rows[i].op), (unsigned long long)instruction->bytes);
        }
        cr_expect_eq(count, 1, "%s: %u of them", ty_op_name(rows[i].op), count);
    }
    ty_program_free(program);
    ty_plan_free(plan);
}

Test(lower, frozen_layers_are_not_updated)
{
    plan_shape shape = {
        .schedule = TY_GPIPE, .replicas = {2}, .layers = {4}, .buckets = 4, .micro_batches = 2};
    ty_plan *plan = make_plan(&shape);
    ty_program *program;

    /* Transfer learning: the first two layers are frozen, so they have no buckets. */
    plan->workload->layers[0].is_frozen = plan->workload->layers[1].is_frozen = true;
    plan->bucket_count = 2;
    cr_assert_eq(ty_workload_digest(plan->workload, &plan->workload_digest, NULL), TY_OK);
    program = lower("frozen", plan);
    expect_stage("frozen", program, 0, false, "L0 F0@0 B0[3-3] C0@2 B0[2-2] C1@4 U0@3 U1@5");
    ty_program_free(program);
    ty_plan_free(plan);
}

/* Two of three stages precede the first trained layer: they only pass activations on. The third
 * stage ends its backward pass at that layer. */
Test(lower, frozen_stages_have_no_backward)
{
    plan_shape shape = {.schedule = TY_ONE_F_ONE_B,
                        .replicas = {1, 1, 1},
                        .layers = {1, 1, 2},
                        .buckets = 1,
                        .recompute = TY_RECOMPUTE_FULL,
                        .micro_batches = 2};
    ty_plan *plan = make_plan(&shape);
    ty_program *program;
    ty_error error = {0};

    for (uint32_t l = 0; l < 3; l++)
        plan->workload->layers[l].is_frozen = true;
    plan->buckets[0] = plan->buckets[2];
    plan->buckets[0].first_layer = 3;
    plan->buckets[0].layer_count = 1;
    plan->buckets[0].gradient_bytes = ty_bucket_gradient_bytes(plan, &plan->buckets[0]);
    plan->bucket_count = 1;
    cr_assert_eq(ty_workload_digest(plan->workload, &plan->workload_digest, NULL), TY_OK);
    program = lower("frozen stages", plan);
    expect_stage("frozen stages", program, 0, false, "L0 F0@0 S>0@1 L1 F1@3 S>1@4");
    expect_stage("frozen stages", program, 1, false, "r>0 F0@0 S>0@1 r>1 F1@3 S>1@4");
    cr_expect_eq(ty_program_peak_in_flight(program, 0), 1);
    for (uint32_t i = 0; i < program->stages[2].instruction_count; i++) {
        const ty_instruction *in = &program->stages[2].instructions[i];
        cr_expect(in->direction != TY_GRADIENT);
        cr_expect(in->op != TY_OP_BACKWARD || (in->first_layer == 3 && in->layer_count == 1));
    }
    /* Invalid instructions for a model that is frozen up to this layer. */
    for (uint32_t i = 0; i < program->stages[2].instruction_count; i++) {
        ty_instruction *in = &program->stages[2].instructions[i];
        ty_instruction kept = *in;
        if (in->op != TY_OP_BACKWARD)
            continue;
        in->first_layer--;
        in->layer_count++;
        cr_expect_eq(ty_program_check(plan, program, "program", &error), TY_EPARSE);
        cr_expect_neq(strstr(error.message, "nothing before layer 3 is trained"), NULL, "%s",
                      error.message);
        *in = kept;
    }
    program->stages[1].instructions[0].direction = TY_GRADIENT;
    program->stages[1].instructions[0].peer_stage = 2;
    cr_expect_eq(ty_program_check(plan, program, "program", &error), TY_EPARSE);
    cr_expect_neq(strstr(error.message, "nothing before stage 2 is trained"), NULL, "%s",
                  error.message);
    program->stages[1].instructions[0].direction = TY_ACTIVATION;
    program->stages[1].instructions[0].peer_stage = 0;
    cr_expect_eq(ty_program_check(plan, program, "program", &error), TY_OK, "%s", error.message);
    /* The same program is incomplete for a model whose first layers are trained. */
    for (uint32_t l = 0; l < 3; l++)
        plan->workload->layers[l].is_frozen = false;
    cr_expect_eq(ty_program_check(plan, program, "program", &error), TY_EPARSE);
    ty_program_free(program);
    ty_plan_free(plan);
}

/* After local steps weights are averaged: all buckets are reduced after the entire backward
 * pass. */
Test(lower, local_steps_exchange_at_the_end)
{
    plan_shape shape = {
        .schedule = TY_GPIPE, .replicas = {2}, .layers = {4}, .buckets = 2, .micro_batches = 2};
    ty_plan *plan = make_plan(&shape);
    ty_program *program;

    plan->workload->local_steps = 8;
    cr_assert_eq(ty_workload_digest(plan->workload, &plan->workload_digest, NULL), TY_OK);
    program = lower("local steps", plan);
    expect_stage("local steps", program, 0, false, "L0 F0@0 B0[0-3] C0@2 C1@2 U0@3 U1@4");
    ty_program_free(program);
    ty_plan_free(plan);
}

/* A population: forward passes, then an all-gather of the scores of each replica's four samples. */
Test(lower, evolution_exchanges_scores)
{
    plan_shape shape = {
        .schedule = TY_GPIPE, .replicas = {2}, .layers = {4}, .buckets = 1, .micro_batches = 4};
    ty_plan *plan = make_plan(&shape);
    ty_program *program;
    ty_error error = {0};

    plan->workload->learning = TY_LEARNING_EVOLUTION;
    cr_assert_eq(ty_workload_digest(plan->workload, &plan->workload_digest, NULL), TY_OK);
    program = lower("evolution", plan);
    expect_stage("evolution", program, 0, false, "L0 F0@0 L1 F1@2 C0@3 U0@4");
    cr_expect_eq(program->stages[0].instructions[4].bytes, 4 * 8);
    cr_expect_eq(ty_plan_exchange_kind(plan, &plan->buckets[0], 0), TY_ALL_GATHER);
    program->stages[0].instructions[4].waits[0] = 1;
    cr_expect_eq(ty_program_check(plan, program, "program", &error), TY_EPARSE);
    cr_expect_neq(strstr(error.message, "does not wait for the last forward"), NULL, "%s",
                  error.message);
    ty_program_free(program);
    ty_plan_free(plan);
}

/* ---- Actors ------------------------------------------------------------------------------- */

static ty_plan *plan_of_actors(uint32_t actors, uint32_t learners, uint32_t lag)
{
    plan_shape shape = {.schedule = TY_ONE_F_ONE_B,
                        .replicas = {learners},
                        .buckets = 1,
                        .lag = lag,
                        .micro_batches = 4};
    ty_workload *workload = chain_workload(2, false);

    workload->learning = TY_LEARNING_REINFORCEMENT;
    if (actors > 0) {
        shape.replicas[0] = actors;
        shape.replicas[1] = learners;
    }
    return plan_of(workload, NULL, &shape);
}

static const ty_instruction *first_of(const ty_program *program, uint32_t stage, ty_op op,
                                      ty_direction direction)
{
    for (uint32_t i = 0; i < program->stages[stage].instruction_count; i++)
        if (program->stages[stage].instructions[i].op == op &&
            program->stages[stage].instructions[i].direction == direction)
            return &program->stages[stage].instructions[i];
    return NULL;
}

/* Loads that compute before forward passes, or run on separate actor ranks that begin with new
 * weights. Weights are sent after all updates; with one actor and two learners each sends half of
 * them. */
Test(lower, actors_play_for_learners)
{
    static const struct {
        uint32_t actors, learners;
        const char *of_actors, *of_learners;
        uint64_t policy_bytes;
    } rows[] = {
        {0, 1, NULL, "L0 F0@0 B0[0-1] L1 F1@3 B1[0-1] L2 F2@6 B2[0-1] L3 F3@9 B3[0-1] U0", 0},
        {2, 1, "r<0 N4294967295@0 L0 S>0@2 L1 S>1@4",
         "r>0 F0@0 B0[0-1] r>1 F1@3 B1[0-1] r>2 F2@6 B2[0-1] r>3 F3@9 B3[0-1] U0 "
         "S<0@12 S<1@12",
         12000},
        {1, 2, "r<0 r<1 N4294967295@0,1 L0 S>0@3 L1 S>1@5 L2 S>2@7 L3 S>3@9",
         "r>0 F0@0 B0[0-1] r>1 F1@3 B1[0-1] C0@5 U0@6 S<0@7", 6000},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (uint32_t lag = 0; lag < (rows[i].actors > 0 ? 3u : 1u); lag++) {
            ty_plan *plan = plan_of_actors(rows[i].actors, rows[i].learners, lag);
            ty_program *program = lower("actors", plan);

            if (rows[i].actors == 0) {
                expect_stage("learners", program, 0, false, rows[i].of_learners);
            } else {
                expect_stage("actors", program, 0, false, rows[i].of_actors);
                expect_stage("learners", program, 1, false, rows[i].of_learners);
                cr_expect_eq(first_of(program, 0, TY_OP_LOAD, TY_NO_DIRECTION)->lead, 1 + lag);
                cr_expect_eq(first_of(program, 0, TY_OP_BEGIN, TY_NO_DIRECTION)->lead, 0);
                cr_expect_eq(ty_program_lead(program, 1), 0);
                cr_expect_eq(first_of(program, 0, TY_OP_RECEIVE, TY_GRADIENT)->bytes,
                             rows[i].policy_bytes);
                cr_expect_eq(first_of(program, 1, TY_OP_RECEIVE, TY_ACTIVATION)->bytes,
                             2 * 4 * (100 + 2 * 100 + 1));
            }
            ty_program_free(program);
            ty_plan_free(plan);
        }
}

/* Every error in such a program is reported. */
Test(lower, actors_are_checked)
{
    static const struct {
        uint32_t stage, index;
        const char *words;
    } * row, rows[] = {
                 {0, 2, "is 0 steps ahead, expected 2"},
                 {0, 1, "does not wait for the receive of its weights"},
                 {0, 3, "does not wait for the load that makes it"},
                 {1, 13, "does not wait for the update of every bucket"},
                 {0, 2, "expected stream \"compute\""},
             };
    ty_error error = {0};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_plan *plan = plan_of_actors(2, 1, 1);
        ty_program *program = lower("actors", plan);
        ty_instruction *spoilt;

        row = &rows[i];
        spoilt = &program->stages[row->stage].instructions[row->index];
        if (i == 0)
            spoilt->lead = 0;
        else if (i == 4)
            spoilt->stream = TY_STREAM_INPUT;
        else
            spoilt->wait_count = 0;
        cr_expect_eq(ty_program_check(plan, program, "program", &error), TY_EPARSE);
        cr_expect_neq(strstr(error.message, row->words), NULL, "%s", error.message);
        ty_program_free(program);
        ty_plan_free(plan);
    }
}

/* ---- At random --------------------------------------------------------------------------- */

static uint64_t bytes_over(const ty_plan *plan, const ty_program *program, ty_op op, uint32_t stage,
                           ty_direction direction)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->stages[stage].instruction_count; i++) {
        const ty_instruction *instruction = &program->stages[stage].instructions[i];
        if (instruction->op == op && instruction->direction == direction)
            bytes += instruction->bytes * plan->stages[stage].replicas;
    }
    return bytes;
}

/* The search's memory estimate, made before lowering, equals that of the program. */
static void expect_same_memory(uint64_t seed, const ty_plan *plan, const ty_program *program)
{
    ty_program *passes = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_plan_lower_passes(plan, &passes, &error), TY_OK, "%s", error.message);
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        ty_memory_use whole, part;
        cr_assert_eq(ty_program_peak_in_flight(passes, s), ty_program_peak_in_flight(program, s),
                     "seed %llu, stage %u", (unsigned long long)seed, s);
        cr_assert_eq(ty_stage_memory(plan, program, s, &whole, &error), TY_OK);
        cr_assert_eq(ty_stage_memory(plan, passes, s, &part, &error), TY_OK);
        cr_assert_eq(memcmp(&whole, &part, sizeof whole), 0, "seed %llu, stage %u",
                     (unsigned long long)seed, s);
    }
    ty_program_free(passes);
}

Test(lower, random_plans_are_proved)
{
    for (uint64_t seed = 1; seed <= 400; seed++) {
        random_numbers numbers = {seed * 0x9E3779B97F4A7C15ULL};
        plan_shape shape = random_shape(&numbers);
        ty_plan *plan = make_plan(&shape);
        ty_program *program = NULL;
        ty_error error = {0};

        cr_assert_eq(ty_plan_lower(plan, &program, &error), TY_OK, "seed %llu: %s",
                     (unsigned long long)seed, error.message);
        cr_assert_eq(ty_program_check(plan, program, "program", &error), TY_OK, "seed %llu: %s",
                     (unsigned long long)seed, error.message);
        for (uint32_t s = 0; s + 1 < plan->stage_count; s++) {
            uint64_t all = (uint64_t)plan->micro_batches * 800;
            cr_expect_eq(bytes_over(plan, program, TY_OP_SEND, s, TY_ACTIVATION), all);
            cr_expect_eq(bytes_over(plan, program, TY_OP_RECEIVE, s + 1, TY_ACTIVATION), all);
            cr_expect_eq(bytes_over(plan, program, TY_OP_SEND, s + 1, TY_GRADIENT), all);
            cr_expect_eq(bytes_over(plan, program, TY_OP_RECEIVE, s, TY_GRADIENT), all);
        }
        expect_same_memory(seed, plan, program);
        ty_program_free(program);
        ty_plan_free(plan);
    }
}

/* ---- What goes wrong --------------------------------------------------------------------- */

static void bad_schedule(ty_plan *plan)
{
    plan->schedule = TY_SCHEDULE_COUNT;
}

static void bad_replicas(ty_plan *plan)
{
    plan->micro_batches = 3;
}

static void no_stages(ty_plan *plan)
{
    plan->stage_count = 0;
}

static void bad_bucket_stage(ty_plan *plan)
{
    plan->buckets[1].stage = 7;
}

static void bad_bucket_order(ty_plan *plan)
{
    plan->buckets[0].first_layer = 0;
}

Test(lower, bad_plans_are_refused)
{
    static const struct {
        void (*spoil)(ty_plan *plan);
        const char *message;
    } rows[] = {
        {bad_schedule, "expected a schedule"},
        {bad_replicas, "plan:/stages/0/replicas: found 2, expected a divisor of the 3"},
        {no_stages, "plan:/stages: found 0"},
        {bad_bucket_stage, "plan:/buckets/1/stage: found 7, expected less than 1"},
        {bad_bucket_order, "plan:/buckets/0/first_layer: found 0, expected more than 0"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        plan_shape shape = {
            .schedule = TY_GPIPE, .replicas = {2}, .layers = {3}, .buckets = 2, .micro_batches = 4};
        ty_plan *plan = make_plan(&shape);
        ty_program *program = NULL;
        ty_error error = {0};
        uint32_t stage_count = plan->stage_count;

        rows[i].spoil(plan);
        cr_expect_eq(ty_plan_lower(plan, &program, &error), TY_EINVAL, "%s", rows[i].message);
        cr_expect_eq(error.status, TY_EINVAL);
        cr_expect(strstr(error.message, rows[i].message) != NULL, "found \"%s\", expected \"%s\"",
                  error.message, rows[i].message);
        cr_expect_null(program);
        plan->stage_count = stage_count;
        ty_plan_free(plan);
    }
}

Test(lower, memory_may_run_out_anywhere)
{
    plan_shape shape = {.schedule = TY_ONE_F_ONE_B,
                        .replicas = {1, 2},
                        .layers = {2, 3},
                        .stage_buckets = {1, 2},
                        .micro_batches = 4,
                        .is_tied = true,
                        .compression.kind = TY_COMPRESSION_FP16};
    ty_plan *plan = make_plan(&shape);
    ty_program *program = NULL;
    ty_status status = TY_ENOMEM;
    long n;

    for (n = 1; status != TY_OK; n++) {
        ty_error error = {0};
        ty_memory_fail_after(n);
        status = ty_plan_lower(plan, &program, &error);
        ty_memory_fail_after(0);
        if (status != TY_OK) {
            cr_assert_eq(status, TY_ENOMEM, "allocation %ld: %s", n, error.message);
            cr_assert_null(program);
            cr_assert_eq(error.status, TY_ENOMEM);
        }
    }
    cr_expect_gt(n, 20);
    ty_program_free(program);
    ty_plan_free(plan);
}

/* With staleness, everything except the updates runs that number of steps ahead, in every schedule
 * with a flush. The proof accepts no other lead. */
Test(lower, updates_come_late)
{
    static const ty_schedule schedules[] = {TY_GPIPE, TY_ONE_F_ONE_B, TY_INTERLEAVED,
                                            TY_ZERO_BUBBLE, TY_ZERO_BUBBLE_2P};

    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++)
        for (uint32_t staleness = 1; staleness <= 5; staleness++) {
            const uint32_t more = schedules[i] == TY_INTERLEAVED ? 2 : 0;
            const plan_shape shape = {.schedule = schedules[i],
                                      .virtual_stages = more,
                                      .replicas = {2, 2, more, more},
                                      .layers = {2, 2, more, more},
                                      .buckets = 2,
                                      .micro_batches = 8,
                                      .compression.kind = TY_COMPRESSION_POWERSGD,
                                      .staleness = staleness};
            ty_plan *plan = make_plan(&shape);
            ty_program *program = lower("late", plan);
            ty_error error = {0};
            uint32_t updates = 0;

            for (uint32_t p = 0; p < program->stage_count; p++)
                for (uint32_t k = 0; k < program->stages[p].instruction_count; k++) {
                    ty_instruction *in = &program->stages[p].instructions[k];
                    const uint32_t lead = in->lead;
                    cr_expect_eq(lead, in->op == TY_OP_UPDATE ? 0 : staleness);
                    updates += in->op == TY_OP_UPDATE;
                    in->lead = lead + 1;
                    cr_assert_eq(ty_program_check(plan, program, "late", &error), TY_EPARSE);
                    cr_assert_not_null(strstr(error.message, "steps ahead, expected "), "%s",
                                       error.message);
                    in->lead = lead;
                }
            cr_expect_eq(updates, plan->bucket_count);
            cr_expect_eq(ty_program_largest_lead(program), staleness);
            cr_expect_eq(ty_program_check(plan, program, "late", &error), TY_OK, "%s",
                         error.message);
            ty_program_free(program);
            ty_plan_free(plan);
        }
}

/* The checker's messages for programs whose backward passes lack activations. */
Test(lower, checker_sees_that_activations_are_there)
{
    static const struct {
        const char *name;
        uint32_t recompute; /* the n-th of stage 0 */
        enum { LATER, WIDER, TWICE, SHORTER, MOVED } change;
        const char *message;
    } rows[] = {
        {"of another micro-batch", 0, MOVED, "expected a recompute of its segment, from layer 3"},
        {"of two segments", 0, WIDER, "expected each layer of the segment from layer 3 on"},
        {"not to its end", 1, SHORTER, "expected a recompute of its segment, from layer 0"},
        {"twice", 1, TWICE, "its layers are still there from before"},
        {"from its middle", 1, LATER, "expected each layer of the segment from layer 0 on"},
    };
    const plan_shape shape = {.schedule = TY_GPIPE,
                              .replicas = {1, 1},
                              .layers = {4, 3},
                              .buckets = 1,
                              .micro_batches = 2,
                              .recompute = TY_RECOMPUTE_FULL,
                              .recompute_blocks = 1};

    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        ty_plan *plan = make_plan(&shape);
        ty_program *program = lower(rows[r].name, plan);
        ty_stage_program *list = &program->stages[0];
        ty_error error = {0};
        uint32_t at = 0, seen = 0;

        while (list->instructions[at].op != TY_OP_RECOMPUTE || seen++ < rows[r].recompute)
            at++;
        ty_instruction *in = &list->instructions[at];
        if (rows[r].change == MOVED)
            in->micro_batch = 1 - in->micro_batch;
        else if (rows[r].change == WIDER)
            in->first_layer = 0, in->layer_count = 4;
        else if (rows[r].change == SHORTER)
            in->layer_count--;
        else if (rows[r].change == LATER)
            in->first_layer++, in->layer_count--;
        else /* the segment that was just recomputed, instead of its own */
            in->first_layer = 3, in->layer_count = 1;
        cr_assert_eq(ty_program_check(plan, program, "program", &error), TY_EPARSE, "%s",
                     rows[r].name);
        cr_expect(strstr(error.message, rows[r].message) != NULL, "%s: \"%s\" lacks \"%s\"",
                  rows[r].name, error.message, rows[r].message);
        ty_program_free(program);
        ty_plan_free(plan);
    }
}

/* Random queries: a simulated plan is never faster than an estimate without contention. It may be
 * slightly faster than the estimate, which assumes that all transfers between two stages are
 * simultaneous. Collectives simulated as one flow per edge take as long as those simulated step by
 * step. */
#include "../quick.h"
#include "ty_study.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>

static uint32_t random_below(uint64_t *state, uint32_t bound)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth, MMIX */
    return (uint32_t)(*state >> 33) % bound;
}

#define ONE_OF(state, list) ((list)[random_below(state, sizeof(list) / sizeof *(list))])

typedef struct words {
    char fix[160];
    ty_question question;
} words;

static void draw(uint64_t seed, words *out)
{
    static const char *const workloads[] = {
        "lenet", "alexnet", "vgg16", "resnet50", "gpt2 sequence=128", "bert-base sequence=128"};
    static const char *const clusters[] = {"2x p100-server",
                                           "1x dgx1-v100",
                                           "2x dgx1-v100",
                                           "2x dgx-a100",
                                           "1x dgx-h100",
                                           "leaf:2 host:2 gpu:2 @h100-sxm nvlink4 ndr400 oversub:2",
                                           "leaf:1 host:6 gpu:1 @v100-sxm2-16gb nvlink2 edr100",
                                           "host:4 gpu:1 @a100-sxm4-80gb nvlink3 hdr200",
                                           "1x dgx1-v100 + 2x p100-server"};
    static const char *const schedules[] = {"gpipe", "1f1b"};
    static const char *const algorithms[] = {"", ",algorithm=ring", ",algorithm=tree",
                                             ",algorithm=hierarchical"};
    static const char *const compressions[] = {"none", "none", "fp16", "top-k:0.01", "powersgd-4"};
    static const char *const buckets[] = {"", "", ",bucket=1MB", ",bucket=4MB"};
    static const uint32_t stages[] = {1, 1, 2, 4}, ranks[] = {1, 1, 1, 2},
                          batches[] = {32, 64, 128};
    uint64_t state = seed;

    *out = (words){0};
    out->question.workload = ONE_OF(&state, workloads);
    out->question.cluster = ONE_OF(&state, clusters);
    out->question.global_batch = ONE_OF(&state, batches);
    out->question.seed = 1;
    out->question.allow_lossy = true;
    snprintf(out->fix, sizeof out->fix, "pp=%u,tp=%u,schedule=%s,compression=%s%s%s",
             ONE_OF(&state, stages), ONE_OF(&state, ranks), ONE_OF(&state, schedules),
             ONE_OF(&state, compressions), ONE_OF(&state, algorithms), ONE_OF(&state, buckets));
    out->question.fix = out->fix;
}

static double step_of(const ty_plan_inputs *in, const ty_timeline *timeline)
{
    ty_step_summary summary = {0};
    ty_error error = {0};

    cr_assert_eq(ty_timeline_summarize(in->plan, in->program, timeline, &summary, &error), TY_OK,
                 "%s", error.message);
    return summary.step_time_s;
}

static double simulate(const ty_plan_inputs *in, ty_resolution resolution)
{
    ty_simulate_options how = ty_simulate_options_default();
    ty_timeline *timeline = NULL;
    ty_error error = {0};
    double step_s;

    how.resolution = resolution;
    cr_assert_eq(
        ty_simulate(in->plan, in->program, in->costs, in->cluster, &how, &timeline, &error), TY_OK,
        "%s", error.message);
    step_s = step_of(in, timeline);
    ty_timeline_free(timeline);
    return step_s;
}

static double estimate(const ty_plan_inputs *in)
{
    ty_timeline *timeline = NULL;
    ty_error error = {0};
    double step_s;

    cr_assert_eq(ty_estimate(in->plan, in->program, in->costs, 3, &timeline, &error), TY_OK, "%s",
                 error.message);
    step_s = step_of(in, timeline);
    ty_timeline_free(timeline);
    return step_s;
}

/* Seconds of a send over the best of its device pairs without other traffic. Costs have those of
 * the worst pair while all replicas send together (planner/cost/network_costs.c). */
static double alone_s(const ty_plan_inputs *in, uint32_t stage, const ty_instruction *send,
                      const ty_instruction_cost *cost)
{
    const ty_plan_stage *own = &in->plan->stages[stage],
                        *peer = &in->plan->stages[send->peer_stage];
    const uint32_t width = ty_plan_replica_ranks(in->plan);
    double best_s = cost->seconds;
    ty_error error = {0};

    for (uint32_t a = 0; a < own->replicas * width; a++)
        for (uint32_t b = a % width; b < peer->replicas * width; b += width) {
            ty_path path;
            cr_assert_eq(
                ty_cluster_path(in->cluster, own->devices[a], peer->devices[b], &path, &error),
                TY_OK, "%s", error.message);
            best_s = fmin(best_s, path.latency_s + cost->edge_bytes / path.bandwidth_bytes_per_s);
            ty_path_clear(&path);
        }
    return best_s;
}

/* The estimate without contention. */
static double estimate_alone(const ty_plan_inputs *in)
{
    for (uint32_t s = 0; s < in->plan->stage_count; s++)
        for (uint32_t i = 0; i < in->program->stages[s].instruction_count; i++) {
            ty_instruction_cost *cost = &in->costs->instructions[s][i];
            const ty_instruction *instruction = &in->program->stages[s].instructions[i];
            if (instruction->op == TY_OP_SEND && cost->edge_bytes > 0)
                cost->seconds = alone_s(in, s, instruction, cost);
        }
    return estimate(in);
}

/* The longest transfer between stages: the wait of another one that contends with a step of a ring
 * instead of the ring's even flow. */
static double longest_send_s(const ty_plan_inputs *in)
{
    double longest_s = 0;

    for (uint32_t s = 0; s < in->plan->stage_count; s++)
        for (uint32_t i = 0; i < in->program->stages[s].instruction_count; i++)
            if (in->program->stages[s].instructions[i].op == TY_OP_SEND)
                longest_s = fmax(longest_s, in->costs->instructions[s][i].seconds);
    return longest_s;
}

static void compare(uint64_t seed, const words *w, ty_plan_inputs *in)
{
    const double estimated_s = estimate(in), flow_s = simulate(in, TY_FLOW);
    const double chunk_s = simulate(in, TY_CHUNK), send_s = longest_send_s(in);
    const double least_s = estimate_alone(in); /* changes the costs */
    char what[512];

    snprintf(what, sizeof what, "seed %llu: %s on %s, %s (%s)", (unsigned long long)seed,
             w->question.workload, w->question.cluster, w->fix, in->plan->strategy);
    cr_expect(flow_s >= least_s * (1 - 1e-5), "%s: simulated %g s, at least %g s", what, flow_s,
              least_s);
    cr_expect(flow_s >= estimated_s * 0.9, "%s: simulated %g s, estimated %g s", what, flow_s,
              estimated_s);
    cr_expect(fabs(chunk_s - flow_s) <= 0.02 * flow_s + send_s, "%s: %g s in flows, %g s in chunks",
              what, flow_s, chunk_s);
}

Test(agreement, simulations_and_the_estimate, .timeout = 1000)
{
    const uint32_t questions = quick_or_all(60, 300);
    uint32_t answered = 0;

    for (uint64_t seed = 1; seed <= questions; seed++) {
        words w;
        ty_question_inputs q = {0};
        ty_plan_inputs in = {0};
        ty_plan *plan = NULL;
        ty_error error = {0};
        draw(seed, &w);
        if (ty_question_open(&w.question, NULL, &q, &error) == TY_OK &&
            ty_question_plan(&w.question, &q, NULL, &plan, &error) == TY_OK) {
            cr_assert_eq(ty_plan_inputs_from(plan, &in, &error), TY_OK, "%s", error.message);
            compare(seed, &w, &in);
            answered++;
        } else { /* pins that nothing satisfies */
            cr_expect(error.status == TY_EINFEASIBLE || error.status == TY_EINVAL ||
                          error.status == TY_EUNSUPPORTED,
                      "seed %llu: %s", (unsigned long long)seed, error.message);
        }
        ty_plan_inputs_clear(&in);
        ty_question_inputs_clear(&q);
    }
    cr_expect_geq(answered, questions * 2 / 3, "%u questions have an answer", answered);
}

/* Every plan and every candidate prints the --fix that reproduces it. Random queries whose answers
 * are typed back give the same plan, to the last digit of its prediction. */
#include "ty_study.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUICK_PLANS 150
#define CANDIDATES 2 /* per plan, in addition to the chosen one */
#define TOLERANCE 1e-9

static uint32_t random_below(uint64_t *state, uint32_t bound)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth, MMIX */
    return (uint32_t)(*state >> 33) % bound;
}

#define ONE_OF(state, list) ((list)[random_below(state, sizeof(list) / sizeof *(list))])

/* Every kind of model, cluster and framework; sometimes another pin, a system, or an objective,
 * whose choices must also be in the line. */
static ty_question draw(uint64_t *state)
{
    static const char *const workloads[] = {"lenet",
                                            "mlp",
                                            "alexnet",
                                            "vgg16",
                                            "resnet50",
                                            "inception-v3",
                                            "gnmt-8",
                                            "bert-base sequence=128",
                                            "gpt2 sequence=256",
                                            "gpt-tiny",
                                            "gpt2-medium",
                                            "llama-2-7b sequence=2048",
                                            "mixtral-8x7b sequence=1024",
                                            "t5-base",
                                            "dlrm-tiny"};
    static const char *const clusters[] = {"1x p100-server",
                                           "2x p100-server",
                                           "1x dgx1-v100",
                                           "1x dgx-a100",
                                           "2x dgx-h100",
                                           "leaf:2 host:2 gpu:2 @h100-sxm nvlink4 ndr400 oversub:2",
                                           "leaf:1 host:6 gpu:1 @v100-sxm2-16gb nvlink2 edr100",
                                           "host:4 gpu:1 @a100-sxm4-80gb nvlink3 hdr200",
                                           "host:3 gpu:4 @v100-sxm2-16gb nvlink2 eth1 nics=4",
                                           "1x dgx1-v100 + 2x p100-server"};
    static const char *const stacks[] = {NULL,       NULL,          NULL,           "trainyard",
                                         "megatron", "pytorch-ddp", "pytorch-fsdp", "deepspeed"};
    static const char *const precisions[] = {NULL, NULL, NULL, "fp32", "bf16", "fp16"};
    static const char *const pins[] = {NULL,
                                       NULL,
                                       NULL,
                                       NULL,
                                       NULL,
                                       NULL,
                                       "pp=2",
                                       "tp=2",
                                       "zero=1",
                                       "recompute=full:2",
                                       "schedule=gpipe",
                                       "schedule=zb-h1",
                                       "schedule=pipedream",
                                       "pp=2,interleave=2",
                                       "bucket=4MB",
                                       "bucket=one",
                                       "bucket=fitted",
                                       "algorithm=ring",
                                       "algorithm=hierarchical",
                                       "staleness=1",
                                       "priority=1",
                                       "priority=shorter",
                                       "compression=fp16",
                                       "compress=all",
                                       "embeddings=dense",
                                       "compression=rows",
                                       "devices=2",
                                       "devices=1-2",
                                       "cycle=5ms",
                                       "micro_batch=2",
                                       "dp=2",
                                       "cp=2",
                                       "ep=2",
                                       "ep=2,tables=row"};
    static const char *const systems[] = {"horovod", "ddp",       "moxing",
                                          "gpipe",   "bigdl",     "megatron",
                                          "zero",    "pipedream", "parameter-server"};
    static const uint32_t batches[] = {0, 0, 16, 24, 32, 64, 96, 128, 256};
    ty_question q = {.workload = ONE_OF(state, workloads),
                     .cluster = ONE_OF(state, clusters),
                     .stack = ONE_OF(state, stacks),
                     .precision = ONE_OF(state, precisions),
                     .fix = ONE_OF(state, pins),
                     .global_batch = ONE_OF(state, batches),
                     .allow_lossy = random_below(state, 6) == 0,
                     .seed = 1};
    if (random_below(state, 6) == 0)
        q.system = ONE_OF(state, systems);
    else if (random_below(state, 20) == 0)
        q.objective = "time-to-target";
    if (random_below(state, 25) == 0)
        q.top = 2;
    return q;
}

/* The plan as JSON without the other candidates, and without the reason for its framework, which a
 * line that names the framework omits; to be freed by the caller. */
static char *words_of(ty_plan *plan)
{
    const uint32_t count = plan->candidate_count;
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    char *out = NULL, *why = plan->stack != NULL ? plan->stack->why : NULL;

    if (plan->stack != NULL)
        plan->stack->why = NULL;
    plan->candidate_count = 0;
    ty_plan_to_json(plan, &writer, NULL);
    plan->candidate_count = count;
    if (plan->stack != NULL)
        plan->stack->why = why;
    cr_assert_eq(ty_text_take(&text, &out, NULL), TY_OK);
    return out;
}

/* Reports the lines in which two texts differ. */
static void expect_same(const char *what, const char *one, const char *other)
{
    size_t at = 0, line = 0;

    while (one[at] != '\0' && one[at] == other[at])
        at++;
    if (one[at] == other[at])
        return;
    for (line = at; line > 0 && one[line - 1] != '\n'; line--)
        continue;
    cr_expect(false, "%s: '%.*s' came back as '%.*s'", what, (int)strcspn(one + line, "\n"),
              one + line, (int)strcspn(other + line, "\n"), other + line);
}

/* The query from a plan's line. */
static ty_question typed(const ty_question *asked, const ty_plan *plan, const char *fix)
{
    return (ty_question){.workload = asked->workload,
                         .cluster = asked->cluster,
                         .stack = ty_stack_words(plan->stack),
                         .precision = ty_precision_name(plan->workload->precision),
                         .global_batch = plan->global_batch,
                         .fix = fix,
                         .top = asked->top,
                         .seed = asked->seed};
}

static ty_status answer(const ty_question *question, ty_plan **out, ty_error *error)
{
    ty_question_inputs inputs = {0};
    ty_status status = ty_question_open(question, NULL, &inputs, error);

    if (status == TY_OK)
        status = ty_question_plan(question, &inputs, NULL, out, error);
    ty_question_inputs_clear(&inputs);
    return status;
}

/* A candidate with an estimated step, by its line. */
static void type_candidate(const ty_question *asked, const ty_plan *plan, const ty_candidate *c,
                           const char *what)
{
    ty_question question = typed(asked, plan, c->fix);
    ty_plan *again = NULL;
    ty_error error = {0};

    question.top = 0;
    cr_expect_eq(answer(&question, &again, &error), TY_OK, "%s: candidate %s, --fix %s: %s", what,
                 c->name, c->fix, error.message);
    if (again == NULL)
        return;
    cr_expect_float_eq(again->prediction.step_time_s / c->step_time_s, 1, TOLERANCE,
                       "%s: candidate %s, --fix %s: %.12g s, typed back %.12g s (%s)", what,
                       c->name, c->fix, c->step_time_s, again->prediction.step_time_s, again->fix);
    ty_plan_free(again);
}

/* @return whether the query has an answer */
static bool type_back(uint64_t seed, uint32_t *candidates)
{
    uint64_t state = seed;
    const ty_question asked = draw(&state);
    ty_question question;
    ty_plan *plan = NULL, *again = NULL;
    ty_error error = {0};
    char what[512], *one, *other;

    if (answer(&asked, &plan, &error) != TY_OK) { /* pins that nothing satisfies */
        cr_expect(error.status == TY_EINFEASIBLE || error.status == TY_EINVAL ||
                      error.status == TY_EUNSUPPORTED,
                  "seed %llu: %s", (unsigned long long)seed, error.message);
        return false;
    }
    snprintf(what, sizeof what, "seed %llu: -w '%s' -c '%s' stack %s fix %s system %s batch %u",
             (unsigned long long)seed, asked.workload, asked.cluster, plan->stack->name,
             asked.fix != NULL ? asked.fix : "-", asked.system != NULL ? asked.system : "-",
             plan->global_batch);
    cr_assert_not_null(plan->fix, "%s", what);
    question = typed(&asked, plan, plan->fix);
    cr_expect_eq(answer(&question, &again, &error), TY_OK, "%s: --fix %s: %s", what, plan->fix,
                 error.message);
    if (again != NULL) {
        one = words_of(plan);
        other = words_of(again);
        expect_same(what, one, other);
        ty_free(one);
        ty_free(other);
    }
    ty_plan_free(again);
    for (uint32_t n = 0; n < CANDIDATES && plan->candidate_count > 1; n++) {
        const uint32_t i = random_below(&state, plan->candidate_count);
        const ty_candidate *c = &plan->candidates[i];
        cr_expect_not_null(c->fix, "%s: %s", what, c->name);
        if (c->step_time_s > 0 && strstr(c->reason, "not estimated") == NULL &&
            asked.system == NULL) {
            type_candidate(&asked, plan, c, what);
            ++*candidates;
        }
    }
    ty_plan_free(plan);
    return true;
}

/* TY_TYPED_BACK=N types N plans, as in the slow suite. */
Test(typed_back, plans_come_back_by_their_own_line, .timeout = 3000)
{
    const char *wanted = getenv("TY_TYPED_BACK");
    const uint32_t plans = wanted != NULL ? (uint32_t)atoi(wanted) : QUICK_PLANS;
    uint32_t answered = 0, candidates = 0;
    uint64_t seed;

    for (seed = 1; answered < plans && seed < 10 * (uint64_t)plans; seed++)
        answered += type_back(seed, &candidates);
    cr_expect_eq(answered, plans, "%u of %u questions have an answer", answered, (uint32_t)seed);
    cr_expect_gt(candidates, plans / 4, "%u candidates typed", candidates);
}

/* A query for priority to the first layers, with a single device as the fastest plan: it has no
 * gradient collective. */
Test(typed_back, one_replica_has_no_order)
{
    uint32_t candidates = 0;

    cr_expect(type_back(869, &candidates));
}

Test(typed_back, what_completion_proposes_is_read)
{
    const char *key;
    uint32_t count = 0;

    for (uint32_t a = 0; (key = ty_axis_name(a)) != NULL; a++) {
        ty_text values = {0};
        ty_axis_values((ty_axis)a, &values);
        for (const char *at = values.data; *at != '\0'; at += strspn(at, " ")) {
            const size_t length = strcspn(at, " ");
            ty_pins pins = {0};
            ty_text text = {0};
            ty_error error = {0};
            char pin[64];

            snprintf(pin, sizeof pin, "%s=%.*s", key, (int)length, at);
            cr_expect_eq(ty_pins_read(pin, 16, &pins, &error), TY_OK, "%s: %s", pin, error.message);
            cr_expect_eq(ty_pins_print(&pins, &text, &error), TY_OK, "%s", error.message);
            cr_expect(strcmp(text.data, pin) == 0 || strcmp(pin, "cycle=5ms") == 0 ||
                          strcmp(pin, "layers=8x4") == 0,
                      "%s: printed as %s", pin, text.data);
            ty_text_clear(&text);
            at += length;
            count++;
        }
        ty_text_clear(&values);
    }
    cr_expect_gt(count, 60, "%u values", count);
}

Test(typed_back, lists_are_read_as_they_are_written)
{
    static const struct {
        const char *fix, *says;
    } bad[] = {
        {"replicas=2+", "found '2+', expected a number for each stage"},
        {"replicas=0x2", "found '0x2', expected a number for each stage"},
        {"replicas=300x1", "expected at most 256 stages"},
        {"layers=3x", "found '3x', expected a number for each stage"},
        {"layers=5+5", "layers: found 10 in all, lenet has"},
        {"layers=900", "layers: found 900 in all, lenet has 9"},
        {"layers=4+5,pp=3", "layers: found those of 2 stages, expected 3"},
        {"compress=some", "found 'some', expected all, or shorter"},
        {"compress=shorter,compression=none", "none leaves shorter nothing to choose"},
        {"embeddings=sparse", "found 'sparse', expected dense, or shorter"},
        {"embeddings=shorter", "nothing of lenet can travel as rows: it has no embedding"},
        {"bucket=big", "or one (per stage), or fitted"},
        {"bucket=fitted,zero=1", "found fitted, expected a size or one: what ZeRO shards"},
        {"devices=3-1", "found '3-1', expected how many, or devices of 0 to 7"},
        {"devices=6-8", "found '6-8', expected how many, or devices of 0 to 7"},
        {"devices=0-3+2-5", "expected how many, or devices of 0 to 7"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const ty_question question = {.workload = "lenet",
                                      .cluster = "2x p100-server",
                                      .fix = bad[i].fix,
                                      .stack = TY_WORKER_STACK,
                                      .seed = 1};
        ty_plan *plan = NULL;
        ty_error error = {0};
        cr_expect_eq(answer(&question, &plan, &error), TY_EINVAL, "%s", bad[i].fix);
        cr_expect_not_null(strstr(error.message, bad[i].says), "%s: %s", bad[i].fix, error.message);
        ty_plan_free(plan);
    }
}

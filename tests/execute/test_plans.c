/* Every plan that the planner proposes for small models on one to four devices runs correctly.
 * Plans with a flush train as one rank does; those without one, or with stale gradients, train as
 * an emulation of their staleness. The quick form runs one plan of each strategy, on three devices
 * with one model only; on four devices every second or third pair of schedule and layout. */
#include "../pin.h"
#include "../quick.h"
#include "candidate.h"
#include "emulation.h"
#include "outcome.h"
#include "plans.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 4, STEPS = 4, MOST_REFERENCES = 16 };

typedef struct subject {
    const char *name, *text; /* of the zoo file */
    uint32_t global_batch;
    double tolerance;
    bool has_batch_norm; /* processes one micro-batch at a time */
    bool has_rows;       /* its embedding is untied, so that all plans use row compression for it */
} subject;

#define ZOO "{\"schema\": \"trainyard.zoo/1\", \"source\": \"a smaller one of the zoo's\","
#define SGD                                                                                        \
    "\"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.05, \"momentum\": 0.9,"               \
    "\"weight_decay\": 0}"
static const subject mlp = {
    "mlp",
    ZOO "\"name\": \"mlp-small\", \"family\": \"sequential\", \"input\": [1, 28, 28],"
        "\"sample_bytes\": 785, \"dataset\": \"fashion-mnist\", \"global_batch\": 24," SGD
        ", \"layers\": [{\"kind\": \"flatten\"}, {\"kind\": \"linear\", \"out_features\": 96},"
        "{\"kind\": \"relu\"}, {\"kind\": \"linear\", \"out_features\": 64}, {\"kind\": \"relu\"},"
        "{\"kind\": \"linear\", \"out_features\": 10}, {\"kind\": \"softmax_cross_entropy\"}]}",
    24,
    1e-4,
    false,
    false};
static const subject lenet = {
    "lenet",
    ZOO "\"name\": \"lenet-small\", \"family\": \"sequential\", \"input\": [1, 28, 28],"
        "\"sample_bytes\": 785, \"dataset\": \"fashion-mnist\", \"global_batch\": 12," SGD
        ", \"layers\": [{\"kind\": \"conv2d\", \"out_channels\": 8, \"kernel\": 5},"
        "{\"kind\": \"pool\", \"kernel\": 2}, {\"kind\": \"conv2d\", \"out_channels\": 16,"
        "\"kernel\": 5}, {\"kind\": \"pool\", \"kernel\": 2}, {\"kind\": \"flatten\"},"
        "{\"kind\": \"linear\", \"out_features\": 64}, {\"kind\": \"relu\"},"
        "{\"kind\": \"linear\", \"out_features\": 10}, {\"kind\": \"softmax_cross_entropy\"}]}",
    12,
    1e-3,
    false,
    false};
/* Its last stage has 2 x 2 numbers per sample. With one, batch norm over three samples would
 * amplify rounding to differences of percents within four steps. */
static const subject resnet18 = {
    "resnet18",
    ZOO "\"name\": \"resnet18-small\", \"family\": \"residual\", \"input\": [3, 33, 33],"
        "\"sample_bytes\": 3269, \"block\": \"basic\", \"blocks\": [2, 2, 2, 2], \"width\": 4,"
        "\"classes\": 10, \"dataset\": \"synthetic\", \"global_batch\": 12,"
        "\"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.01, \"momentum\": 0.9,"
        "\"weight_decay\": 0.0001}}",
    12,
    1e-4,
    true,
    false};
static const subject gpt = {
    "gpt-tiny",
    ZOO "\"name\": \"gpt-small\", \"family\": \"transformer\", \"blocks\": 4, \"features\": 32,"
        "\"heads\": 4, \"hidden_features\": 128, \"vocabulary\": 64, \"positions\": 16,"
        "\"sequence\": 16, \"token_bytes\": 1, \"dataset\": \"synthetic\", \"global_batch\": 12,"
        "\"optimizer\": {\"kind\": \"adamw\", \"learning_rate\": 0.001, \"weight_decay\": 0.01,"
        "\"beta1\": 0.9, \"beta2\": 0.999, \"epsilon\": 1e-08}}",
    12,
    1e-3,
    false,
    false};

static const subject words = {
    "words",
    ZOO "\"name\": \"words\", \"family\": \"transformer\", \"blocks\": 2, \"features\": 32,"
        "\"heads\": 4, \"hidden_features\": 128, \"vocabulary\": 300, \"positions\": 16,"
        "\"sequence\": 16, \"is_tied\": false, \"token_bytes\": 2, \"dataset\": \"synthetic\","
        "\"global_batch\": 12,"
        "\"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.05, \"momentum\": 0.9,"
        "\"weight_decay\": 0.01}}",
    12,
    1e-3,
    false,
    true};

static const subject moe = {
    "moe",
    ZOO "\"name\": \"moe-small\", \"family\": \"decoder\", \"blocks\": 2, \"features\": 32,"
        "\"heads\": 4, \"kv_heads\": 4, \"experts\": 4, \"experts_per_token\": 2,"
        "\"expert_features\": 48, \"shared_features\": 24, \"vocabulary\": 64, \"sequence\": 16,"
        "\"longest_sequence\": 16, \"token_bytes\": 1, \"dataset\": \"synthetic\","
        "\"global_batch\": 12, \"optimizer\": {\"kind\": \"adamw\", \"learning_rate\": 0.001,"
        "\"weight_decay\": 0.01, \"beta1\": 0.9, \"beta2\": 0.999, \"epsilon\": 1e-08}}",
    12,
    1e-3,
    false,
    false};

/* Dimensions other than pipeline and data parallelism. */
static const ty_plan_dimensions dimensions[] = {
    {0},
    {.zero = 1},
    {.zero = 2},
    {.zero = 3},
    {.recompute = TY_RECOMPUTE_SELECTIVE},
    {.recompute = TY_RECOMPUTE_FULL},
    {.recompute = TY_RECOMPUTE_FULL, .recompute_blocks = 1},
    {.recompute = TY_RECOMPUTE_OPERATOR},
    {.recompute = TY_RECOMPUTE_ELEMENTWISE},
    {.zero = 3, .recompute = TY_RECOMPUTE_ELEMENTWISE},
    {.tensor_parallel = 2, .sequence_parallel = true, .recompute = TY_RECOMPUTE_ELEMENTWISE},
    {.zero = 3, .recompute = TY_RECOMPUTE_FULL},
    {.zero = 3, .recompute = TY_RECOMPUTE_FULL, .recompute_blocks = 1},
    {.virtual_stages = 2},
    {.virtual_stages = 3},
    {.virtual_stages = 2, .zero = 1},
    {.virtual_stages = 2, .recompute = TY_RECOMPUTE_FULL, .recompute_blocks = 1},
    {.tensor_parallel = 2},
    {.tensor_parallel = 2, .sequence_parallel = true},
    {.tensor_parallel = 4},
    {.tensor_parallel = 2, .zero = 3},
    {.context_parallel = 2},
    {.context_parallel = 4},
    {.context_parallel = 2, .recompute = TY_RECOMPUTE_SELECTIVE},
    {.context_parallel = 2, .recompute = TY_RECOMPUTE_FULL, .recompute_blocks = 2},
    {.context_parallel = 2, .recompute = TY_RECOMPUTE_OPERATOR},
    {.context_parallel = 2, .recompute = TY_RECOMPUTE_ELEMENTWISE},
    {.context_parallel = 2, .zero = 2},
    {.context_parallel = 2, .zero = 3},
    {.context_parallel = 2, .tensor_parallel = 2},
    {.context_parallel = 2, .tensor_parallel = 2, .sequence_parallel = true},
    {.context_parallel = 2, .virtual_stages = 2},
    {.expert_parallel = 2},
    {.expert_parallel = 4},
    {.expert_parallel = 2, .recompute = TY_RECOMPUTE_SELECTIVE},
    {.expert_parallel = 2, .recompute = TY_RECOMPUTE_ELEMENTWISE},
    {.expert_parallel = 2, .recompute = TY_RECOMPUTE_FULL, .recompute_blocks = 1},
    {.expert_parallel = 2, .zero = 1},
    {.expert_parallel = 2, .zero = 2},
    {.expert_parallel = 2, .zero = 3},
    {.expert_parallel = 2, .virtual_stages = 2},
    {.expert_parallel = 2, .context_parallel = 2},
    {.expert_parallel = 2, .context_parallel = 2, .zero = 2},
    {.expert_parallel = 2, .tensor_parallel = 2},
};
enum { DIMENSIONS = sizeof dimensions / sizeof *dimensions };

static const ty_compression compressions[] = {
    {.kind = TY_COMPRESSION_NONE},
    {.kind = TY_COMPRESSION_FP16},
    {.kind = TY_COMPRESSION_BF16},
    {.kind = TY_COMPRESSION_TOP_K, .ratio = 1},
};
enum { COMPRESSIONS = sizeof compressions / sizeof *compressions };
/* A half has 11 significant bits, a bfloat 8; their effect on the loss of a few steps is
 * smaller. */
static const double compression_tolerances[] = {0, 4.0 / 2048, 4.0 / 256, 0};

typedef struct reference {
    uint32_t micro_batch_size;
    outcome outcome;
} reference;

typedef struct trial {
    const subject *subject;
    ty_workload *workload;
    char *directory;
    reference references[MOST_REFERENCES];
    uint32_t reference_count;
    bool is_all;
    /* plans, those with TP, with rows, with staleness */
    uint32_t run_count, tp_size_of, row_count, late_count;
} trial;

/* ---- One rank ---------------------------------------------------------------------------- */

static ty_job *job_of(trial *t, const ty_plan *plan)
{
    ty_plan *copy = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_plan_copy(plan, &copy, &error), TY_OK, "%s", error.message);
    return make_job_on(copy, STEPS, t->directory);
}

static const outcome *outcome_alone(trial *t, const ty_plan *plan)
{
    const uint32_t size = t->subject->has_batch_norm ? plan->micro_batch_size : plan->global_batch;
    reference *made = &t->references[t->reference_count];
    ty_plan *alone;
    ty_job *job;

    for (uint32_t i = 0; i < t->reference_count; i++)
        if (t->references[i].micro_batch_size == size)
            return &t->references[i].outcome;
    cr_assert(t->reference_count++ < MOST_REFERENCES);
    alone = plan_alone(plan, size);
    job = job_of(t, alone);
    *made = (reference){size, outcome_of(job)};
    ty_plan_free(alone);
    ty_job_free(job);
    return &made->outcome;
}

/* ---- A plan ------------------------------------------------------------------------------ */

static void check_plan(trial *t, const char *what, const ty_plan *plan, double loss_of_exchange)
{
    ty_job *job = job_of(t, plan);
    const double tolerance = t->subject->tolerance + loss_of_exchange;

    if (ty_schedule_at(plan->schedule)->is_asynchronous || plan->staleness > 0) {
        ty_free(job->gradients); /* saving them would drain the pipeline */
        job->gradients = NULL;
    }
    t->run_count++;
    t->tp_size_of += ty_plan_replica_ranks(plan) > 1;
    t->row_count += ty_has_rows(plan);
    t->late_count += plan->staleness > 0;
    if (job->gradients == NULL) {
        compare_emulated(what, job, tolerance);
    } else {
        outcome found = outcome_of(job);
        const outcome *expected = outcome_alone(t, plan);
        compare_gradients(what, &found, expected, 10 * tolerance);
        compare_losses(what, &found, expected, tolerance);
        outcome_free(&found);
    }
    ty_job_free(job);
}

/* ---- The planner's proposals ----------------------------------------------------------- */

static void check_candidate(trial *t, const search_question *q, const candidate *c,
                            double loss_of_exchange)
{
    draft made = {0};
    char *name = NULL, what[256];
    ty_error error = {0};

    cr_assert_eq(ty_candidate_name(q, c, true, &name, &error), TY_OK, "%s", error.message);
    snprintf(what, sizeof what, "%s, %s", t->subject->name, name);
    cr_assert_eq(ty_draft_make(q, c, &made, &error), TY_OK, "%s: %s", what, error.message);
    check_plan(t, what, made.plan, loss_of_exchange);
    ty_draft_clear(&made);
    ty_free(name);
}

/* Batch norm over few samples of one pixel amplifies differences: of two samples only the sign
 * counts, and the loss shows the rounding of a cast to 16 bits. */
static bool is_smooth(const trial *t, const candidate *c)
{
    return !t->subject->has_batch_norm || (t->subject->global_batch / c->micro_batches > 2 &&
                                           c->compression.kind != TY_COMPRESSION_FP16 &&
                                           c->compression.kind != TY_COMPRESSION_BF16);
}

/* The fastest plan of the strategy that can be compared, by the planner's quick estimate. */
static bool is_best_of_strategy(const trial *t, const candidate_list *list, uint32_t index)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->items[i].strategy == list->items[index].strategy &&
            is_smooth(t, &list->items[i]) &&
            (list->items[i].quick_s < list->items[index].quick_s ||
             (list->items[i].quick_s == list->items[index].quick_s && i < index)))
            return false;
    return true;
}

static void check_question(trial *t, const ty_cluster *cluster, ty_plan_options *options,
                           double loss_of_exchange)
{
    search_question question = {0};
    candidate_list list = {0};
    ty_error error = {0};

    /* The planner refuses invalid queries: parallel sizes that do not divide the model, and so
     * on. */
    if (ty_search_question_make(t->workload, cluster, NULL, options, &question, &error) != TY_OK)
        return;
    cr_assert_eq(ty_candidates_enumerate(&question, &list, &error), TY_OK, "%s", error.message);
    for (uint32_t i = 0; i < list.count; i++)
        if (is_smooth(t, &list.items[i]) && (t->is_all || is_best_of_strategy(t, &list, i)))
            check_candidate(t, &question, &list.items[i], loss_of_exchange);
    ty_candidates_clear(&list);
    ty_search_question_clear(&question);
}

static void check_dimensions(trial *t, const ty_cluster *cluster, ty_schedule schedule,
                             const ty_plan_dimensions *divided, uint32_t staleness)
{
    for (int c = 0; c < (t->is_all && !t->subject->has_rows ? COMPRESSIONS : 1); c++) {
        ty_plan_options options = ty_plan_options_default();
        options.global_batch = t->subject->global_batch;
        pin(&options.pins, "schedule=%s,staleness=%u,algorithm=%s", ty_schedule_name(schedule),
            staleness, c % 2 == 0 ? "ring" : "tree");
        options.pins.axes |= TY_AXES_OF_DIMENSIONS | TY_AXIS(COMPRESSION);
        options.pins.dimensions = *divided;
        options.pins.compression =
            t->subject->has_rows ? (ty_compression){.kind = TY_COMPRESSION_ROWS} : compressions[c];
        options.seed = 42;
        check_question(t, cluster, &options, compression_tolerances[c]);
    }
}

/* Staleness combines with every layout that has replicas and a flush; the quick form tests it with
 * the simplest one. */
static bool is_late_enough(const trial *t, const ty_plan_dimensions *divided)
{
    return t->is_all || (divided->recompute == TY_RECOMPUTE_NONE && divided->virtual_stages < 3 &&
                         divided->tensor_parallel < 4 && !divided->sequence_parallel);
}

/* Tensor, context or expert parallelism on as many devices as possible. */
static bool needs_all(const ty_plan_dimensions *divided)
{
    return (divided->tensor_parallel > 1 ? divided->tensor_parallel : 1) *
               (divided->context_parallel > 1 ? divided->context_parallel : 1) *
               (divided->expert_parallel > 1 ? divided->expert_parallel : 1) >=
           MOST_RANKS;
}

static void check_ranks(trial *t, uint32_t ranks)
{
    char text[64];
    ty_cluster *cluster = NULL;
    ty_error error = {0};

    /* A subset of the pairs on four ranks, since all ran on two ranks, too. */
    const int every = t->subject == &mlp || t->subject->has_rows ? 3 : 4;

    snprintf(text, sizeof text, "host:1 gpu:%u @t4 pcie3 eth10", ranks);
    cr_assert_eq(ty_cluster_open(text, NULL, &cluster, &error), TY_OK, "%s", error.message);
    for (int schedule = 0; schedule < TY_SCHEDULE_COUNT; schedule++)
        for (int d = 0; d < DIMENSIONS; d++) {
            if ((schedule == TY_INTERLEAVED) != (dimensions[d].virtual_stages > 1))
                continue;
            if (!t->is_all && ranks == MOST_RANKS && (schedule + d) % every != 0 &&
                !needs_all(&dimensions[d]))
                continue;
            for (uint32_t staleness = 0; staleness <= (t->is_all ? 2 : 1); staleness++)
                if (staleness == 0 || is_late_enough(t, &dimensions[d]))
                    check_dimensions(t, cluster, (ty_schedule)schedule, &dimensions[d], staleness);
        }
    ty_cluster_free(cluster);
}

static void check_all(const subject *s)
{
    trial t = {.subject = s, .directory = directory_make(), .is_all = !is_quick()};

    t.workload = open_workload(s->text);
    write_data(t.directory);
    for (uint32_t ranks = 1; ranks <= MOST_RANKS; ranks++)
        if (t.is_all || s == &mlp || ranks != 3)
            check_ranks(&t, ranks);
    printf("%s: %u plans on up to %d devices, %u of them with ranks, %u late\n", s->name,
           t.run_count, MOST_RANKS, t.tp_size_of, t.late_count);
    cr_assert_gt(t.run_count, 20, "%s", s->name);
    cr_assert_eq(t.tp_size_of > 0, t.workload->tokens_per_sample > 0 && !s->has_rows, "%s",
                 s->name);
    cr_assert_eq(t.row_count, s->has_rows ? t.run_count : 0, "%s", s->name);
    cr_assert_gt(t.late_count, 5, "%s", s->name);
    for (uint32_t i = 0; i < t.reference_count; i++)
        outcome_free(&t.references[i].outcome);
    ty_workload_free(t.workload);
    directory_remove(t.directory);
}

Test(plans, of_mlp)
{
    check_all(&mlp);
}

Test(plans, of_lenet)
{
    check_all(&lenet);
}

Test(plans, of_resnet18)
{
    check_all(&resnet18);
}

Test(plans, of_gpt_tiny)
{
    check_all(&gpt);
}

Test(plans, with_rows)
{
    check_all(&words);
}

Test(plans, with_experts)
{
    check_all(&moe);
}

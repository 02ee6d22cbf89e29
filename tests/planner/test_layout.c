/* Layouts: memory against the formulas of Korthikanti et al. 2022, time against the closed forms of
 * pipelines and properties, shapes of the zoo, constants. */
#include "ty_planner.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* GPT 22B, 175B, 530B and 1T of Korthikanti et al. 2022, table 3, on DGX A100. */
typedef struct published {
    const char *name;
    uint32_t layers, hidden, heads, batch, micro, tensor, pipeline, interleave, devices;
} published;

static const published models[] = {{"22B", 48, 6144, 64, 4, 4, 8, 1, 1, 8},
                                   {"175B", 96, 12288, 96, 64, 1, 8, 8, 3, 64},
                                   {"530B", 105, 20480, 128, 280, 1, 8, 35, 3, 280},
                                   {"1T", 128, 25600, 160, 512, 1, 8, 64, 1, 512}};

static ty_layout_question question_for(const published *p)
{
    ty_layout_question q = {.shape = {.layers = p->layers,
                                      .hidden = p->hidden,
                                      .heads = p->heads,
                                      .vocabulary = 51200,
                                      .sequence = 2048,
                                      .positions = 2048,
                                      .is_causal = true,
                                      .is_tied = true,
                                      .has_dropout = true},
                            .cluster = {.devices = p->devices,
                                        .devices_per_host = 8,
                                        .host_bandwidth_bytes_per_s = 300e9,
                                        .nic_bandwidth_bytes_per_s = 200e9,
                                        .oversubscription = 1},
                            .device = {.name = "a100-sxm4-80gb",
                                       .peak_half_flop_per_s = 312e12,
                                       .peak_fp32_flop_per_s = 156e12,
                                       .memory_bandwidth_bytes_per_s = 2039e9,
                                       .memory_bytes = 80.0 * 1073741824},
                            .global_batch = p->batch,
                            .gradient_bytes = 4};
    ty_error error = {0};
    cr_assert_eq(ty_layout_constants_load(NULL, &q.constants, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_layout_question_check(&q, &error), TY_OK, "%s", error.message);
    return q;
}

static ty_layout layout_for(const published *p, bool sequence, ty_layout_recompute recompute)
{
    return (ty_layout){.tensor = p->tensor,
                       .context = 1,
                       .expert = 1,
                       .pipeline = p->pipeline,
                       .interleave = p->interleave,
                       .data = p->devices / (p->tensor * p->pipeline),
                       .micro_batch = p->micro,
                       .schedule = TY_LAYOUT_1F1B,
                       .recompute = recompute,
                       .sequence_parallel = sequence};
}

static ty_layout_estimate estimate(const ty_layout_question *q, const ty_layout *l)
{
    ty_layout_estimate e;
    ty_error error = {0};
    cr_assert_eq(ty_layout_estimate_of(q, l, &e, &error), TY_OK, "%s", error.message);
    return e;
}

static bool is_near(double found, double expected, double tolerance)
{
    return fabs(found - expected) <= tolerance * fabs(expected);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Table 2: bytes of a layer's activations, in units of s b h. */
static double korthikanti(const published *p, double t, bool sequence, ty_layout_recompute how)
{
    double scores = 5.0 * p->heads * 2048 / p->hidden / t;
    double split = sequence ? 1 / t : 1;
    if (how == TY_LAYOUT_FULL)
        return 2 * split;
    return 10 * split + 24 / t + (how == TY_LAYOUT_SELECTIVE ? 0 : scores);
}

Test(layout_memory, layers_keep_what_table_2_says)
{
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (unsigned b = 0; b < 2; b++)
            for (int r = 0; r < TY_LAYOUT_RECOMPUTE_COUNT; r++) {
                published p = models[m];
                ty_layout_question q;
                ty_layout l;
                double unit = 2048.0 * p.micro * p.hidden, mask, expected;
                ty_layout_memory memory;
                p.pipeline = p.interleave = 1;
                p.devices = p.tensor;
                q = question_for(&p);
                l = layout_for(&p, b == 1, (ty_layout_recompute)r);
                ty_layout_memory_of(&q, &l, &memory);
                mask = b == 1 ? unit / p.tensor : unit; /* of the embedding's dropout */
                expected =
                    p.layers * unit * korthikanti(&p, p.tensor, b == 1, (ty_layout_recompute)r) +
                    mask;
                cr_expect(is_near(memory.activations, expected, 1e-12), "%s: %.17g for %.17g",
                          p.name, memory.activations, expected);
            }
}

/* Figure 7, by the validation tables of calculon-ai/calculon: activations of the first stage as a
 * percentage of tensor parallelism without recomputation. Calculon's own largest error over these
 * is 30 % (relative). */
Test(layout_memory, shares_of_figure_7)
{
    static const struct {
        size_t model;
        bool sequence;
        ty_layout_recompute recompute;
        double percent;
    } rows[] = {{0, true, TY_LAYOUT_SELECTIVE, 16.18},  {1, true, TY_LAYOUT_KEEP_ALL, 62.04},
                {1, false, TY_LAYOUT_SELECTIVE, 56.53}, {1, true, TY_LAYOUT_SELECTIVE, 18.49},
                {2, true, TY_LAYOUT_KEEP_ALL, 58.31},   {2, true, TY_LAYOUT_SELECTIVE, 20.27},
                {2, false, TY_LAYOUT_FULL, 9.42},       {3, true, TY_LAYOUT_KEEP_ALL, 58.31},
                {3, false, TY_LAYOUT_FULL, 9.42}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const published *p = &models[rows[i].model];
        ty_layout_question q = question_for(p);
        ty_layout base = layout_for(p, false, TY_LAYOUT_KEEP_ALL);
        ty_layout l = layout_for(p, rows[i].sequence, rows[i].recompute);
        ty_layout_memory whole, part;
        double percent;
        ty_layout_memory_of(&q, &base, &whole);
        ty_layout_memory_of(&q, &l, &part);
        percent = 100 * part.activations / whole.activations;
        cr_expect(fabs(percent - rows[i].percent) < 2.5, "%s row %zu: %.2f for %.2f", p->name, i,
                  percent, rows[i].percent);
    }
}

/* Figure 1, GiB per device of 530B: activations 114.02 and 23.08, parameters and optimizer 31.64.
 */
Test(layout_memory, gibibytes_of_figure_1)
{
    const published *p = &models[2];
    ty_layout_question q = question_for(p);
    ty_layout none = layout_for(p, false, TY_LAYOUT_KEEP_ALL);
    ty_layout present = layout_for(p, true, TY_LAYOUT_SELECTIVE);
    ty_layout_memory a, b;
    const double gibibyte = 1073741824;

    ty_layout_memory_of(&q, &none, &a);
    ty_layout_memory_of(&q, &present, &b);
    cr_expect(is_near(a.activations / gibibyte, 114.02, 0.03), "%g", a.activations / gibibyte);
    cr_expect(is_near(b.activations / gibibyte, 23.08, 0.03), "%g", b.activations / gibibyte);
    cr_expect(is_near((a.parameters + a.gradients + a.optimizer) / gibibyte, 31.64, 0.08), "%g",
              (a.parameters + a.gradients + a.optimizer) / gibibyte);
}

/* Megatron-LM's estimate: 18 bytes per parameter; 6 + 12/dp with a sharded optimizer. */
Test(layout_memory, bytes_per_parameter_of_the_zero_stages)
{
    published p = models[0];
    ty_layout_question q;
    ty_layout l;
    ty_layout_memory m;
    double parameters, expected[4];

    p.devices = 64;
    p.batch = 32;
    q = question_for(&p);
    l = layout_for(&p, true, TY_LAYOUT_SELECTIVE);
    parameters = (ty_layout_parameters(&q.shape) - 2.0 * p.hidden) / 8;
    expected[0] = 18;
    expected[1] = 6 + 12.0 / 8;
    expected[2] = 2 + 16.0 / 8;
    expected[3] = 18.0 / 8;
    for (uint32_t zero = 0; zero < 4; zero++) {
        l.zero = zero;
        ty_layout_memory_of(&q, &l, &m);
        cr_expect(
            is_near(m.parameters + m.gradients + m.optimizer, expected[zero] * parameters, 1e-9),
            "zero %u: %g per parameter", zero,
            (m.parameters + m.gradients + m.optimizer) / parameters);
    }
}

/* Micro-batches in flight on the first stage: m, min(p, m), and p (1 + (p-1)/(p v)). */
Test(layout_memory, micro_batches_in_flight)
{
    published p = {"plain", 64, 1024, 16, 128, 1, 1, 8, 1, 8};
    ty_layout_question q = question_for(&p);
    ty_layout l = layout_for(&p, false, TY_LAYOUT_FULL);
    double unit = 2048.0 * 1024;
    double slot = 64.0 / 8 * 2 * unit + unit; /* inputs of the layers, and the embedding's mask */
    static const struct {
        ty_layout_schedule schedule;
        uint32_t chunks;
        double in_flight;
    } rows[] = {{TY_LAYOUT_GPIPE, 1, 128},
                {TY_LAYOUT_1F1B, 1, 8},
                {TY_LAYOUT_ZERO_BUBBLE, 1, 8},
                {TY_LAYOUT_1F1B, 4, 8 * (1 + 7.0 / 32)}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_layout_memory m;
        q.shape.vocabulary = 64; /* so that the last stage is not the largest */
        l.schedule = rows[i].schedule;
        l.interleave = rows[i].chunks;
        ty_layout_memory_of(&q, &l, &m);
        cr_expect(is_near(m.activations, rows[i].in_flight * slot, 1e-12), "row %zu: %g slots", i,
                  m.activations / slot);
    }
}

/* ---- Time ------------------------------------------------------------------------------------ */

static double sum_of(const ty_layout_estimate *e)
{
    return e->compute_s + e->recompute_s + e->tensor_s + e->context_s + e->expert_s +
           e->transfer_s + e->bubble_s + e->data_s + e->optimizer_s + e->other_s;
}

Test(layout_time, parts_add_up_and_are_not_negative)
{
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (int r = 0; r < TY_LAYOUT_RECOMPUTE_COUNT; r++) {
            ty_layout_question q = question_for(&models[m]);
            ty_layout l = layout_for(&models[m], true, (ty_layout_recompute)r);
            ty_layout_estimate e = estimate(&q, &l);
            const double parts[] = {e.compute_s, e.recompute_s, e.tensor_s,    e.transfer_s,
                                    e.bubble_s,  e.data_s,      e.optimizer_s, e.other_s};
            cr_expect(is_near(sum_of(&e), e.step_time_s, 1e-12), "%s", models[m].name);
            for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
                cr_expect(parts[i] >= 0, "%s: part %zu is %g", models[m].name, i, parts[i]);
            cr_expect(e.model_flop_utilisation > 0.1 && e.model_flop_utilisation < 1, "%g",
                      e.model_flop_utilisation);
        }
}

/* Equal stages without ends and transfers: bubble / ideal is (p-1)/m, over v with chunks; zero
 * bubble has less, but some (Qi et al. 2024: a third where the three passes take equally long). */
static ty_layout_question plain_pipeline(void)
{
    published p = {"plain", 64, 4096, 32, 128, 1, 1, 8, 1, 8};
    ty_layout_question q = question_for(&p);
    q.shape.vocabulary = 1;
    q.shape.positions = 0;
    q.constants.host_slot_s = q.constants.host_step_s = q.constants.host_kernel_s = 0;
    q.constants.send_s = q.constants.kernel_s = q.constants.logit_bytes = 0;
    q.cluster.host_bandwidth_bytes_per_s = 1e18;
    q.device.memory_bandwidth_bytes_per_s = 1e18;
    return q;
}

Test(layout_time, bubbles_of_the_schedules)
{
    static const struct {
        ty_layout_schedule schedule;
        uint32_t chunks;
        double factor;
    } rows[] = {{TY_LAYOUT_GPIPE, 1, 1},
                {TY_LAYOUT_1F1B, 1, 1},
                {TY_LAYOUT_1F1B, 2, 0.5},
                {TY_LAYOUT_1F1B, 8, 0.125},
                {TY_LAYOUT_ZERO_BUBBLE, 1, 0.36}}; /* scores have no weights: a little over 1/3 */
    published p = {"plain", 64, 4096, 32, 128, 1, 1, 8, 1, 8};
    ty_layout_question q = plain_pipeline();

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_layout l = layout_for(&p, false, TY_LAYOUT_KEEP_ALL);
        ty_layout_estimate e;
        double share;
        l.schedule = rows[i].schedule;
        l.interleave = rows[i].chunks;
        e = estimate(&q, &l);
        share = e.bubble_s / e.compute_s / (7.0 / 128);
        cr_expect(
            is_near(share, rows[i].factor, rows[i].schedule == TY_LAYOUT_ZERO_BUBBLE ? 0.25 : 0.01),
            "row %zu: %g for %g", i, share, rows[i].factor);
    }
}

static void scale(ty_layout_question *q, double factor)
{
    double *rates[] = {&q->device.peak_half_flop_per_s, &q->device.memory_bandwidth_bytes_per_s,
                       &q->cluster.host_bandwidth_bytes_per_s,
                       &q->cluster.nic_bandwidth_bytes_per_s, &q->constants.nic_group_bytes_per_s};
    double *times[] = {&q->constants.kernel_s,
                       &q->constants.host_kernel_s,
                       &q->constants.host_collective_s,
                       &q->constants.host_unfused_s,
                       &q->constants.host_slot_s,
                       &q->constants.host_step_s,
                       &q->constants.collective_s,
                       &q->constants.collective_hop_s,
                       &q->constants.collective_nic_hop_s,
                       &q->constants.send_s};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        *rates[i] *= factor;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        *times[i] /= factor;
}

Test(layout_time, twice_the_rates_is_half_the_time)
{
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        ty_layout_question q = question_for(&models[m]);
        ty_layout l = layout_for(&models[m], true, TY_LAYOUT_SELECTIVE);
        double once = estimate(&q, &l).step_time_s, twice;
        scale(&q, 2);
        twice = estimate(&q, &l).step_time_s;
        cr_expect(is_near(2 * twice, once, 1e-12), "%s", models[m].name);
    }
}

/* Never faster than the products alone at the full peak. */
Test(layout_time, no_faster_than_the_peak)
{
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        ty_layout_question q = question_for(&models[m]);
        ty_layout l = layout_for(&models[m], false, TY_LAYOUT_FULL);
        double flop = ty_layout_model_flop(&q.shape, q.global_batch);
        cr_expect(estimate(&q, &l).step_time_s >
                  flop / (q.device.peak_half_flop_per_s * q.cluster.devices));
    }
}

/* Narayanan et al. 2021: 72 B s l h^2 (1 + s/(6h) + V/(12 l h)) without recomputation. */
Test(layout_time, model_flop_of_the_paper)
{
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        ty_layout_question q = question_for(&models[m]);
        double l = q.shape.layers, h = q.shape.hidden, s = 2048, v = 51200, b = q.global_batch;
        double expected = 72 * b * s * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
        cr_expect(is_near(ty_layout_model_flop(&q.shape, q.global_batch), expected, 1e-12));
    }
}

/* ---- Collectives ------------------------------------------------------------------------------
 */

static double doubled(const void *context, ty_collective_kind kind, bool is_all_to_all,
                      const ty_layout_group *group, double bytes)
{
    return 2 * ty_layout_latency_bandwidth(context, kind, is_all_to_all, group, bytes);
}

Test(layout_collective, formula_by_hand)
{
    ty_layout_question q = question_for(&models[2]);
    ty_layout_constants *k = &q.constants;
    double found, expected;

    k->host_bandwidth_efficiency = 0.5; /* 150 GB/s */
    k->nic_bandwidth_efficiency = 0.5;  /* 100 GB/s a host */
    k->nic_contention = k->nic_group_bytes_per_s = 0;
    k->collective_s = 1e-5;
    k->collective_hop_s = 1e-6;
    k->collective_nic_hop_s = 1e-4;
    found = ty_layout_latency_bandwidth(&q, TY_ALL_REDUCE, false, &(ty_layout_group){8, 8, 1}, 3e9);
    expected = 1e-5 + 2 * 7e-6 + 2 * 7.0 / 8 * 3e9 / 150e9;
    cr_expect(is_near(found, expected, 1e-12), "inside: %g for %g", found, expected);
    /* 4 hosts, 2 members in each, 4 such groups: a quarter of the adapters */
    found = ty_layout_latency_bandwidth(&q, TY_ALL_GATHER, false, &(ty_layout_group){8, 2, 4}, 1e9);
    expected = 1e-5 + 1e-6 + 2e-4 + 7.0 / 8 * 1e9 / 25e9;
    cr_expect(is_near(found, expected, 1e-12), "outside: %g for %g", found, expected);
    q.cluster.oversubscription = 2;
    found = ty_layout_latency_bandwidth(&q, TY_ALL_GATHER, false, &(ty_layout_group){8, 2, 4}, 1e9);
    expected += 7.0 / 8 * 1e9 / 25e9;
    cr_expect(is_near(found, expected, 1e-12), "oversubscribed: %g for %g", found, expected);
    cr_expect_eq(
        ty_layout_latency_bandwidth(&q, TY_ALL_REDUCE, false, &(ty_layout_group){1, 1, 8}, 1e9), 0);
}

/* Hosts of one device need no rate inside. */
Test(layout_collective, hosts_of_one_device)
{
    published p = {"plain", 8, 1024, 16, 16, 1, 2, 2, 1, 8};
    ty_layout_question q;
    ty_layout l;
    ty_error error = {0};
    double slow;

    q = question_for(&p);
    q.cluster.devices_per_host = 1;
    q.cluster.host_bandwidth_bytes_per_s = 0;
    cr_assert_eq(ty_layout_question_check(&q, &error), TY_OK, "%s", error.message);
    l = layout_for(&p, true, TY_LAYOUT_SELECTIVE);
    slow = estimate(&q, &l).step_time_s;
    cr_expect(isfinite(slow));
    q.cluster.devices_per_host = 8;
    q.cluster.host_bandwidth_bytes_per_s = 300e9;
    cr_expect(estimate(&q, &l).step_time_s < slow);
}

/* A model of another's takes the place of the built-in one, everywhere. */
Test(layout_collective, another_model_is_asked)
{
    ty_layout_question q = question_for(&models[2]), other = q;
    ty_layout l = layout_for(&models[2], true, TY_LAYOUT_SELECTIVE);
    ty_layout_estimate plain, slower;

    other.collective = doubled;
    other.collective_context = &q;
    plain = estimate(&q, &l);
    slower = estimate(&other, &l);
    cr_expect(is_near(slower.tensor_s, 2 * plain.tensor_s, 0.01), "%g for twice %g",
              slower.tensor_s, plain.tensor_s);
    cr_expect(slower.step_time_s > plain.step_time_s);
}

/* ---- Questions and rules -----------------------------------------------------------------------
 */

Test(layout_rules, broken_ones_are_named)
{
    const published *p = &models[1];
    ty_layout_question q = question_for(p);
    static const struct {
        const char *expected;
        size_t offset;
        uint32_t value;
    } rows[] = {{"tensor divides heads", offsetof(ty_layout, tensor), 5},
                {"number of devices", offsetof(ty_layout, data), 2},
                {"at least 1", offsetof(ty_layout, pipeline), 0},
                {"each stage and chunk", offsetof(ty_layout, interleave), 13},
                {"divides the global batch", offsetof(ty_layout, micro_batch), 7},
                {"stages divide the micro-batches", offsetof(ty_layout, micro_batch), 16},
                {"expert divides", offsetof(ty_layout, expert), 2},
                {"need replicas", offsetof(ty_layout, zero), 1},
                {"2 context divides", offsetof(ty_layout, context), 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_layout l = layout_for(p, true, TY_LAYOUT_SELECTIVE);
        ty_error error = {0};
        memcpy((char *)&l + rows[i].offset, &rows[i].value, sizeof(uint32_t));
        cr_expect_eq(ty_layout_check(&q, &l, &error), TY_EINVAL);
        cr_expect_not_null(strstr(error.message, rows[i].expected), "row %zu: %s", i,
                           error.message);
    }
    q.shape.sequence--;
    for (int divides = 0; divides < 2; divides++) {
        const ty_layout l = layout_for(p, divides == 1, TY_LAYOUT_SELECTIVE);
        ty_error error = {0};
        cr_expect_eq(ty_layout_check(&q, &l, &error), divides == 1 ? TY_EINVAL : TY_OK, "%s",
                     error.message);
    }
}

Test(layout_rules, absurd_questions_are_refused)
{
    ty_layout_question good = question_for(&models[0]);
    ty_error error = {0};
    ty_layout_question q = good;

    q.shape.layers = 0;
    cr_expect_eq(ty_layout_question_check(&q, &error), TY_EINVAL);
    cr_expect_not_null(strstr(error.message, "layers: found 0"), "%s", error.message);
    q = good;
    q.cluster.host_bandwidth_bytes_per_s = NAN;
    cr_expect_eq(ty_layout_question_check(&q, &error), TY_EINVAL);
    q = good;
    q.device.memory_bytes = -1;
    cr_expect_eq(ty_layout_question_check(&q, &error), TY_EINVAL);
    q = good;
    q.global_batch = 0;
    cr_expect_eq(ty_layout_question_check(&q, &error), TY_EINVAL);
}

/* Shapes count the parameters that the zoo's workloads have. */
Test(layout_question, shapes_of_the_zoo)
{
    static const struct {
        const char *name;
        double tolerance; /* norms of queries and keys, biases of heads are not counted */
    } rows[] = {{"gpt2", 1e-3},       {"gpt3-175b", 1e-3},      {"megatron-530b", 1e-3},
                {"llama-2-7b", 1e-4}, {"llama-3.1-405b", 1e-4}, {"mixtral-8x7b", 1e-4},
                {"qwen3-32b", 1e-3},  {"deepseek-v3", 2e-2},    {"bert-base-mlm", 2e-2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_workload *w = NULL;
        ty_layout_question q = question_for(&models[0]);
        ty_error error = {0};
        double expected;
        cr_assert_eq(ty_workload_open(rows[i].name, &w, &error), TY_OK, "%s", error.message);
        cr_assert_eq(ty_layout_shape_of(w, &q.shape, &error), TY_OK, "%s", error.message);
        cr_assert_eq(ty_layout_question_check(&q, &error), TY_OK, "%s", error.message);
        expected = (double)ty_workload_parameter_bytes(w, 0, w->layer_count) / w->element_bytes;
        cr_expect(is_near(ty_layout_parameters(&q.shape), expected, rows[i].tolerance),
                  "%s: %.0f for %.0f", rows[i].name, ty_layout_parameters(&q.shape), expected);
        ty_workload_free(w);
    }
}

Test(layout_question, others_are_refused_by_layer)
{
    static const char *const names[] = {"resnet50", "t5-small", "gnmt-8", "mlp"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ty_workload *w = NULL;
        ty_layout_shape shape;
        ty_error error = {0};
        cr_assert_eq(ty_workload_open(names[i], &w, &error), TY_OK, "%s", error.message);
        cr_expect_eq(ty_layout_shape_of(w, &shape, &error), TY_EUNSUPPORTED, "%s", names[i]);
        cr_expect_not_null(strstr(error.message, names[i]), "%s", error.message);
        ty_workload_free(w);
    }
}

Test(layout_question, levels_of_a_cluster)
{
    ty_cluster *cluster = NULL;
    ty_layout_cluster c;
    ty_error error = {0};

    cr_assert_eq(ty_cluster_open("leaf:2 host:4 gpu:8 @a100-sxm4-80gb nvlink3 hdr200 oversub:2",
                                 NULL, &cluster, &error),
                 TY_OK, "%s", error.message);
    cr_assert_eq(ty_layout_cluster_of(cluster, &c, &error), TY_OK, "%s", error.message);
    cr_expect_eq(c.devices, 64);
    cr_expect_eq(c.devices_per_host, 8);
    cr_expect(is_near(c.host_bandwidth_bytes_per_s, 240e9, 0.01), "%g",
              c.host_bandwidth_bytes_per_s);
    cr_expect(is_near(c.nic_bandwidth_bytes_per_s, 8 * 24e9, 0.01), "%g",
              c.nic_bandwidth_bytes_per_s);
    cr_expect(is_near(c.oversubscription, 2, 0.05), "%g", c.oversubscription);
    ty_cluster_free(cluster);
    cr_assert_eq(ty_cluster_open("1x dgx-a100 + 1x dgx1-v100", NULL, &cluster, &error), TY_OK);
    cr_expect_eq(ty_layout_cluster_of(cluster, &c, &error), TY_EUNSUPPORTED);
    ty_cluster_free(cluster);
}

Test(layout_question, constants_by_name)
{
    static const char *const names[] = {"default", "vtrain-node", "vtrain-cluster", "megatron"};
    ty_layout_constants k;
    ty_error error = {0};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        cr_expect_eq(ty_layout_constants_load(names[i], &k, &error), TY_OK, "%s", error.message);
        cr_expect_str_eq(k.name, names[i]);
        cr_expect(k.matmul_efficiency > 0 && k.matmul_efficiency <= 1);
    }
    cr_expect_eq(ty_layout_constants_load("megatronn", &k, &error), TY_EINVAL);
    cr_expect_not_null(strstr(error.message, "vtrain-node"), "%s", error.message);
}

/* Profiles: JSON round trips, refused files, and look-ups against formulas. */
#include "ty_base.h"
#include "ty_profile.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BENCH TY_CORPUS "/profile/bench.json"

static ty_profile *load(const char *path)
{
    ty_profile *profile = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_profile_load(path, &profile, &error), TY_OK, "%s", error.message);
    return profile;
}

static char *text_of(const ty_profile *profile)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    char *out = NULL;
    ty_profile_to_json(profile, &writer, NULL);
    cr_assert_eq(ty_text_take(&text, &out, NULL), TY_OK);
    return out;
}

static bool is_close(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(b);
}

Test(profile, names)
{
    cr_expect_str_eq(ty_provenance_name(TY_CALIBRATED), "calibrated");
    cr_expect_str_eq(ty_collective_name(TY_REDUCE_SCATTER), "reduce_scatter");
    cr_expect_str_eq(ty_algorithm_name(TY_TREE), "tree");
    cr_expect_str_eq(ty_compression_name(TY_COMPRESSION_TOP_K), "top-k");
}

Test(profile, survives_writing_and_reading)
{
    char path[] = "/tmp/trainyard-test-XXXXXX";
    ty_profile *first = load(BENCH), *second;
    char *before, *after;

    close(mkstemp(path));
    cr_expect(first->layer_time_count == 3 && first->collective_time_count == 4);
    cr_expect(first->codec_time_count == 5 && first->update_time_count == 2);
    cr_expect_eq(first->layer_times[0].micro_batch, 8, "rows keep their order");
    cr_expect(first->peak_flop_per_s == 5e10 && first->cores == 4);
    cr_assert_eq(ty_profile_save(first, path, NULL), TY_OK);
    second = load(path);
    before = text_of(first);
    after = text_of(second);
    cr_expect_str_eq(before, after);
    ty_free(before);
    ty_free(after);
    ty_profile_free(first);
    ty_profile_free(second);
    unlink(path);
}

Test(profile, what_is_refused)
{
    static const struct {
        const char *find, *put, *message;
    } rows[] = {
        {"trainyard.profile/1", "trainyard.plan/1", "/schema: found \"trainyard.plan/1\""},
        {"\"cores\": 4", "\"cores\": 0", "/cores: found 0"},
        {"\"cores\"", "\"core\"", "/cores: found only \"core\""},
        {"\"peak_flop_per_s\": 50000000000.0", "\"peak_flop_per_s\": 0",
         "/peak_flop_per_s: found 0, expected a number > 0"},
        {"\"micro_batch\": 1,", "\"micro_batch\": 8,",
         "/layer_times/1: found an object, expected no second row for what row 0 measures"},
        {"\"micro_batch\": 1,", "\"micro_batch\": 0,", "/layer_times/1/micro_batch: found 0"},
        {"\"ranks\": 4, \"bytes\": 1024", "\"ranks\": 2, \"bytes\": 1024",
         "/collective_times/2: found an object, expected no second row for what row 0"},
        {"\"ring\"", "\"rings\"", "/collective_times/0/algorithm: found \"rings\""},
        {"\"ranks\": 2, \"bytes\": 1024", "\"ranks\": 1, \"bytes\": 1024",
         "/collective_times/0/ranks: found 1"},
        {"\"bytes\": 65536,", "\"bytes\": 1,", "/transfer_times/1: found an object, expected no"},
        {"\"bytes\": 65536,", "\"bytes\": 65536, \"unit\": 1,",
         "/transfer_times/1/unit: found an unknown key"},
        {"\"ratio\": 0.01", "\"ratio\": 1.01", "/codec_times/0/ratio: found 1.01"},
        {"\"encode_s\": ", "\"encode_s\": -", "/codec_times/0/encode_s: found -"},
        {"\"ranks\": 4, \"elements\": 1000,", "\"ranks\": 2, \"elements\": 1000,",
         "/codec_times/2: found an object, expected no second row"},
        {"\"elements\": 1000000", "\"elements\": 1000",
         "/update_times/1: found an object, expected no second row"},
        {"\"adamw\"", "\"adam\"", "/update_times/0/kind: found \"adam\""},
    };
    char *bytes = NULL;
    size_t length = 0;

    cr_assert_eq(ty_file_read(BENCH, 0, &bytes, &length, NULL), TY_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_text text = {0};
        ty_json_document *document = NULL;
        ty_profile *profile = NULL;
        ty_error error = {0};
        const char *at = strstr(bytes, rows[i].find);
        cr_assert_not_null(at, "%s", rows[i].find);
        ty_text_append(&text, bytes, (size_t)(at - bytes));
        ty_text_add(&text, rows[i].put);
        ty_text_add(&text, at + strlen(rows[i].find));
        cr_assert_eq(ty_json_parse(text.data, text.length, "p.json", &document, &error), TY_OK);
        cr_expect_eq(ty_profile_from_json(ty_json_root(document), &profile, &error), TY_EPARSE,
                     "row %zu: %s was taken", i, rows[i].put);
        cr_expect_null(profile);
        cr_expect(strstr(error.message, rows[i].message) != NULL, "row %zu: %s", i, error.message);
        ty_json_free(document);
        ty_text_clear(&text);
    }
    ty_free(bytes);
}

/* More of a measured quantity never takes less time, and no extrapolation is constant. */
Test(profile, curves_grow)
{
    static char relu[] = "relu input=8";
    uint32_t seed = 1;

    for (int round = 0; round < 200; round++) {
        ty_layer_time rows[12] = {0};
        ty_profile profile = {.layer_time_count = 12, .layer_times = rows};
        double before = 0, at_last = 0, forward = 0, backward = 0;
        for (uint32_t k = 0; k < 12; k++) {
            seed = seed * 1664525u + 1013904223u;
            rows[k] = (ty_layer_time){.signature = relu,
                                      .micro_batch = 1u << k,
                                      .forward_s = 1e-3 * (1u << k) * (0.2 + seed % 1000 / 500.0),
                                      .backward_s = 1e-3};
        }
        for (uint32_t size = 1; size < 1u << 13; size += 1 + size / 16) {
            cr_assert(ty_profile_layer(&profile, relu, size, &forward, &backward));
            cr_assert(forward >= before, "round %d: %g at %u, %g before", round, forward, size,
                      before);
            before = forward;
        }
        cr_assert(ty_profile_layer(&profile, relu, 1u << 11, &at_last, &backward));
        cr_assert(ty_profile_layer(&profile, relu, 1u << 16, &forward, &backward));
        cr_assert(forward > 2 * at_last, "round %d: %g far beyond, %g at the largest", round,
                  forward, at_last);
        cr_assert(backward > 1.9e-3, "flat where all took as long: %g", backward);
    }
}

/* Rows (micro-batch, seconds) and queries, computed by hand. */
Test(profile, layers_between_and_beyond_measured_sizes)
{
    static char relu[] = "relu input=8";
    static const struct {
        uint32_t count;
        struct {
            uint32_t size;
            double seconds;
        } rows[3];
        uint32_t question;
        double expected; /* < 0: no answer */
    } cases[] = {
        {3, {{8, 18}, {2, 12}, {4, 14}}, 4, 14},  /* measured */
        {3, {{8, 18}, {2, 12}, {4, 14}}, 3, 13},  /* between */
        {3, {{8, 18}, {2, 12}, {4, 14}}, 6, 16},  /* between */
        {3, {{8, 18}, {2, 12}, {4, 14}}, 16, 26}, /* the last slope, 1 */
        {3, {{8, 18}, {2, 12}, {4, 14}}, 1, 11},  /* the first slope, intercept 10 */
        {3, {{8, 30}, {2, 12}, {4, 14}}, 10, 38}, /* the last slope, 4, not the first */
        {3, {{8, 10}, {2, 12}, {4, 14}}, 16, 24}, /* falling: noise; all are 12, proportional to
                                                   * size */
        {3, {{8, 4}, {2, 2}, {4, 5}}, 20, 9.5},   /* 4 and 8 are 4.5; the slope before them
                                                   * counts */
        {3, {{8, 4}, {2, 2}, {4, 5}}, 6, 4.5},    /* nor does it fall in between */
        {2, {{4, 10}, {8, 30}}, 2, 5},            /* intercept -10: in proportion */
        {2, {{4, 10}, {8, 8}}, 2, 9},             /* falling: no more than the smallest */
        {1, {{4, 10}}, 2, 5},                     /* one size: in proportion */
        {1, {{4, 10}}, 8, 20},
        {0, {{0, 0}}, 8, -1},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ty_layer_time rows[3] = {0};
        ty_profile profile = {.layer_time_count = cases[i].count, .layer_times = rows};
        double forward = -1, backward = -1;
        bool is_known;
        for (uint32_t k = 0; k < cases[i].count; k++)
            rows[k] = (ty_layer_time){.signature = relu,
                                      .micro_batch = cases[i].rows[k].size,
                                      .forward_s = cases[i].rows[k].seconds,
                                      .backward_s = 2 * cases[i].rows[k].seconds};
        is_known = ty_profile_layer(&profile, relu, cases[i].question, &forward, &backward);
        cr_expect_eq(is_known, cases[i].expected >= 0, "case %zu", i);
        cr_expect(forward == cases[i].expected, "case %zu: %g", i, forward);
        cr_expect(!is_known || backward == 2 * forward, "case %zu: %g", i, backward);
        cr_expect_not(ty_profile_layer(&profile, "relu input=9", 4, &forward, &backward));
    }
}

/* The ends of the range, computed by hand; sizes between measured ones have no uncertainty. */
Test(profile, bands_outside_of_measured_sizes)
{
    static char relu[] = "relu input=8";
    static const struct {
        uint32_t count;
        struct {
            uint32_t size;
            double seconds;
        } rows[3];
        uint32_t question;
        double least, most;
    } cases[] = {
        {3, {{2, 12}, {4, 14}, {8, 18}}, 8, 18, 18},
        {3, {{2, 12}, {4, 14}, {8, 18}}, 3, 13, 13},
        {3, {{2, 12}, {4, 14}, {8, 18}}, 16, 26, 36}, /* the lines agree; in proportion */
        {3, {{2, 12}, {4, 14}, {8, 30}}, 16, 54, 62}, /* from the first; from the second */
        {3,
         {{2, 4}, {4, 12}, {8, 16}},
         16,
         24,
         32}, /* from the second; from the first is less steep */
        {3, {{2, 12}, {4, 14}, {8, 10}}, 16, 12, 24}, /* all 12: continue from there; proportional
                                                       * to size */
        {3, {{2, 12}, {4, 14}, {8, 18}}, 1, 6, 12},   /* in proportion; the smallest's */
        {1, {{4, 10}}, 8, 10, 20},
        {1, {{4, 10}}, 2, 5, 10},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ty_layer_time rows[3] = {0};
        ty_profile profile = {.layer_time_count = cases[i].count, .layer_times = rows};
        double least, likely, most, backward;
        for (uint32_t k = 0; k < cases[i].count; k++)
            rows[k] = (ty_layer_time){.signature = relu,
                                      .micro_batch = cases[i].rows[k].size,
                                      .forward_s = cases[i].rows[k].seconds,
                                      .backward_s = 1};
        cr_assert(ty_profile_layer(&profile, relu, cases[i].question, &likely, &backward));
        profile.outside = TY_OUTSIDE_LEAST;
        cr_assert(ty_profile_layer(&profile, relu, cases[i].question, &least, &backward));
        profile.outside = TY_OUTSIDE_MOST;
        cr_assert(ty_profile_layer(&profile, relu, cases[i].question, &most, &backward));
        cr_expect(least == cases[i].least, "case %zu: at least %g", i, least);
        cr_expect(most == cases[i].most, "case %zu: at most %g", i, most);
        cr_expect(least <= likely && likely <= most, "case %zu: %g", i, likely);
    }
}

/* The order of rows does not matter, for any three rows and any question. */
/* From the row nearest to the requested size; written and read like any other. */
Test(profile, parts_of_backward)
{
    char *relu = ty_strdup("relu input=9"), *linear = ty_strdup("linear input=9");
    ty_layer_time rows[] = {{relu, 4, 1, 1, 0, 0},
                            {linear, 4, 1, 4, 3, 1},
                            {linear, 32, 1, 4, 1, 1},
                            {linear, 64, 1, 4, 0, 0}};
    const ty_profile profile = {.machine = relu,
                                .backend = relu,
                                .date = relu,
                                .versions = relu,
                                .device = linear,
                                .precision = "bf16",
                                .input_source = relu,
                                .input_s_per_sample = 0.125,
                                .cores = 1,
                                .concurrent_ranks = 1,
                                .memory_bytes = 1,
                                .peak_flop_per_s = 1,
                                .memory_bandwidth_bytes_per_s = 1,
                                .layer_time_count = 4,
                                .layer_times = rows};
    char *text = text_of(&profile);
    double share = -1;

    cr_expect(ty_profile_has_parts(&profile));
    cr_expect_not(ty_profile_weight_share(&profile, relu, 4, &share), "found %g", share);
    cr_expect(ty_profile_weight_share(&profile, linear, 1, &share) && is_close(share, 0.25));
    cr_expect(ty_profile_weight_share(&profile, linear, 1000, &share) && is_close(share, 0.5));
    cr_expect(strstr(text, "\"input_s\": 3, \"weight_s\": 1") != NULL, "%s", text);
    cr_expect(strstr(text, "\"device\": \"linear input=9\"") != NULL, "%s", text);
    cr_expect(strstr(text, "\"precision\": \"bf16\"") != NULL, "%s", text);
    cr_expect(strstr(text, "\"input_source\": \"relu input=9\"") != NULL, "%s", text);
    cr_expect(strstr(text, "\"input_s_per_sample\": 0.125") != NULL, "%s", text);
    ty_free(text);
    ty_free(relu);
    ty_free(linear);
}

Test(profile, rows_in_any_order)
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const ty_transfer_time rows[3] = {{16, 3.0, 0}, {64, 5.0, 0}, {256, 21.0, 0}};

    for (uint64_t bytes = 0; bytes < 600; bytes += 7) {
        double first = 0.0;
        for (int o = 0; o < 6; o++) {
            ty_transfer_time mixed[3];
            ty_profile profile = {.transfer_time_count = 3, .transfer_times = mixed};
            double seconds;
            for (int i = 0; i < 3; i++)
                mixed[i] = rows[orders[o][i]];
            cr_assert(ty_profile_transfer(&profile, bytes, &seconds));
            first = o == 0 ? seconds : first;
            cr_assert(seconds == first, "order %d, %llu bytes", o, (unsigned long long)bytes);
        }
    }
}

Test(profile, transfers_and_updates)
{
    ty_profile *p = load(BENCH);
    double seconds = 0.0;

    /* The file's rows are 1e-6 + bytes / 2e9, and 2e-9 per element. */
    for (uint64_t bytes = 1; bytes < 100000000; bytes *= 7) {
        cr_assert(ty_profile_transfer(p, bytes, &seconds));
        cr_expect(is_close(seconds, 1e-6 + (double)bytes / 2e9), "%llu", (unsigned long long)bytes);
        cr_assert(ty_profile_update(p, TY_OPTIMIZER_ADAMW, bytes, &seconds));
        cr_expect(is_close(seconds, 2e-9 * (double)bytes), "%llu", (unsigned long long)bytes);
    }
    cr_expect_not(ty_profile_update(p, TY_OPTIMIZER_SGD, 1000, &seconds));
    ty_profile_free(p);
}

/* A small message is a copy, a large one waits for a slow interconnect; between them both times
 * count. */
Test(profile, slow_messages_leave_the_core_alone)
{
    static ty_transfer_time rows[] = {{1000, 1e-5, 1e-5}, {1001000, 1e-1, 1e-3}};
    static ty_transfer_time unknown[] = {{1000, 1e-5, 0}, {1001000, 1e-1, 0}};
    ty_profile profile = {.transfer_time_count = 2, .transfer_times = rows};

    cr_expect_eq(ty_profile_busy_share(&profile, 1000), 1);
    cr_expect(is_close(ty_profile_busy_share(&profile, 1001000), 1e-2));
    cr_expect(is_close(ty_profile_busy_share(&profile, 501000),
                       (1e-5 + (1e-3 - 1e-5) / 2) / (1e-5 + (1e-1 - 1e-5) / 2)));
    profile.transfer_times = unknown;
    cr_expect_eq(ty_profile_busy_share(&profile, 1001000), 1);
}

/* Latency-bandwidth times; rows at 2 and 4 ranks determine all others exactly. */
static double model(ty_collective_kind kind, ty_algorithm algorithm, uint32_t ranks, double bytes)
{
    const double latency = 1e-5, rate = 1e9;
    double n = ranks, rounds = ceil(log2(n));

    if (algorithm == TY_TREE && (kind == TY_ALL_REDUCE || kind == TY_BROADCAST))
        return (kind == TY_ALL_REDUCE ? 2 : 1) * rounds * (latency + bytes / rate);
    if (kind == TY_ALL_REDUCE)
        return 2 * (n - 1) * (latency + bytes / n / rate);
    if (kind == TY_REDUCE_SCATTER)
        return (n - 1) * (latency + bytes / n / rate);
    return (n - 1) * (latency + bytes / rate);
}

Test(profile, collectives_at_other_sizes_and_rank_counts)
{
    ty_collective_time rows[4];
    ty_profile p = {.collective_time_count = 4, .collective_times = rows};

    for (int c = 0; c < 8; c++) {
        ty_collective_kind kind = (ty_collective_kind)(c / 2);
        ty_algorithm algorithm = c % 2 == 0 ? TY_RING : TY_TREE;
        if (kind == TY_BROADCAST && algorithm == TY_RING)
            continue; /* a reduce-scatter and an all-gather, whose steps differ */
        for (int i = 0; i < 4; i++) {
            rows[i] = (ty_collective_time){
                kind, algorithm, i < 2 ? 4 : 2, i % 2 == 0 ? 1048576 : 1024, 0.0, 0};
            rows[i].seconds = model(kind, algorithm, rows[i].ranks, (double)rows[i].bytes);
        }
        for (uint32_t ranks = 2; ranks <= 16; ranks++) {
            for (uint64_t bytes = 1; bytes < 1000000000; bytes *= 10) {
                double seconds = 0.0, expected = model(kind, algorithm, ranks, (double)bytes);
                cr_assert(ty_profile_collective(&p, kind, algorithm, ranks, bytes, &seconds));
                cr_expect(is_close(seconds, expected), "%s %s of %u, %llu bytes: %g, not %g",
                          ty_algorithm_name(algorithm), ty_collective_name(kind), ranks,
                          (unsigned long long)bytes, seconds, expected);
            }
        }
    }
}

Test(profile, collectives_at_the_edges)
{
    ty_profile *p = load(BENCH);
    ty_collective_time one = {TY_ALL_REDUCE, TY_RING, 8, 800, 14.0, 0};
    ty_profile eight = {.collective_time_count = 1, .collective_times = &one};
    double seconds = -1.0;

    cr_expect_not(ty_profile_collective(p, TY_ALL_REDUCE, TY_TREE, 2, 1, &seconds));
    cr_expect_not(ty_profile_collective(p, TY_BROADCAST, TY_RING, 2, 1, &seconds));
    cr_expect(seconds == -1.0, "untouched without an answer");
    cr_assert(ty_profile_collective(p, TY_ALL_REDUCE, TY_RING, 1, 1024, &seconds));
    cr_expect(seconds == 0.0, "alone there is nothing to do");
    /* Fewer ranks than in the measurements: 2 of 14 steps with the same bytes per step. */
    cr_assert(ty_profile_collective(&eight, TY_ALL_REDUCE, TY_RING, 2, 200, &seconds));
    cr_expect(is_close(seconds, 2.0), "%g", seconds);
    ty_profile_free(p);
}

Test(profile, codecs)
{
    ty_profile *p = load(BENCH);
    ty_codec_cost cost;
    static const ty_compression none = {0}, half = {.kind = TY_COMPRESSION_FP16},
                                sparse = {.kind = TY_COMPRESSION_TOP_K, .ratio = 0.01};
    static const struct {
        double ratio;
        uint32_t ranks;
        uint64_t elements;
    } rows[] = {{0.01, 2, 1000},   {0.01, 2, 50000}, {0.01, 3, 50000},
                {0.01, 8, 200000}, {0.05, 4, 1000},  {0.01, 1, 1000}};

    /* The file's rows are elements * 1e-9, and ranks * elements * 1e-11, both for the ratio 0.01.
     */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double elements = (double)rows[i].elements;
        const ty_compression asked = {.kind = TY_COMPRESSION_TOP_K, .ratio = rows[i].ratio};
        cr_assert(ty_profile_codec(p, &asked, rows[i].ranks, rows[i].elements, &cost));
        cr_expect(is_close(cost.encode_s[0], elements * 1e-9), "row %zu: %g", i, cost.encode_s[0]);
        cr_expect(is_close(cost.decode_s, rows[i].ranks * elements * 1e-11), "row %zu: %g", i,
                  cost.decode_s);
    }
    cr_assert(ty_profile_codec(p, &half, 64, 2000, &cost));
    cr_expect(is_close(cost.encode_s[0], 2e-6) && is_close(cost.decode_s, 2e-6),
              "ranks do not matter: %g", cost.decode_s);
    cr_assert(ty_profile_codec(p, &none, 2, 1000, &cost));
    cr_expect(cost.encode_s[0] == 0.0 && cost.decode_s == 0.0);
    p->codec_time_count = 0;
    cr_expect_not(ty_profile_codec(p, &sparse, 2, 1000, &cost));
    p->codec_time_count = 5;
    ty_profile_free(p);
}

Test(profile, every_allocation_may_fail)
{
    ty_profile *p = NULL;
    ty_status status = TY_ENOMEM;
    ty_error error = {0};
    long n = 0;

    while (status != TY_OK) {
        ty_memory_fail_after(++n);
        status = ty_profile_load(BENCH, &p, &error);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM, "allocation %ld: %s", n, error.message);
        cr_assert_lt(n, 1000);
    }
    cr_assert_gt(n, 15);
    ty_profile_free(p);
    ty_profile_free(NULL);
}

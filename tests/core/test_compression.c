/* Compressors in plans: names, parameters, bytes by hand, and when they pay. */
#include "ty_core.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static const char *const specs[] = {
    "none",      "rows",          "fp16",          "bf16",       "fp8-e4m3",           "fp8-e5m2",
    "int8",      "ternary",       "one-bit",       "top-k:0.01", "top-k-sampled:0.25", "random-k:1",
    "dgc:0.001", "dgc:0.001:100", "dgc:0.5:0:2.5", "powersgd-1", "powersgd-64"};
enum { SPECS = sizeof specs / sizeof *specs };

static ty_compression parsed(const char *spec)
{
    ty_compression c;
    ty_error error = {0};
    cr_assert_eq(ty_compression_parse(spec, &c, &error), TY_OK, "%s: %s", spec, error.message);
    return c;
}

Test(compression, text_and_json_there_and_back)
{
    for (int i = 0; i < SPECS; i++) {
        ty_compression c = parsed(specs[i]), read;
        ty_text text = {0}, json = {0};
        ty_json_writer w = ty_json_writer_on(&json);
        ty_json_document *document = NULL;
        ty_compression_text(&c, &text);
        cr_expect_str_eq(text.data, specs[i]);
        ty_json_open(&w, NULL, '{');
        ty_compression_write(&c, &w, "compression");
        ty_json_close(&w, '}');
        cr_assert_eq(ty_json_parse(json.data, json.length, "bucket", &document, NULL), TY_OK);
        cr_assert_eq(ty_compression_read(ty_json_root(document), "compression", &read, NULL),
                     TY_OK);
        cr_expect_eq(ty_json_end(ty_json_root(document), NULL), TY_OK);
        cr_expect(ty_compression_equals(&c, &read), "%s", specs[i]);
        ty_json_free(document);
        ty_text_clear(&text);
        ty_text_clear(&json);
    }
}

Test(compression, wrong_text_is_refused)
{
    const struct {
        const char *spec, *message;
    } rows[] = {
        {"", "found '', expected none, rows"},
        {"rows:1", "expected rows alone"},
        {"gzip", "found 'gzip'"},
        {"fp16:0.5", "expected fp16 alone"},
        {"top-k", "expected top-k:SHARE, as in top-k:0.01"},
        {"top-k:", "expected top-k:SHARE"},
        {"top-k:0", "found ratio 0"},
        {"top-k:1.5", "found ratio 1.5"},
        {"top-k:nan", "expected top-k:SHARE"},
        {"top-k:-1", "expected top-k:SHARE"},
        {"top-k:0.01:3", "expected top-k:SHARE"},
        {"powersgd", "expected powersgd-RANK"},
        {"powersgd-0", "found rank 0"},
        {"powersgd-65", "found rank 65"},
        {"powersgd-1.5", "expected powersgd-RANK"},
        {"dgc:0.1:1.5", "expected dgc:SHARE"},
        {"dgc:0.1:1e99", "expected dgc:SHARE"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_compression c = {.rank = 77};
        ty_error error = {0};
        cr_expect_eq(ty_compression_parse(rows[i].spec, &c, &error), TY_EINVAL, "%s", rows[i].spec);
        cr_expect(strstr(error.message, rows[i].message) != NULL, "%s: %s", rows[i].spec,
                  error.message);
        cr_expect_eq(c.rank, 77);
    }
}

/* 5000 elements among 4 members; bytes by hand. One-bit: shards of 1250, which are 40 words of 32
 * and two groups; 10 groups of 512. */
Test(compression, bytes_by_hand)
{
    const ty_gradient_extent extent = {
        .elements = 5000, .p_elements = 120, .q_elements = 140, .dense_elements = 800};
    const struct {
        const char *spec;
        uint32_t phases;
        uint64_t wire[2], state, payload;
        ty_collective_kind collectives[2];
    } rows[] = {
        {"none", 1, {20000}, 0, 0, {TY_ALL_REDUCE}},
        {"fp16", 1, {10000}, 0, 10000, {TY_ALL_REDUCE}},
        {"bf16", 1, {10000}, 0, 10000, {TY_ALL_REDUCE}},
        {"fp8-e4m3", 1, {5040}, 0, 4 * 5040, {TY_ALL_GATHER}},
        {"int8", 1, {5040}, 0, 4 * 5040, {TY_ALL_GATHER}},
        {"ternary", 1, {1290}, 0, 4 * 1290, {TY_ALL_GATHER}},
        {"one-bit", 2, {4 * 168, 168}, 5 * 1280 * 4, 8 * 168, {TY_ALL_TO_ALL, TY_ALL_GATHER}},
        {"top-k:0.01", 1, {400}, 40000, 1600, {TY_ALL_GATHER}},
        {"top-k-sampled:0.01", 1, {400}, 40000, 1600, {TY_ALL_GATHER}},
        {"random-k:0.01", 1, {200}, 20000, 200, {TY_ALL_REDUCE}},
        {"dgc:0.01", 1, {400}, 60000, 1600, {TY_ALL_GATHER}},
        {"dgc:0.01:10", 1, {400}, 60000, 40000, {TY_ALL_GATHER}},
        {"powersgd-2", 2, {3680, 560}, 16800, 4240, {TY_ALL_REDUCE, TY_ALL_REDUCE}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_compression c = parsed(rows[i].spec);
        cr_assert_eq(ty_compression_phases(&c), rows[i].phases, "%s", rows[i].spec);
        for (uint32_t p = 0; p < rows[i].phases; p++) {
            cr_expect_eq(ty_compression_wire_bytes(&c, &extent, 4, p), rows[i].wire[p],
                         "%s, phase %u: %lu", rows[i].spec, p,
                         ty_compression_wire_bytes(&c, &extent, 4, p));
            cr_expect_eq(ty_compression_collective(&c, p), rows[i].collectives[p], "%s",
                         rows[i].spec);
        }
        cr_expect_eq(ty_compression_state_bytes(&c, &extent, 4), rows[i].state, "%s: %lu",
                     rows[i].spec, ty_compression_state_bytes(&c, &extent, 4));
        cr_expect_eq(ty_compression_payload_bytes(&c, &extent, 4), rows[i].payload, "%s: %lu",
                     rows[i].spec, ty_compression_payload_bytes(&c, &extent, 4));
    }
}

/* A table of 100 rows of 16, and 3 position rows. Each of 7 rows takes 4 bytes of index and 64 of
 * numbers, and the position rows are sent uncompressed; from each of 4 members. */
Test(compression, rows_by_hand)
{
    const ty_compression rows = parsed("rows"), fp16 = parsed("fp16");
    const ty_gradient_extent extent = ty_rows_extent(103 * 16, 100, 16, 7);
    ty_compression measured = ty_compression_measured(&rows, &extent);

    cr_expect_eq(extent.dense_elements, 48);
    cr_expect_eq(ty_compression_row_bytes(&extent), 7 * 68);
    cr_expect_eq(ty_compression_phases(&rows), 1);
    cr_expect_eq(ty_compression_collective(&rows, 0), TY_ALL_GATHER);
    cr_expect_eq(ty_compression_wire_bytes(&rows, &extent, 4, 0), 7 * 68 + 48 * 4);
    cr_expect_eq(ty_compression_payload_bytes(&rows, &extent, 4), 4 * (7 * 68 + 48 * 4));
    cr_expect_eq(ty_compression_state_bytes(&rows, &extent, 4), 0);
    cr_expect(!ty_compression_is_lossy(&rows) && !ty_compression_has_feedback(&rows));
    cr_expect(!ty_compression_shards(&rows), "ZeRO has no share of rows");
    cr_expect_float_eq(measured.ratio, 0.07, 1e-12);
    measured = ty_compression_measured(&fp16, &extent);
    cr_expect(ty_compression_equals(&measured, &fp16));
}

/* From a quarter to its final value, in equal factors. */
Test(compression, warmup_falls_by_equal_factors)
{
    const ty_compression c = parsed("dgc:0.001:4");
    const ty_gradient_extent extent = {.elements = 1000000};
    double before = 0.25;
    for (uint32_t step = 0; step < 8; step++) {
        double share = (double)ty_compression_warmup_bytes(&c, &extent, 2, step) / 8e6;
        double expected = step == 0 ? 0.25 : step > 4 ? 0.001 : before * pow(0.004, 0.25);
        cr_expect(fabs(share - expected) < 2e-6, "step %u: %g, expected %g", step, share, expected);
        before = expected;
    }
}

/* On either side of the reported bandwidth, the reported algorithm is the faster one. */
Test(compression, crossover_against_direct_evaluation)
{
    uint64_t state = 99;
    double sides[2] = {0};
    for (int i = 0; i < 2000; i++) {
        double r[4];
        for (int k = 0; k < 4; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            r[k] = (double)(state >> 40) / (1 << 24);
        }
        ty_exchange_terms plain = {r[0] * 1e-3, r[1] * 1e8}, compressed = {r[2] * 1e-3, r[3] * 1e8};
        double b = ty_compression_crossover(plain, compressed);
        for (double at = 1e6; at < 1e14; at *= 3) {
            double gain = plain.fixed_s + plain.edge_bytes / at - compressed.fixed_s -
                          compressed.edge_bytes / at;
            if (compressed.edge_bytes >= plain.edge_bytes) {
                cr_assert_eq(b, 0);
            } else if (fabs(at / b - 1) > 1e-9) {
                cr_assert_eq(gain > 0, at < b, "at %g of %g", at, b);
                sides[at < b]++;
            }
        }
    }
    cr_assert(sides[0] > 1000 && sides[1] > 1000);
}

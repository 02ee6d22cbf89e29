/* Recomputation in segments: their starts, their instructions in a program, their cost. */
#include "ty_planner.h"
#include "ty_workloads.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "1 7 13 | 19": first layers; the head's after the bar. */
static void blocks_text(const ty_workload *w, char *out, size_t size)
{
    const uint32_t *starts;
    uint32_t head;
    const uint32_t count = ty_workload_blocks(w, &starts, &head);
    size_t at = 0;

    out[0] = '\0';
    for (uint32_t b = 0; b < count; b++)
        at += (size_t)snprintf(out + at, size - at, "%s%s%u", b > 0 ? " " : "",
                               starts[b] == head ? "| " : "", starts[b]);
}

Test(recompute, blocks_of_networks)
{
    static const struct {
        const char *workload, *blocks;
    } rows[] = {
        {"mlp", "0 | 5"},
        {"lenet", "0 | 5"},
        {"gpt-tiny", "0 7 13 19 | 25"}, /* embedding together with the first block */
        {"resnet18", "0 11 18 27 34 43 50 59 | 68"},
        {"vgg16", "0 5 10 14 19 24 28 | 34"},
        {"gnmt-8", "0 5 7 9 12 14 16 | 20"},
        /* Encoder blocks of six layers, decoder blocks of nine. */
        {"t5-small", "0 8 14 20 26 32 38 49 58 67 76 85 | 94"},
    };

    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        ty_workload *w = NULL;
        ty_error error = {0};
        char found[4096];
        cr_assert_eq(ty_workload_open(rows[r].workload, &w, &error), TY_OK, "%s", error.message);
        blocks_text(w, found, sizeof found);
        cr_expect_str_eq(found, rows[r].blocks, "%s (%u layers): %s", rows[r].workload,
                         w->layer_count, found);
        ty_workload_free(w);
    }
}

/* A cut inside a block leaves the rest of it as the first segment. The head is always one segment.
 * Frozen layers without a backward pass are in one segment with those before. */
Test(recompute, segments_of_ranges)
{
    static const struct {
        const char *name;
        ty_recompute_range range;
        uint32_t frozen, count, starts[6];
    } rows[] = {
        {"none", {0, 28, TY_RECOMPUTE_NONE, 0}, 0, 0, {0}},
        {"selective", {0, 28, TY_RECOMPUTE_SELECTIVE, 0}, 0, 0, {0}},
        {"stage", {0, 28, TY_RECOMPUTE_FULL, 0}, 0, 1, {0}},
        {"a block each", {0, 28, TY_RECOMPUTE_FULL, 1}, 0, 5, {0, 7, 13, 19, 25}},
        {"operator", {0, 28, TY_RECOMPUTE_OPERATOR, 0}, 0, 5, {0, 7, 13, 19, 25}},
        {"elementwise", {0, 28, TY_RECOMPUTE_ELEMENTWISE, 0}, 0, 5, {0, 7, 13, 19, 25}},
        {"three blocks", {0, 28, TY_RECOMPUTE_FULL, 3}, 0, 3, {0, 19, 25}},
        {"more than there are", {0, 28, TY_RECOMPUTE_FULL, 9}, 0, 2, {0, 25}},
        {"inside a block", {10, 12, TY_RECOMPUTE_FULL, 1}, 0, 3, {10, 13, 19}},
        {"inside a block, pairs", {10, 12, TY_RECOMPUTE_FULL, 2}, 0, 2, {10, 19}},
        {"head alone", {25, 3, TY_RECOMPUTE_FULL, 1}, 0, 1, {25}},
        {"frozen", {0, 28, TY_RECOMPUTE_FULL, 1}, 16, 4, {0, 13, 19, 25}},
    };
    ty_workload *w = NULL;
    uint32_t starts[28];

    cr_assert_eq(ty_workload_open("gpt-tiny", &w, NULL), TY_OK);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        for (uint32_t l = 0; l < w->layer_count; l++)
            w->layers[l].is_frozen = l < rows[r].frozen;
        cr_expect_eq(ty_recompute_segments(w, &rows[r].range, starts), rows[r].count, "%s",
                     rows[r].name);
        cr_expect_eq(memcmp(starts, rows[r].starts, rows[r].count * sizeof *starts), 0, "%s",
                     rows[r].name);
    }
    ty_workload_free(w);
}

/* Every second linear and convolution layer of a block; for attention and mlp the first product. */
Test(recompute, products_that_are_kept)
{
    ty_workload *w = NULL;
    uint32_t starts[80], count;
    ty_layer_again again[80];
    ty_recompute_range range = {.recompute = TY_RECOMPUTE_OPERATOR};

    cr_assert_eq(ty_workload_open("resnet18", &w, NULL), TY_OK);
    range.layer_count = w->layer_count;
    count = ty_recompute_segments(w, &range, starts);
    ty_recompute_mark_again(w, &range, starts, count, again);
    for (uint32_t s = 0; s < count; s++) {
        const uint32_t end = s + 1 < count ? starts[s + 1] : w->layer_count;
        bool is_next = true;
        for (uint32_t l = starts[s]; l < end; l++) {
            const ty_layer_kind kind = w->layers[l].kind;
            const bool is_product = kind == TY_LAYER_CONV2D || kind == TY_LAYER_LINEAR;
            cr_expect_eq(again[l].what == TY_AGAIN_NOTHING, is_product && is_next, "layer %u", l);
            cr_expect_eq(again[l].keeps_output, is_product && is_next, "layer %u", l);
            is_next = is_next != is_product;
        }
    }
    ty_workload_free(w);

    cr_assert_eq(ty_workload_open("gpt-tiny", &w, NULL), TY_OK);
    range.layer_count = w->layer_count;
    count = ty_recompute_segments(w, &range, starts);
    ty_recompute_mark_again(w, &range, starts, count, again);
    for (uint32_t l = 0; l < 25; l++) {
        const ty_layer *layer = &w->layers[l];
        const double features = (double)layer->attributes[TY_FEATURES];
        const double tokens = (double)layer->output.dimensions[0];
        const bool is_attention = layer->kind == TY_LAYER_ATTENTION;
        cr_expect_eq(again[l].what == TY_AGAIN_SECOND, is_attention || layer->kind == TY_LAYER_MLP,
                     "layer %u", l);
        cr_expect_not(again[l].keeps_output, "layer %u", l);
        if (is_attention) /* the output projection, of four square matrices and the scores */
            cr_expect_float_eq(ty_layer_recompute_share(layer, TY_AGAIN_SECOND) *
                                   layer->forward_flop,
                               2 * tokens * features * features, 1);
        else if (layer->kind == TY_LAYER_MLP)
            cr_expect_float_eq(ty_layer_recompute_share(layer, TY_AGAIN_SECOND), 0.5, 1e-12);
        cr_expect_eq(ty_layer_recompute_share(layer, TY_AGAIN_ALL), 1);
        cr_expect_eq(ty_layer_recompute_share(layer, TY_AGAIN_ACTIVATION), 0);
        cr_expect_eq(ty_layer_recompute_share(layer, TY_AGAIN_NOTHING), 0);
    }
    ty_workload_free(w);
}

/* One letter per layer: fully recomputed, only its activation function recomputed, or not at all.
 * Lower case if its output is neither stored nor recomputed. */
static void again_text(const ty_workload *w, const ty_recompute_range *range, char *out)
{
    static const char letters[][3] = {[TY_AGAIN_ALL] = "AA",
                                      [TY_AGAIN_SECOND] = "sS",
                                      [TY_AGAIN_ACTIVATION] = "fF",
                                      [TY_AGAIN_NOTHING] = "nN"};
    ty_layer_again *again = calloc(w->layer_count, sizeof *again);
    uint32_t *starts = calloc(w->layer_count, sizeof *starts);
    const uint32_t count = ty_recompute_segments(w, range, starts);

    ty_recompute_mark_again(w, range, starts, count, again);
    for (uint32_t l = range->first_layer; l < range->first_layer + range->layer_count; l++)
        *out++ = letters[again[l].what][again[l].keeps_output];
    *out = '\0';
    free(again);
    free(starts);
}

/* Norms and activation functions, and layers that work in place on them. Tensors that only
 * additions read are not stored. */
Test(recompute, norms_and_activation_functions)
{
    static const struct {
        const char *workload;
        ty_recompute_range range;
        const char *again;
    } rows[] = {
        /* embedding, norm, attention, add, norm, mlp, add, ...; norm, linear, loss */
        {"gpt-tiny", {0, 28, TY_RECOMPUTE_ELEMENTWISE, 0}, "NAnNAfNAnNAfNAnNAfNAnNAfNANN"},
        {"gpt-tiny", {7, 6, TY_RECOMPUTE_ELEMENTWISE, 0}, "AnNAfn"}, /* the last sum is sent to the
                                                                      * next stage */
        /* relus work in place on the outputs of conv2d and linear */
        {"lenet", {0, 9, TY_RECOMPUTE_ELEMENTWISE, 0}, "NNNNNNNNN"},
        {"resnet18", {0, 7, TY_RECOMPUTE_ELEMENTWISE, 0}, "NAANNAA"}, /* conv2d, norm, relu, ... */
    };

    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        ty_workload *w = NULL;
        char found[80];
        cr_assert_eq(ty_workload_open(rows[r].workload, &w, NULL), TY_OK);
        again_text(w, &rows[r].range, found);
        cr_expect_str_eq(found, rows[r].again, "%s: %s", rows[r].workload, found);
        ty_workload_free(w);
    }
}

Test(recompute, what_users_write)
{
    static const struct {
        const char *text;
        ty_recompute kind;
        uint32_t blocks;
    } good[] = {
        {"none", TY_RECOMPUTE_NONE, 0},         {"selective", TY_RECOMPUTE_SELECTIVE, 0},
        {"operator", TY_RECOMPUTE_OPERATOR, 0}, {"elementwise", TY_RECOMPUTE_ELEMENTWISE, 0},
        {"full", TY_RECOMPUTE_FULL, 1},         {"full:4", TY_RECOMPUTE_FULL, 4},
        {"stage", TY_RECOMPUTE_FULL, 0}};
    static const struct {
        const char *text, *message;
    } bad[] = {{"some", "found 'some', expected none, selective, elementwise, operator, full"},
               {"full:0", "found 'full:0', expected full:K with K from 1 to"},
               {"full:", "expected full:K"},
               {"full:x", "expected full:K"},
               {"full:10001", "expected full:K with K from 1 to 10000"},
               {"", "found ''"}};
    ty_recompute kind;
    uint32_t blocks;

    for (size_t r = 0; r < sizeof good / sizeof good[0]; r++) {
        ty_text text = {0};
        cr_assert_eq(ty_recompute_parse(good[r].text, &kind, &blocks, NULL), TY_OK);
        cr_expect(kind == good[r].kind && blocks == good[r].blocks, "%s", good[r].text);
        ty_recompute_text(kind, blocks, &text);
        cr_expect_str_eq(text.data, good[r].text);
        ty_text_clear(&text);
    }
    for (size_t r = 0; r < sizeof bad / sizeof bad[0]; r++) {
        ty_error error = {0};
        cr_assert_eq(ty_recompute_parse(bad[r].text, &kind, &blocks, &error), TY_EINVAL);
        cr_expect(strstr(error.message, bad[r].message) != NULL, "%s", error.message);
    }
}

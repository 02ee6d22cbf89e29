/* The table of optimizers: memory of their states, cost of their step, names. */
#include "ty_workload.h"

#include "ty_base.h"

#include <math.h>

#define STATE_BYTES 4.0 /* a state in fp32 */

/* ---- States of a tensor -----------------------------------------------------------------------
 */

/* Two moments of one byte, and a 4-byte scale per moment and block. Small tensors stay in fp32.
 * Source: Dettmers et al., "8-bit Optimizers via Block-wise Quantization", ICLR 2022; bitsandbytes:
 * blocks of 256, min_8bit_size 4096. */
static double adam8bit_bytes(const ty_tensor_part *t)
{
    const double count = t->rows * t->columns, block = 256, least = 4096;

    return count < least ? 2 * STATE_BYTES * count
                         : 2 * (count + STATE_BYTES * ceil(count / block));
}

static bool is_matrix(const ty_tensor_part *t)
{
    return t->rows > 1 && t->columns > 1;
}

/* Sums of squares of rows and of columns; a vector has all its squares. No first moment.
 * Source: Shazeer and Stern, "Adafactor", arXiv:1804.04235, algorithm 4. */
static double adafactor_bytes(const ty_tensor_part *t)
{
    return STATE_BYTES * (is_matrix(t) ? t->rows + t->columns : t->rows * t->columns);
}

/* Source: Jordan et al., "Muon", 2024: hidden matrices; everything else by Adam. */
static bool is_orthogonalized(const ty_tensor_part *t)
{
    return t->is_hidden && is_matrix(t);
}

static double muon_bytes(const ty_tensor_part *t)
{
    return STATE_BYTES * t->rows * t->columns * (is_orthogonalized(t) ? 1 : 2);
}

/* Five Newton-Schulz iterations X <- aX + (bA + cAA)X, A = XX', for X of m rows and n >= m columns:
 * products of 2mmn, 2mmm and 2mmn flop. */
static double muon_flop(const ty_tensor_part *t)
{
    const double m = fmin(t->rows, t->columns), n = fmax(t->rows, t->columns), iterations = 5;

    return is_orthogonalized(t) ? iterations * (4 * m * m * n + 2 * m * m * m) : 0;
}

/* ---- The table --------------------------------------------------------------------------------
 */

#define ADAM_SETTINGS .learning_rate = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8

static const ty_optimizer_row rows[TY_OPTIMIZER_COUNT] = {
    [TY_OPTIMIZER_SGD] = {.name = "sgd",
                          .states = "fp32",
                          .has_momentum = true,
                          .is_descent = true,
                          .is_executed = true,
                          .pytorch = "SGD",
                          .megatron = "sgd",
                          .usual = {TY_OPTIMIZER_SGD, .learning_rate = 1e-3}},
    [TY_OPTIMIZER_ADAMW] = {.name = "adamw",
                            .states = "fp32",
                            .has_betas = true,
                            .is_executed = true,
                            .pytorch = "AdamW",
                            .megatron = "adam",
                            .torchtitan = "AdamW",
                            .usual = {TY_OPTIMIZER_ADAMW, ADAM_SETTINGS}},
    [TY_OPTIMIZER_ADAM8BIT] = {.name = "adam8bit",
                               .states = "8-bit",
                               .has_betas = true,
                               .state_bytes = adam8bit_bytes,
                               .usual = {TY_OPTIMIZER_ADAM8BIT, ADAM_SETTINGS}},
    /* Reads the gradient for the sums, for the norm of the update and for the update. */
    [TY_OPTIMIZER_ADAFACTOR] = {.name = "adafactor",
                                .states = "factored fp32",
                                .state_bytes = adafactor_bytes,
                                .more_reads = 2,
                                .pytorch = "Adafactor",
                                .usual = {TY_OPTIMIZER_ADAFACTOR, .learning_rate = 1e-2}},
    [TY_OPTIMIZER_MUON] = {.name = "muon",
                           .states = "fp32",
                           .has_momentum = true,
                           .has_betas = true,
                           .state_bytes = muon_bytes,
                           .flop = muon_flop,
                           .megatron = "muon",
                           .usual = {TY_OPTIMIZER_MUON, ADAM_SETTINGS, .momentum = 0.95}},
};

/* Words for optimizers: first those that messages list, then names that frameworks use. OneBitAdam
 * and ZeroOneAdam compress gradients, which is not the optimizer's. */
static const struct word {
    const char *name;
    ty_optimizer_kind kind;
    double momentum; /* unless another is set */
} words[] = {
    {"sgd", TY_OPTIMIZER_SGD, 0},
    {"momentum", TY_OPTIMIZER_SGD, 0.9},
    {"adam", TY_OPTIMIZER_ADAMW, 0},
    {"adamw", TY_OPTIMIZER_ADAMW, 0},
    {"adam8bit", TY_OPTIMIZER_ADAM8BIT, 0},
    {"adafactor", TY_OPTIMIZER_ADAFACTOR, 0},
    {"muon", TY_OPTIMIZER_MUON, 0.95},
#define LISTED_WORDS 7
    {"fused_adam", TY_OPTIMIZER_ADAMW, 0},
    {"distributed_fused_adam", TY_OPTIMIZER_ADAMW, 0},
    {"onebitadam", TY_OPTIMIZER_ADAMW, 0},
    {"zerooneadam", TY_OPTIMIZER_ADAMW, 0},
    {"adam_pax", TY_OPTIMIZER_ADAMW, 0},
    {"adamw_torch", TY_OPTIMIZER_ADAMW, 0},
    {"adamw_torch_fused", TY_OPTIMIZER_ADAMW, 0},
    {"adamw_8bit", TY_OPTIMIZER_ADAM8BIT, 0},
    {"adamw_bnb_8bit", TY_OPTIMIZER_ADAM8BIT, 0},
    {"paged_adamw_8bit", TY_OPTIMIZER_ADAM8BIT, 0},
    {"dist_muon", TY_OPTIMIZER_MUON, 0.95},
};
#define WORD_COUNT (sizeof words / sizeof words[0])

const ty_optimizer_row *ty_optimizer_row_of(ty_optimizer_kind kind)
{
    return &rows[(unsigned)kind < TY_OPTIMIZER_COUNT ? kind : TY_OPTIMIZER_SGD];
}

const char *ty_optimizer_name(ty_optimizer_kind kind)
{
    return (unsigned)kind < TY_OPTIMIZER_COUNT ? rows[kind].name : "unknown";
}

const char *ty_optimizer_word(const ty_optimizer *optimizer)
{
    return ty_optimizer_row_of(optimizer->kind)->is_descent && optimizer->momentum > 0
               ? "momentum"
               : ty_optimizer_name(optimizer->kind);
}

uint32_t ty_optimizer_state_count(const ty_optimizer *optimizer)
{
    const ty_optimizer_row *row = ty_optimizer_row_of(optimizer->kind);

    return row->has_betas ? 2 : optimizer->momentum != 0.0 ? 1 : 0;
}

/* ---- Words ------------------------------------------------------------------------------------
 */

/* "sgd, momentum or adam": the listed words, or only those of optimizers that the worker runs. */
static void add_words(ty_text *text, bool is_executed)
{
    const struct word *last = NULL;

    for (const struct word *w = words; w < words + LISTED_WORDS; w++) {
        if (is_executed && !rows[w->kind].is_executed)
            continue;
        if (last != NULL)
            ty_text_addf(text, "%s%s", text->length > 0 ? ", " : "", last->name);
        last = w;
    }
    if (last != NULL)
        ty_text_addf(text, " or %s", last->name);
}

ty_status ty_optimizer_set(ty_optimizer *optimizer, const char *word, ty_error *error)
{
    const ty_optimizer_row *old = ty_optimizer_row_of(optimizer->kind), *own;
    bool is_whole;
    const char *name = ty_name_find(word, words, WORD_COUNT, sizeof words[0], &is_whole), *close;
    const struct word *found = words;
    ty_text list = {0};

    if (name == NULL || !is_whole) {
        add_words(&list, false);
        close = ty_suggest(word, words, WORD_COUNT, sizeof words[0]);
        ty_fail(error, TY_EINVAL, "optimizer: found '%.40s', expected %s%s%s%s", word,
                list.data != NULL ? list.data : "", close != NULL ? "; did you mean " : "",
                close != NULL ? close : "", close != NULL ? "?" : "");
        ty_text_clear(&list);
        return TY_EINVAL;
    }
    while (found->name != name)
        found++;
    own = &rows[found->kind];
    if (own != old && !(own->has_betas && old->has_betas))
        *optimizer = own->usual;
    optimizer->kind = found->kind;
    if (!own->has_momentum || found->momentum == 0 || optimizer->momentum == 0)
        optimizer->momentum = found->momentum;
    return TY_OK;
}

ty_status ty_optimizer_check_executed(const ty_optimizer *optimizer, ty_error *error)
{
    ty_text list = {0};

    if (ty_optimizer_row_of(optimizer->kind)->is_executed)
        return TY_OK;
    add_words(&list, true);
    ty_fail(error, TY_EUNSUPPORTED,
            "optimizer: found %s, which is planned and not run by trainyard-worker; expected %s "
            "(plan --optimizer)",
            ty_optimizer_name(optimizer->kind), list.data != NULL ? list.data : "");
    ty_text_clear(&list);
    return TY_EUNSUPPORTED;
}

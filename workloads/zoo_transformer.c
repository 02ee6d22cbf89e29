/* The family "transformer": a decoder as GPT-2 has it. Token and learned position embeddings,
 * blocks of norm, causal attention, add, norm, mlp (gelu), add, a last norm, and an output layer
 * that shares the token embedding's matrix. Source: Radford et al., "Language Models are
 * Unsupervised Multitask Learners", 2019, section 2.3. Dropout is left out. */
#include "zoo_family.h"

#include <stdio.h>

typedef struct transformer {
    uint64_t blocks, features, heads, hidden_features, vocabulary, positions, sequence;
    uint64_t token_bytes; /* of one token in storage */
} transformer;

static ty_status read_sizes(ty_zoo_reader *reader, transformer *t)
{
    const struct {
        const char *key;
        uint64_t *out;
    } rows[] = {
        {"blocks", &t->blocks},         {"features", &t->features},
        {"heads", &t->heads},           {"hidden_features", &t->hidden_features},
        {"vocabulary", &t->vocabulary}, {"positions", &t->positions},
        {"sequence", &t->sequence},     {"token_bytes", &t->token_bytes},
    };
    ty_status status = TY_OK;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        TY_CHECK(
            ty_zoo_size(reader->root, rows[i].key, TY_ZOO_REQUIRED, rows[i].out, reader->error),
            status, cleanup);

cleanup:
    return status;
}

static ty_status check_sizes(const ty_zoo_reader *reader, const transformer *t)
{
    if (t->blocks > 10000)
        return ty_json_fail(reader->root, reader->error, "at most 10000 blocks");
    if (t->features % t->heads != 0)
        return ty_json_fail(reader->root, reader->error,
                            "heads that divide features; %llu is not a multiple of %llu",
                            (unsigned long long)t->features, (unsigned long long)t->heads);
    if (t->sequence <= t->positions)
        return TY_OK;
    if (reader->overrides->sequence != 0)
        return ty_fail(reader->error, TY_EINVAL,
                       "%s: found sequence=%llu, expected at most its %llu positions", reader->name,
                       (unsigned long long)t->sequence, (unsigned long long)t->positions);
    return ty_json_fail(reader->root, reader->error, "sequence <= positions; %llu is above %llu",
                        (unsigned long long)t->sequence, (unsigned long long)t->positions);
}

static void name_next(ty_builder *b, uint64_t block, const char *part)
{
    char name[64];
    snprintf(name, sizeof name, "block%llu.%s", (unsigned long long)block, part);
    ty_builder_name_next(b, name);
}

static uint32_t append_block(ty_builder *b, uint32_t x, const transformer *t, uint64_t block)
{
    uint32_t inner;

    name_next(b, block, "attention_norm");
    inner = ty_builder_layer_norm(b, x);
    name_next(b, block, "attention");
    inner = ty_builder_attention(b, inner, t->heads, t->heads, t->features / t->heads, true, true);
    name_next(b, block, "attention_add");
    x = ty_builder_add(b, (uint32_t[]){x, inner}, 2);
    name_next(b, block, "mlp_norm");
    inner = ty_builder_layer_norm(b, x);
    name_next(b, block, "mlp");
    inner = ty_builder_mlp(b, inner, t->hidden_features, true, false);
    name_next(b, block, "mlp_add");
    return ty_builder_add(b, (uint32_t[]){x, inner}, 2);
}

ty_status ty_zoo_transformer(ty_zoo_reader *reader)
{
    ty_status status = TY_OK;
    transformer t;
    uint32_t x, embedding;

    TY_CHECK(read_sizes(reader, &t), status, cleanup);
    if (reader->overrides->sequence != 0)
        t.sequence = reader->overrides->sequence;
    TY_CHECK(check_sizes(reader, &t), status, cleanup);

    reader->builder = ty_builder_new(reader->name, TY_INPUT_TOKEN, &(ty_shape){1, {t.sequence}});
    /* The labels are the tokens one further on. */
    ty_builder_set_sample_bytes(reader->builder, (t.sequence + 1) * t.token_bytes);
    ty_builder_name_next(reader->builder, "embedding");
    embedding =
        ty_builder_embedding(reader->builder, TY_BATCH, t.vocabulary, t.features, t.positions);
    x = embedding;
    for (uint64_t i = 1; i <= t.blocks; i++)
        x = append_block(reader->builder, x, &t, i);
    ty_builder_name_next(reader->builder, "final_norm");
    x = ty_builder_layer_norm(reader->builder, x);
    ty_builder_name_next(reader->builder, "output");
    x = ty_builder_tied_linear(reader->builder, x, embedding);
    ty_builder_name_next(reader->builder, "loss");
    ty_builder_loss(reader->builder, x);
    status = ty_zoo_progress(reader, reader->root);

cleanup:
    return status;
}

/* Calculon (calculon-ai/calculon): models/NAME.json has the sizes of a GPT's blocks. Its
 * executions, which are plans, and its systems are detected and refused, as they have no model. */
#include "import_language.h"

#include <stddef.h>

/* Calculon only counts blocks. Embeddings as in its validation runs: Korthikanti et al.,
 * arXiv:2205.05198, table 3. */
#define ASSUMED_VOCABULARY 51200

static bool is_object_with(ty_import_source *source, const char *a, const char *b)
{
    const ty_json *root = ty_import_json(source);
    return root != NULL && ty_json_is_object(root) && ty_json_has(root, a) && ty_json_has(root, b);
}

static bool probe_model(ty_import_source *source)
{
    return is_object_with(source, "num_blocks", "attn_heads") ||
           is_object_with(source, "hidden", "attn_heads");
}

static ty_status read_model(ty_import_source *source, ty_workload **out)
{
    static const struct {
        const char *key;
        size_t offset;
    } sizes[] = {
        {"hidden", offsetof(ty_transformer, features)},
        {"feedforward", offsetof(ty_transformer, hidden_features)},
        {"seq_size", offsetof(ty_transformer, longest_sequence)},
        {"attn_heads", offsetof(ty_transformer, heads)},
        {"attn_size", offsetof(ty_transformer, head_size)},
        {"num_blocks", offsetof(ty_transformer, blocks)},
    };
    const ty_json *root = ty_import_json(source);
    const uint64_t asked = ty_import_vocabulary(source);
    ty_transformer t = {.form = TY_DECODER,
                        .vocabulary = asked > 0 ? asked : ASSUMED_VOCABULARY,
                        .has_attention_bias = true,
                        .has_mlp_bias = true,
                        .is_tied = true};
    ty_import_training training = {0};
    char whole[TY_JSON_PLACE_SIZE];
    const char *key;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        TY_TRY(ty_json_uint64(root, sizes[i].key, 1, INT32_MAX,
                              (uint64_t *)(void *)((char *)&t + sizes[i].offset), source->error));
    t.sequence = t.positions = t.longest_sequence;
    ty_import_note(source,
                   "a vocabulary of %llu, and logits made with the embedding's matrix, assumed: "
                   "the file has blocks only",
                   (unsigned long long)t.vocabulary);
    while ((key = ty_json_next_unread(root)) != NULL)
        ty_import_note(source, "%.60s is not known, ignored", key);
    ty_json_place(root, whole);
    return ty_import_transformer(source, &t, &training, whole, out);
}

static bool probe_execution(ty_import_source *source)
{
    return is_object_with(source, "num_procs", "tensor_par");
}

static ty_status refuse_execution(ty_import_source *source, ty_workload **out)
{
    (void)out;
    return ty_fail(source->error, TY_EPARSE,
                   "%s: found a Calculon execution, which says how to train and not what; expected "
                   "a model (hidden, attn_heads, num_blocks, ...)",
                   source->path);
}

static bool probe_system(ty_import_source *source)
{
    return is_object_with(source, "matrix", "networks");
}

static ty_status refuse_system(ty_import_source *source, ty_workload **out)
{
    (void)out;
    return ty_fail(source->error, TY_EPARSE,
                   "%s: found a Calculon system, which is a machine; expected a model (hidden, "
                   "attn_heads, num_blocks, ...)",
                   source->path);
}

const ty_import_format ty_import_calculon = {"Calculon model", probe_model, read_model, false};
const ty_import_format ty_import_calculon_execution = {"Calculon execution", probe_execution,
                                                       refuse_execution, true};
const ty_import_format ty_import_calculon_system = {"Calculon system", probe_system, refuse_system,
                                                    true};

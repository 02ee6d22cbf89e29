/* Families of language models by their Hugging Face configurations: what each takes for granted and
 * what its keys mean. The same size has other names in other families, and newer families rename
 * older ones' keys. Sources: configuration and modelling classes of huggingface/transformers;
 * counts of parameters are held to the published ones in docs/reference/models.md. */
#include "hf_config.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* ---- Sizes that most have -------------------------------------------------------------------- */

typedef struct size_key {
    size_t offset;
    bool is_needed;
    const char *names[HF_MOST_NAMES];
} size_key;

#define SIZE(field) offsetof(ty_transformer, field)
static const size_key common[] = {
    {SIZE(blocks), true, {"num_hidden_layers", "n_layer", "num_layers", "n_layers"}},
    {SIZE(features), true, {"hidden_size", "n_embd", "d_model", "n_embed", "dim"}},
    {SIZE(heads), true, {"num_attention_heads", "n_head", "num_heads", "n_heads"}},
    {SIZE(vocabulary), true, {"vocab_size", "padded_vocab_size"}},
    {SIZE(longest_sequence),
     false,
     {"max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "max_seq_len",
      "seq_length"}},
    {SIZE(kv_heads), false, {"num_key_value_heads", "num_kv_heads"}},
    {SIZE(head_size), false, {"head_dim", "d_kv", "kv_channels"}},
    {SIZE(hidden_features),
     false,
     {"intermediate_size", "n_inner", "d_ff", "ffn_dim", "ffn_hidden_size", "hidden_dim"}},
};

static ty_status read_sizes(hf_config *c, const size_key *keys, size_t count)
{
    ty_status status = TY_OK;

    for (size_t i = 0; i < count && status == TY_OK; i++) {
        uint64_t *out = (uint64_t *)(void *)((char *)&c->t + keys[i].offset);
        status = ty_hf_size_of(c, c->root, keys[i].names, keys[i].is_needed && *out == 0, 1, out);
    }
    return status;
}

ty_status ty_hf_list_blocks(hf_config *c)
{
    if (c->blocks != NULL)
        return TY_OK;
    if (c->t.blocks > 10000)
        return ty_json_fail(c->root, c->error, "at most 10000 blocks");
    c->blocks = ty_alloc(c->t.blocks, sizeof *c->blocks);
    if (c->blocks == NULL)
        return ty_fail(c->error, TY_ENOMEM, "%s: out of memory", c->source->path);
    for (uint64_t i = 0; i < c->t.blocks; i++) {
        uint64_t interval = c->t.expert_interval > 0 ? c->t.expert_interval : 1;
        bool has_experts = c->t.experts > 0 && i >= c->t.dense_blocks && i % interval == 0;
        c->blocks[i] = (ty_transformer_block){.window = c->t.window,
                                              .feed = has_experts ? TY_FEED_EXPERTS : TY_FEED_MLP};
    }
    c->t.block_list = c->blocks;
    return TY_OK;
}

/* ---- Attention that differs from block to block ---------------------------------------------- */

/* "sliding_attention", "full_attention", ...: one a block. NULL: not there. */
static ty_status find_layer_types(const hf_config *c, const ty_json **out)
{
    *out = NULL;
    if (!ty_json_has(c->root, "layer_types"))
        return TY_OK;
    return ty_json_array(c->root, "layer_types", c->t.blocks, c->t.blocks, out, c->error);
}

/* Words that the readers here know: any attention, and what state spaces' and linear attention's
 * own readers take. A kind that no reader knows would be costed as attention. */
static ty_status check_layer_types(const hf_config *c, const char *own)
{
    const ty_json *types;
    const char *type;
    ty_status status = find_layer_types(c, &types);

    for (uint64_t i = 0; status == TY_OK && types != NULL && i < c->t.blocks; i++) {
        status = ty_json_as_string(ty_json_at(types, i), &type, c->error);
        if (status == TY_OK && strstr(type, "attention") != NULL &&
            strcmp(type, "linear_attention") != 0)
            continue; /* full, sliding, chunked */
        if (status == TY_OK && (own == NULL || strcmp(type, own) != 0))
            status = ty_json_fail(ty_json_at(types, i), c->error,
                                  "full_attention, sliding_attention or chunked_attention%s%s",
                                  own != NULL ? ", or " : "", own != NULL ? own : "");
    }
    return status;
}

/* A window in every block but each `interval`-th, counted from 1; 0: in all. `layer_types` has the
 * last word. */
static ty_status set_windows(hf_config *c, uint64_t window, uint64_t interval)
{
    const ty_json *types;
    const char *type;
    ty_status status;

    if (window == 0)
        return TY_OK;
    TY_CHECK(find_layer_types(c, &types), status, cleanup);
    TY_CHECK(ty_hf_list_blocks(c), status, cleanup);
    for (uint64_t i = 0; i < c->t.blocks; i++) {
        bool has_window = interval == 0 || (i + 1) % interval != 0;
        if (types != NULL) {
            TY_CHECK(ty_json_as_string(ty_json_at(types, i), &type, c->error), status, cleanup);
            has_window =
                strcmp(type, "sliding_attention") == 0 || strcmp(type, "chunked_attention") == 0;
        }
        c->blocks[i].window = has_window ? window : 0;
    }

cleanup:
    return status;
}

/* "sliding_window_pattern": every so manieth block has no window, or "LLLG", EXAONE's letters for
 * local and global. */
static ty_status read_pattern(const hf_config *c, uint64_t *interval)
{
    static const char key[] = "sliding_window_pattern";
    const char *letters;
    size_t locals;

    if (!ty_json_has(c->root, key) || ty_json_string(c->root, key, &letters, NULL) != TY_OK)
        return ty_hf_size(c, key, 1, interval);
    locals = strspn(letters, "L");
    if (strcmp(letters + locals, "G") != 0)
        return ty_json_fail(c->root, c->error,
                            "a sliding_window_pattern of letters L and one G behind them");
    *interval = locals + 1;
    return TY_OK;
}

/* "sliding_window", where it is there and used. */
static ty_status read_window(hf_config *c, uint64_t interval)
{
    uint64_t window = c->t.window;
    bool is_used = true;
    ty_status status;

    TY_CHECK(ty_hf_size(c, "sliding_window", 1, &window), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "use_sliding_window", &is_used), status, cleanup);
    TY_CHECK(read_pattern(c, &interval), status, cleanup);
    c->t.window = 0;
    status = set_windows(c, is_used ? window : 0, interval);

cleanup:
    return status;
}

/* Which blocks have experts: each `step`-th counted from 1, but for those listed. */
static ty_status set_expert_steps(hf_config *c, uint64_t step, const char *dense_key)
{
    const ty_json *dense = NULL;
    uint64_t block;
    ty_status status;

    if (ty_json_has(c->root, dense_key))
        TY_CHECK(ty_json_array(c->root, dense_key, 0, c->t.blocks, &dense, c->error), status,
                 cleanup);
    status = TY_OK;
    if (step == 1 && (dense == NULL || ty_json_size(dense) == 0))
        goto cleanup;
    TY_CHECK(ty_hf_list_blocks(c), status, cleanup);
    for (uint64_t i = 0; i < c->t.blocks; i++)
        c->blocks[i].feed = (i + 1) % step == 0 ? TY_FEED_EXPERTS : TY_FEED_MLP;
    for (size_t i = 0; dense != NULL && i < ty_json_size(dense); i++) {
        TY_CHECK(ty_json_as_uint64(ty_json_at(dense, i), 0, c->t.blocks - 1, &block, c->error),
                 status, cleanup);
        c->blocks[block].feed = TY_FEED_MLP;
    }

cleanup:
    return status;
}

/* ---- Decoders as Llama ----------------------------------------------------------------------- */

/* "gelu_new", "silu", "relu": only relu makes a difference, and only without a gate. */
static ty_status read_activation(hf_config *c)
{
    ty_status status = TY_OK;
    static const char *const keys[] = {"hidden_act", "activation_function", "activation"};

    for (size_t i = 0; i < COUNT(keys); i++) {
        const char *name;
        TY_CHECK(ty_hf_text(c, keys[i], &name), status, cleanup);
        if (name != NULL)
            c->t.is_relu = strcmp(name, "relu") == 0;
    }

cleanup:
    return status;
}

/* Biases by key; a window but in each `interval`-th block. */
static ty_status finish_biases_by_key(hf_config *c, uint64_t interval)
{
    ty_status status = TY_OK;

    TY_CHECK(ty_hf_flag(c, "attention_bias", &c->t.has_attention_bias), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "mlp_bias", &c->t.has_mlp_bias), status, cleanup);
    TY_CHECK(read_window(c, interval), status, cleanup);
    if (c->t.hidden_features == 0 && c->t.experts == 0)
        status = ty_hf_need_size(c, "intermediate_size", &c->t.hidden_features);

cleanup:
    return status;
}

static ty_status finish_llama(hf_config *c)
{
    return finish_biases_by_key(c, 0);
}

/* Three blocks with a window, one without. */
static ty_status finish_olmo3(hf_config *c)
{
    return finish_biases_by_key(c, 4);
}

/* Of two blocks one attends to its neighbourhood and to rows far apart, by blocks: what is near is
 * the window. */
static ty_status finish_phi3small(hf_config *c)
{
    uint64_t interval = 2, block = 64, near = 16;
    ty_status status;

    TY_CHECK(ty_hf_need_size(c, "ff_intermediate_size", &c->t.hidden_features), status, cleanup);
    TY_CHECK(ty_hf_size(c, "dense_attention_every_n_layers", 1, &interval), status, cleanup);
    TY_CHECK(ty_hf_size(c, "blocksparse_block_size", 1, &block), status, cleanup);
    TY_CHECK(ty_hf_size(c, "blocksparse_num_local_blocks", 1, &near), status, cleanup);
    if (block * near > INT32_MAX) {
        status = ty_json_fail(c->root, c->error, "blocks of attention that are sizes");
        goto cleanup;
    }
    ty_import_note(c->source, "block-sparse attention: %llu rows near by, those far apart left out",
                   (unsigned long long)(block * near));
    status = set_windows(c, block * near, interval);

cleanup:
    return status;
}

/* Queries, keys and values have biases, the output has none. */
static ty_status finish_qkv_bias(hf_config *c)
{
    ty_status status = TY_OK;

    TY_CHECK(ty_hf_flag(c, "attention_bias", &c->t.has_qkv_bias), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "add_qkv_bias", &c->t.has_qkv_bias), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "use_qkv_bias", &c->t.has_qkv_bias), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "qkv_bias", &c->t.has_qkv_bias), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "use_parallel_residual", &c->t.is_parallel), status, cleanup);
    TY_CHECK(read_window(c, 0), status, cleanup);
    if (c->t.hidden_features == 0 && c->t.experts == 0)
        status = ty_hf_need_size(c, "intermediate_size", &c->t.hidden_features);

cleanup:
    return status;
}

/* One key for all biases. */
static ty_status finish_one_bias(hf_config *c)
{
    static const char *const keys[] = {"bias", "use_bias", "enable_bias", "attention_bias"};
    bool has_bias = c->t.has_attention_bias;
    ty_status status = TY_OK;

    for (size_t i = 0; i < COUNT(keys); i++)
        TY_CHECK(ty_hf_flag(c, keys[i], &has_bias), status, cleanup);
    c->t.has_attention_bias = c->t.has_mlp_bias = has_bias;
    TY_CHECK(read_activation(c), status, cleanup);
    TY_CHECK(read_window(c, 0), status, cleanup);
    if (c->t.hidden_features == 0)
        status = ty_hf_need_size(c, "intermediate_size", &c->t.hidden_features);

cleanup:
    return status;
}

static ty_status finish_qwen2(hf_config *c)
{
    uint64_t window = 0, first = c->t.blocks;
    bool is_used = false;
    ty_status status;

    TY_CHECK(ty_hf_size(c, "max_window_layers", 0, &first), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "use_sliding_window", &is_used), status, cleanup);
    TY_CHECK(ty_hf_size(c, "sliding_window", 1, &window), status, cleanup);
    if (is_used && window > 0) { /* blocks from max_window_layers on */
        TY_CHECK(ty_hf_list_blocks(c), status, cleanup);
        for (uint64_t i = first; i < c->t.blocks; i++)
            c->blocks[i].window = window;
    }
    if (c->t.hidden_features == 0 && c->t.experts == 0)
        status = ty_hf_need_size(c, "intermediate_size", &c->t.hidden_features);

cleanup:
    return status;
}

static ty_status note_more_predictions(hf_config *c);

/* Qwen2 with blocks that predict further tokens. */
static ty_status finish_mimo(hf_config *c)
{
    ty_status status = note_more_predictions(c);
    return status == TY_OK ? finish_qwen2(c) : status;
}

static ty_status finish_gemma2(hf_config *c)
{
    return read_window(c, 2);
}

static ty_status finish_gemma3(hf_config *c)
{
    return read_window(c, 6);
}

/* Blocks without a window have heads of their own size, whose values may be the keys. */
static ty_status finish_gemma4(hf_config *c)
{
    uint64_t kv_heads = 0, head_size = 0, per_layer = 0, shared = 0;
    bool shares_kv = false, has_experts = false;
    ty_status status;

    TY_CHECK(ty_hf_size(c, "hidden_size_per_layer_input", 0, &per_layer), status, cleanup);
    TY_CHECK(ty_hf_size(c, "num_kv_shared_layers", 0, &shared), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "enable_moe_block", &has_experts), status, cleanup);
    if (per_layer > 0 || shared > 0 || has_experts) {
        status = ty_json_fail(c->root, c->error,
                              "a gemma4 without inputs per layer, shared keys and experts: those "
                              "are not understood");
        goto cleanup;
    }
    TY_CHECK(ty_hf_size(c, "num_global_key_value_heads", 1, &kv_heads), status, cleanup);
    TY_CHECK(ty_hf_size(c, "global_head_dim", 1, &head_size), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "attention_k_eq_v", &shares_kv), status, cleanup);
    TY_CHECK(read_window(c, 6), status, cleanup);
    TY_CHECK(ty_hf_list_blocks(c), status, cleanup);
    for (uint64_t i = 0; i < c->t.blocks; i++) {
        if (c->blocks[i].window > 0)
            continue;
        c->blocks[i].kv_heads = kv_heads;
        c->blocks[i].head_size = head_size;
        c->blocks[i].shares_kv = shares_kv;
    }

cleanup:
    return status;
}

static ty_status finish_cohere(hf_config *c)
{
    ty_status status;

    TY_CHECK(ty_hf_flag(c, "use_qk_norm", &c->t.has_wide_qk_norm), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "attention_bias", &c->t.has_attention_bias), status, cleanup);
    status = read_window(c, 4);

cleanup:
    return status;
}

static ty_status read_part_flag(const hf_config *c, const ty_json *part, const char *key, bool *out)
{
    *out = false;
    return ty_json_has(part, key) ? ty_json_bool(part, key, out, c->error) : TY_OK;
}

/* One block of a search's: its heads, or a matrix or nothing in place of attention. */
static ty_status read_searched_mixer(const hf_config *c, const ty_json *row,
                                     ty_transformer_block *out)
{
    const ty_json *part;
    bool is_missing, is_linear;
    uint64_t group;
    ty_status status;

    TY_CHECK(ty_json_object(row, "attention", &part, c->error), status, cleanup);
    TY_CHECK(read_part_flag(c, part, "no_op", &is_missing), status, cleanup);
    TY_CHECK(read_part_flag(c, part, "replace_with_linear", &is_linear), status, cleanup);
    out->mixer = is_missing ? TY_MIX_NONE : is_linear ? TY_MIX_LINEAR : TY_MIX_ATTENTION;
    if (out->mixer != TY_MIX_ATTENTION)
        goto cleanup;
    TY_CHECK(ty_json_uint64(part, "n_heads_in_group", 1, c->t.heads, &group, c->error), status,
             cleanup);
    out->kv_heads = c->t.heads / group;

cleanup:
    return status;
}

/* Hidden features are a multiple of 256. */
static ty_status read_searched_feed(const hf_config *c, const ty_json *row,
                                    ty_transformer_block *out)
{
    const ty_json *part;
    bool is_missing, is_linear;
    double factor;
    ty_status status;

    TY_CHECK(ty_json_object(row, "ffn", &part, c->error), status, cleanup);
    TY_CHECK(read_part_flag(c, part, "no_op", &is_missing), status, cleanup);
    TY_CHECK(read_part_flag(c, part, "replace_with_linear", &is_linear), status, cleanup);
    out->feed = is_missing ? TY_FEED_NONE : is_linear ? TY_FEED_LINEAR : TY_FEED_MLP;
    if (out->feed != TY_FEED_MLP)
        goto cleanup;
    TY_CHECK(ty_json_number(part, "ffn_mult", 0.01, 100, &factor, c->error), status, cleanup);
    out->hidden_features = ((uint64_t)(2 * factor * (double)c->t.features / 3) + 255) / 256 * 256;

cleanup:
    return status;
}

/* Every block as a search chose it (nemotron-nas). */
static ty_status finish_deci(hf_config *c)
{
    const ty_json *list;
    ty_status status;

    TY_CHECK(ty_json_array(c->root, "block_configs", c->t.blocks, c->t.blocks, &list, c->error),
             status, cleanup);
    TY_CHECK(ty_hf_list_blocks(c), status, cleanup);
    for (uint64_t i = 0; i < c->t.blocks; i++) {
        TY_CHECK(read_searched_mixer(c, ty_json_at(list, i), &c->blocks[i]), status, cleanup);
        TY_CHECK(read_searched_feed(c, ty_json_at(list, i), &c->blocks[i]), status, cleanup);
    }

cleanup:
    return status;
}

/* ---- Experts --------------------------------------------------------------------------------- */

static const size_key expert_keys[] = {
    {SIZE(experts),
     true,
     {"num_local_experts", "num_experts", "n_routed_experts", "num_routed_experts",
      "moe_num_experts"}},
    {SIZE(experts_per_token),
     true,
     {"num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k",
      "num_selected_experts"}},
};

static const size_key expert_feature_keys[] = {
    {SIZE(expert_features),
     true,
     {"moe_intermediate_size", "expert_dim", "expert_ffn_hidden_size"}},
};

static ty_status finish_mixtral(hf_config *c)
{
    ty_status status;

    TY_CHECK(read_sizes(c, expert_keys, COUNT(expert_keys)), status, cleanup);
    c->t.expert_features = c->t.hidden_features;
    status = finish_llama(c);

cleanup:
    return status;
}

static ty_status read_experts(hf_config *c)
{
    ty_status status;

    TY_CHECK(read_sizes(c, expert_keys, COUNT(expert_keys)), status, cleanup);
    status = read_sizes(c, expert_feature_keys, COUNT(expert_feature_keys));

cleanup:
    return status;
}

/* Shared experts as a number of them, or as hidden features. */
static ty_status read_shared(hf_config *c)
{
    static hf_names counts = {"n_shared_experts", "num_shared_experts", "moe_num_shared_experts"};
    static hf_names sizes = {"shared_expert_intermediate_size",
                             "moe_shared_expert_intermediate_size", "shared_intermediate_size"};
    uint64_t shared = 0, features = 0;
    ty_status status;

    TY_CHECK(ty_hf_size_of(c, c->root, counts, false, 0, &shared), status, cleanup);
    TY_CHECK(ty_hf_size_of(c, c->root, sizes, false, 0, &features), status, cleanup);
    c->t.shared_features = features > 0 ? features : shared * c->t.expert_features;

cleanup:
    return status;
}

static ty_status note_more_predictions(hf_config *c)
{
    static hf_names names = {"num_nextn_predict_layers", "num_mtp_modules",
                             "mtp_num_hidden_layers"};
    uint64_t more = 0;
    ty_status status = ty_hf_size_of(c, c->root, names, false, 0, &more);

    if (status == TY_OK && more > 0)
        ty_import_note(c->source,
                       "num_nextn_predict_layers: %llu block(s) that predict further tokens are "
                       "left out",
                       (unsigned long long)more);
    return status;
}

/* Experts in each step-th block; shared ones with a gate, if there are any. */
static ty_status finish_qwen_moe(hf_config *c)
{
    uint64_t step = 1;
    ty_status status;

    TY_CHECK(read_experts(c), status, cleanup);
    TY_CHECK(read_shared(c), status, cleanup);
    c->t.has_shared_gate = c->t.shared_features > 0;
    TY_CHECK(ty_hf_size(c, "decoder_sparse_step", 1, &step), status, cleanup);
    TY_CHECK(set_expert_steps(c, step, "mlp_only_layers"), status, cleanup);
    TY_CHECK(note_more_predictions(c), status, cleanup);
    status = c->t.has_qkv_bias ? finish_qwen2(c) : finish_llama(c);

cleanup:
    return status;
}

/* The first blocks are dense, then every so manieth has experts; "moe_layer_freq" may be a list. */
static ty_status read_dense_blocks(hf_config *c)
{
    static hf_names dense = {"first_k_dense_replace", "moe_layer_start_index"};
    const ty_json *list;
    const char *word;
    bool is_sparse;
    uint64_t flag;
    ty_status status;

    TY_CHECK(ty_hf_size_of(c, c->root, dense, false, 0, &c->t.dense_blocks), status, cleanup);
    if (ty_json_has(c->root, "mlp_layer_types")) {
        TY_CHECK(
            ty_json_array(c->root, "mlp_layer_types", c->t.blocks, c->t.blocks, &list, c->error),
            status, cleanup);
        TY_CHECK(ty_hf_list_blocks(c), status, cleanup);
        for (uint64_t i = 0; i < c->t.blocks; i++) {
            TY_CHECK(ty_json_as_string(ty_json_at(list, i), &word, c->error), status, cleanup);
            is_sparse = strcmp(word, "sparse") == 0;
            if (!is_sparse && strcmp(word, "dense") != 0) {
                status = ty_json_fail(ty_json_at(list, i), c->error, "sparse or dense");
                goto cleanup;
            }
            c->blocks[i].feed = is_sparse ? TY_FEED_EXPERTS : TY_FEED_MLP;
        }
        goto cleanup;
    }
    if (ty_json_has(c->root, "moe_layer_freq") &&
        ty_json_array(c->root, "moe_layer_freq", 0, SIZE_MAX, &list, NULL) == TY_OK) {
        TY_CHECK(
            ty_json_array(c->root, "moe_layer_freq", c->t.blocks, c->t.blocks, &list, c->error),
            status, cleanup);
        TY_CHECK(ty_hf_list_blocks(c), status, cleanup);
        for (uint64_t i = 0; i < c->t.blocks; i++) {
            TY_CHECK(ty_json_as_uint64(ty_json_at(list, i), 0, 1, &flag, c->error), status,
                     cleanup);
            c->blocks[i].feed = flag != 0 ? TY_FEED_EXPERTS : TY_FEED_MLP;
        }
        goto cleanup;
    }
    status = ty_hf_size_of(c, c->root, (hf_names){"moe_layer_freq", "moe_layer_interval"}, false, 1,
                           &c->t.expert_interval);

cleanup:
    return status;
}

/* Sizes of latents and heads; a head has a part that is rotated and one that is not. */
static ty_status read_latents(hf_config *c)
{
    static const size_key keys[] = {
        {SIZE(query_rank), false, {"q_lora_rank"}},
        {SIZE(kv_rank), true, {"kv_lora_rank"}},
        {SIZE(rotary_size), true, {"qk_rope_head_dim"}},
        {SIZE(value_head_size), true, {"v_head_dim"}},
    };
    uint64_t size = 0;
    ty_status status;

    TY_CHECK(read_sizes(c, keys, COUNT(keys)), status, cleanup);
    TY_CHECK(ty_hf_need_size(c, "qk_nope_head_dim", &size), status, cleanup);
    ty_json_ignore(c->root, "qk_head_dim");
    c->t.kv_heads = 0; /* every head has its own key, made from the latent */
    c->t.head_size = size + c->t.rotary_size;

cleanup:
    return status;
}

/* Of sparse attention: an indexer chooses the keys. */
static ty_status read_indexer(hf_config *c)
{
    static const size_key keys[] = {
        {SIZE(index_heads), false, {"index_n_heads"}},
        {SIZE(index_head_size), false, {"index_head_dim"}},
        {SIZE(chosen_rows), false, {"index_topk"}},
    };
    return read_sizes(c, keys, COUNT(keys));
}

/* Experts as DeepSeek's, attention as it stands. */
static ty_status finish_deepseek_moe(hf_config *c)
{
    bool has_bias = false;
    ty_status status;
    const char *method;

    TY_CHECK(read_experts(c), status, cleanup);
    TY_CHECK(read_shared(c), status, cleanup);
    TY_CHECK(read_dense_blocks(c), status, cleanup);
    TY_CHECK(note_more_predictions(c), status, cleanup);
    TY_CHECK(ty_hf_text(c, "topk_method", &method), status, cleanup);
    if (method != NULL)
        c->t.has_router_bias = strcmp(method, "noaux_tc") == 0;
    TY_CHECK(ty_hf_flag(c, "use_bias", &has_bias), status, cleanup); /* ERNIE */
    c->t.has_attention_bias = c->t.has_mlp_bias = has_bias;
    status = c->t.has_qkv_bias ? finish_qkv_bias(c) : finish_llama(c);

cleanup:
    return status;
}

static ty_status finish_deepseek(hf_config *c)
{
    ty_status status;

    TY_CHECK(read_latents(c), status, cleanup);
    TY_CHECK(read_indexer(c), status, cleanup);
    status = finish_deepseek_moe(c);

cleanup:
    return status;
}

/* Biases of queries, keys and values; norms of heads where "use_qk_norm" says so. */
static ty_status finish_glm4_moe(hf_config *c)
{
    ty_status status;

    TY_CHECK(ty_hf_flag(c, "use_qk_norm", &c->t.has_qk_norm), status, cleanup);
    c->t.has_qkv_bias = true;
    status = finish_deepseek_moe(c);

cleanup:
    return status;
}

static ty_status finish_minimax_m2(hf_config *c)
{
    static hf_names names = {"qk_norm_type"};
    const ty_json *kinds;
    uint64_t is_full;
    const char *type;
    ty_status status;

    if (ty_json_has(c->root, "attn_type_list")) { /* 0: linear ("lightning") attention */
        TY_CHECK(
            ty_json_array(c->root, "attn_type_list", c->t.blocks, c->t.blocks, &kinds, c->error),
            status, cleanup);
        for (uint64_t i = 0; i < c->t.blocks; i++)
            TY_CHECK(ty_json_as_uint64(ty_json_at(kinds, i), 1, 1, &is_full, c->error), status,
                     cleanup);
    }
    TY_CHECK(read_sizes(c, expert_keys, COUNT(expert_keys)), status, cleanup);
    c->t.expert_features = c->t.hidden_features;
    TY_CHECK(read_shared(c), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "use_qk_norm", &c->t.has_wide_qk_norm), status, cleanup);
    TY_CHECK(ty_hf_text(c, names[0], &type), status, cleanup);
    if (type != NULL && strcmp(type, "per_head") == 0 && c->t.has_wide_qk_norm) {
        c->t.has_wide_qk_norm = false;
        c->t.has_qk_norm = true;
    }
    TY_CHECK(ty_hf_flag(c, "use_routing_bias", &c->t.has_router_bias), status, cleanup);
    TY_CHECK(note_more_predictions(c), status, cleanup);
    status = finish_llama(c);

cleanup:
    return status;
}

static ty_status finish_gpt_oss(hf_config *c)
{
    ty_status status;

    TY_CHECK(read_sizes(c, expert_keys, COUNT(expert_keys)), status, cleanup);
    c->t.expert_features = c->t.hidden_features;
    TY_CHECK(ty_hf_flag(c, "attention_bias", &c->t.has_attention_bias), status, cleanup);
    status = read_window(c, 2);

cleanup:
    return status;
}

/* Experts in every interleave_moe_layer_step-th block, a shared one beside them; windows but for
 * each no_rope_layer_interval-th. */
static ty_status finish_llama4(hf_config *c)
{
    uint64_t step = 1, dense = 0, window = 8192, interval = 4;
    ty_status status;

    TY_CHECK(read_sizes(c, expert_keys, COUNT(expert_keys)), status, cleanup);
    c->t.expert_features = c->t.shared_features = c->t.hidden_features;
    TY_CHECK(ty_hf_size(c, "intermediate_size_mlp", 1, &dense), status, cleanup);
    if (dense > 0)
        c->t.hidden_features = dense;
    TY_CHECK(ty_hf_flag(c, "attention_bias", &c->t.has_attention_bias), status, cleanup);
    TY_CHECK(ty_hf_size(c, "interleave_moe_layer_step", 1, &step), status, cleanup);
    TY_CHECK(set_expert_steps(c, step, "no_dense_layers"), status, cleanup);
    TY_CHECK(ty_hf_size(c, "attention_chunk_size", 1, &window), status, cleanup);
    TY_CHECK(ty_hf_size(c, "no_rope_layer_interval", 1, &interval), status, cleanup);
    status = set_windows(c, window, interval);

cleanup:
    return status;
}

/* Sizes of attention and experts in objects of their own. */
static ty_status finish_dbrx(hf_config *c)
{
    const ty_json *attention, *experts;
    ty_status status;

    TY_CHECK(ty_json_object(c->root, "attn_config", &attention, c->error), status, cleanup);
    TY_CHECK(ty_json_object(c->root, "ffn_config", &experts, c->error), status, cleanup);
    TY_CHECK(ty_json_uint64(attention, "kv_n_heads", 1, INT32_MAX, &c->t.kv_heads, c->error),
             status, cleanup);
    TY_CHECK(
        ty_json_uint64(experts, "ffn_hidden_size", 1, INT32_MAX, &c->t.expert_features, c->error),
        status, cleanup);
    TY_CHECK(ty_json_uint64(experts, "moe_num_experts", 1, INT32_MAX, &c->t.experts, c->error),
             status, cleanup);
    status = ty_json_uint64(experts, "moe_top_k", 1, INT32_MAX, &c->t.experts_per_token, c->error);

cleanup:
    return status;
}

/* ---- Decoders as GPT ------------------------------------------------------------------------- */

static ty_status finish_gpt2(hf_config *c)
{
    c->t.positions = c->t.longest_sequence;
    if (c->t.hidden_features == 0)
        c->t.hidden_features = 4 * c->t.features;
    if (c->t.positions == 0)
        return ty_hf_need_size(c, "n_positions", &c->t.positions);
    return read_activation(c);
}

static ty_status finish_gpt_bigcode(hf_config *c)
{
    bool is_multi_query = true;
    ty_status status;

    TY_CHECK(ty_hf_flag(c, "multi_query", &is_multi_query), status, cleanup);
    c->t.kv_heads = is_multi_query ? 1 : 0;
    status = finish_gpt2(c);

cleanup:
    return status;
}

static ty_status finish_gptj(hf_config *c)
{
    if (c->t.hidden_features == 0)
        c->t.hidden_features = 4 * c->t.features;
    return read_activation(c);
}

static ty_status finish_gpt_neox(hf_config *c)
{
    ty_status status;

    TY_CHECK(ty_hf_flag(c, "use_parallel_residual", &c->t.is_parallel), status, cleanup);
    c->t.has_two_norms = c->t.is_parallel;
    TY_CHECK(ty_hf_flag(c, "attention_bias", &c->t.has_attention_bias), status, cleanup);
    status = finish_gptj(c);

cleanup:
    return status;
}

/* One key/value head (7B), or several and two norms (40B, 180B; one in 11B), which older files tell
 * by their number alone. */
static ty_status finish_falcon(hf_config *c)
{
    bool is_new = c->t.kv_heads > 0, is_multi_query = true, has_bias = false;
    uint64_t hidden = 0, norms = 2, factor = 4;
    ty_status status;

    TY_CHECK(ty_hf_flag(c, "new_decoder_architecture", &is_new), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "multi_query", &is_multi_query), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "parallel_attn", &c->t.is_parallel), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "bias", &has_bias), status, cleanup);
    TY_CHECK(ty_hf_size(c, "n_head_kv", 1, &c->t.kv_heads), status, cleanup);
    TY_CHECK(ty_hf_size(c, "ffn_hidden_size", 1, &hidden), status, cleanup);
    TY_CHECK(ty_hf_size(c, "ff_factor", 1, &factor), status, cleanup);
    TY_CHECK(ty_hf_size(c, "num_ln_in_parallel_attn", 1, &norms), status, cleanup);
    if (!is_new)
        c->t.kv_heads = is_multi_query ? 1 : 0;
    c->t.is_parallel = c->t.is_parallel || is_new;
    c->t.has_two_norms = is_new && norms > 1;
    c->t.has_attention_bias = c->t.has_mlp_bias = has_bias;
    c->t.hidden_features = hidden > 0 ? hidden : factor * c->t.features;

cleanup:
    return status;
}

static ty_status finish_bloom(hf_config *c)
{
    c->t.hidden_features = 4 * c->t.features;
    return TY_OK;
}

/* Two rows of positions more than there are; tables of another width than the blocks (350M). */
static ty_status finish_opt(hf_config *c)
{
    uint64_t width = 0;
    bool is_before = true;
    ty_status status;

    TY_CHECK(ty_hf_size(c, "word_embed_proj_dim", 1, &width), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "do_layer_norm_before", &is_before), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "_remove_final_layer_norm", &c->t.lacks_final_norm), status, cleanup);
    if (!is_before)
        c->t.norm_place = TY_NORMS_AFTER_SUM;
    c->t.positions = c->t.longest_sequence > 0 ? c->t.longest_sequence + 2 : 2050;
    if (width > 0 && width != c->t.features) {
        c->t.embedding_features = width;
        c->t.late_positions = c->t.positions;
        c->t.longest_sequence = c->t.positions - 2;
        c->t.positions = 0;
    }
    TY_CHECK(read_activation(c), status, cleanup);
    if (c->t.hidden_features == 0)
        status = ty_hf_need_size(c, "ffn_dim", &c->t.hidden_features);

cleanup:
    return status;
}

static ty_status finish_mpt(hf_config *c)
{
    bool lacks_bias = true;
    uint64_t ratio = 4;
    ty_status status;

    TY_CHECK(ty_hf_flag(c, "no_bias", &lacks_bias), status, cleanup);
    TY_CHECK(ty_hf_size(c, "expansion_ratio", 1, &ratio), status, cleanup);
    ty_json_ignore(c->root, "attn_config"); /* softmax scale, alibi */
    c->t.hidden_features = ratio * c->t.features;
    c->t.has_attention_bias = c->t.has_mlp_bias = !lacks_bias;
    c->t.is_unshifted = lacks_bias;

cleanup:
    return status;
}

/* ---- State spaces and linear attention ------------------------------------------------------- */

/* "layer_types" or each `interval`-th from 1 on full attention. */
static ty_status finish_qwen3_next(hf_config *c)
{
    static const size_key keys[] = {
        {SIZE(delta_heads), true, {"linear_num_value_heads"}},
        {SIZE(delta_key_heads), true, {"linear_num_key_heads"}},
        {SIZE(delta_head_size), true, {"linear_key_head_dim"}},
        {SIZE(delta_value_size), true, {"linear_value_head_dim"}},
        {SIZE(state_kernel), true, {"linear_conv_kernel_dim"}},
    };
    uint64_t interval = 4;
    const ty_json *types;
    const char *type;
    ty_status status;

    TY_CHECK(read_sizes(c, keys, COUNT(keys)), status, cleanup);
    if (ty_hf_has_any(c->root, expert_keys[0].names))
        TY_CHECK(finish_qwen_moe(c), status, cleanup);
    else {
        TY_CHECK(note_more_predictions(c), status, cleanup);
        TY_CHECK(finish_llama(c), status, cleanup);
    }
    TY_CHECK(ty_hf_flag(c, "attn_output_gate", &c->t.has_attention_gate), status, cleanup);
    TY_CHECK(ty_hf_size(c, "full_attention_interval", 1, &interval), status, cleanup);
    TY_CHECK(find_layer_types(c, &types), status, cleanup);
    TY_CHECK(ty_hf_list_blocks(c), status, cleanup);
    for (uint64_t i = 0; i < c->t.blocks; i++) {
        bool is_full = (i + 1) % interval == 0;
        if (types != NULL) {
            TY_CHECK(ty_json_as_string(ty_json_at(types, i), &type, c->error), status, cleanup);
            is_full = strcmp(type, "full_attention") == 0;
        }
        c->blocks[i].mixer = is_full ? TY_MIX_ATTENTION : TY_MIX_DELTA;
    }

cleanup:
    return status;
}

/* All blocks alike: a state space or what `mixer` says, and no mlp. */
static ty_status set_all_blocks(hf_config *c, ty_mixer mixer, ty_feed feed)
{
    ty_status status = ty_hf_list_blocks(c);

    for (uint64_t i = 0; status == TY_OK && i < c->t.blocks; i++)
        c->blocks[i] = (ty_transformer_block){.mixer = mixer, .feed = feed};
    return status;
}

/* "auto" is a sixteenth of the features. */
static ty_status read_step_rank(hf_config *c, const char *key)
{
    c->t.step_rank = (c->t.features + 15) / 16;
    if (!ty_json_has(c->root, key))
        return TY_OK;
    if (ty_json_uint64(c->root, key, 1, INT32_MAX, &c->t.step_rank, NULL) == TY_OK)
        return TY_OK;
    return ty_json_enum(c->root, key, (const char *const[]){"auto"}, 1, &(int){0}, c->error);
}

static ty_status finish_mamba(hf_config *c)
{
    uint64_t expand = 2, inner = c->t.hidden_features;
    ty_status status;

    c->t.state_size = 16;
    c->t.state_kernel = 4;
    TY_CHECK(
        ty_hf_size_of(c, c->root, (hf_names){"state_size", "d_state"}, false, 1, &c->t.state_size),
        status, cleanup);
    TY_CHECK(ty_hf_size_of(c, c->root, (hf_names){"conv_kernel", "d_conv"}, false, 1,
                           &c->t.state_kernel),
             status, cleanup);
    TY_CHECK(ty_hf_size(c, "expand", 1, &expand), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "use_bias", &c->t.has_state_bias), status, cleanup);
    ty_json_ignore(c->root, "use_conv_bias");
    ty_json_ignore(c->root, "rms_norm");
    c->t.state_features = inner > 0 ? inner : expand * c->t.features;
    TY_CHECK(ty_hf_size(c, "d_inner", 1, &c->t.state_features), status, cleanup);
    TY_CHECK(read_step_rank(c, "time_step_rank"), status, cleanup);
    status = set_all_blocks(c, TY_MIX_STATE_SPACE, TY_FEED_NONE);

cleanup:
    return status;
}

/* Heads, their size and groups under the names they have in `keys`. */
static ty_status read_state_heads(hf_config *c, const char *const *heads, const char *const *sizes,
                                  const char *const *groups, const char *const *states,
                                  const char *const *kernels)
{
    uint64_t size = 64;
    ty_status status;

    c->t.state_size = 128;
    c->t.state_kernel = 4;
    c->t.state_groups = 1;
    TY_CHECK(ty_hf_size_of(c, c->root, sizes, false, 1, &size), status, cleanup);
    TY_CHECK(ty_hf_size_of(c, c->root, heads, false, 1, &c->t.state_heads), status, cleanup);
    TY_CHECK(ty_hf_size_of(c, c->root, groups, false, 1, &c->t.state_groups), status, cleanup);
    TY_CHECK(ty_hf_size_of(c, c->root, states, false, 1, &c->t.state_size), status, cleanup);
    TY_CHECK(ty_hf_size_of(c, c->root, kernels, false, 1, &c->t.state_kernel), status, cleanup);
    if (c->t.state_heads == 0)
        c->t.state_heads = 2 * c->t.features / size;
    c->t.state_features = c->t.state_heads * size;
    if (c->t.state_features > INT32_MAX)
        status = ty_json_fail(c->root, c->error, "heads of a state space that are sizes");

cleanup:
    return status;
}

static ty_status finish_mamba2(hf_config *c)
{
    static hf_names heads = {"num_heads"}, sizes = {"head_dim", "headdim"};
    static hf_names groups = {"n_groups", "ngroups"}, states = {"state_size", "d_state"};
    static hf_names kernels = {"conv_kernel", "d_conv"};
    ty_status status;

    TY_CHECK(read_state_heads(c, heads, sizes, groups, states, kernels), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "use_bias", &c->t.has_state_bias), status, cleanup);
    ty_json_ignore(c->root, "use_conv_bias");
    ty_json_ignore(c->root, "expand");
    c->t.heads = c->t.head_size = 0; /* those read were of the state space */
    status = set_all_blocks(c, TY_MIX_STATE_SPACE, TY_FEED_NONE);

cleanup:
    return status;
}

/* As the authors' own program writes it: {"d_model", "n_layer", "ssm_cfg": {"layer": "Mamba2"}}. */
static ty_status finish_mamba_own(hf_config *c)
{
    const ty_json *states;
    const char *layer = "Mamba1";
    uint64_t multiple = 1;
    ty_status status;

    TY_CHECK(ty_json_object(c->root, "ssm_cfg", &states, c->error), status, cleanup);
    if (ty_json_has(states, "layer"))
        TY_CHECK(ty_json_string(states, "layer", &layer, c->error), status, cleanup);
    TY_CHECK(ty_hf_size(c, "pad_vocab_size_multiple", 1, &multiple), status, cleanup);
    c->t.vocabulary = (c->t.vocabulary + multiple - 1) / multiple * multiple;
    TY_CHECK(ty_hf_flag(c, "tie_embeddings", &c->t.is_tied), status, cleanup);
    status = strcmp(layer, "Mamba2") == 0 ? finish_mamba2(c) : finish_mamba(c);

cleanup:
    return status;
}

/* Attention each so manieth block, experts likewise, from an offset on. */
static ty_status finish_jamba(hf_config *c)
{
    uint64_t attention = 8, attention_offset = 4, experts = 2, expert_offset = 1, expand = 2;
    ty_status status;

    TY_CHECK(read_sizes(c, expert_keys, COUNT(expert_keys)), status, cleanup);
    c->t.expert_features = c->t.hidden_features;
    c->t.state_size = 16;
    c->t.state_kernel = 4;
    c->t.has_step_norms = true;
    TY_CHECK(ty_hf_size(c, "attn_layer_period", 1, &attention), status, cleanup);
    TY_CHECK(ty_hf_size(c, "attn_layer_offset", 0, &attention_offset), status, cleanup);
    TY_CHECK(ty_hf_size(c, "expert_layer_period", 1, &experts), status, cleanup);
    TY_CHECK(ty_hf_size(c, "expert_layer_offset", 0, &expert_offset), status, cleanup);
    TY_CHECK(ty_hf_size(c, "mamba_expand", 1, &expand), status, cleanup);
    TY_CHECK(ty_hf_size(c, "mamba_d_state", 1, &c->t.state_size), status, cleanup);
    TY_CHECK(ty_hf_size(c, "mamba_d_conv", 1, &c->t.state_kernel), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "mamba_proj_bias", &c->t.has_state_bias), status, cleanup);
    ty_json_ignore(c->root, "mamba_conv_bias");
    TY_CHECK(read_step_rank(c, "mamba_dt_rank"), status, cleanup);
    c->t.state_features = expand * c->t.features;
    TY_CHECK(ty_hf_list_blocks(c), status, cleanup);
    for (uint64_t i = 0; i < c->t.blocks; i++) {
        bool has_experts = c->t.experts > 1 && i % experts == expert_offset;
        c->blocks[i].mixer =
            i % attention == attention_offset ? TY_MIX_ATTENTION : TY_MIX_STATE_SPACE;
        c->blocks[i].feed = has_experts ? TY_FEED_EXPERTS : TY_FEED_MLP;
    }
    if (c->t.experts <= 1)
        c->t.experts = 0;

cleanup:
    return status;
}

/* A block is one part: M a state space, * attention, - an mlp, E experts. */
static ty_status set_pattern(hf_config *c, const char *pattern)
{
    ty_status status;

    if (strlen(pattern) != c->t.blocks)
        return ty_json_fail(c->root, c->error, "a hybrid_override_pattern of %llu letters",
                            (unsigned long long)c->t.blocks);
    TY_CHECK(ty_hf_list_blocks(c), status, cleanup);
    for (uint64_t i = 0; i < c->t.blocks; i++) {
        ty_transformer_block *b = &c->blocks[i];
        *b = (ty_transformer_block){.mixer = TY_MIX_NONE, .feed = TY_FEED_NONE};
        switch (pattern[i]) {
        case 'M':
            b->mixer = TY_MIX_STATE_SPACE;
            break;
        case '*':
            b->mixer = TY_MIX_ATTENTION;
            break;
        case '-':
            b->feed = TY_FEED_MLP;
            break;
        case 'E':
            b->feed = TY_FEED_EXPERTS;
            break;
        default:
            status = ty_json_fail(c->root, c->error,
                                  "a hybrid_override_pattern of the letters M, *, - and E");
            goto cleanup;
        }
    }

cleanup:
    return status;
}

/* The same as a list of words. */
static ty_status set_block_types(hf_config *c)
{
    static const struct {
        const char *name;
        ty_transformer_block block;
    } types[] = {
        {"mamba", {.mixer = TY_MIX_STATE_SPACE, .feed = TY_FEED_NONE}},
        {"attention", {.mixer = TY_MIX_ATTENTION, .feed = TY_FEED_NONE}},
        {"mlp", {.mixer = TY_MIX_NONE, .feed = TY_FEED_MLP}},
        {"moe", {.mixer = TY_MIX_NONE, .feed = TY_FEED_EXPERTS}},
    };
    const ty_json *list;
    const char *name;
    ty_status status;

    TY_CHECK(ty_json_array(c->root, "layers_block_type", c->t.blocks, c->t.blocks, &list, c->error),
             status, cleanup);
    TY_CHECK(ty_hf_list_blocks(c), status, cleanup);
    for (uint64_t i = 0; i < c->t.blocks; i++) {
        size_t t = 0;
        TY_CHECK(ty_json_as_string(ty_json_at(list, i), &name, c->error), status, cleanup);
        while (t < COUNT(types) && strcmp(types[t].name, name) != 0)
            t++;
        if (t == COUNT(types)) {
            status = ty_json_fail(ty_json_at(list, i), c->error, "mamba, attention, mlp or moe");
            goto cleanup;
        }
        c->blocks[i] = types[t].block;
    }

cleanup:
    return status;
}

static ty_status finish_nemotron_h(hf_config *c)
{
    static hf_names heads = {"mamba_num_heads"}, sizes = {"mamba_head_dim"}, groups = {"n_groups"};
    static hf_names states = {"ssm_state_size"}, kernels = {"conv_kernel"};
    const char *pattern;
    ty_status status;

    TY_CHECK(read_state_heads(c, heads, sizes, groups, states, kernels), status, cleanup);
    TY_CHECK(ty_hf_size(c, "attention_head_dim", 1, &c->t.head_size), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "use_bias", &c->t.has_state_bias), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "mamba_proj_bias", &c->t.has_state_bias), status, cleanup);
    ty_json_ignore(c->root, "use_conv_bias");
    ty_json_ignore(c->root, "expand");
    TY_CHECK(ty_hf_flag(c, "attention_bias", &c->t.has_attention_bias), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "mlp_bias", &c->t.has_mlp_bias), status, cleanup);
    if (ty_hf_has_any(c->root, expert_keys[0].names)) {
        TY_CHECK(read_experts(c), status, cleanup);
        TY_CHECK(read_shared(c), status, cleanup);
        TY_CHECK(ty_hf_size(c, "moe_latent_size", 1, &c->t.latent_features), status, cleanup);
        c->t.has_router_bias = true;
    }
    TY_CHECK(note_more_predictions(c), status, cleanup);
    ty_json_ignore(c->root, "mtp_hybrid_override_pattern");
    if (ty_json_has(c->root, "layers_block_type")) {
        status = set_block_types(c);
        goto cleanup;
    }
    TY_CHECK(ty_json_string(c->root, "hybrid_override_pattern", &pattern, c->error), status,
             cleanup);
    status = set_pattern(c, pattern);

cleanup:
    return status;
}

/* State spaces but for the blocks of a list; an mlp in each. */
static ty_status finish_bamba(hf_config *c)
{
    static hf_names heads = {"mamba_n_heads"}, sizes = {"mamba_d_head"};
    static hf_names groups = {"mamba_n_groups"}, states = {"mamba_d_state"};
    static hf_names kernels = {"mamba_d_conv"};
    const ty_json *list, *types;
    const char *type;
    uint64_t block;
    ty_status status;

    TY_CHECK(read_state_heads(c, heads, sizes, groups, states, kernels), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "mamba_proj_bias", &c->t.has_state_bias), status, cleanup);
    ty_json_ignore(c->root, "mamba_conv_bias");
    ty_json_ignore(c->root, "mamba_expand");
    if (ty_hf_has_any(c->root, expert_keys[0].names)) { /* Granite: mlps are the shared experts */
        TY_CHECK(ty_hf_size_of(c, c->root, expert_keys[0].names, true, 0, &c->t.experts), status,
                 cleanup);
        TY_CHECK(ty_hf_size_of(c, c->root, expert_keys[1].names, false, 0, &c->t.experts_per_token),
                 status, cleanup);
        c->t.expert_features = c->t.hidden_features;
        TY_CHECK(ty_hf_size(c, "shared_intermediate_size", 0, &c->t.shared_features), status,
                 cleanup);
        if (c->t.experts == 0)
            c->t.hidden_features = c->t.shared_features;
    }
    TY_CHECK(ty_hf_list_blocks(c), status, cleanup);
    TY_CHECK(find_layer_types(c, &types), status, cleanup);
    for (uint64_t i = 0; i < c->t.blocks; i++) {
        c->blocks[i].mixer = TY_MIX_STATE_SPACE;
        if (types == NULL)
            continue;
        TY_CHECK(ty_json_as_string(ty_json_at(types, i), &type, c->error), status, cleanup);
        if (strcmp(type, "attention") == 0)
            c->blocks[i].mixer = TY_MIX_ATTENTION;
    }
    if (!ty_json_has(c->root, "attn_layer_indices"))
        goto cleanup;
    TY_CHECK(ty_json_array(c->root, "attn_layer_indices", 0, c->t.blocks, &list, c->error), status,
             cleanup);
    for (size_t i = 0; i < ty_json_size(list); i++) {
        TY_CHECK(ty_json_as_uint64(ty_json_at(list, i), 0, c->t.blocks - 1, &block, c->error),
                 status, cleanup);
        c->blocks[block].mixer = TY_MIX_ATTENTION;
    }

cleanup:
    return status;
}

/* ---- Encoders -------------------------------------------------------------------------------- */

static ty_status read_bert(hf_config *c)
{
    static const size_key keys[] = {
        {SIZE(token_types), true, {"type_vocab_size"}},
        {SIZE(positions), true, {"max_position_embeddings"}},
        {SIZE(hidden_features), true, {"intermediate_size"}},
    };
    ty_status status = TY_OK;

    TY_CHECK(read_sizes(c, keys, COUNT(keys)), status, cleanup);
    status = read_activation(c);

cleanup:
    return status;
}

static ty_status finish_bert(hf_config *c)
{
    ty_import_note(c->source, "the encoder and its pooler, without a head for training and a loss");
    return read_bert(c);
}

/* Whether the first of `architectures` ends so; "" where there is none. */
static bool is_architecture(const hf_config *c, const char *part)
{
    const ty_json *list;
    const char *name;

    return ty_json_has(c->root, "architectures") &&
           ty_json_array(c->root, "architectures", 1, 100, &list, NULL) == TY_OK &&
           ty_json_as_string(ty_json_at(list, 0), &name, NULL) == TY_OK &&
           strstr(name, part) != NULL;
}

/* With the head for masked tokens where the architecture says so. */
static void choose_head(hf_config *c, ty_transformer_head otherwise)
{
    bool is_masked = is_architecture(c, "MaskedLM") || is_architecture(c, "PreTraining");

    c->t.head = is_masked ? TY_MASKED_HEAD : otherwise;
    if (!is_masked)
        ty_import_note(c->source, "the encoder%s, without a head for training and a loss",
                       otherwise == TY_POOLER_HEAD ? " and its pooler" : "");
}

static ty_status finish_roberta(hf_config *c)
{
    ty_status status = read_bert(c);

    choose_head(c, TY_POOLER_HEAD);
    if (c->t.longest_sequence > 2) /* rows 0 and 1 are of no position */
        c->t.longest_sequence -= 2;
    return status;
}

static ty_status finish_distilbert(hf_config *c)
{
    c->t.positions = c->t.longest_sequence > 0 ? c->t.longest_sequence : 512;
    choose_head(c, TY_NO_HEAD);
    if (c->t.hidden_features == 0)
        return ty_hf_need_size(c, "hidden_dim", &c->t.hidden_features);
    return TY_OK;
}

/* Tables of their own width; one block's parameters for all. */
static ty_status finish_albert(hf_config *c)
{
    uint64_t groups = 1, inner = 1, width = 128;
    ty_status status;

    TY_CHECK(ty_hf_size(c, "num_hidden_groups", 1, &groups), status, cleanup);
    TY_CHECK(ty_hf_size(c, "inner_group_num", 1, &inner), status, cleanup);
    TY_CHECK(ty_hf_size(c, "embedding_size", 1, &width), status, cleanup);
    if (groups != 1 || inner != 1) {
        status = ty_json_fail(c->root, c->error, "one group of blocks, of one block");
        goto cleanup;
    }
    TY_CHECK(finish_bert(c), status, cleanup);
    c->t.embedding_features = width;

cleanup:
    return status;
}

static ty_status finish_electra(hf_config *c)
{
    uint64_t width = 128;
    ty_status status;

    TY_CHECK(ty_hf_size(c, "embedding_size", 1, &width), status, cleanup);
    TY_CHECK(finish_bert(c), status, cleanup);
    c->t.head = TY_NO_HEAD;
    c->t.embedding_features = width != c->t.features ? width : 0;

cleanup:
    return status;
}

/* Windows but for each so manieth block, counted from 0. The first norm of attention is the
 * embedding's. */
static ty_status finish_modernbert(hf_config *c)
{
    uint64_t interval = 3, window = 128;
    ty_status status;

    TY_CHECK(ty_hf_size(c, "global_attn_every_n_layers", 1, &interval), status, cleanup);
    TY_CHECK(ty_hf_size(c, "local_attention", 1, &window), status, cleanup);
    TY_CHECK(ty_hf_list_blocks(c), status, cleanup);
    for (uint64_t i = 0; i < c->t.blocks; i++)
        c->blocks[i].window = i % interval == 0 ? 0 : window;
    choose_head(c, TY_NO_HEAD);

cleanup:
    return status;
}

/* ---- Encoder and decoder --------------------------------------------------------------------- */

/* feed_forward_proj: "relu", or "gated-gelu" in version 1.1. */
static ty_status finish_t5(hf_config *c)
{
    static const size_key keys[] = {
        {SIZE(head_size), true, {"d_kv"}},
        {SIZE(hidden_features), true, {"d_ff"}},
        {SIZE(decoder_blocks), false, {"num_decoder_layers"}},
        {SIZE(relative_buckets), false, {"relative_attention_num_buckets"}},
    };
    ty_status status = TY_OK;
    const char *projection;

    c->t.decoder_blocks = c->t.blocks;
    c->t.relative_buckets = 32;
    TY_CHECK(read_sizes(c, keys, COUNT(keys)), status, cleanup);
    TY_CHECK(ty_hf_text(c, "feed_forward_proj", &projection), status, cleanup);
    if (projection != NULL) {
        c->t.is_gated = strncmp(projection, "gated-", 6) == 0;
        c->t.is_relu = strcmp(projection, "relu") == 0;
    }
    c->t.decoder_sequence =
        c->source->options->sequence > 0 ? c->source->options->sequence : c->t.longest_sequence;
    if (c->t.decoder_sequence == 0) /* relative positions set no limit; 512 as in the paper */
        c->t.sequence = c->t.decoder_sequence = 512;
    ty_import_note(c->source, "targets of %llu tokens assumed",
                   (unsigned long long)c->t.decoder_sequence);

cleanup:
    return status;
}

/* ---- The table ------------------------------------------------------------------------------- */

#define GATED .form = TY_DECODER, .is_gated = true, .is_rms_norm = true, .is_fused = true
#define PLAIN .form = TY_DECODER, .is_fused = true
#define BIASED PLAIN, .has_attention_bias = true, .has_mlp_bias = true
#define ENCODER                                                                                    \
    .form = TY_ENCODER, .head = TY_POOLER_HEAD, .has_attention_bias = true, .has_mlp_bias = true,  \
    .is_tied = true, .is_fused = true
#define GEMMA GATED, .is_tied = true, .norm_place = TY_NORMS_AROUND

static const hf_family families[] = {
    {"deepseek_v3", "kv_lora_rank", finish_deepseek, {GATED, .has_router_bias = true}, NULL},
    {"deepseek_v2", NULL, finish_deepseek, {GATED}, NULL},
    {"deepseek_v32", NULL, finish_deepseek, {GATED, .has_router_bias = true}, NULL},
    {"deepseek", NULL, finish_deepseek_moe, {GATED}, NULL},
    {"glm_moe_dsa", NULL, finish_deepseek, {GATED, .has_router_bias = true}, NULL},
    {"glm4_moe_lite", NULL, finish_deepseek, {GATED, .has_router_bias = true}, NULL},
    {"glm4_moe", NULL, finish_glm4_moe, {GATED, .has_router_bias = true}, NULL},
    {"dots1",
     NULL,
     finish_deepseek_moe,
     {GATED, .has_qk_norm = true, .has_router_bias = true},
     NULL},
    {"ernie4_5_moe",
     NULL,
     finish_deepseek_moe,
     {GATED, .has_router_bias = true, .is_tied = true},
     NULL},
    {"mixtral", "num_local_experts", finish_mixtral, {GATED}, NULL},
    {"granitemoe", NULL, finish_mixtral, {GATED, .is_tied = true}, NULL},
    {"phimoe",
     NULL,
     finish_mixtral,
     {.form = TY_DECODER, .is_gated = true, .is_fused = true, .has_output_bias = true},
     NULL},
    {"minimax_m2",
     NULL,
     finish_minimax_m2,
     {GATED, .has_wide_qk_norm = true, .has_router_bias = true},
     NULL},
    {"olmoe", NULL, finish_mixtral, {GATED, .has_wide_qk_norm = true}, NULL},
    {"dbrx",
     NULL,
     finish_dbrx,
     {.form = TY_DECODER, .is_gated = true, .is_fused = true, .is_unshifted = true},
     NULL},
    {"qwen3_moe", "num_experts", finish_qwen_moe, {GATED, .has_qk_norm = true}, NULL},
    {"qwen2_moe", NULL, finish_qwen_moe, {GATED, .has_qkv_bias = true}, NULL},
    {"qwen3_next",
     NULL,
     finish_qwen3_next,
     {GATED, .has_qk_norm = true, .has_attention_gate = true},
     NULL},
    {"gpt_oss",
     NULL,
     finish_gpt_oss,
     {GATED, .has_attention_bias = true, .has_mlp_bias = true, .has_router_bias = true,
      .has_sinks = true, .window = 128},
     NULL},
    {"llama4", NULL, finish_llama4, {GATED}, NULL},
    {"t5",
     "d_kv",
     finish_t5,
     {.form = TY_ENCODER_DECODER, .is_rms_norm = true, .is_relu = true, .is_tied = true},
     NULL},
    {"mt5",
     NULL,
     finish_t5,
     {.form = TY_ENCODER_DECODER, .is_rms_norm = true, .is_gated = true},
     NULL},
    {"gpt2", "n_embd", finish_gpt2, {BIASED, .is_tied = true}, NULL},
    {"gpt_bigcode", NULL, finish_gpt_bigcode, {BIASED, .is_tied = true}, NULL},
    {"gptj",
     NULL,
     finish_gptj,
     {PLAIN, .has_mlp_bias = true, .is_parallel = true, .has_output_bias = true},
     NULL},
    {"gpt_neox", NULL, finish_gpt_neox, {BIASED, .is_parallel = true, .has_two_norms = true}, NULL},
    {"phi", NULL, finish_gptj, {BIASED, .is_parallel = true, .has_output_bias = true}, NULL},
    {"falcon", NULL, finish_falcon, {PLAIN, .is_parallel = true, .is_tied = true}, NULL},
    {"bloom", NULL, finish_bloom, {BIASED, .has_embedding_norm = true, .is_tied = true}, NULL},
    {"opt", NULL, finish_opt, {BIASED, .is_relu = true, .is_tied = true}, NULL},
    {"mpt", NULL, finish_mpt, {PLAIN, .is_unshifted = true, .is_tied = true}, NULL},
    {"starcoder2", NULL, finish_one_bias, {BIASED, .is_tied = true}, NULL},
    {"nemotron", NULL, finish_one_bias, {PLAIN}, NULL},
    {"bert", "type_vocab_size", finish_bert, {ENCODER}, NULL},
    {"roberta", NULL, finish_roberta, {ENCODER}, NULL},
    {"albert", NULL, finish_albert, {ENCODER, .is_shared = true, .has_embedding_bias = true}, NULL},
    {"electra", NULL, finish_electra, {ENCODER, .has_embedding_bias = true}, NULL},
    {"distilbert", NULL, finish_distilbert, {ENCODER}, NULL},
    {"modernbert",
     NULL,
     finish_modernbert,
     {.form = TY_ENCODER,
      .norm_place = TY_NORMS_BEFORE,
      .is_gated = true,
      .is_unshifted = true,
      .has_embedding_norm = true,
      .lacks_first_norm = true,
      .is_tied = true,
      .is_fused = true},
     NULL},
    {"mamba2", NULL, finish_mamba2, {GATED, .is_tied = true}, NULL},
    {"mamba", NULL, finish_mamba, {GATED, .is_tied = true}, NULL},
    {"mamba_ssm", "ssm_cfg", finish_mamba_own, {GATED, .is_tied = true}, NULL},
    {"jamba", NULL, finish_jamba, {GATED}, NULL},
    {"nemotron_h",
     NULL,
     finish_nemotron_h,
     {.form = TY_DECODER, .is_rms_norm = true, .is_fused = true},
     NULL},
    {"bamba", NULL, finish_bamba, {GATED}, NULL},
    {"granitemoehybrid", NULL, finish_bamba, {GATED, .is_tied = true}, NULL},
    {"nemotron-nas", NULL, finish_deci, {GATED}, NULL},
    {"gemma", NULL, finish_llama, {GATED, .is_tied = true, .head_size = 256}, NULL},
    {"gemma2", NULL, finish_gemma2, {GEMMA, .window = 4096, .head_size = 256}, NULL},
    {"gemma3", /* defaults of Gemma3TextConfig: files of the 4B name little else */
     NULL,
     finish_gemma3,
     {GEMMA, .has_qk_norm = true, .window = 4096, .vocabulary = 262208, .heads = 8, .kv_heads = 4,
      .head_size = 256, .features = 2304, .hidden_features = 9216, .blocks = 26,
      .longest_sequence = 131072},
     NULL},
    {"gemma4", NULL, finish_gemma4, {GEMMA, .has_qk_norm = true, .window = 1024}, NULL},
    {"olmo2",
     NULL,
     finish_llama,
     {GATED, .norm_place = TY_NORMS_BEHIND, .has_wide_qk_norm = true},
     NULL},
    {"olmo3",
     NULL,
     finish_olmo3,
     {GATED, .norm_place = TY_NORMS_BEHIND, .has_wide_qk_norm = true},
     NULL},
    {"exaone4",
     NULL,
     finish_olmo3,
     {GATED, .norm_place = TY_NORMS_BEHIND, .has_qk_norm = true},
     NULL},
    {"glm4", NULL, finish_qkv_bias, {GATED, .norm_place = TY_NORMS_AROUND}, NULL},
    {"glm", NULL, finish_qkv_bias, {GATED}, NULL},
    {"cohere",
     NULL,
     finish_cohere,
     {.form = TY_DECODER,
      .is_gated = true,
      .is_fused = true,
      .is_unshifted = true,
      .is_parallel = true,
      .is_tied = true},
     NULL},
    {"stablelm",
     NULL,
     finish_qkv_bias,
     {.form = TY_DECODER, .is_gated = true, .is_fused = true},
     NULL},
    {"llama", "rms_norm_eps", finish_llama, {GATED}, NULL},
    {"mistral", NULL, finish_llama, {GATED}, NULL},
    {"granite", NULL, finish_llama, {GATED, .is_tied = true}, NULL},
    {"internlm2", NULL, finish_one_bias, {GATED}, NULL},
    {"arcee",
     NULL,
     finish_llama,
     {.form = TY_DECODER, .is_rms_norm = true, .is_fused = true},
     NULL},
    {"ernie4_5", NULL, finish_one_bias, {GATED}, NULL},
    {"phi3small", NULL, finish_phi3small, {BIASED, .is_gated = true, .is_tied = true}, NULL},
    {"seed_oss", NULL, finish_qkv_bias, {GATED, .has_qkv_bias = true}, NULL},
    {"qwen2", NULL, finish_qwen2, {GATED, .has_qkv_bias = true}, NULL},
    {"mimo", NULL, finish_mimo, {GATED, .has_qkv_bias = true}, NULL},
    {"qwen3", NULL, finish_llama, {GATED, .has_qk_norm = true}, NULL},
    {"vit", NULL, NULL, {.form = TY_ENCODER}, ty_hf_build_vit},
    {"clip", NULL, NULL, {.form = TY_ENCODER}, ty_hf_build_clip},
    {"whisper", NULL, NULL, {.form = TY_DECODER}, ty_hf_build_whisper},
    {"Transformer2DModel", NULL, NULL, {.form = TY_ENCODER}, ty_hf_build_dit},
    {"SD3Transformer2DModel", NULL, NULL, {.form = TY_ENCODER}, ty_hf_build_sd3},
    {"FluxTransformer2DModel", NULL, NULL, {.form = TY_ENCODER}, ty_hf_build_flux},
};

/* Types whose shapes are another's. */
static const struct alias {
    const char *type, *family;
} aliases[] = {
    {"kimi_k2", "deepseek_v3"}, {"kimi_k25", "deepseek_v3"},
    {"kimi_vl", "deepseek_v3"}, {"deepseek_vl_v2", "deepseek_v2"},
    {"phi3", "llama"},          {"smollm3", "llama"},
    {"baichuan", "llama"},      {"yi", "llama"},
    {"helium", "llama"},        {"llava", "llama"},
    {"qwen2_vl", "qwen2"},      {"qwen2_5_vl", "qwen2"},
    {"qwen3_vl", "qwen3"},      {"qwen3_vl_moe", "qwen3_moe"},
    {"qwen3_5", "qwen3_next"},  {"qwen3_5_moe", "qwen3_next"},
    {"cohere2", "cohere"},      {"glm4v", "glm4"},
    {"glm4v_moe", "glm4_moe"},  {"chatglm", "glm"},
    {"minimax", "minimax_m2"},  {"ministral", "mistral"},
    {"ministral3", "mistral"},  {"mistral3", "mistral"},
    {"pixtral", "mistral"},     {"falcon_mamba", "mamba"},
    {"RefinedWeb", "falcon"},   {"RefinedWebModel", "falcon"},
    {"codegen", "gptj"},        {"xlm-roberta", "roberta"},
    {"camembert", "roberta"},   {"deit", "vit"},
    {"deci", "nemotron-nas"},   {"decilm", "nemotron-nas"},
    {"paligemma", "gemma"},
};

/* ---- Which family ---------------------------------------------------------------------------- */

static const hf_family *family_called(const char *type)
{
    char plain[64];
    size_t length = strlen(type);

    for (size_t i = 0; i < COUNT(aliases); i++)
        if (strcmp(aliases[i].type, type) == 0)
            type = aliases[i].family;
    for (size_t i = 0; i < COUNT(families); i++)
        if (strcmp(families[i].type, type) == 0)
            return &families[i];
    if (length > 5 && length < sizeof plain && strcmp(type + length - 5, "_text") == 0) {
        memcpy(plain, type, length - 5);
        plain[length - 5] = '\0';
        return family_called(plain);
    }
    return NULL;
}

/* "Qwen3MoeForCausalLM" and "qwen3_moe": the same letters and digits up to what the class is for.
 */
static bool is_class_of(const char *class_name, const char *type)
{
    static const char *const endings[] = {"For", "Model", "LMHead", "PreTrained"};
    size_t length = strlen(class_name), at = 0;

    for (size_t i = 0; i < COUNT(endings); i++) {
        const char *ending = strstr(class_name, endings[i]);
        if (ending != NULL && (size_t)(ending - class_name) < length)
            length = (size_t)(ending - class_name);
    }
    for (; *type != '\0'; type++) {
        if (!isalnum((unsigned char)*type))
            continue;
        if (at == length || tolower((unsigned char)class_name[at]) != tolower((unsigned char)*type))
            return false;
        at++;
    }
    return at == length && at > 0;
}

static const hf_family *family_of_class(const char *class_name)
{
    for (size_t i = 0; i < COUNT(aliases); i++)
        if (is_class_of(class_name, aliases[i].type))
            return family_called(aliases[i].family);
    for (size_t i = 0; i < COUNT(families); i++)
        if (is_class_of(class_name, families[i].type))
            return &families[i];
    return NULL;
}

static ty_status fail_type(const hf_config *c, const char *key)
{
    const char *names[COUNT(families) + COUNT(aliases)];
    int index;

    for (size_t k = 0; k < COUNT(families); k++)
        names[k] = families[k].type;
    for (size_t k = 0; k < COUNT(aliases); k++)
        names[COUNT(families) + k] = aliases[k].type;
    return ty_json_enum(c->root, key, names, COUNT(names), &index, c->error);
}

/* By the first class of `architectures`; a class that is not known is no reason to guess. */
static ty_status find_by_architecture(hf_config *c, const hf_family **out)
{
    const ty_json *list;
    const char *name;
    ty_status status;

    TY_CHECK(ty_json_array(c->root, "architectures", 1, 100, &list, c->error), status, cleanup);
    TY_CHECK(ty_json_as_string(ty_json_at(list, 0), &name, c->error), status, cleanup);
    *out = family_of_class(name);
    if (*out == NULL)
        status = ty_json_fail(ty_json_at(list, 0), c->error,
                              "a \"model_type\", or a class of a family that is known");
    else
        ty_import_note(c->source, "model_type is missing; taken for %s because of %s", (*out)->type,
                       name);

cleanup:
    return status;
}

/* The language model's part of a file of several. */
static ty_status find_root(hf_config *c)
{
    static const char *const keys[] = {"text_config", "language_config", "llm_config"};
    ty_status status = TY_OK;
    const char *type = "";

    if (ty_json_has(c->outer, "model_type"))
        TY_CHECK(ty_json_string(c->outer, "model_type", &type, c->error), status, cleanup);
    if (family_called(type) != NULL && family_called(type)->build != NULL)
        goto cleanup; /* reads both parts by itself */
    for (size_t i = 0; i < COUNT(keys); i++) {
        if (!ty_json_has(c->outer, keys[i]))
            continue;
        TY_CHECK(ty_json_object(c->outer, keys[i], &c->root, c->error), status, cleanup);
        break;
    }

cleanup:
    return status;
}

ty_status ty_hf_find_family(hf_config *c, const hf_family **out)
{
    static const char *const type_keys[] = {"model_type", "_class_name"};
    const char *type;
    ty_status status;

    TY_CHECK(find_root(c), status, cleanup);
    if (c->root != c->outer && !ty_json_has(c->root, "model_type") &&
        ty_json_has(c->outer, "model_type")) { /* the whole says what its part is */
        TY_CHECK(ty_json_string(c->outer, "model_type", &type, c->error), status, cleanup);
        if ((*out = family_called(type)) == NULL) {
            c->root = c->outer;
            status = fail_type(c, "model_type");
        }
        goto cleanup;
    }
    for (size_t i = 0; i < COUNT(type_keys); i++) {
        if (!ty_json_has(c->root, type_keys[i]))
            continue;
        TY_CHECK(ty_json_string(c->root, type_keys[i], &type, c->error), status, cleanup);
        *out = family_called(type);
        if (*out == NULL)
            status = fail_type(c, type_keys[i]);
        goto cleanup;
    }
    if (ty_json_has(c->root, "architectures")) {
        status = find_by_architecture(c, out);
        goto cleanup;
    }
    for (size_t k = 0; k < COUNT(families); k++) {
        if (families[k].telling == NULL || !ty_json_has(c->root, families[k].telling))
            continue;
        ty_import_note(c->source, "model_type is missing; taken for %s because of %s",
                       families[k].type, families[k].telling);
        *out = &families[k];
        goto cleanup;
    }
    status = fail_type(c, "model_type");

cleanup:
    return status;
}

/* A part of a file leaves out what its configuration class has by default, as LLaVA's files do. */
static void set_class_defaults(hf_config *c, const hf_family *family)
{
    bool is_mistral = strcmp(family->type, "mistral") == 0;

    if (!is_mistral && strcmp(family->type, "llama") != 0)
        return;
    c->t.blocks = c->t.heads = 32;
    c->t.features = 4096;
    c->t.hidden_features = is_mistral ? 14336 : 11008;
    c->t.vocabulary = 32000;
    if (is_mistral && !ty_json_has(c->root, "num_attention_heads"))
        c->t.kv_heads = 8;
}

/* Switches of transformers that make another network of the same sizes. */
static ty_status check_other_network(const hf_config *c)
{
    static const struct {
        const char *key, *expected;
        bool of_encoders;
    } switches[] = {
        {"add_cross_attention", "false: attention to another network's output is not read", false},
        {"is_decoder", "false: an encoder's layers as a decoder are not read", true},
    };
    char place[TY_JSON_PLACE_SIZE];
    ty_status status = TY_OK;

    ty_json_place(c->root, place);
    for (size_t i = 0; i < COUNT(switches) && status == TY_OK; i++) {
        bool is_on = false;
        status = ty_hf_flag(c, switches[i].key, &is_on);
        if (status == TY_OK && is_on && (!switches[i].of_encoders || c->t.form == TY_ENCODER))
            status = ty_fail(c->error, TY_EPARSE, "%.180s/%s: found true, expected %s", place,
                             switches[i].key, switches[i].expected);
    }
    return status;
}

ty_status ty_hf_read_sizes_of(hf_config *c, const hf_family *family)
{
    static hf_names groups = {"multi_query_group_num"};
    size_key keys[COUNT(common)];
    ty_status status = TY_OK;

    if (family->build != NULL)
        return TY_OK;
    memcpy(keys, common, sizeof common);
    if (c->root != c->outer)
        set_class_defaults(c, family);
    if (family->finish == finish_mamba || family->finish == finish_mamba2 ||
        family->finish == finish_mamba_own)
        keys[2].is_needed = false; /* no attention, no heads */
    TY_CHECK(read_sizes(c, keys, COUNT(keys)), status, cleanup);
    TY_CHECK(ty_hf_size_of(c, c->root, groups, false, 1, &c->t.kv_heads), status, cleanup);
    TY_CHECK(ty_hf_flag(c, "tie_word_embeddings", &c->t.is_tied), status, cleanup);
    if (c->outer != c->root && ty_json_has(c->outer, "tie_word_embeddings"))
        TY_CHECK(ty_json_bool(c->outer, "tie_word_embeddings", &c->t.is_tied, c->error), status,
                 cleanup);
    TY_CHECK(family->finish(c), status, cleanup);
    TY_CHECK(check_layer_types(c, family->finish == finish_qwen3_next ? "linear_attention"
                                  : family->finish == finish_bamba    ? "mamba"
                                                                      : NULL),
             status, cleanup);
    status = check_other_network(c);

cleanup:
    return status;
}

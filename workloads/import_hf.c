/* Hugging Face config.json: shapes of a language model, by family ("model_type"). The same size has
 * other names in other families, and newer families write older ones' keys anew; defaults are those
 * of the families' configuration classes in huggingface/transformers. Keys that have nothing to do
 * with sizes are passed over, others that are not known are noted. */
#include "import_language.h"

#include <stddef.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

typedef struct config {
    ty_import_source *source;
    const ty_json *root;
    ty_error *error;
    ty_transformer t;
} config;

/* ---- Keys under several names ---------------------------------------------------------------- */

#define MOST_NAMES 5

/* The first of the names that is there; the first of all if none is. The others count as read. */
static const char *find_key(const config *c, const char *const names[MOST_NAMES])
{
    const char *found = NULL;

    for (size_t i = 0; i < MOST_NAMES && names[i] != NULL; i++) {
        if (found != NULL)
            ty_json_ignore(c->root, names[i]);
        else if (ty_json_has(c->root, names[i]))
            found = names[i];
    }
    return found != NULL ? found : names[0];
}

static ty_status read_size(const config *c, const char *const names[MOST_NAMES], bool is_needed,
                           uint64_t minimum, uint64_t *out)
{
    const char *key = find_key(c, names);

    if (!is_needed && !ty_json_has(c->root, key))
        return TY_OK;
    return ty_json_uint64(c->root, key, minimum, INT32_MAX, out, c->error);
}

static ty_status read_flag(const config *c, const char *key, bool *out)
{
    return ty_json_has(c->root, key) ? ty_json_bool(c->root, key, out, c->error) : TY_OK;
}

/* A text that may be absent: NULL. */
static ty_status read_text(const config *c, const char *key, const char **out)
{
    *out = NULL;
    return ty_json_has(c->root, key) ? ty_json_string(c->root, key, out, c->error) : TY_OK;
}

static const struct size_key {
    size_t offset;
    bool is_needed;
    const char *names[MOST_NAMES];
} common[] = {
    {offsetof(ty_transformer, blocks),
     true,
     {"num_hidden_layers", "n_layer", "num_layers", "n_layers"}},
    {offsetof(ty_transformer, features), true, {"hidden_size", "n_embd", "d_model"}},
    {offsetof(ty_transformer, heads),
     true,
     {"num_attention_heads", "n_head", "num_heads", "n_heads"}},
    {offsetof(ty_transformer, vocabulary), true, {"vocab_size"}},
    {offsetof(ty_transformer, longest_sequence),
     false,
     {"max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length"}},
    {offsetof(ty_transformer, kv_heads), false, {"num_key_value_heads"}},
    {offsetof(ty_transformer, head_size), false, {"head_dim", "d_kv"}},
    {offsetof(ty_transformer, hidden_features),
     false,
     {"intermediate_size", "n_inner", "d_ff", "ffn_dim"}},
};

static ty_status read_sizes(config *c, const struct size_key *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t *out = (uint64_t *)(void *)((char *)&c->t + keys[i].offset);
        ty_status status = read_size(c, keys[i].names, keys[i].is_needed, 1, out);
        if (status != TY_OK)
            return status;
    }
    return TY_OK;
}

/* ---- Families -------------------------------------------------------------------------------- */

/* "gelu_new", "silu", "relu": only relu makes a difference, and only without a gate. */
static ty_status read_activation(config *c)
{
    ty_status status = TY_OK;
    static const char *const keys[] = {"hidden_act", "activation_function"};

    for (size_t i = 0; i < COUNT(keys); i++) {
        const char *name;
        TY_CHECK(read_text(c, keys[i], &name), status, cleanup);
        if (name != NULL)
            c->t.is_relu = strcmp(name, "relu") == 0;
    }

cleanup:
    return status;
}

static ty_status finish_gpt2(config *c)
{
    c->t.positions = c->t.longest_sequence;
    if (c->t.hidden_features == 0)
        c->t.hidden_features = 4 * c->t.features;
    if (c->t.positions == 0)
        return ty_json_uint64(c->root, "n_positions", 1, INT32_MAX, &c->t.positions, c->error);
    return read_activation(c);
}

static ty_status finish_bert(config *c)
{
    static const struct size_key keys[] = {
        {offsetof(ty_transformer, token_types), true, {"type_vocab_size"}},
        {offsetof(ty_transformer, positions), true, {"max_position_embeddings"}},
        {offsetof(ty_transformer, hidden_features), true, {"intermediate_size"}},
    };
    ty_status status = TY_OK;

    TY_CHECK(read_sizes(c, keys, COUNT(keys)), status, cleanup);
    TY_CHECK(read_activation(c), status, cleanup);
    ty_import_note(c->source, "the encoder and its pooler, without a head for training and a loss");

cleanup:
    return status;
}

/* Biases by key, a window of attention counted as no window. */
static ty_status finish_llama(config *c)
{
    ty_status status = TY_OK;
    bool has_window = true;

    TY_CHECK(read_flag(c, "attention_bias", &c->t.has_attention_bias), status, cleanup);
    TY_CHECK(read_flag(c, "mlp_bias", &c->t.has_mlp_bias), status, cleanup);
    TY_CHECK(read_flag(c, "use_sliding_window", &has_window), status, cleanup);
    if (has_window && ty_json_has(c->root, "sliding_window"))
        ty_import_note(c->source, "sliding_window: attention counted over the whole sequence");
    ty_json_ignore(c->root, "sliding_window");
    if (c->t.hidden_features == 0 && c->t.experts == 0)
        return ty_json_uint64(c->root, "intermediate_size", 1, INT32_MAX, &c->t.hidden_features,
                              c->error);

cleanup:
    return status;
}

static const struct size_key expert_keys[] = {
    {offsetof(ty_transformer, experts),
     true,
     {"num_local_experts", "num_experts", "n_routed_experts", "num_routed_experts"}},
    {offsetof(ty_transformer, experts_per_token),
     true,
     {"num_experts_per_tok", "num_experts_per_token", "moe_topk"}},
};

static ty_status finish_mixtral(config *c)
{
    ty_status status = read_sizes(c, expert_keys, COUNT(expert_keys));
    c->t.expert_features = c->t.hidden_features;
    return status != TY_OK ? status : finish_llama(c);
}

static ty_status read_expert_features(config *c)
{
    static const struct size_key keys[] = {
        {offsetof(ty_transformer, expert_features), true, {"moe_intermediate_size"}},
    };
    ty_status status = TY_OK;

    TY_CHECK(read_sizes(c, expert_keys, COUNT(expert_keys)), status, cleanup);
    TY_CHECK(read_sizes(c, keys, COUNT(keys)), status, cleanup);

cleanup:
    return status;
}

static ty_status finish_qwen3_moe(config *c)
{
    ty_status status = TY_OK;
    const ty_json *dense;
    uint64_t step = 1;

    TY_CHECK(read_expert_features(c), status, cleanup);
    if (ty_json_has(c->root, "decoder_sparse_step")) /* others than 1 are in no published model */
        TY_CHECK(ty_json_uint64(c->root, "decoder_sparse_step", 1, 1, &step, c->error), status,
                 cleanup);
    if (ty_json_has(c->root, "mlp_only_layers"))
        TY_CHECK(ty_json_array(c->root, "mlp_only_layers", 0, 0, &dense, c->error), status,
                 cleanup);
    status = finish_llama(c);

cleanup:
    return status;
}

/* Sizes of latents and heads; a head has a part that is rotated and one that is not. */
static ty_status read_latents(config *c)
{
    static const struct size_key keys[] = {
        {offsetof(ty_transformer, query_rank), false, {"q_lora_rank"}},
        {offsetof(ty_transformer, kv_rank), true, {"kv_lora_rank"}},
        {offsetof(ty_transformer, rotary_size), true, {"qk_rope_head_dim"}},
        {offsetof(ty_transformer, head_size), true, {"qk_nope_head_dim"}},
        {offsetof(ty_transformer, value_head_size), true, {"v_head_dim"}},
    };
    ty_status status = read_sizes(c, keys, COUNT(keys));

    c->t.kv_heads = 0; /* every head has its own key, made from the latent */
    c->t.head_size += c->t.rotary_size;
    return status;
}

static ty_status finish_deepseek(config *c)
{
    static const char *const shared_names[MOST_NAMES] = {"n_shared_experts", "num_shared_experts"};
    static const char *const dense_names[MOST_NAMES] = {"first_k_dense_replace"};
    static const char *const interval_names[MOST_NAMES] = {"moe_layer_freq"};
    static const char *const more_names[MOST_NAMES] = {"num_nextn_predict_layers"};
    ty_status status = TY_OK;
    uint64_t shared = 0, more = 0;
    const char *method;

    TY_CHECK(read_latents(c), status, cleanup);
    TY_CHECK(read_expert_features(c), status, cleanup);
    TY_CHECK(read_size(c, shared_names, false, 0, &shared), status, cleanup);
    TY_CHECK(read_size(c, dense_names, false, 0, &c->t.dense_blocks), status, cleanup);
    TY_CHECK(read_size(c, interval_names, false, 1, &c->t.expert_interval), status, cleanup);
    TY_CHECK(read_size(c, more_names, false, 0, &more), status, cleanup);
    TY_CHECK(read_text(c, "topk_method", &method), status, cleanup);
    c->t.shared_features = shared * c->t.expert_features;
    if (method != NULL)
        c->t.has_router_bias = strcmp(method, "noaux_tc") == 0;
    if (more > 0)
        ty_import_note(c->source,
                       "num_nextn_predict_layers: %llu block(s) that predict further tokens are "
                       "left out",
                       (unsigned long long)more);
    status = finish_llama(c);

cleanup:
    return status;
}

/* feed_forward_proj: "relu", or "gated-gelu" in version 1.1. */
static ty_status finish_t5(config *c)
{
    static const struct size_key keys[] = {
        {offsetof(ty_transformer, head_size), true, {"d_kv"}},
        {offsetof(ty_transformer, hidden_features), true, {"d_ff"}},
        {offsetof(ty_transformer, decoder_blocks), false, {"num_decoder_layers"}},
        {offsetof(ty_transformer, relative_buckets), false, {"relative_attention_num_buckets"}},
    };
    ty_status status = TY_OK;
    const char *projection;

    c->t.decoder_blocks = c->t.blocks;
    c->t.relative_buckets = 32;
    TY_CHECK(read_sizes(c, keys, COUNT(keys)), status, cleanup);
    TY_CHECK(read_text(c, "feed_forward_proj", &projection), status, cleanup);
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

#define GATED .form = TY_DECODER, .is_gated = true, .is_rms_norm = true, .is_fused = true

static const struct family {
    const char *type;    /* "model_type" */
    const char *telling; /* a key by which it is known where the type is missing, or NULL */
    ty_status (*finish)(config *c);
    ty_transformer preset;
} families[] = {
    {"deepseek_v3", "kv_lora_rank", finish_deepseek, {GATED, .has_router_bias = true}},
    {"deepseek_v2", NULL, finish_deepseek, {GATED}},
    {"mixtral", "num_local_experts", finish_mixtral, {GATED}},
    {"qwen3_moe", "num_experts", finish_qwen3_moe, {GATED, .has_qk_norm = true}},
    {"t5",
     "d_kv",
     finish_t5,
     {.form = TY_ENCODER_DECODER, .is_rms_norm = true, .is_relu = true, .is_tied = true}},
    {"mt5", NULL, finish_t5, {.form = TY_ENCODER_DECODER, .is_rms_norm = true, .is_gated = true}},
    {"gpt2",
     "n_embd",
     finish_gpt2,
     {.form = TY_DECODER,
      .has_attention_bias = true,
      .has_mlp_bias = true,
      .is_tied = true,
      .is_fused = true}},
    {"bert",
     "type_vocab_size",
     finish_bert,
     {.form = TY_ENCODER,
      .head = TY_POOLER_HEAD,
      .has_attention_bias = true,
      .has_mlp_bias = true,
      .is_tied = true,
      .is_fused = true}},
    {"llama", "rms_norm_eps", finish_llama, {GATED}},
    {"mistral", NULL, finish_llama, {GATED}},
    {"qwen2", NULL, finish_llama, {GATED, .has_qkv_bias = true}},
    {"qwen3", NULL, finish_llama, {GATED, .has_qk_norm = true}},
};

/* ---- Which family ---------------------------------------------------------------------------- */

static ty_status find_family(const config *c, const struct family **out)
{
    const char *names[COUNT(families)];
    ty_status status;
    int i;

    for (size_t k = 0; k < COUNT(families); k++)
        names[k] = families[k].type;
    if (ty_json_has(c->root, "model_type")) {
        status = ty_json_enum(c->root, "model_type", names, COUNT(families), &i, c->error);
        if (status == TY_OK)
            *out = &families[i];
        return status;
    }
    for (size_t k = 0; k < COUNT(families); k++) {
        if (families[k].telling == NULL || !ty_json_has(c->root, families[k].telling))
            continue;
        ty_import_note(c->source, "model_type is missing; taken for %s because of %s",
                       families[k].type, families[k].telling);
        *out = &families[k];
        return TY_OK;
    }
    return ty_json_enum(c->root, "model_type", names, COUNT(families), &i, c->error);
}

/* ---- What is not read ------------------------------------------------------------------------ */

/* Nothing that sizes depend on: passed over in silence. */
static const char *const harmless[] = {
    "architectures",
    "auto_map",
    "_name_or_path",
    "name_or_path",
    "transformers_version",
    "torch_dtype",
    "dtype",
    "tokenizer_class",
    "task_specific_params",
    "id2label",
    "label2id",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "unk_token_id",
    "sep_token_id",
    "cls_token_id",
    "decoder_start_token_id",
    "use_cache",
    "output_past",
    "output_attentions",
    "output_hidden_states",
    "is_encoder_decoder",
    "gradient_checkpointing",
    "pretraining_tp",
    "ep_size",
    "initializer_range",
    "initializer_factor",
    "rms_norm_eps",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "rope_theta",
    "rope_scaling",
    "rope_interleave",
    "rope_parameters",
    "position_embedding_type",
    "relative_attention_max_distance",
    "attention_dropout",
    "attention_probs_dropout_prob",
    "hidden_dropout_prob",
    "hidden_dropout",
    "attn_pdrop",
    "embd_pdrop",
    "resid_pdrop",
    "dropout",
    "dropout_rate",
    "classifier_dropout",
    "summary_type",
    "summary_use_proj",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "aux_loss_alpha",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "output_router_logits",
    "seq_aux",
    "scoring_func",
    "topk_method",
    "norm_topk_prob",
    "routed_scaling_factor",
    "n_group",
    "topk_group",
    "max_window_layers",
    "layer_types",
    "model_type",
    "hidden_act",
    "activation_function",
    "dense_act_fn",
    "is_gated_act",
    "feed_forward_proj",
    "sliding_window",
    "use_sliding_window",
    "attention_bias",
    "mlp_bias",
};

static ty_status note_unread(const config *c)
{
    ty_text unknown = {0};
    const char *key;
    ty_status status;

    for (size_t i = 0; i < COUNT(harmless); i++)
        ty_json_ignore(c->root, harmless[i]);
    if (ty_json_has(c->root, "quantization_config"))
        ty_import_note(c->source, "quantization_config: sizes are those before quantization");
    ty_json_ignore(c->root, "quantization_config");
    while ((key = ty_json_next_unread(c->root)) != NULL)
        ty_text_addf(&unknown, "%s%.60s", unknown.length > 0 ? ", " : "", key);
    status = ty_text_check(&unknown, c->error);
    if (status == TY_OK && unknown.length > 0)
        ty_import_note(c->source, "keys that are not known, ignored: %s", unknown.data);
    ty_text_clear(&unknown);
    return status;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static bool has_any(const ty_json *root, const char *const names[MOST_NAMES])
{
    for (size_t i = 0; i < MOST_NAMES && names[i] != NULL; i++)
        if (ty_json_has(root, names[i]))
            return true;
    return false;
}

static bool probe(ty_import_source *source)
{
    const ty_json *root = ty_import_json(source);

    if (root == NULL || !ty_json_is_object(root) || ty_json_has(root, "schema"))
        return false;
    return ty_json_has(root, "model_type") || ty_json_has(root, "architectures") ||
           (has_any(root, common[0].names) && has_any(root, common[1].names));
}

static ty_status read(ty_import_source *source, ty_workload **out)
{
    ty_status status = TY_OK;
    config c = {.source = source, .root = ty_import_json(source), .error = source->error};
    ty_import_training training = {0};
    char whole[TY_JSON_PLACE_SIZE];
    const struct family *family;

    TY_CHECK(find_family(&c, &family), status, cleanup);
    c.t = family->preset;
    TY_CHECK(read_sizes(&c, common, COUNT(common)), status, cleanup);
    TY_CHECK(read_flag(&c, "tie_word_embeddings", &c.t.is_tied), status, cleanup);
    TY_CHECK(family->finish(&c), status, cleanup);
    TY_CHECK(note_unread(&c), status, cleanup);
    if (c.t.is_fused)
        ty_import_note(source, "fused attention assumed: scores are not kept");
    ty_json_place(c.root, whole);
    status = ty_import_transformer(source, &c.t, &training, whole, out);

cleanup:
    return status;
}

const ty_import_format ty_import_hf = {"Hugging Face config.json", probe, read, false};

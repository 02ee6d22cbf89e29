/* Hugging Face config.json, and diffusers': shapes of a network, by family ("model_type"). Defaults
 * are those of the families' configuration classes in huggingface/transformers. Keys that have
 * nothing to do with sizes are passed over, others that are not known are noted. */
#include "hf_config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* ---- Keys ------------------------------------------------------------------------------------ */

bool ty_hf_has_any(const ty_json *object, const char *const *names)
{
    for (size_t i = 0; i < HF_MOST_NAMES && names[i] != NULL; i++)
        if (ty_json_has(object, names[i]))
            return true;
    return false;
}

/* The first of the names that is there; the first of all if none is. The others count as read. */
static const char *find_key(const ty_json *object, const char *const *names)
{
    const char *found = NULL;

    for (size_t i = 0; i < HF_MOST_NAMES && names[i] != NULL; i++) {
        if (found != NULL)
            ty_json_ignore(object, names[i]);
        else if (ty_json_has(object, names[i]))
            found = names[i];
    }
    return found != NULL ? found : names[0];
}

ty_status ty_hf_size_of(const hf_config *c, const ty_json *object, const char *const *names,
                        bool is_needed, uint64_t minimum, uint64_t *out)
{
    const char *key = find_key(object, names);

    if (!is_needed && !ty_json_has(object, key))
        return TY_OK;
    return ty_json_uint64(object, key, minimum, INT32_MAX, out, c->error);
}

ty_status ty_hf_size(const hf_config *c, const char *key, uint64_t minimum, uint64_t *out)
{
    return ty_hf_size_of(c, c->root, (hf_names){key}, false, minimum, out);
}

ty_status ty_hf_need_size(const hf_config *c, const char *key, uint64_t *out)
{
    return ty_hf_size_of(c, c->root, (hf_names){key}, true, 1, out);
}

ty_status ty_hf_flag(const hf_config *c, const char *key, bool *out)
{
    return ty_json_has(c->root, key) ? ty_json_bool(c->root, key, out, c->error) : TY_OK;
}

ty_status ty_hf_text(const hf_config *c, const char *key, const char **out)
{
    *out = NULL;
    return ty_json_has(c->root, key) ? ty_json_string(c->root, key, out, c->error) : TY_OK;
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
    "mask_token_id",
    "decoder_start_token_id",
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
    "use_cache",
    "output_past",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "is_encoder_decoder",
    "is_decoder",
    "add_cross_attention",
    "cross_attention_hidden_size",
    "gradient_checkpointing",
    "pretraining_tp",
    "ep_size",
    "initializer_range",
    "initializer_factor",
    "rms_norm_eps",
    "norm_eps",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "layernorm_epsilon",
    "rope_theta",
    "rope_scaling",
    "rope_interleave",
    "rope_parameters",
    "rope_ratio",
    "partial_rotary_factor",
    "rotary_dim",
    "rotary_pct",
    "rotary_emb_base",
    "rotary_emb_fraction",
    "alibi",
    "position_embedding_type",
    "relative_attention_max_distance",
    "attention_dropout",
    "attention_probs_dropout_prob",
    "hidden_dropout_prob",
    "hidden_dropout",
    "attn_pdrop",
    "embd_pdrop",
    "resid_pdrop",
    "embedding_dropout",
    "attn_dropout",
    "resid_dropout",
    "activation_dropout",
    "dropout",
    "dropout_rate",
    "layerdrop",
    "classifier_dropout",
    "summary_type",
    "summary_use_proj",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "aux_loss_alpha",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "router_z_loss_coef",
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
    "_class_name",
    "_diffusers_version",
    "hidden_act",
    "hidden_activation",
    "activation_function",
    "activation",
    "dense_act_fn",
    "is_gated_act",
    "feed_forward_proj",
    "mlp_hidden_act",
    "mamba_hidden_act",
    "swiglu_limit",
    "sliding_window",
    "use_sliding_window",
    "attention_bias",
    "mlp_bias",
    "use_qk_norm",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "query_pre_attn_scalar",
    "embedding_multiplier",
    "residual_multiplier",
    "attention_multiplier",
    "logits_scaling",
    "logit_scale",
    "qkv_bias",
    "num_labels",
    "time_step_min",
    "time_step_max",
    "time_step_floor",
    "time_step_limit",
    "time_step_init_scheme",
    "time_step_scale",
    "rescale_prenorm_residual",
    "residual_in_fp32",
    "mamba_ssm_cache_dtype",
    "mamba_ssm_dtype",
    "use_mamba_kernels",
    "num_logits_to_keep",
    "chunk_size",
    "chunk_size_feed_forward",
    "image_processor",
    "bad_words_ids",
    "max_length",
    "min_length",
    "num_beams",
    "num_return_sequences",
    "temperature",
    "top_k",
    "top_p",
    "do_sample",
    "torchscript",
    "use_bfloat16",
    "pruned_heads",
    "problem_type",
    "prefix",
};

static ty_status list_unread(const hf_config *c, const ty_json *object, ty_text *unknown)
{
    const char *key;

    for (size_t i = 0; i < COUNT(harmless); i++)
        ty_json_ignore(object, harmless[i]);
    ty_json_ignore(object, "vision_config"); /* read where there is a tower, else noted */
    ty_json_ignore(object, "text_config");
    if (ty_json_has(object, "quantization_config"))
        ty_import_note(c->source, "quantization_config: sizes are those before quantization");
    ty_json_ignore(object, "quantization_config");
    while ((key = ty_json_next_unread(object)) != NULL)
        ty_text_addf(unknown, "%s%.60s", unknown->length > 0 ? ", " : "", key);
    return ty_text_check(unknown, c->error);
}

static ty_status note_unread(const hf_config *c)
{
    ty_text unknown = {0};
    ty_status status = list_unread(c, c->root, &unknown);

    if (status == TY_OK && c->outer != c->root)
        status = list_unread(c, c->outer, &unknown);
    if (status == TY_OK && unknown.length > 0)
        ty_import_note(c->source, "keys that are not known, ignored: %s", unknown.data);
    ty_text_clear(&unknown);
    return status;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static bool probe(ty_import_source *source)
{
    static hf_names blocks = {"num_hidden_layers", "n_layer", "num_layers", "n_layers"};
    static hf_names features = {"hidden_size", "n_embd", "d_model", "n_embed"};
    const ty_json *root = ty_import_json(source);

    if (root == NULL || !ty_json_is_object(root) || ty_json_has(root, "schema"))
        return false;
    return ty_json_has(root, "model_type") || ty_json_has(root, "architectures") ||
           ty_json_has(root, "_class_name") ||
           (ty_hf_has_any(root, blocks) && ty_hf_has_any(root, features));
}

static ty_status finish_builder(hf_config *c, ty_builder *builder, ty_workload **out)
{
    ty_import_training training = {0};
    return ty_import_finish_model(c->source, builder, &training, out);
}

/* As "rope_theta" or GPT-NeoX's "rotary_emb_base", since Transformers 5 among "rope_parameters"; 0
 * where it is not there or no whole number. */
static uint64_t rotary_base_of(const hf_config *c)
{
    static const char *const names[] = {"rope_theta", "rotary_emb_base"};
    const ty_json *inside = NULL;

    if (ty_json_has(c->root, "rope_parameters") &&
        ty_json_object(c->root, "rope_parameters", &inside, NULL) != TY_OK)
        return 0;

    for (size_t i = 0; i < 2 * COUNT(names); i++) {
        const ty_json *object = i < COUNT(names) ? c->root : inside;
        const char *name = names[i % COUNT(names)];
        double base;
        if (object != NULL && ty_json_has(object, name) &&
            ty_json_number(object, name, 1, 1e15, &base, NULL) == TY_OK && base == floor(base))
            return (uint64_t)base;
    }
    return 0;
}

static ty_status read(ty_import_source *source, ty_workload **out)
{
    ty_status status = TY_OK;
    uint64_t base;
    hf_config c = {.source = source, .outer = ty_import_json(source), .error = source->error};
    ty_import_training training = {0};
    ty_builder *builder = NULL;
    char whole[TY_JSON_PLACE_SIZE];
    const hf_family *family;

    c.root = c.outer;
    TY_CHECK(ty_hf_find_family(&c, &family), status, cleanup);
    c.t = family->preset;
    TY_CHECK(ty_hf_read_sizes_of(&c, family), status, cleanup);
    if (family->build == NULL && ty_import_vocabulary(source) > 0)
        c.t.vocabulary = source->options->vocabulary;
    ty_json_place(c.root, whole);
    if (family->build != NULL) {
        TY_CHECK(family->build(&c, &builder), status, cleanup);
        TY_CHECK(note_unread(&c), status, cleanup);
        status = finish_builder(&c, builder, out);
        builder = NULL; /* freed by it */
        goto cleanup;
    }
    if (c.t.is_fused)
        ty_import_note(source, "fused attention assumed: scores are not kept");
    if (ty_json_has(c.outer, "vision_config")) {
        TY_CHECK(ty_import_settle(source, &c.t, whole), status, cleanup);
        TY_CHECK(ty_hf_build_with_vision(&c, &builder), status, cleanup);
        TY_CHECK(note_unread(&c), status, cleanup);
        status = finish_builder(&c, builder, out);
        builder = NULL; /* freed by it */
        goto cleanup;
    }
    base = rotary_base_of(&c);
    TY_CHECK(note_unread(&c), status, cleanup);
    TY_CHECK(ty_import_transformer(source, &c.t, &training, whole, out), status, cleanup);
    (*out)->rotary_base = c.t.positions > 0 ? 0 : base;

cleanup:
    ty_builder_free(builder);
    ty_free(c.blocks);
    return status;
}

const ty_import_format ty_import_hf = {"Hugging Face config.json", probe, read, false};

/* DeepSpeed: ds_config.json, a host list and the launcher's line. Keys: deepspeed.ai, "DeepSpeed
 * Configuration JSON". Pipelines are a matter of the model's code there (PipelineModule). */
#include "launch.h"

#include <string.h>

static void write_optimizer(const ty_optimizer *o, ty_json_writer *w)
{
    bool is_sgd = o->kind == TY_OPTIMIZER_SGD;

    ty_json_open(w, "optimizer", '{');
    ty_json_put_string(w, "type", is_sgd ? "SGD" : "AdamW");
    ty_json_open(w, "params", '{');
    ty_json_put_number(w, "lr", o->learning_rate);
    ty_json_put_number(w, "weight_decay", o->weight_decay);
    if (is_sgd) {
        ty_json_put_number(w, "momentum", o->momentum);
    } else {
        ty_json_open_flat(w, "betas", '[');
        ty_json_put_number(w, NULL, o->beta1);
        ty_json_put_number(w, NULL, o->beta2);
        ty_json_close(w, ']');
        ty_json_put_number(w, "eps", o->epsilon);
    }
    ty_json_close(w, '}');
    ty_json_close(w, '}');
}

/* Bucket sizes are in elements. Each stage has the keys it reads: 1 and 2 gather buckets of updated
 * weights behind the step, 3 gathers weights before each use, so many elements ahead. */
static void write_zero(const launch *l, ty_json_writer *w)
{
    uint64_t elements = ty_launch_bucket_limit(l).bytes / TY_GRADIENT_ELEMENT_BYTES;

    ty_json_open(w, "zero_optimization", '{');
    ty_json_put_uint(w, "stage", l->plan->zero);
    if (elements > 0)
        ty_json_put_uint(w, "reduce_bucket_size", elements);
    ty_json_put_bool(w, "overlap_comm", true);
    if (l->plan->zero > 0) {
        ty_json_put_bool(w, "contiguous_gradients", true);
        ty_json_put_bool(w, "reduce_scatter", true);
    }
    if (elements > 0 && (l->plan->zero == 1 || l->plan->zero == 2))
        ty_json_put_uint(w, "allgather_bucket_size", elements);
    if (elements > 0 && l->plan->zero == 3) {
        ty_json_put_uint(w, "stage3_prefetch_bucket_size", elements);
        ty_json_put_uint(w, "stage3_param_persistence_threshold", 0);
        ty_json_put_bool(w, "stage3_gather_16bit_weights_on_model_save", true);
    }
    ty_json_close(w, '}');
}

/* Passes in 16 bits keep fp32 weights in the optimizer; gradients are summed in fp32, and travel so
 * unless the plan halves them. */
static void write_precision(const launch *l, ty_json_writer *w)
{
    const bool is_half = strcmp(l->precision, "fp32") != 0;

    ty_json_open(w, "bf16", '{');
    ty_json_put_bool(w, "enabled", strcmp(l->precision, "bf16") == 0);
    ty_json_close(w, '}');
    ty_json_open(w, "fp16", '{');
    ty_json_put_bool(w, "enabled", strcmp(l->precision, "fp16") == 0);
    if (strcmp(l->precision, "fp16") == 0)
        ty_json_put_uint(w, "loss_scale", 0); /* found while it trains */
    ty_json_close(w, '}');
    if (is_half) {
        ty_json_open(w, "data_types", '{');
        ty_json_put_string(w, "grad_accum_dtype", "fp32");
        ty_json_close(w, '}');
    }
    ty_json_put_string(w, "communication_data_type", ty_launch_gradient_precision(l));
}

static void write_config(const launch *l, ty_text *text)
{
    const ty_plan *plan = l->plan;
    ty_json_writer w = ty_json_writer_on(text);

    ty_json_open(&w, NULL, '{');
    ty_json_put_uint(&w, "train_batch_size", plan->global_batch);
    ty_json_put_uint(&w, "train_micro_batch_size_per_gpu", plan->micro_batch_size);
    ty_json_put_uint(&w, "gradient_accumulation_steps",
                     plan->micro_batches / plan->stages[0].replicas);
    write_optimizer(&plan->optimizer, &w);
    write_zero(l, &w);
    write_precision(l, &w);
    ty_json_close(&w, '}');
    ty_text_add(text, "\n");
}

static void write_script(const launch *l, ty_text *text)
{
    const ty_recompute recompute = l->plan->stages[0].recompute;

    ty_text_add(text, "#!/bin/sh\n");
    ty_launch_comments(l, "# ", text);
    if (recompute != TY_RECOMPUTE_NONE)
        ty_text_addf(text,
                     "# again    what is made again in backward (%s) is the script's to say, by "
                     "checkpointed(model) of\n#          trainyard_plan.py before "
                     "deepspeed.initialize: no key of ds_config.json does\n",
                     ty_recompute_name(recompute));
    ty_text_add(text, "set -eu\ncd \"$(dirname \"$0\")\"\n");
    ty_launch_export_environment(l, text);
    ty_launch_write_script_name(l, text);
    /* Its own launcher goes to the hosts by ssh; who was started on each of them needs none. */
    ty_text_add(text, "if [ -n \"${NODE_RANK:-}\" ]; then\n");
    ty_launch_write_devices(l, text);
    ty_launch_write_rendezvous(l, text);
    ty_text_add(text, "    \"${TRAINYARD_SCRIPT:-$script}\" --deepspeed --deepspeed_config "
                      "ds_config.json \"$@\"\nfi\n");
    ty_text_add(text, "exec deepspeed --hostfile hostfile");
    if (l->has_accelerators) {
        ty_text_add(text, " --include '");
        for (uint32_t h = 0; h < l->host_count; h++) {
            ty_text_addf(text, "%s%s:", h > 0 ? "@" : "", l->hosts[h].name);
            for (uint32_t d = 0; d < l->per_host; d++)
                ty_text_addf(text, "%s%u", d > 0 ? "," : "", l->first_slot + d);
        }
        ty_text_add(text, "'");
    }
    ty_text_add(text, " \\\n    \"${TRAINYARD_SCRIPT:-$script}\" --deepspeed --deepspeed_config "
                      "ds_config.json \"$@\"\n");
}

ty_status ty_launch_deepspeed(launch *l, ty_error *error)
{
    ty_status status = TY_OK;
    ty_text config = {0}, hosts = {0}, script = {0};

    TY_CHECK(ty_launch_check_data_parallel(l, "deepspeed", 3, error), status, cleanup);
    write_config(l, &config);
    ty_launch_comments(l, "# ", &hosts);
    for (uint32_t h = 0; h < l->host_count; h++)
        ty_text_addf(&hosts, "%s slots=%u\n", l->hosts[h].name, l->first_slot + l->per_host);
    write_script(l, &script);
    TY_CHECK(ty_launch_add(l, "ds_config.json", &config, false, error), status, cleanup);
    TY_CHECK(ty_launch_add_settings(l, LAUNCH_DEEPSPEED, error), status, cleanup);
    TY_CHECK(ty_launch_add(l, "hostfile", &hosts, false, error), status, cleanup);
    TY_CHECK(ty_launch_add(l, "launch.sh", &script, true, error), status, cleanup);
    status = ty_launch_next(l, error, "./launch.sh");

cleanup:
    ty_text_clear(&config);
    ty_text_clear(&hosts);
    ty_text_clear(&script);
    return status;
}

/* Training programs that are told by one file: torchtitan's TOML, Accelerate's YAML. Sources:
 * pytorch/torchtitan torchtitan/config/job_config.py (after 0.1.0), its models' flavors as
 * workloads/training_config.c reads them, and its docs/float8.md; huggingface/accelerate (1.6 and
 * later, for FSDP 2), "Launching Accelerate scripts" and "FSDP1 vs FSDP2". */
#include "launch.h"
#include "launch_yaml.h"
#include "ty_quote.h"
#include "ty_training_config.h"

#include <stdio.h>
#include <string.h>

#define RENDEZVOUS_PORT 29500

/* ---- torchtitan -------------------------------------------------------------------------- */

static const char titan[] = "torchtitan";

static ty_status check_titan(const launch *l, char family[TY_FLAVOR_SIZE],
                             char flavor[TY_FLAVOR_SIZE], ty_error *error)
{
    const ty_plan *plan = l->plan;
    const ty_status status = ty_training_flavor(plan->workload->name, family, flavor, error);

    if (status != TY_OK)
        return status;
    if (flavor[0] == '\0')
        return ty_launch_refuse(error, titan, "it has no model for %.80s that is known here",
                                plan->workload->name);
    if (plan->stage_count > 1 && plan->schedule != TY_ONE_F_ONE_B &&
        plan->schedule != TY_INTERLEAVED && plan->schedule != TY_GPIPE)
        return ty_launch_refuse(error, titan,
                                "its pipelines run gpipe, 1f1b or interleaved, and the plan %s; "
                                "plan with --fix schedule=1f1b",
                                ty_schedule_name(plan->schedule));
    for (uint32_t s = 1; s < plan->stage_count; s++)
        if (plan->stages[s].replicas != plan->stages[0].replicas ||
            plan->stages[s].recompute != plan->stages[0].recompute)
            return ty_launch_refuse(error, titan,
                                    "its stages are replicated and recomputed alike; plan with "
                                    "--fix dp=N,pp=%u",
                                    plan->stage_count);
    if (plan->staleness > 0 || plan->workload->local_steps > 1 ||
        plan->workload->learning != TY_LEARNING_GRADIENT)
        return ty_launch_refuse(error, titan, "it averages gradients in every step");
    if (plan->exchange_order != NULL)
        return ty_launch_refuse(error, titan, TY_LAUNCH_NO_PRIORITY);
    if (plan->zero == 0 && (plan->stage_count > 1 || ty_plan_width(plan) > 1))
        return ty_launch_refuse(error, titan,
                                "it replicates whole networks only, where neither layers nor "
                                "stages are divided; plan with --fix zero=2 or 3");
    if (plan->zero == 1)
        return ty_launch_refuse(error, titan,
                                "it shards weights, gradients and optimizer together (ZeRO 2 and "
                                "3) or nothing; plan with --fix zero=3 or zero=0");
    if (ty_plan_lanes(plan, TY_TENSOR_LANES) > 1 && !plan->sequence_parallel)
        return ty_launch_refuse(error, titan,
                                "its tensor parallelism divides the sequence as well; plan with "
                                "--fix sp=1");
    if (ty_plan_lanes(plan, TY_EXPERT_LANES) > 1 && plan->zero < 2)
        return ty_launch_refuse(error, titan,
                                "it divides experts among those that shard weights; plan with "
                                "--fix zero=3");
    if (plan->optimizer.kind != TY_OPTIMIZER_ADAMW)
        return ty_launch_refuse(error, titan, "it trains by AdamW");
    if (plan->stages[0].recompute == TY_RECOMPUTE_SELECTIVE ||
        plan->stages[0].recompute == TY_RECOMPUTE_ELEMENTWISE ||
        (plan->stages[0].recompute == TY_RECOMPUTE_FULL && plan->stages[0].recompute_blocks != 1))
        return ty_launch_refuse(error, titan,
                                "it recomputes blocks (full) or every other product (operator); "
                                "plan with --fix recompute=full, operator or none");
    for (uint32_t b = 0; b < plan->bucket_count; b++)
        if (plan->buckets[b].compression.kind != TY_COMPRESSION_NONE &&
            plan->buckets[b].compression.kind != TY_COMPRESSION_ROWS)
            return ty_launch_refuse(error, titan,
                                    "it compresses no gradients; plan with --fix compression=none");
    return ty_launch_check_blocks(l, titan, error);
}

static void put_number(ty_text *text, const char *key, double value)
{
    char number[32];

    ty_format_number(value, number);
    /* A number with a dot or an exponent: TOML tells integers from floats. */
    ty_text_addf(text, "%s = %s%s\n", key, number, strpbrk(number, ".e") != NULL ? "" : ".0");
}

/* Stages as lists of modules: blocks are "layers.N", with what lies around them at the ends. */
static ty_status put_stages(const launch *l, ty_text *text, ty_error *error)
{
    const ty_plan *plan = l->plan;
    const ty_workload *w = plan->workload;
    const uint32_t *starts;
    uint32_t head, block = 0;
    const uint32_t count = ty_workload_blocks(w, &starts, &head);

    ty_text_add(text, "module_fqns_per_model_part = [\n");
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        const bool is_last = s + 1 == plan->stage_count;
        const uint32_t end = plan->stages[s].first_layer + plan->stages[s].layer_count;
        uint32_t written = 0;
        ty_text_add(text, "    [");
        if (s == 0)
            ty_text_addf(text, "%s\"tok_embeddings\"", written++ > 0 ? ", " : "");
        for (; block < count && starts[block] < end && starts[block] != head; block++)
            ty_text_addf(text, "%s\"layers.%u\"", written++ > 0 ? ", " : "", block);
        if (!is_last && (block == count || starts[block] != end))
            return ty_launch_refuse(error, titan,
                                    "stages are of whole blocks there, and stage %u ends with "
                                    "%.60s",
                                    s, w->layers[end - 1].name);
        ty_text_addf(text, "%s],\n", is_last ? ", \"norm\", \"output\"" : "");
    }
    ty_text_add(text, "]\n");
    return TY_OK;
}

static ty_status write_titan(const launch *l, const char *family, const char *flavor, ty_text *text,
                             ty_error *error)
{
    const ty_plan *plan = l->plan;
    ty_status status = TY_OK;
    const uint32_t replicas = plan->stages[0].replicas * ty_plan_lanes(plan, TY_EXPERT_LANES),
                   each = plan->micro_batches / plan->stages[0].replicas,
                   micro = plan->micro_batch_size / ty_plan_lanes(plan, TY_EXPERT_LANES);
    const bool is_piped = plan->stage_count > 1, is_sharded = plan->zero >= 2;
    const bool is_narrow = plan->workload->precision == TY_PRECISION_FP8;
    const ty_recompute recompute = plan->stages[0].recompute;

    ty_launch_comments(l, "# ", text);
    ty_text_addf(text, "[model]\nname = \"%s\"\nflavor = \"%s\"\n%s\n", family, flavor,
                 is_narrow ? "converters = [\"quantize.linear.float8\"]\n" : "");
    ty_text_add(text, "[optimizer]\nname = \"AdamW\"\n");
    put_number(text, "lr", plan->optimizer.learning_rate);
    put_number(text, "beta1", plan->optimizer.beta1);
    put_number(text, "beta2", plan->optimizer.beta2);
    put_number(text, "eps", plan->optimizer.epsilon);
    put_number(text, "weight_decay", plan->optimizer.weight_decay);
    /* Micro-batches of a pipeline are parts of the local batch, else they are accumulated. */
    ty_text_addf(text,
                 "\n[training]\nlocal_batch_size = %u\nglobal_batch_size = %u\nseq_len = %llu\n",
                 is_piped ? micro * each : micro, plan->global_batch,
                 (unsigned long long)plan->workload->tokens_per_sample);
    if (l->input->steps > 0)
        ty_text_addf(text, "steps = %u\n", l->input->steps);
    ty_text_addf(text, "seed = %llu\n", (unsigned long long)plan->seed);
    ty_text_addf(text, "mixed_precision_param = \"%s\"\nmixed_precision_reduce = \"float32\"\n\n",
                 strcmp(l->precision, "fp32") == 0 ? "float32" : "bfloat16");
    ty_text_addf(text,
                 "[parallelism]\ndata_parallel_replicate_degree = %u\n"
                 "data_parallel_shard_degree = %u\nfsdp_reshard_after_forward = \"%s\"\n"
                 "tensor_parallel_degree = %u\ncontext_parallel_degree = %u\n"
                 "expert_parallel_degree = %u\npipeline_parallel_degree = %u\n",
                 is_sharded ? 1 : replicas, is_sharded ? replicas : 1,
                 plan->zero == 3 ? "always" : "never", ty_plan_lanes(plan, TY_TENSOR_LANES),
                 ty_plan_lanes(plan, TY_CONTEXT_LANES), ty_plan_lanes(plan, TY_EXPERT_LANES),
                 ty_plan_position_count(plan));
    if (is_piped) {
        ty_text_addf(text,
                     "pipeline_parallel_schedule = \"%s\"\n"
                     "pipeline_parallel_microbatch_size = %u\n",
                     plan->schedule == TY_INTERLEAVED ? "Interleaved1F1B"
                     : plan->schedule == TY_GPIPE     ? "GPipe"
                                                      : "1F1B",
                     micro);
        status = put_stages(l, text, error);
    }
    ty_text_addf(text, "\n[activation_checkpoint]\nmode = \"%s\"\n",
                 recompute == TY_RECOMPUTE_OPERATOR ? "selective"
                 : recompute == TY_RECOMPUTE_FULL   ? "full"
                                                    : "none");
    if (recompute == TY_RECOMPUTE_OPERATOR)
        ty_text_add(text, "selective_ac_option = \"op\"\n");
    /* Products of blocks are narrow, those of the logits and of routers are not; weights are
     * gathered as planned, in 16 bits. Casts are fused by the compiler. */
    if (is_narrow)
        ty_text_add(text, "\n[quantize.linear.float8]\nenable_fsdp_float8_all_gather = false\n"
                          "filter_fqns = [\"output\", \"router.gate\"]\n"
                          "\n[compile]\nenable = true\n");
    return status;
}

ty_status ty_launch_torchtitan(launch *l, ty_error *error)
{
    ty_status status = TY_OK;
    ty_text config = {0}, script = {0};
    char family[TY_FLAVOR_SIZE], flavor[TY_FLAVOR_SIZE];

    TY_CHECK(check_titan(l, family, flavor, error), status, cleanup);
    if (strcmp(l->precision, "fp16") == 0) {
        status = ty_launch_refuse(error, titan,
                                  "it trains in bf16 or fp32, and the devices have "
                                  "no bf16");
        goto cleanup;
    }
    TY_CHECK(write_titan(l, family, flavor, &config, error), status, cleanup);
    ty_text_add(&script, "#!/bin/sh\n");
    ty_launch_comments(l, "# ", &script);
    ty_text_add(&script, "# TORCHTITAN: its folder. Data set, tokenizer and checkpoints are "
                         "arguments of this script.\n");
    ty_launch_write_torchrun(l, &script);
    ty_text_add(&script, "    \"${TORCHTITAN:?}/torchtitan/train.py\" --job.config_file "
                         "\"$PWD/torchtitan.toml\" \"$@\"\n");
    TY_CHECK(ty_launch_add(l, "torchtitan.toml", &config, false, error), status, cleanup);
    TY_CHECK(ty_launch_add(l, "launch.sh", &script, true, error), status, cleanup);
    status = ty_launch_next(l, error, "TORCHTITAN=/path/to/torchtitan ./launch.sh");

cleanup:
    ty_text_clear(&config);
    ty_text_clear(&script);
    return status;
}

/* ---- Accelerate -------------------------------------------------------------------------- */

static void put_word(launch_yaml *y, const char *key, bool value)
{
    ty_launch_yaml_word(y, key, value ? "true" : "false");
}

/* Blocks are found by the model's own list of classes that are not to be split. */
static void put_fsdp(launch_yaml *y, const launch *l)
{
    ty_launch_yaml_open(y, "fsdp_config", '{');
    ty_launch_yaml_number(y, "fsdp_version", 2);
    put_word(y, "fsdp_reshard_after_forward", l->plan->zero == 3);
    ty_launch_yaml_word(y, "fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP");
    put_word(y, "fsdp_activation_checkpointing", l->plan->stages[0].recompute == TY_RECOMPUTE_FULL);
    put_word(y, "fsdp_offload_params", false);
    ty_launch_yaml_word(y, "fsdp_state_dict_type", "SHARDED_STATE_DICT");
    ty_launch_yaml_close(y, '}');
}

static void write_accelerate(launch_yaml *y, const launch *l)
{
    const ty_plan *plan = l->plan;

    ty_launch_yaml_open_document(y);
    ty_launch_yaml_word(y, "compute_environment", "LOCAL_MACHINE");
    /* In quotes: a bare NO is false. */
    ty_launch_yaml_string(y, "distributed_type",
                          plan->zero >= 2         ? "FSDP"
                          : !l->has_accelerators  ? "MULTI_CPU"
                          : l->process_count == 1 ? "NO"
                                                  : "MULTI_GPU");
    if (plan->zero >= 2)
        put_fsdp(y, l);
    ty_launch_yaml_string(y, "mixed_precision",
                          strcmp(l->precision, "fp32") == 0 ? "no" : l->precision);
    ty_launch_yaml_number(y, "num_machines", l->host_count);
    ty_launch_yaml_number(y, "num_processes", l->process_count);
    put_word(y, "use_cpu", !l->has_accelerators);
    ty_launch_yaml_close_document(y);
}

static ty_status check_accelerate(const launch *l, ty_error *error)
{
    static const char target[] = "accelerate";
    const ty_plan *plan = l->plan;
    const ty_recompute recompute = plan->stages[0].recompute;
    ty_status status = ty_launch_check_data_parallel(l, target, 3, error);

    if (status != TY_OK)
        return status;
    if (plan->zero == 1)
        return ty_launch_refuse(error, target,
                                "it shards nothing, or weights or gradients with the optimizer; "
                                "plan with --fix zero=0, 2 or 3");
    if (recompute == TY_RECOMPUTE_OPERATOR || recompute == TY_RECOMPUTE_ELEMENTWISE ||
        (recompute == TY_RECOMPUTE_FULL && plan->zero < 2))
        return ty_launch_refuse(error, target,
                                "its configuration recomputes whole blocks, with FSDP; plan with "
                                "--fix zero=3,recompute=full or recompute=none, or export to "
                                "torchrun");
    if (strcmp(ty_launch_gradient_precision(l), "fp32") != 0)
        return ty_launch_refuse(error, target,
                                "its configuration halves no gradients; plan with --fix "
                                "compression=none");
    return TY_OK;
}

ty_status ty_launch_accelerate(launch *l, ty_error *error)
{
    const uint32_t passes = l->plan->micro_batches / l->plan->stages[0].replicas;
    ty_status status = TY_OK;
    launch_yaml y;
    ty_text config = {0}, script = {0};

    TY_CHECK(check_accelerate(l, error), status, cleanup);
    ty_launch_comments(l, "# ", &config);
    ty_launch_yaml_start(&y, &config);
    write_accelerate(&y, l);
    TY_CHECK(ty_launch_yaml_end(&y, error), status, cleanup);
    ty_text_add(&script, "#!/bin/sh\n");
    ty_launch_comments(l, "# ", &script);
    ty_launch_write_script_name(l, &script);
    ty_text_add(&script, "set -eu\ncd \"$(dirname \"$0\")\"\n");
    ty_launch_export_environment(l, &script);
    ty_launch_write_devices(l, &script);
    ty_text_addf(&script,
                 "exec accelerate launch --config_file accelerate.yaml \\\n"
                 "    --gradient_accumulation_steps %u --machine_rank \"${NODE_RANK:-0}\" \\\n"
                 "    --main_process_ip \"${MASTER_ADDR:-%s}\" --main_process_port "
                 "\"${MASTER_PORT:-%d}\" \\\n"
                 "    \"${TRAINYARD_SCRIPT:-$script}\" \"$@\"\n",
                 passes, l->hosts[0].name, RENDEZVOUS_PORT);
    TY_CHECK(ty_launch_add(l, "accelerate.yaml", &config, false, error), status, cleanup);
    TY_CHECK(ty_launch_add_settings(l, LAUNCH_ACCELERATE, error), status, cleanup);
    TY_CHECK(ty_launch_add(l, "launch.sh", &script, true, error), status, cleanup);
    status = ty_launch_next(
        l, error,
        l->host_count > 1 ? "NODE_RANK=0 ./launch.sh   # on each host its number" : "./launch.sh");

cleanup:
    ty_text_clear(&config);
    ty_text_clear(&script);
    return status;
}

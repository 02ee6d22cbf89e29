/* Configurations of training programs: model, layout and batch as the files of data/ have them. */
#include "ty_training_config.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA TY_TEST_SOURCE "/data/"

static uint64_t parameters(const ty_workload *w)
{
    return ty_workload_parameter_bytes(w, 0, w->layer_count) / w->element_bytes;
}

Test(training_config, files)
{
    static const struct {
        const char *file, *model;
        uint64_t vocabulary;
        const char *format, *fix, *precision;
        uint64_t parameters, tokens;
        uint32_t batch, devices;
    } rows[] = {
        {"torchtitan.toml", NULL, 0, "torchtitan TOML",
         "tp=8,pp=1,cp=1,micro_batch=8,zero=3,sp=1,recompute=full,compression=none", "bf16",
         70553706496, 8192, 0, 0},
        {"nemo.yaml", NULL, 32000, "NeMo, Megatron-Bridge or Megatron-LM YAML",
         "tp=4,pp=2,micro_batch=1,zero=1,recompute=selective,compression=none", "bf16",
         6738415616 + 256 * 2 * 4096 /* padded to 32256 of 128 x 4 */, 4096, 256, 32},
        {"megatron.yaml", NULL, 0, "NeMo, Megatron-Bridge or Megatron-LM YAML",
         "tp=1,pp=2,cp=1,micro_batch=2,zero=1,compression=none", "bf16", 354823168 + 47 * 1024,
         1024, 128, 0},
        {"maxtext.yml", NULL, 0, "MaxText YAML",
         "tp=4,micro_batch=4,zero=3,recompute=full,compression=none", "bf16", 8030261248, 2048, 0,
         0},
        {"accelerate.yaml", "gpt2 batch=64", 0, "an Accelerate configuration",
         "tp=1,pp=1,zero=2,compression=none", "bf16", 124439808, 1024, 0, 16},
        {"deepspeed.json", "gpt2", 0, "a DeepSpeed configuration",
         "micro_batch=8,zero=2,compression=none", "bf16", 124439808, 1024, 512, 0},
        /* a model beside the file takes the place of its own */
        {"torchtitan.toml", "llama-3.1-8b", 0, "torchtitan TOML",
         "tp=8,pp=1,cp=1,micro_batch=8,zero=3,sp=1,recompute=full,compression=none", "bf16",
         8030261248, 8192, 0, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_training_config c = {0};
        ty_text fix = {0};
        ty_error error = {0};
        char path[256];
        snprintf(path, sizeof path, DATA "%s", rows[i].file);
        cr_assert_eq(ty_training_config_load(path, rows[i].model, rows[i].vocabulary, &c, &error),
                     TY_OK, "%s: %s", rows[i].file, error.message);
        cr_expect_str_eq(c.format, rows[i].format, "%s", rows[i].file);
        cr_expect_eq(parameters(c.workload), rows[i].parameters, "%s: %llu", rows[i].file,
                     (unsigned long long)parameters(c.workload));
        cr_expect_eq(c.workload->tokens_per_sample, rows[i].tokens, "%s", rows[i].file);
        cr_expect_eq(c.global_batch, rows[i].batch, "%s: %u", rows[i].file, c.global_batch);
        if (rows[i].batch > 0)
            cr_expect_eq(c.workload->global_batch, rows[i].batch, "%s", rows[i].file);
        cr_expect_eq(c.devices, rows[i].devices, "%s: %u", rows[i].file, c.devices);
        cr_expect_str_eq(c.precision, rows[i].precision, "%s", rows[i].file);
        cr_assert_eq(ty_training_config_fix(&c, &fix, &error), TY_OK);
        cr_expect_str_eq(fix.data, rows[i].fix, "%s", rows[i].file);
        ty_text_clear(&fix);
        ty_training_config_clear(&c);
    }
}

static ty_status load_text(const char *text, const char *model, ty_training_config *out,
                           ty_error *error)
{
    char path[] = "/tmp/trainyard-config-XXXXXX";
    int file = mkstemp(path);
    ty_status status;

    cr_assert_geq(file, 0);
    cr_assert_eq(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
    status = ty_training_config_load(path, model, 0, out, error);
    unlink(path);
    return status;
}

/* Numbers whose product no counter holds are refused, not left out or wrapped around. */
Test(training_config, products_beyond_range)
{
    static const struct {
        const char *text, *model, *part;
    } rows[] = {
        {"[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nseq_len = 1024\n[parallelism]\n"
         "data_parallel_shard_degree = 65536\ndata_parallel_replicate_degree = 65536\n",
         NULL, "data_parallel_shard_degree: found \"65536\", expected a number whose product"},
        {"model_name: llama3-8b\nper_device_batch_size: 1\nici_tensor_parallelism: 65536\n"
         "dcn_tensor_parallelism: 65536\n",
         NULL, "dcn_tensor_parallelism: found \"65536\", expected a number whose product"},
        {"trainer:\n  num_nodes: 65536\n  devices: 65536\nmodel:\n  num_layers: 2\n"
         "  hidden_size: 64\n  num_attention_heads: 2\n",
         "mlp", "trainer.devices: found \"65536\", expected a number whose product"},
        {"distributed_type: MULTI_GPU\nnum_processes: 1\ngradient_accumulation_steps: 1073741824\n",
         "mlp", NULL}, /* no micro-batch is said */
        {"[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nseq_len = 1024\n"
         "local_batch_size = 65536\n[parallelism]\ndata_parallel_shard_degree = 65536\n",
         NULL, "found a step of 4.295e+09 samples"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_training_config c = {0};
        ty_error error = {0};
        ty_status status = load_text(rows[i].text, rows[i].model, &c, &error);
        cr_expect_eq(status, rows[i].part == NULL ? TY_OK : TY_EPARSE, "%s: %s", rows[i].text,
                     error.message);
        if (rows[i].part != NULL)
            cr_expect_not_null(strstr(error.message, rows[i].part), "%s", error.message);
        ty_training_config_clear(&c);
    }
}

/* A step's batch follows from a device's where the devices are said. */
Test(training_config, batch_of_devices)
{
    ty_training_config c = {0};
    ty_error error = {0};

    cr_assert_eq(load_text("[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nseq_len = 1024\n"
                           "local_batch_size = 2\n[parallelism]\ndata_parallel_shard_degree = 16\n"
                           "data_parallel_replicate_degree = 2\n",
                           NULL, &c, &error),
                 TY_OK, "%s", error.message);
    cr_expect_eq(c.data, 32);
    cr_expect_eq(c.global_batch, 64);
    cr_expect_eq(c.report.note_count, 1); /* HSDP */
    ty_training_config_clear(&c);
}

/* A plan's micro-batch is that of all lanes that share experts, a program's that of one of them. */
Test(training_config, lanes_of_experts)
{
    static const struct {
        const char *text, *fix, *stack;
    } rows[] = {
        {"num_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\nseq_length: 64\nvocab_size: 512\n"
         "max_position_embeddings: 64\nnum_moe_experts: 16\nmoe_router_topk: 2\n"
         "expert_model_parallel_size: 8\nmicro_batch_size: 2\nglobal_batch_size: 64\n",
         "ep=8,micro_batch=16,compression=none", "megatron"},
        {"[model]\nname = 'qwen3'\nflavor = '30B-A3B'\n[training]\nseq_len = 64\n"
         "local_batch_size = 1\n[parallelism]\ndata_parallel_shard_degree = 32\n"
         "expert_parallel_degree = 8\nfsdp_reshard_after_forward = 'never'\n",
         "ep=8,dp=4,micro_batch=8,zero=2,compression=none", "torchtitan"},
        {"--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --vocab-size 512 "
         "--max-position-embeddings 64 --num-experts 16 --moe-router-topk 2\n"
         "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 4\n"
         "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2\n"
         "--micro-batch-size 1 --global-batch-size 64 --recompute-granularity full\n"
         "--recompute-method uniform --recompute-num-layers 2 --bf16\n",
         "tp=2,pp=2,cp=1,ep=4,interleave=2,micro_batch=4,zero=0,sp=1,recompute=full:2,"
         "schedule=interleaved,compression=none",
         "megatron"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_training_config c = {0};
        ty_text fix = {0};
        ty_error error = {0};
        cr_assert_eq(load_text(rows[i].text, NULL, &c, &error), TY_OK, "row %zu: %s", i,
                     error.message);
        cr_assert_eq(ty_training_config_fix(&c, &fix, &error), TY_OK);
        cr_expect_str_eq(fix.data, rows[i].fix, "row %zu: %s", i, fix.data);
        cr_expect_str_eq(c.stack, rows[i].stack, "row %zu", i);
        ty_text_clear(&fix);
        ty_training_config_clear(&c);
    }
}

/* Products in 8 and 4 bits, as each program says them. */
Test(training_config, narrow_precisions)
{
#define SIZES                                                                                      \
    "num_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\nseq_length: 64\n"                     \
    "max_position_embeddings: 64\nvocab_size: 512\nbf16: true\n"
#define LLAMA "[model]\nname = 'llama3'\nflavor = '8B'\n"
    static const struct {
        const char *text, *model, *precision;
    } rows[] = {
        {LLAMA "converters = [\"quantize.linear.float8\"]\n[training]\nseq_len = 64\n", NULL,
         "fp8"},
        {LLAMA "converters = [\n  'float8', # in 2025\n]\n[training]\nseq_len = 64\n", NULL, "fp8"},
        {LLAMA "converters = 'quantize.linear.mx'\n[training]\nseq_len = 64\n", NULL, "fp8"},
        {LLAMA "converters = []\n[training]\nseq_len = 64\n", NULL, "bf16"},
        {LLAMA "[training]\nseq_len = 64\n[float8]\nenable_float8_linear = true\n", NULL, "fp8"},
        {SIZES, NULL, "bf16"},
        {SIZES "fp8: hybrid\n", NULL, "fp8"},
        {SIZES "fp8: False\n", NULL, "bf16"},
        {SIZES "fp8: null\n", NULL, "bf16"},
        {SIZES "fp4: e2m1\n", NULL, "fp4"},
        {SIZES "mixed_precision: bf16_with_fp8_current_scaling_mixed\n", NULL, "fp8"},
        {SIZES "mixed_precision: bf16_with_nvfp4_mixed\n", NULL, "fp4"},
        {"model_name: llama3.1-8b\nper_device_batch_size: 1\nquantization: fp8\n", NULL, "fp8"},
        {"model_name: llama3.1-8b\nper_device_batch_size: 1\nquantization: ''\n", NULL, "bf16"},
        {"distributed_type: MULTI_GPU\nmixed_precision: fp8\n", "gpt2", "fp8"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_training_config c = {0};
        ty_error error = {0};
        cr_assert_eq(load_text(rows[i].text, rows[i].model, &c, &error), TY_OK, "row %zu: %s", i,
                     error.message);
        cr_expect_str_eq(c.precision, rows[i].precision, "row %zu", i);
        ty_training_config_clear(&c);
    }
}

/* OmegaConf's interpolations in NeMo's YAML. */
Test(training_config, interpolations)
{
#define NEMO(hidden, batch)                                                                        \
    "width: 64\ntrainer:\n  devices: 8\nmodel:\n  num_layers: 2\n  hidden_size: " hidden           \
    "\n  num_attention_heads: 4\n  encoder_seq_length: 32\n"                                       \
    "  max_position_embeddings: ${.encoder_seq_length}\n  vocab_size: 128\n"                       \
    "  global_batch_size: " batch "\n"
    static const char *const same[][2] = {
        {"64", "16"},
        {"${width}", "${multiply:${trainer.devices}, 2}"},
        {"${..width}", "${divide_ceil:31, 2}"},
        {"${oc.env:WIDTH,64}", "1${model.six}\n  six: ${divide_floor:13,2}"},
    };
    static const char *const wrong[][2] = {
        {"${width", "16"},       {"${.hidden_size}", "16"},
        {"${nowhere}", "16"},    {"64", "${now:%Y}"},
        {"64", "${multiply:2}"}, {"${model.a}", "16\n  a: ${model.b}\n  b: ${model.a}"},
    };
    ty_training_config c = {0};
    ty_error error = {0};
    char text[512];

    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        snprintf(text, sizeof text, NEMO("%s", "%s"), same[i][0], same[i][1]);
        cr_assert_eq(load_text(text, NULL, &c, &error), TY_OK, "row %zu: %s", i, error.message);
        cr_expect_eq(c.global_batch, 16, "row %zu: %u", i, c.global_batch);
        cr_expect_eq(parameters(c.workload), (128 + 32) * 64 + 2 * 49984 + 128, "row %zu: %llu", i,
                     (unsigned long long)parameters(c.workload));
        cr_expect_eq(c.workload->tokens_per_sample, 32, "row %zu", i);
        ty_training_config_clear(&c);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(text, sizeof text, NEMO("%s", "%s"), wrong[i][0], wrong[i][1]);
        cr_expect_eq(load_text(text, NULL, &c, &error), TY_EPARSE, "row %zu", i);
        cr_expect(strstr(error.message, "${") != NULL || strstr(error.message, "YAML") != NULL,
                  "row %zu: %s", i, error.message);
    }
}

#define TITAN "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\n"

Test(training_config, what_is_wrong_with_them)
{
    static const struct {
        const char *text;
        ty_status status;
        const char *part;
    } rows[] = {
        {"a: 1\n", TY_EPARSE, "found no configuration that is known"},
        {"{\"a\": ", TY_EPARSE, "line 1"},
        {"a: [1\n", TY_EPARSE, "malformed YAML"},
        {TITAN "seq_len = long\n", TY_EPARSE, ":5: training.seq_len: found \"long\""},
        {TITAN "seq_len = \"1024\n", TY_EPARSE, "the quote that ends a text"},
        {TITAN "seq_len 1024\n", TY_EPARSE, ":5: found \"1024\", expected KEY = VALUE"},
        {TITAN "seq_len = 1024\nlist = [1,\n", TY_EPARSE, "the end of an array"},
        {TITAN "seq_len = 1024\n[broken\n", TY_EPARSE, "] behind the name"},
        {"[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n[training]\nseq_len = 1024\n",
         TY_EPARSE, "model.flavor: found \"debugmodel\", expected a flavor that the zoo has"},
        {"distributed_type: MULTI_GPU\nnum_processes: 8\n", TY_EINVAL,
         "which has no model in it, expected one beside it (--workload)"},
        {"{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 4}}", TY_EPARSE,
         "zero_optimization.stage: found \"4\", expected 0 to 3"},
        {"num_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\nmax_position_embeddings: 64\n",
         TY_EPARSE, "found no --vocab-size"},
        {"model_name: gemma9-9b\nper_device_batch_size: 1\n", TY_EPARSE,
         "found \"gemma9-9b\", expected a model that the zoo has"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_training_config c = {0};
        ty_error error = {0};
        cr_expect_eq(load_text(rows[i].text, NULL, &c, &error), rows[i].status, "row %zu: %s", i,
                     error.message);
        cr_expect(strstr(error.message, rows[i].part) != NULL, "row %zu: %s", i, error.message);
        cr_expect_null(c.workload);
    }
}

Test(training_config, survives_failing_allocations)
{
    static const char *const files[] = {"torchtitan.toml", "megatron.yaml", "maxtext.yml"};

    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        ty_status status = TY_ENOMEM;
        char path[256];
        snprintf(path, sizeof path, DATA "%s", files[f]);
        for (long n = 1; status != TY_OK; n += 1 + n / 16) {
            ty_training_config c = {0};
            ty_error error = {0};
            ty_memory_fail_after(n);
            status = ty_training_config_load(path, NULL, 0, &c, &error);
            ty_memory_fail_after(0);
            cr_assert(status == TY_OK || status == TY_ENOMEM, "%s, allocation %ld: %s", files[f], n,
                      error.message);
            ty_training_config_clear(&c);
        }
    }
}

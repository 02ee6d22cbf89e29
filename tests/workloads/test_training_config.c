/* Configurations of training programs: model, layout and batch of the files in data/. */
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
         "tp=4,pp=2,micro_batch=1,zero=1,recompute=selective,schedule=1f1b,compression=none",
         "bf16", 6738415616 + 256 * 2 * 4096 /* padded to 32256 of 128 x 4 */, 4096, 256, 32},
        {"nemo-recipe.yaml", NULL, 0, "NeMo, Megatron-Bridge or Megatron-LM YAML",
         "tp=4,pp=4,cp=2,vpp=5,micro_batch=1,zero=1,sp=1,schedule=interleaved,"
         "compression=none",
         "bf16", 70553706496, 4096, 512, 64},
        {"nemo-recipe.yaml", "qwen3-8b", 0, "NeMo, Megatron-Bridge or Megatron-LM YAML",
         "tp=4,pp=4,cp=2,vpp=5,micro_batch=1,zero=1,sp=1,schedule=interleaved,"
         "compression=none",
         "bf16", 8190735360, 4096, 512, 64},
        {"megatron-bridge.yaml", NULL, 0, "NeMo, Megatron-Bridge or Megatron-LM YAML",
         "tp=1,pp=2,cp=2,micro_batch=1,zero=1,sp=0,recompute=full:2,schedule=1f1b,"
         "compression=none",
         "bf16", 8030261248, 8192, 512, 0},
        {"megatron.yaml", NULL, 0, "NeMo, Megatron-Bridge or Megatron-LM YAML",
         "tp=1,pp=2,cp=1,micro_batch=2,zero=1,schedule=1f1b,compression=none", "bf16",
         354823168 + 47 * 1024, 1024, 128, 0},
        {"maxtext.yml", NULL, 0, "MaxText YAML",
         "tp=4,pp=1,cp=1,ep=1,micro_batch=16,zero=3,recompute=full,compression=none", "bf16",
         8030261248, 2048, 0, 0},
        {"accelerate.yaml", "gpt2 batch=64", 0, "an Accelerate configuration",
         "tp=1,pp=1,cp=1,zero=2,recompute=none,compression=none", "bf16", 124439808, 1024, 0, 16},
        {"deepspeed.json", "gpt2", 0, "a DeepSpeed configuration",
         "tp=1,pp=1,cp=1,micro_batch=8,zero=2,compression=none", "bf16", 124439808, 1024, 512, 0},
        /* an explicit model replaces the file's own */
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

/* Numbers whose product overflows are refused, not ignored or wrapped around. */
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
         "mlp", NULL}, /* no micro-batch size in the file */
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

/* The global batch follows from the batch per device if the file has the number of devices. */
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
    cr_expect_eq(c.report.note_count, 2); /* HSDP, and recomputation */
    ty_training_config_clear(&c);
}

/* The global batch if the file only has the batch per device or replica: it follows from the
 * planned devices, as each program counts them; and the resulting micro-batch size. */
Test(training_config, batch_of_the_cluster)
{
#define TITAN_SHARE "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nseq_len = 64\n"
#define GPT                                                                                        \
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --vocab-size 512 "    \
    "--max-position-embeddings 64 --tensor-model-parallel-size 2 "
    static const struct {
        const char *text, *model;
        uint32_t devices, batch, micro_batch;
        const char *note; /* one of them; NULL: none */
    } rows[] = {
        {TITAN_SHARE "local_batch_size = 8\n[parallelism]\ntensor_parallel_degree = 8\n"
                     "data_parallel_shard_degree = -1\n",
         NULL, 64, 64, 8, "each second block"},
        {TITAN_SHARE "local_batch_size = 8\n[parallelism]\npipeline_parallel_degree = 4\n"
                     "[activation_checkpoint]\nmode = 'none'\n",
         NULL, 64, 128, 1, NULL},
        {TITAN_SHARE "local_batch_size = 2\nglobal_batch_size = 512\n"
                     "[activation_checkpoint]\nmode = 'none'\n",
         NULL, 64, 512, 2, NULL},
        /* MaxText counts every device, for any TP size */
        {"model_name: llama3-8b\nper_device_batch_size: 4\nici_tensor_parallelism: 4\n", NULL, 64,
         256, 16, NULL},
        {"model_name: llama3-8b\nper_device_batch_size: 0.5\nici_tensor_parallelism: 4\n"
         "gradient_accumulation_steps: 3\n",
         NULL, 64, 96, 2, NULL},
        {"model_name: llama3-8b\nper_device_batch_size: 1\nici_sequence_parallelism: 2\n", NULL, 8,
         8, 1, "ici_sequence_parallelism is not planned"},
        {GPT "--micro-batch-size 3\n", NULL, 16, 24, 3, NULL},
        {GPT "--micro-batch-size 3 --global-batch-size 96\n", NULL, 16, 96, 3, NULL},
        {GPT "--micro-batch-size 3 --recompute-granularity full --recompute-method block "
             "--recompute-num-layers 1\n",
         NULL, 16, 24, 3, "makes the first recompute_num_layers of a stage again"},
        {GPT "--micro-batch-size 3 --recompute-granularity full --recompute-method uniform "
             "--recompute-num-layers 1\n",
         NULL, 16, 24, 3, NULL},
        {"{\"train_micro_batch_size_per_gpu\": 4}", "mlp", 8, 32, 4,
         "recomputing is said by the training script"},
        {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n", "mlp batch=48", 8, 0,
         0, "recomputing is said by the training script"},
        {"{\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 2, "
         "\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}}}",
         "mlp", 8, 64, 4, "offload_optimizer.device: offloading is not planned"},
        {"distributed_type: FSDP\nnum_processes: 16\n", "mlp batch=48", 8, 0, 0,
         "the file starts 16 devices, the cluster has 8"},
        {"distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_offload_params: true\n",
         "mlp batch=48", 8, 0, 0, "no batch is said: the model's, 48 samples"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_training_config c = {0};
        ty_error error = {0};
        bool is_said = false;
        cr_assert_eq(load_text(rows[i].text, rows[i].model, &c, &error), TY_OK, "row %zu: %s", i,
                     error.message);
        cr_assert_eq(ty_training_config_settle(&c, rows[i].devices, &error), TY_OK, "row %zu: %s",
                     i, error.message);
        cr_expect_eq(c.global_batch, rows[i].batch, "row %zu: %u", i, c.global_batch);
        cr_expect_eq(c.micro_batch, rows[i].micro_batch, "row %zu: %u", i, c.micro_batch);
        if (rows[i].batch > 0)
            cr_expect_eq(c.workload->global_batch, rows[i].batch, "row %zu", i);
        for (uint32_t n = 0; n < c.report.note_count; n++)
            is_said |= rows[i].note != NULL && strstr(c.report.notes[n], rows[i].note) != NULL;
        cr_expect_eq(is_said, rows[i].note != NULL, "row %zu", i);
        ty_training_config_clear(&c);
    }
}

/* A switch is recognized at the end of an array or of a line, before any word; invalid options of a
 * script are named. */
Test(training_config, scripts)
{
    static const char ends[] =
        "MODEL=(\n --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64\n"
        " --vocab-size 512 --max-position-embeddings 64 --bf16\n)\nLAYOUT=(\n"
        " --tensor-model-parallel-size 2 --sequence-parallel\n)\n"
        "OTHER=\"--micro-batch-size 1 --global-batch-size 8 --use-distributed-optimizer\"\n"
        "if [[ \"$DTYPE\" == fp8 ]]; then\n  OTHER=\"$OTHER --fp8-format hybrid\"\nfi\n"
        "torchrun pretrain_gpt.py ${MODEL[@]} ${LAYOUT[@]} $OTHER --recompute-activations\necho "
        "done\n";
    ty_training_config c = {0};
    ty_text fix = {0};
    ty_error error = {0};

    cr_assert_eq(load_text(ends, NULL, &c, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_training_config_fix(&c, &fix, &error), TY_OK);
    cr_expect_str_eq(fix.data,
                     "tp=2,pp=1,cp=1,ep=1,micro_batch=1,zero=1,sp=1,recompute=selective,"
                     "compression=none,bucket=one",
                     "%s", fix.data);
    cr_expect_str_eq(c.precision, "fp8");
    cr_assert_eq(c.report.note_count, 3);
    cr_expect_str_eq(c.report.notes[2], "AdamW with a learning rate of 0.0003 assumed");
    cr_expect_str_eq(c.report.notes[1], "fused attention assumed: scores are not kept");
    cr_expect_str_eq(c.report.notes[0], "behind an if or a case, taken as given: --fp8-format",
                     "%s", c.report.notes[0]);
    ty_text_clear(&fix);
    ty_training_config_clear(&c);
}

/* Omitted values are the program's defaults; values that no plan has are left open. */
Test(training_config, defaults_of_the_programs)
{
    static const struct {
        const char *text, *model, *fix;
    } rows[] = {
        {TITAN_SHARE "[parallelism]\npipeline_parallel_degree = 2\n"
                     "pipeline_parallel_schedule = 'Interleaved1F1B'\n"
                     "[activation_checkpoint]\nmode = 'full'\n",
         NULL,
         "pp=2,vpp=2,micro_batch=1,zero=3,recompute=full,schedule=interleaved,"
         "compression=none"},
        {TITAN_SHARE "[parallelism]\npipeline_parallel_degree = 2\n"
                     "pipeline_parallel_schedule = 'ZBVZeroBubble'\n"
                     "[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = 'op'\n",
         NULL, "pp=2,micro_batch=1,zero=3,recompute=operator,compression=none"},
        {TITAN_SHARE "[compile]\nmode = 'full'\n", NULL, "zero=3,compression=none"},
        {"trainer:\n  devices: 8\nmodel:\n  num_layers: 4\n  hidden_size: 64\n"
         "  num_attention_heads: 4\n  encoder_seq_length: 64\n  max_position_embeddings: 64\n"
         "  pipeline_model_parallel_size: 2\n  virtual_pipeline_model_parallel_size: 2\n"
         "  tokenizer:\n    type: GPT2BPETokenizer\n",
         NULL, "pp=2,vpp=2,schedule=interleaved,compression=none"},
        {"distributed_type: FSDP\n", "mlp",
         "tp=1,pp=1,cp=1,zero=3,recompute=none,compression=none"},
        {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n", "mlp",
         "tp=1,pp=1,cp=1,zero=2,compression=none"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_training_config c = {0};
        ty_text fix = {0};
        ty_error error = {0};
        cr_assert_eq(load_text(rows[i].text, rows[i].model, &c, &error), TY_OK, "row %zu: %s", i,
                     error.message);
        cr_assert_eq(ty_training_config_fix(&c, &fix, &error), TY_OK);
        cr_expect_str_eq(fix.data, rows[i].fix, "row %zu: %s", i, fix.data);
        ty_text_clear(&fix);
        ty_training_config_clear(&c);
    }
}

/* A plan's micro-batch is that of all expert-parallel ranks, a program's that of one of them. */
Test(training_config, ranks_of_experts)
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
         "tp=2,pp=2,cp=1,ep=4,vpp=2,micro_batch=4,zero=0,sp=1,recompute=full:2,"
         "schedule=interleaved,compression=none,bucket=one",
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

/* The optimizer of the file; the model's settings stay if it is of the same kind. */
Test(training_config, optimizer)
{
#define SIZES                                                                                      \
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --vocab-size 512 "    \
    "--max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 8 "
#define SETTINGS                                                                                   \
    "num_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\nseq_length: 64\nvocab_size: 512\n"    \
    "max_position_embeddings: 64\nmicro_batch_size: 1\nglobal_batch_size: 8\n"
#define TITAN "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nseq_len = 64\n"
    static const struct {
        const char *text, *model, *optimizer, *note; /* note: part of one; NULL: none */
        double rate;                                 /* 0: not compared */
    } rows[] = {
        {SIZES, NULL, "adamw", NULL, 0},
        {SIZES "--optimizer adam --lr 0.01", NULL, "adamw", NULL, 0.01},
        {SIZES "--optimizer muon", NULL, "muon", NULL, 0},
        {SIZES "--optimizer dist_muon --lr 0.02", NULL, "muon", NULL, 0.02},
        {SIZES "--optimizer sgd", NULL, "momentum", NULL, 0},
        {SIZES "--optimizer lion --lr 0.01", NULL, "adamw", "--optimizer lion is not known", 0.01},
        {SETTINGS "optimizer: sgd\n", NULL, "momentum", NULL, 0},
        {SETTINGS "optim:\n  name: distributed_fused_adam\n", NULL, "adamw", NULL, 0},
        {SETTINGS "optim:\n  config:\n    optimizer: muon\n", NULL, "muon", NULL, 0},
        {SETTINGS "optimizer: lion\n", NULL, "adamw", "lion is not known, the model's adamw", 0},
        {TITAN "[optimizer]\nname = 'AdamW'\n", NULL, "adamw", NULL, 0},
        {TITAN "[optimizer]\nname = 'Muon'\n", NULL, "muon", NULL, 0},
        {"model_name: llama3.1-8b\nper_device_batch_size: 1\nopt_type: sgd\n", NULL, "sgd", NULL,
         0},
        {"distributed_type: FSDP\nnum_processes: 8\noptim: adamw_bnb_8bit\n", "gpt2", "adam8bit",
         NULL, 0},
        {"distributed_type: FSDP\nnum_processes: 8\noptim: adafactor\n", "mlp", "adafactor", NULL,
         0},
        {"{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"Adafactor\"}}", "gpt2", "adafactor",
         NULL, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_training_config c = {0};
        ty_error error = {0};
        bool is_said = false;
        cr_assert_eq(load_text(rows[i].text, rows[i].model, &c, &error), TY_OK, "row %zu: %s", i,
                     error.message);
        cr_expect_str_eq(ty_optimizer_word(&c.workload->optimizer), rows[i].optimizer, "row %zu",
                         i);
        if (rows[i].rate > 0)
            cr_expect_eq(c.workload->optimizer.learning_rate, rows[i].rate, "row %zu", i);
        for (uint32_t n = 0; n < c.report.note_count; n++)
            is_said |=
                strstr(c.report.notes[n], rows[i].note != NULL ? rows[i].note : "ptimizer") != NULL;
        cr_expect_eq(is_said, rows[i].note != NULL, "row %zu", i);
        ty_training_config_clear(&c);
    }
#undef SIZES
#undef SETTINGS
#undef TITAN
}

/* Each overlap flag with an effect is in the query; the others are listed. */
Test(training_config, overlap)
{
#define ARGUMENTS                                                                                  \
    "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --vocab-size 512 "    \
    "--max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 64 --bf16 "
#define BRIDGE                                                                                     \
    "model:\n  num_layers: 2\n  hidden_size: 64\n  num_attention_heads: 4\n  seq_length: 64\n"     \
    "  vocab_size: 512\n  max_position_embeddings: 64\n  tensor_model_parallel_size: 2\n"
    static const struct {
        const char *text;
        uint32_t devices;
        const char *bucket, *switches, *note; /* note: part of one; NULL: none about overlap */
    } rows[] = {
        /* not specified: off in arguments */
        {ARGUMENTS, 8, "bucket=one", "", NULL},
        {ARGUMENTS "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather\n", 8,
         "bucket=160000000B", "", NULL},
        {ARGUMENTS "--use-distributed-optimizer --overlap-grad-reduce\n", 8, "bucket=160000000B",
         "overlap_param_gather=off", NULL},
        /* the default grows with the data-parallel size: 1,000,000 parameters per rank */
        {ARGUMENTS "--overlap-grad-reduce\n", 64, "bucket=256000000B", "", NULL},
        {ARGUMENTS "--overlap-grad-reduce --ddp-bucket-size 1000000\n", 64, "bucket=4000000B", "",
         NULL},
        {ARGUMENTS "--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap\n", 8,
         "bucket=one", "tp_comm_overlap=on", NULL},
        {ARGUMENTS "--grad-reduce-in-bf16\n", 8, "bucket=one", "grad_reduce_in_bf16=on", NULL},
        /* flags that change nothing */
        {ARGUMENTS "--tp-comm-overlap\n", 8, "bucket=one", "", "not read: tp-comm-overlap"},
        {ARGUMENTS "--tensor-model-parallel-size 2 --tp-comm-overlap\n", 8, "bucket=one", "",
         "not read: tp-comm-overlap"},
        {ARGUMENTS "--overlap-grad-reduce --overlap-param-gather\n", 8, "bucket=160000000B", "",
         "not read: overlap-param-gather"},
        {ARGUMENTS "--ddp-bucket-size 1000000\n", 8, "bucket=one", "", "not read: ddp-bucket-size"},
        {ARGUMENTS "--overlap-grad-reduce\n", 1, NULL, "",
         "not used: there is one data-parallel rank"},
        /* not specified: left open in YAML */
        {BRIDGE, 8, NULL, "", NULL},
        {BRIDGE "comm_overlap:\n  tp_comm_overlap: true\nddp:\n  overlap_grad_reduce: true\n"
                "  use_distributed_optimizer: true\n  overlap_param_gather: false\n"
                "  grad_reduce_in_fp32: false\n",
         8, "bucket=160000000B",
         "overlap_param_gather=off tp_comm_overlap=on grad_reduce_in_bf16=on", NULL},
        {BRIDGE "ddp:\n  overlap_grad_reduce: false\n", 8, "bucket=one", "", NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_training_config c = {0};
        ty_text fix = {0};
        ty_error error = {0};
        const char *bucket;
        bool is_noted = false;
        cr_assert_eq(load_text(rows[i].text, NULL, &c, &error), TY_OK, "row %zu: %s", i,
                     error.message);
        cr_assert_eq(ty_training_config_buckets(&c, rows[i].devices, &error), TY_OK);
        cr_assert_eq(ty_training_config_fix(&c, &fix, &error), TY_OK);
        bucket = strstr(fix.data, "bucket=");
        if (rows[i].bucket == NULL)
            cr_expect_null(bucket, "row %zu: %s", i, fix.data);
        else
            cr_expect_str_eq(bucket != NULL ? bucket : "", rows[i].bucket, "row %zu", i);
        cr_expect_str_eq(c.switches.length > 0 ? c.switches.data : "", rows[i].switches, "row %zu",
                         i);
        for (uint32_t n = 0; n < c.report.note_count; n++) {
            const char *text = c.report.notes[n];
            is_noted = is_noted || (rows[i].note != NULL && strstr(text, rows[i].note) != NULL);
            if (rows[i].note == NULL)
                cr_expect(strstr(text, "overlap") == NULL && strstr(text, "bucket") == NULL &&
                              strstr(text, "reduce") == NULL,
                          "row %zu: %s", i, text);
        }
        cr_expect_eq(is_noted, rows[i].note != NULL, "row %zu", i);
        ty_text_clear(&fix);
        ty_training_config_clear(&c);
    }
#undef ARGUMENTS
#undef BRIDGE
}

/* Matrix products in 8 and 4 bits, in each program's notation. */
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
        {"model:\n  config:\n    _target_: own.MyConfig3B\ntensor_model_parallel_size: 2\n"
         "micro_batch_size: 1\n",
         TY_EPARSE, "found \"own.MyConfig3B\", expected a class of a network of the zoo"},
        {"tensor_model_parallel_size: 2\nmicro_batch_size: 1\n", TY_EINVAL,
         "expected one beside it (--workload)"},
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

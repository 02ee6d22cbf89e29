/**
 * @file ty_training_config.h
 * Configuration files of training programs read as a question: a model, a layout and a batch.
 *
 *     ty_training_config config = {0};
 *     TY_CHECK(ty_training_config_load("llama3_8b.toml", NULL, 0, &config, error), status,
 * cleanup);
 *     TY_CHECK(ty_training_config_settle(&config, devices, error), status, cleanup);
 *     // config.workload, config.tensor, config.global_batch, ...
 *     ty_training_config_clear(&config);
 *
 * torchtitan's TOML, NeMo's, Megatron-Bridge's and Megatron-LM's YAML, Megatron-LM's arguments,
 * MaxText's YAML, Accelerate's YAML or JSON, and DeepSpeed's JSON. docs/guides/bring-a-model.md
 * says what of each is read. What a file does not say is 0: whoever asks the planner leaves it
 * open.
 */
#ifndef TY_TRAINING_CONFIG_H
#define TY_TRAINING_CONFIG_H

#include "ty_workloads.h"

typedef struct ty_training_config {
    const char *format;    /* "torchtitan TOML" */
    ty_workload *workload; /* its sequence and batch as the file says */
    uint32_t global_batch; /* samples a step; 0: follows from micro-batch, accumulation and devices,
                              or is not said */
    uint32_t micro_batch;  /* samples of a rank and pass: of all its expert-parallel ranks */
    uint32_t accumulation; /* micro-batches a step */
    double share;          /* samples of a step that one replica has; 0: not said */
    double device_share;   /* ... that one device has, whatever ranks it is in (MaxText) */
    uint32_t tensor, pipeline, context, expert, virtual_stages; /* ranks and stages */
    /* The training script decides on TP, PP and CP, not the file: it keeps what is above. */
    bool has_fixed_ranks;
    uint32_t data;    /* ranks a stage, sharded or not; 0: what devices are left for */
    uint32_t devices; /* that the file starts; 0: not said */
    bool has_zero;
    uint32_t zero;                        /* 0 to 3 */
    const char *precision;                /* "fp32", "bf16", "fp16", "fp8", "fp4"; NULL: not said */
    const char *recompute;                /* "none", "selective", "full"; NULL: not said */
    uint32_t segment;                     /* blocks that "full" makes again at a time; 0: one */
    const char *schedule;                 /* "gpipe", "1f1b", "interleaved"; NULL: not said */
    bool has_sequence, is_along_sequence; /* sequence parallelism, said and what */
    const char *compression;              /* of gradients: "none", "fp16", "bf16", "one-bit" */
    bool has_overlap, is_overlapped; /* gradient all-reduce during backward: given, and whether */
    uint64_t bucket_elements;        /* gradients of a bucket that overlaps; 0: the default */
    const char *stack;               /* the software that reads the file, as a stack */
    ty_text switches; /* of that stack, in words that follow its name: "tp_comm_overlap=on" */
    ty_import_report report;        /* assumptions and ignored keys */
    struct ty_json_document *words; /* owns the texts above */
} ty_training_config;

/**
 * @param model as for ty_workload_open: needed where the file trains a model but has none in it
 *              (Accelerate, DeepSpeed), else in place of the file's; NULL: the file's
 * @param vocabulary of files that only name a tokenizer; 0: none
 * @return TY_EPARSE for a file of no known kind and for values that are none; TY_EINVAL where a
 *         model is needed.
 */
ty_status ty_training_config_load(const char *path, const char *model, uint64_t vocabulary,
                                  ty_training_config *out, ty_error *error) TY_MUST_CHECK;
void ty_training_config_clear(ty_training_config *config);

/**
 * What follows from the devices it is planned for, where the file does not say it: these programs
 * train as many samples a step as all devices' shares make. Notes where the file starts another
 * number of devices, and where no batch is said at all and the model's stays.
 * @param devices of the cluster; >= 1
 * @return TY_EPARSE for a step of more samples than 2^30
 */
ty_status ty_training_config_settle(ty_training_config *config, uint32_t devices,
                                    ty_error *error) TY_MUST_CHECK;

/**
 * Settles what depends on the number of data-parallel ranks: the size of gradient buckets, which
 * grows with it, and the note that overlap changes nothing on a single one.
 * @param devices of the cluster; >= 1
 */
ty_status ty_training_config_buckets(ty_training_config *config, uint32_t devices,
                                     ty_error *error) TY_MUST_CHECK;

/**
 * What torchtitan calls a model of the zoo.
 * @param family, flavor [out] "llama3" and "8B"; "" where it has none that is known
 */
#define TY_FLAVOR_SIZE 32
ty_status ty_training_flavor(const char *zoo, char family[TY_FLAVOR_SIZE],
                             char flavor[TY_FLAVOR_SIZE], ty_error *error) TY_MUST_CHECK;

/** The part of the layout that a change of the file cannot change, as `--fix` takes it. */
ty_status ty_training_config_bounds(const ty_training_config *config, ty_text *out,
                                    ty_error *error) TY_MUST_CHECK;
/** The layout as `--fix` takes it, "tp=8,pp=4,zero=1"; "" where the file leaves all open. */
ty_status ty_training_config_fix(const ty_training_config *config, ty_text *out,
                                 ty_error *error) TY_MUST_CHECK;

#endif

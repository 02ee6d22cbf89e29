/**
 * @file ty_training_config.h
 * Reads configuration files of training programs as a question: a model, a layout and a batch.
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
 * lists the keys read from each. Values that a file omits are 0: the planner searches them.
 */
#ifndef TY_TRAINING_CONFIG_H
#define TY_TRAINING_CONFIG_H

#include "ty_workloads.h"

typedef struct ty_training_config {
    const char *format;    /* "torchtitan TOML" */
    ty_workload *workload; /* with the file's sequence length and batch */
    uint32_t global_batch; /* samples per step; 0: follows from micro-batch, accumulation and
                              devices, or is unspecified */
    uint32_t micro_batch;  /* samples per pass of all EP ranks of a stage replica */
    uint32_t accumulation; /* micro-batches per step */
    double share;          /* samples per step and replica; 0: not specified */
    double device_share;   /* samples per step and device, whatever its process groups (MaxText) */
    uint32_t tensor, pipeline, context, expert, virtual_stages; /* TP, PP, CP, EP sizes and VPP */
    /* The training script sets TP, PP and CP, not the file: the sizes above stay. */
    bool has_fixed_ranks;
    uint32_t data;    /* DP size, sharded or not; 0: from the remaining devices */
    uint32_t devices; /* that the file starts; 0: not specified */
    bool has_zero;
    uint32_t zero;         /* 0 to 3 */
    const char *precision; /* "fp32", "bf16", "fp16", "fp8", "fp4"; NULL: not specified */
    const char *recompute; /* "none", "selective", "full"; NULL: not specified */
    uint32_t segment;      /* blocks that "full" recomputes at a time; 0: one */
    const char *schedule;  /* "gpipe", "1f1b", "interleaved"; NULL: not specified */
    bool has_sequence, is_along_sequence; /* sequence parallelism: set, value */
    const char *compression;              /* of gradients: "none", "fp16", "bf16", "one-bit" */
    bool has_overlap, is_overlapped;      /* overlapped gradient all-reduce: set, value */
    uint64_t bucket_elements; /* elements per gradient bucket with overlap; 0: the default */
    const char *stack;        /* the framework that reads the file */
    ty_text switches; /* options of that framework, as words after its name: "tp_comm_overlap=on" */
    ty_import_report report;        /* assumptions and ignored keys */
    struct ty_json_document *words; /* owns the texts above */
} ty_training_config;

/**
 * @param model as for ty_workload_open: required if the file has no model (Accelerate, DeepSpeed),
 *              else replaces the file's; NULL: the file's
 * @param vocabulary for files that only name a tokenizer; 0: none
 * @return TY_EPARSE for an unknown format or invalid values; TY_EINVAL if a model is required.
 */
ty_status ty_training_config_load(const char *path, const char *model, uint64_t vocabulary,
                                  ty_training_config *out, ty_error *error) TY_MUST_CHECK;
void ty_training_config_clear(ty_training_config *config);

/**
 * Derives values that the file omits from the number of devices: these programs train the sum of
 * all devices' shares per step. Adds a note if the file starts another number of devices, or if it
 * has no batch at all and the model's stays.
 * @param devices of the cluster; >= 1
 * @return TY_EPARSE for more than 2^30 samples per step
 */
ty_status ty_training_config_settle(ty_training_config *config, uint32_t devices,
                                    ty_error *error) TY_MUST_CHECK;

/**
 * Settles values that depend on the DP size: the size of gradient buckets, which grows with it, and
 * the note that overlap changes nothing at DP 1.
 * @param devices of the cluster; >= 1
 */
ty_status ty_training_config_buckets(ty_training_config *config, uint32_t devices,
                                     ty_error *error) TY_MUST_CHECK;

/**
 * torchtitan's name of a zoo model.
 * @param family, flavor [out] "llama3" and "8B"; "" if none is known
 */
#define TY_FLAVOR_SIZE 32
ty_status ty_training_flavor(const char *zoo, char family[TY_FLAVOR_SIZE],
                             char flavor[TY_FLAVOR_SIZE], ty_error *error) TY_MUST_CHECK;

/** The part of the layout that no change of the file can change, in `--fix` syntax. */
ty_status ty_training_config_bounds(const ty_training_config *config, ty_text *out,
                                    ty_error *error) TY_MUST_CHECK;
/** The layout in `--fix` syntax, "tp=8,pp=4,zero=1"; "" if the file specifies none. */
ty_status ty_training_config_fix(const ty_training_config *config, ty_text *out,
                                 ty_error *error) TY_MUST_CHECK;

#endif

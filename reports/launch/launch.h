/**
 * @file launch.h
 * What the targets have in common: who runs where, the comments, the settings of NCCL, the list of
 * files. Internal to reports/.
 */
#ifndef TY_REPORTS_LAUNCH_H
#define TY_REPORTS_LAUNCH_H

#include "ty_launch.h"

typedef struct launch_process {
    uint32_t rank, lane;
    uint32_t host; /* index into launch.hosts */
    uint32_t slot; /* the device's number on its host */
} launch_process;

typedef struct launch_host {
    const char *name;
    uint32_t process_count;
} launch_host;

typedef struct launch {
    const ty_launch_input *input;
    const ty_plan *plan;
    uint32_t process_count;
    launch_process *processes; /* [process_count] */
    uint32_t host_count;
    launch_host *hosts;  /* those in use, in the order processes meet them */
    bool is_blocked;     /* the processes of a host follow each other, each with the next device */
    uint32_t per_host;   /* processes of each host, where all have the same number; else 0 */
    uint32_t first_slot; /* of every host's first process, where it is the same; else UINT32_MAX */
    bool has_accelerators;
    const char *precision; /* "fp32", "bf16", "fp16" */
    bool has_tf32;         /* of fp32: products may be TF32 */
    char name[64];         /* of the job: letters, digits and hyphens (a DNS label of RFC 1123) */
    ty_text comments;      /* lines without a comment sign, each ended */
    ty_launch_files *files;
} launch;

/** Appends a file. Takes the text's content, also on failure. */
ty_status ty_launch_add(launch *l, const char *name, ty_text *text, bool is_program,
                        ty_error *error) TY_MUST_CHECK;
/** The provenance, each line behind `sign` ("# "). */
void ty_launch_comments(const launch *l, const char *sign, ty_text *text);
/** What to type next. */
ty_status ty_launch_next(launch *l, ty_error *error, const char *format, ...) TY_PRINTF(3, 4);

/* Of a plan with an order of exchanges, in front of every other software. */
#define TY_LAUNCH_NO_PRIORITY                                                                      \
    "it exchanges gradients as backward finishes them, and the plan those of front layers first; " \
    "plan with --fix priority=0, or export to mpirun or slurm"

/** TY_EUNSUPPORTED: "--to TARGET: REASON". */
ty_status ty_launch_refuse(ty_error *error, const char *target, const char *format, ...)
    TY_PRINTF(3, 4);

/** Refuses what a launcher with node rank and local rank cannot place. */
ty_status ty_launch_check_blocks(const launch *l, const char *target,
                                 ty_error *error) TY_MUST_CHECK;
/**
 * Refuses what plain data parallel training cannot do: stages, lanes, unequal replicas, local
 * steps, evolution, compression but to 16 bits, segments of recomputing that are no single block.
 * @param largest_zero the most that the target shards
 */
ty_status ty_launch_check_data_parallel(const launch *l, const char *target, uint32_t largest_zero,
                                        ty_error *error) TY_MUST_CHECK;
/** Blocks that the network repeats, as users' scripts list them; 0: it repeats none. */
uint32_t ty_launch_blocks(const launch *l);

/** Environment as the network and the plan ask for; value by name, in order. */
typedef struct launch_variable {
    const char *name, *value, *why;
} launch_variable;
#define LAUNCH_MOST_VARIABLES 8
uint32_t ty_launch_environment(const launch *l, launch_variable out[LAUNCH_MOST_VARIABLES]);
/** As lines of a shell script: "# why" and "export NAME=VALUE". */
void ty_launch_export_environment(const launch *l, ty_text *text);
/** Sets and exports, in a shell, the secret that our worker's ranks prove to have, unless there is
 * one, or a file of one: random, as the script runs. */
#define LAUNCH_SECRET                                                                              \
    "if [ -z \"${" TY_SECRET_FILE_VARIABLE ":-}\" ]; then\n"                                       \
    "    " TY_SECRET_VARIABLE "=${" TY_SECRET_VARIABLE                                             \
    ":-$(od -An -N32 -tx1 /dev/urandom | tr -d ' \\n')}\n"                                         \
    "    export " TY_SECRET_VARIABLE "\n"                                                          \
    "fi\n"
/** Its name, or that of its file, in a shell: what mpirun passes on to other hosts. */
#define LAUNCH_SECRET_NAME "\"" TY_SECRET_VARIABLE "${" TY_SECRET_FILE_VARIABLE ":+_FILE}\""

/** A line per process: process, host, device on it, stage, replica, lane. */
ty_status ty_launch_add_ranks(launch *l, ty_error *error) TY_MUST_CHECK;
/** rank.sh, which gives a process its device of ranks.txt. */
ty_status ty_launch_add_rank_script(launch *l, ty_error *error) TY_MUST_CHECK;
ty_status ty_launch_add_job(launch *l, ty_error *error) TY_MUST_CHECK;
/**
 * The one size at which frameworks close a bucket that comes nearest to the plan's buckets. They
 * fill from the last parameter of a stage down and close a bucket as soon as it has so much
 * (DistributedDataParallel's compute_bucket_assignment_by_size, Megatron-LM's
 * param_and_grad_buffer, DeepSpeed's independent gradient buckets).
 */
typedef struct launch_bucket_limit {
    uint64_t bytes;     /* uncompressed, fp32 */
    uint32_t planned;   /* buckets of the plan, but for tied weights and experts */
    uint32_t count;     /* that frameworks make of the limit, filling by whole layers */
    bool is_as_planned; /* and they are the plan's, layer by layer */
} launch_bucket_limit;
launch_bucket_limit ty_launch_bucket_limit(const launch *l);
/** What gradients travel as: "fp16" or "bf16" where the plan halves a bucket, else "fp32". */
const char *ty_launch_gradient_precision(const launch *l);
/** Who averages gradients. */
typedef enum launch_framework {
    LAUNCH_PYTORCH,
    LAUNCH_HOROVOD,
    LAUNCH_DEEPSPEED, /* told by a file of its own, but what it makes again */
    LAUNCH_ACCELERATE /* told by a file of its own */
} launch_framework;
/** trainyard_plan.py: the plan's settings and what makes a model train by them. */
ty_status ty_launch_add_settings(launch *l, launch_framework framework,
                                 ty_error *error) TY_MUST_CHECK;
ty_status ty_launch_settings(const launch *l, launch_framework framework, ty_text *text,
                             ty_error *error) TY_MUST_CHECK;
/** CUDA_VISIBLE_DEVICES of a host's processes, where there are accelerators. */
void ty_launch_write_devices(const launch *l, ty_text *text);
/** "exec torchrun ..." up to the script and its words, which are left to the caller. */
void ty_launch_write_rendezvous(const launch *l, ty_text *text);
/** All before that as well: environment, devices. The end of a torchrun command is left to the
 * caller: the script and its words. */
void ty_launch_write_torchrun(const launch *l, ty_text *text);
/** The #SBATCH lines of a job with so many tasks on every host, 0 for as many as it has processes.
 */
void ty_launch_write_directives(const launch *l, uint32_t per_host, ty_text *text);
/** Whether hosts exchange by adapters with RDMA that a container has to be given. */
bool ty_launch_has_rdma(const launch *l);
/** Puts launch.sh into what input->on names. */
ty_status ty_launch_put_on(launch *l, ty_error *error) TY_MUST_CHECK;
ty_status ty_launch_on_jobset(launch *l, ty_error *error) TY_MUST_CHECK;
ty_status ty_launch_on_trainjob(launch *l, ty_error *error) TY_MUST_CHECK;
/** What is trained, as the user named it or as it is usually called. */
const char *ty_launch_script(const launch *l);
/** A line of a shell script that sets `script` to it. */
void ty_launch_write_script_name(const launch *l, ty_text *text);

typedef ty_status (*launch_target)(launch *l, ty_error *error);
ty_status ty_launch_mpirun(launch *l, ty_error *error) TY_MUST_CHECK;
ty_status ty_launch_slurm(launch *l, ty_error *error) TY_MUST_CHECK;
ty_status ty_launch_mpijob(launch *l, ty_error *error) TY_MUST_CHECK;
ty_status ty_launch_pytorchjob(launch *l, ty_error *error) TY_MUST_CHECK;
ty_status ty_launch_torchrun(launch *l, ty_error *error) TY_MUST_CHECK;
ty_status ty_launch_megatron(launch *l, ty_error *error) TY_MUST_CHECK;
ty_status ty_launch_deepspeed(launch *l, ty_error *error) TY_MUST_CHECK;
ty_status ty_launch_horovod(launch *l, ty_error *error) TY_MUST_CHECK;
ty_status ty_launch_torchtitan(launch *l, ty_error *error) TY_MUST_CHECK;
ty_status ty_launch_accelerate(launch *l, ty_error *error) TY_MUST_CHECK;
ty_status ty_launch_nccl(launch *l, ty_error *error) TY_MUST_CHECK;
ty_status ty_launch_chakra(launch *l, ty_error *error) TY_MUST_CHECK;

#endif

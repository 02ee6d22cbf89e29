/**
 * @file ty_launch.h
 * From a plan to the files that start it on a real cluster: scripts, host lists, resources,
 * arguments of other frameworks. A target is a row of the table in launch/launch.c and a template
 * for each of its files in launch/templates/. Each file says
 * in comments where it came from: plan and cluster with their digests, the prediction, the command.
 *
 *     ty_launch_files *files = NULL;
 *     TY_CHECK(ty_launch("slurm", &input, &files, error), status, cleanup);
 *     for (uint32_t i = 0; i < files->count; i++)
 *         ...write files->files[i]...
 *
 * Targets of three kinds:
 *   mpirun, slurm, k8s-mpijob    start trainyard-worker, one process per device, with a job file
 *   torchrun, k8s-pytorchjob, horovod, deepspeed, accelerate, torchtitan, megatron
 *                                start a training program of the user's; the plan becomes its
 *                                settings
 *   nccl-tuner, chakra           start nothing: what NCCL is to choose for every size; an execution
 *                                trace for every process, for simulators
 * What a target cannot express is refused with the reason (TY_EUNSUPPORTED).
 *
 * Whatever has a launch.sh that is run once on every host (torchrun, deepspeed, accelerate,
 * torchtitan, megatron) can be put into what starts hosts: `on` names slurm, k8s-jobset,
 * k8s-trainjob or skypilot, and a file of it comes beside the target's own.
 *
 * Placement. Process p of a launch is lane p mod w of the plan's rank p / w, w being the lanes of a
 * rank. Hosts are in the order in which processes meet them, which is the plan's own: neighbours in
 * the numbering have the best links.
 */
#ifndef TY_LAUNCH_H
#define TY_LAUNCH_H

#include "ty_core.h"
#include "ty_topologies.h"

typedef struct ty_launch_input {
    const ty_plan *plan;
    const ty_program *program; /* chakra needs it */
    const ty_costs *costs;     /* chakra takes its durations from it */
    const ty_cluster *cluster; /* the plan's */
    const char *job;           /* text of the job file; what starts trainyard-worker needs it */
    uint32_t steps;            /* of the job; 0: not known */
    /* Real names of the cluster's hosts, [host_count of the cluster]; NULL: as the cluster calls
     * them. */
    char *const *host_names;
    const char *script; /* the user's training script; NULL: "train.py" */
    const char *image;  /* container image; NULL: "trainyard:VERSION", under Slurm none */
    const char *on;     /* what starts launch.sh on the hosts; NULL: nothing */
    /* Resource by which Kubernetes hands out network adapters with RDMA; NULL: as NVIDIA's network
     * operator calls it in its examples; "none": none is asked for */
    const char *rdma;
    const char *command; /* that asked, for the comments; NULL: none */
    const char *version; /* of Trainyard, for the comments */
} ty_launch_input;

typedef struct ty_launch_file {
    char *name;
    char *bytes; /* terminated */
    size_t length;
    bool is_program; /* to be made executable */
    bool is_binary;
} ty_launch_file;

typedef struct ty_launch_files {
    uint32_t count;
    ty_launch_file *files;
    char *next; /* what to type, in the folder of the files; "" for nothing */
} ty_launch_files;

/** Name and title of a target; NULL from `index` == their number on. */
const char *ty_launch_target(uint32_t index, const char **title);
/** Whether the target starts nothing: traces for simulators. */
bool ty_launch_is_traces(const char *target);
/** Whether the target starts trainyard-worker and so needs input->job. */
bool ty_launch_needs_job(const char *target);

/**
 * What numbers the passes of a plan are in, as frameworks call it: "fp32" or "tf32" where the
 * workload's elements have 4 bytes; of 2 "bf16", and "fp16" where it says so and on NVIDIA's GPUs
 * before Ampere, which have no units for bf16. Narrow products are beside that.
 */
const char *ty_launch_precision(const ty_plan *plan, const ty_cluster *cluster);
/**
 * What trainyard-worker runs a plan with: "cuda" where the devices are NVIDIA's GPUs, "cpu" where
 * they are processors; NULL for other devices, which it has no backend for.
 */
const char *ty_launch_backend(const ty_plan *plan, const ty_cluster *cluster);

/**
 * @return TY_EINVAL: no such target (with the nearest), or an input is missing; TY_EUNSUPPORTED:
 *         the target cannot express the plan, with the reason and often what can.
 */
ty_status ty_launch(const char *target, const ty_launch_input *input, ty_launch_files **out,
                    ty_error *error) TY_MUST_CHECK;
void ty_launch_free(ty_launch_files *files);

#endif

/**
 * @file ty_reports.h
 * Converts plans, timelines and runs to output for people and other programs. Functions append to a
 * ty_text; the caller decides where it is written.
 */
#ifndef TY_REPORTS_H
#define TY_REPORTS_H

#include "ty_core.h"
#include "ty_topologies.h"

/** Prediction and measurement of one kind of operation of one stage. */
typedef struct ty_comparison_row {
    uint32_t stage;
    ty_op op;
    uint32_t bucket; /* collectives, codecs, updates; else TY_NO_BUCKET */
    uint32_t phase;  /* of a two-phase compressor */
    uint32_t first_layer, layer_count;
    double predicted_s,
        measured_s;  /* median seconds per instruction, over stage replicas and steps */
    double per_step; /* number per stage replica and step */
    double error;    /* predicted / measured - 1; 0 when nothing was measured */
} ty_comparison_row;

/** Steps and time to a target: of a run, and as predicted for its plan. */
typedef struct ty_target_comparison {
    ty_target until; /* none: the run had a fixed number of steps */
    bool is_reached, is_predicted;
    double measured_steps, measured_s; /* until the evaluation that met it, without evaluations */
    double predicted_steps[3], predicted_s[3]; /* low, expected, high; 80 % prediction interval */
} ty_target_comparison;

typedef struct ty_comparison {
    ty_step_summary predicted, measured;
    double step_time_error; /* predicted / measured - 1 */
    uint32_t row_count;
    ty_comparison_row *rows; /* by stage, then by measured share of the step, largest first */
    uint64_t predicted_peak_memory_bytes,
        measured_peak_memory_bytes; /* largest over stage replicas; 0: unknown */
    double disturbed_share; /* of the run's steps, by other processes; 0: none, or unknown */
    double others_share;    /* of the cores, used by these processes */
    double load;            /* of the machine at the end of the run */
    uint32_t quiet_steps;   /* undisturbed steps of the timeline; 0: none */
    double quiet_step_time_s, quiet_error; /* mean of these steps; predicted / mean - 1 */
    /* Of a run with a target. The caller, which knows the convergence, sets the prediction. */
    ty_target_comparison target;
    /* Variant that the run's last evaluation tested; bits 0: none. */
    ty_variant variant;
    double accuracy, variant_accuracy;
} ty_comparison;

/**
 * Compares prediction and run. Of instructions that wait (receive, collective), only the time after
 * the last partner was ready counts.
 * @return TY_EINVAL for a run without a timeline, TY_EPARSE for timelines of another program
 */
ty_status ty_compare(const ty_plan *plan, const ty_program *program, const ty_timeline *predicted,
                     const ty_run *run, ty_comparison **out, ty_error *error) TY_MUST_CHECK;
void ty_comparison_free(ty_comparison *comparison);

/* Text for a terminal, at most 80 columns wide; longer texts continue in an indented line. */
#define TY_PRINT_COLUMNS 80
/** Warns about an uneven division and names a better value: "a batch of 60 divides badly over 8
 * devices: by the estimate 64 does 42 % more ...". Nothing if all divides. */
void ty_print_uneven(const ty_plan *plan, ty_imbalance_kind kind, ty_text *text);
/** Variant in which the model is deployed, its needs on the device, and the device's budget;
 * nothing for a plan without a device. */
void ty_deployment_sentence(const ty_deployment *deployment, ty_text *text);
/** The same as a separate line. */
void ty_print_deployment(const ty_plan *plan, ty_text *text);
/**
 * Prints the layout, its prediction and the alternatives.
 * @param cluster  of the plan; NULL: left out
 * @param question "-w llama-3-70b -c '8x dgx-h100'": options that reproduce the plan together with
 * its own; NULL: no line Reproduce
 */
void ty_print_plan(const ty_plan *plan, const ty_cluster *cluster, const char *question,
                   ty_text *text);
/** Prints only the lines Layout, Idle, Batch and Precision. */
void ty_print_layout(const ty_plan *plan, ty_text *text);
/** Provenance of a plan's times: "measured on this hardware", or the stack's mean error on held-out
 * rows of the cluster's first device and their number. */
void ty_print_certainty(const ty_plan *plan, const ty_cluster *cluster, ty_text *text);
/** @param interval of the step time; NULL: not printed
 * @param noun name of a device, for rates per device: "GPU"; NULL: no such rates */
void ty_print_summary(const ty_step_summary *summary, const ty_step_interval *interval,
                      const char *noun, ty_text *text);
/** "Nearest     measured: Llama-3.1-8B on 64 h100-sxm, fp8, nemo: 3.15 s per step (SOURCE)" */
void ty_print_nearest(const ty_plan *plan, ty_text *text);
void ty_print_memory(const ty_plan *plan, ty_text *text);
/** Micro-batches per step and per replica; a range if stages have different numbers of replicas. */
void ty_print_micro_batches(const ty_plan *plan, ty_text *text);
/** "Framework   megatron-2021 (Megatron-LM of 2021 on A100)" */
void ty_print_stack_name(const ty_stack *stack, ty_text *text);
/** Prints all constants of a stack with their sources. */
void ty_print_stack(const ty_stack *stack, ty_text *text);
void ty_print_comparison(const ty_plan *plan, const ty_comparison *comparison, ty_text *text);
/** Prints steps and time to the target, predicted and measured. */
void ty_print_target(const ty_target_comparison *target, ty_text *text);
void ty_print_run(const ty_run *run, ty_text *text);
/** Whether other processes used the machine during the run. */
bool ty_comparison_is_busy(const ty_comparison *comparison);
/** Prints how busy a machine was: "was busy: 38 % of steps disturbed, ...; the 50 quiet ones: 10
 * ms, +4.0 %".
 * @param gap text after the semicolon: " ", or a line's end */
void ty_print_busy(const ty_comparison *comparison, const char *gap, ty_text *text);

/** The member "target". */
void ty_target_comparison_to_json(const ty_target_comparison *target, ty_json_writer *writer);
/** Writes the document "trainyard.comparison/1". */
void ty_comparison_to_json(const ty_plan *plan, const ty_comparison *comparison,
                           ty_json_writer *writer, const char *key);

/** An instruction of the critical path: the next one waited for it. */
typedef struct ty_critical_part {
    uint32_t stage_replica, step, instruction;
    double from_s, to_s;
} ty_critical_part;
/**
 * Finds the critical path of a timeline's last step. It goes back from the last compute
 * instruction, along what each instruction waited for, to the end of the previous step's compute. A
 * receive counts as its send, a collective as its last member's.
 * @param out [out] in order of time; free with ty_free
 * @return TY_EPARSE for a timeline of another program, TY_EINVAL for one without steps
 */
ty_status ty_critical_parts(const ty_plan *plan, const ty_program *program,
                            const ty_timeline *timeline, ty_critical_part **out, uint32_t *count,
                            ty_error *error) TY_MUST_CHECK;

/**
 * Writes a Chrome/Perfetto trace: one process per stage replica, one thread per stream, X events in
 * microseconds, flow arrows from each send to its receive. Measured stage replicas follow the
 * predicted ones. A predicted timeline of devices (ty_plan_by_device) has one process per
 * device.
 * @param measured may be NULL
 * @return TY_EPARSE for timelines of another program
 */
ty_status ty_trace_write(const ty_plan *plan, const ty_program *program,
                         const ty_timeline *predicted, const ty_timeline *measured, ty_text *text,
                         ty_error *error) TY_MUST_CHECK;

/**
 * Writes a run as gauges in Prometheus' text format (0.0.4), for the text file collector of its
 * node exporter. Labels: workload, cluster, strategy, plan (its digest), backend;
 * stage_replica, its number, and part. Source: prometheus.io, "Exposition formats".
 */
void ty_run_to_metrics(const ty_plan *plan, const ty_run *run, ty_text *text);

/**
 * Writes a run as lines of MLPerf's log: `:::MLLOG {"namespace": "", "time_ms": ..., ...}`. Times
 * are those of training without evaluations, counted back from the date of the run; steps are
 * evenly spaced. Of long runs, every n-th step is logged. As MLPerf's rules require, the run stops
 * with "success" only if an evaluation reached the target. Source: mlcommons/logging,
 * mlperf_logging/mllog (mllog.py, constants.py).
 */
void ty_run_to_mlperf(const ty_plan *plan, const ty_run *run, ty_text *text);

/** A document that a report shows in addition to the plan: --json output of another command. */
typedef struct ty_report_document {
    const char *path;    /* as the user named it */
    const char *schema;  /* "trainyard.whatif/1", ... : ty_report_schemas */
    const ty_json *root; /* NULL for a plan or run, which ty_report_input has */
    ty_digest digest;    /* SHA-256 of the file */
    bool is_derived;     /* derived from the plan for this report: no file, no digest */
} ty_report_document;

/** Schemas of documents that a report can show, NULL at the end; docs/guides/read-a-report.md lists
 * the members that it reads. */
extern const char *const ty_report_schemas[];

/** A second plan that a report compares with the first. */
typedef struct ty_report_other {
    const char *path;
    const ty_plan *plan;
    const ty_program *program;
    const ty_timeline *simulated; /* NULL: not simulated, except in the plan */
    const ty_cluster *cluster;    /* NULL: not known */
    const ty_json *score;         /* its trainyard.score/1; NULL: none */
} ty_report_other;

/** Inputs of a report. All may be NULL, but a plan needs its program, and without a plan there must
 * be a document. */
typedef struct ty_report_input {
    const char *title;
    const ty_plan *plan;
    const ty_program *program;
    const ty_timeline *estimated, *simulated;
    const ty_run *run;
    const ty_comparison *comparison;
    const ty_cluster *cluster;    /* cluster of the plan: memory, topology, cost */
    const ty_costs *costs;        /* costs of the program: link load, traffic */
    const ty_report_other *other; /* the plan to compare with; NULL: none */
    const ty_report_document *documents;
    uint32_t document_count;
    const char *date;    /* date of the report, for its head */
    const char *version; /* of Trainyard, for its head */
    const char *command; /* that made the report, for the provenance */
} ty_report_input;

/**
 * Writes one self-contained HTML page: a template whose script draws one JSON document. The changes
 * to make first come first. docs/guides/read-a-report.md lists the sections and the sources of
 * their figures. The end of the page lists sections without data and what would fill them. The page
 * allows no network and no external file; only its own script and style run, by their hashes. Of a
 * large plan it shows one stage replica of each kind, of a large cluster groups of hosts.
 * @return TY_EPARSE for timelines of another program, or a document that violates its schema
 */
ty_status ty_report_html(const ty_report_input *input, ty_text *html,
                         ty_error *error) TY_MUST_CHECK;

/* ==== launch ================================================================================== */

/*
 * Makes the files that start a plan on a real cluster: scripts, host lists, resources, arguments of
 * other frameworks. A target is a row of the table in launch/launch.c and a template for each of
 * its files in launch/templates/. Comments in each file name its origin: plan and cluster with
 * their digests, the prediction, the command.
 *
 *     ty_launch_files *files = NULL;
 *     TY_CHECK(ty_launch("slurm", &input, &files, error), status, cleanup);
 *     for (uint32_t i = 0; i < files->count; i++)
 *         ...write files->files[i]...
 *
 * Targets of three kinds:
 *   mpirun, slurm, k8s-mpijob    start trainyard-worker, one process per device, with a job file
 *   torchrun, k8s-pytorchjob, horovod, deepspeed, accelerate, torchtitan, megatron
 *                                start the user's training program with the plan as its settings
 *   nccl-tuner, chakra           start nothing: NCCL's choices for every size; an execution trace
 *                                for every rank, for simulators
 * A target refuses plans that it cannot express, with the reason (TY_EUNSUPPORTED).
 *
 * Targets whose launch.sh runs once per host (torchrun, deepspeed, accelerate, torchtitan,
 * megatron) can be wrapped in a launcher of hosts: `on` names slurm, k8s-jobset, k8s-trainjob or
 * skypilot, whose file is added to the target's own.
 *
 * Placement. Rank p has index p mod w in the plan's stage replica p / w, for w ranks per stage
 * replica. Hosts are in the order of their first rank, which is the plan's own order: neighbors in
 * the numbering have the best links.
 */

typedef struct ty_launch_input {
    const ty_plan *plan;
    const ty_program *program; /* required by chakra */
    const ty_costs *costs;     /* durations for chakra */
    const ty_cluster *cluster; /* the plan's */
    const char *job; /* text of the job file; required by targets that start trainyard-worker */
    uint32_t steps;  /* of the job; 0: unknown */
    /* Real names of the cluster's hosts, [host_count of the cluster]; NULL: names in the
     * cluster. */
    char *const *host_names;
    const char *script; /* the user's training script; NULL: "train.py" */
    const char *image;  /* container image; NULL: "trainyard:VERSION", under Slurm none */
    const char *on;     /* launcher of launch.sh on the hosts; NULL: none */
    /* Folder for checkpoints, from which failed ranks start again; NULL: none. The rest as in
     * ty_job. */
    const char *checkpoint;
    uint32_t checkpoint_every;
    double checkpoint_every_s;
    uint32_t keep;
    /* Resource name of RDMA adapters in Kubernetes; NULL: the name in NVIDIA's network operator
     * examples; "none": no adapter is requested */
    const char *rdma;
    const char *command; /* command line of the export, for the comments; NULL: none */
    const char *version; /* of Trainyard, for the comments */
} ty_launch_input;

typedef struct ty_launch_file {
    char *name;
    char *bytes; /* terminated */
    size_t length;
    bool is_program; /* must be executable */
    bool is_binary;
} ty_launch_file;

typedef struct ty_launch_files {
    uint32_t count;
    ty_launch_file *files;
    char *next; /* command to type in the folder of the files; "" for none */
} ty_launch_files;

/** Name and title of a target; NULL if `index` is not below their number. */
const char *ty_launch_target(uint32_t index, const char **title);
/** Whether the target only writes traces for simulators and starts nothing. */
bool ty_launch_is_traces(const char *target);
/** Whether the target starts trainyard-worker and needs input->job. */
bool ty_launch_needs_job(const char *target);

/**
 * Precision of a plan's passes, as frameworks name it: "fp32" or "tf32" for elements of 4 bytes.
 * For 2 bytes "bf16", or "fp16" if the workload asks for it and on NVIDIA GPUs before Ampere, which
 * lack units for bf16. fp8 and fp4 products do not count.
 */
const char *ty_launch_precision(const ty_plan *plan, const ty_cluster *cluster);
/**
 * Backend of trainyard-worker for a plan: "cuda" for NVIDIA GPUs, "cpu" for processors; NULL for
 * other devices.
 */
const char *ty_launch_backend(const ty_plan *plan, const ty_cluster *cluster);

/**
 * Makes the launch files of a plan.
 * @return TY_EINVAL: no such target (with the nearest name), or a missing input; TY_EUNSUPPORTED:
 * the target cannot express the plan, with the reason and often a change that helps.
 */
ty_status ty_launch(const char *target, const ty_launch_input *input, ty_launch_files **out,
                    ty_error *error) TY_MUST_CHECK;
void ty_launch_free(ty_launch_files *files);

#endif

/**
 * @file ty_reports.h
 * Turns plans, timelines and runs into what people and other programs read. Everything is appended
 * to a ty_text; the caller decides where it goes.
 */
#ifndef TY_REPORTS_H
#define TY_REPORTS_H

#include "ty_core.h"
#include "ty_topologies.h"

/** Predicted against measured, for one kind of operation of one stage. */
typedef struct ty_comparison_row {
    uint32_t stage;
    ty_op op;
    uint32_t bucket; /* collectives, codecs, updates; else TY_NO_BUCKET */
    uint32_t phase;  /* of its exchange */
    uint32_t first_layer, layer_count;
    double predicted_s,
        measured_s;  /* median seconds of one such instruction, over stage replicas and steps */
    double per_step; /* how many a stage replica does in a step */
    double error;    /* predicted / measured - 1; 0 when nothing was measured */
} ty_comparison_row;

/** On the way to a target: what a run took and what was predicted for its plan. */
typedef struct ty_target_comparison {
    ty_target until; /* none: the run was of so many steps */
    bool is_reached, is_predicted;
    double measured_steps, measured_s; /* to the evaluation that met it, evaluations excluded */
    double predicted_steps[3], predicted_s[3]; /* low, expected, high: eight times in ten between */
} ty_target_comparison;

typedef struct ty_comparison {
    ty_step_summary predicted, measured;
    double step_time_error; /* predicted / measured - 1 */
    uint32_t row_count;
    ty_comparison_row *rows; /* by stage, then largest measured share of the step first */
    uint64_t predicted_peak_memory_bytes,
        measured_peak_memory_bytes; /* largest over stage replicas; 0: unknown */
    double
        disturbed_share;  /* of the run's steps, by others on the machine; 0: none, or not known */
    double others_share;  /* of the cores, that these took */
    double load;          /* of the machine, when the run ended */
    uint32_t quiet_steps; /* of the timeline, that were not disturbed; 0 where none were */
    double quiet_step_time_s, quiet_error; /* of them: mean, and predicted / that - 1 */
    /* Where the run had one; what is predicted of it is filled in by who knows how it converges. */
    ty_target_comparison target;
    /* Of the run's last evaluation, where it tested a variant; bits 0: it did not. */
    ty_variant variant;
    double accuracy, variant_accuracy;
} ty_comparison;

/**
 * Waiting instructions (receive, collective) are compared by the time after the last partner was
 * ready.
 * @return TY_EINVAL for a run without a timeline, TY_EPARSE for timelines of another program
 */
ty_status ty_compare(const ty_plan *plan, const ty_program *program, const ty_timeline *predicted,
                     const ty_run *run, ty_comparison **out, ty_error *error) TY_MUST_CHECK;
void ty_comparison_free(ty_comparison *comparison);

/* Text for a terminal, at most 80 columns wide; longer texts continue in an indented line. */
#define TY_PRINT_COLUMNS 80
/** What divides badly in a plan, and what would divide: "a batch of 60 divides badly over 8
 * devices: by the estimate 64 does 42 % more samples a second". Nothing where all divides. */
void ty_print_uneven(const ty_plan *plan, ty_uneven_kind kind, ty_text *text);
/** As what the network is deployed, what that needs of the device, and the budget that it keeps;
 * nothing of a plan without a device. */
void ty_deployment_sentence(const ty_deployment *deployment, ty_text *text);
/** The same as a line of its own. */
void ty_print_deployment(const ty_plan *plan, ty_text *text);
/**
 * Prints the layout, its prediction, and the alternatives.
 * @param cluster  of the plan; NULL: left out
 * @param question "-w llama-3-70b -c '8x dgx-h100'": words that reproduce the plan together with
 * its own; NULL: no line Reproduce
 */
void ty_print_plan(const ty_plan *plan, const ty_cluster *cluster, const char *question,
                   ty_text *text);
/** Of these the lines Layout, Idle, Batch and Precision. */
void ty_print_layout(const ty_plan *plan, ty_text *text);
/** How sure a plan's times are: "measured on this hardware"; of a stack that was judged by rows of
 * the cluster's first device its error and their number. */
void ty_print_certainty(const ty_plan *plan, const ty_cluster *cluster, ty_text *text);
/** @param noun of a device, for rates per device: "GPU"; NULL: none are printed */
void ty_print_summary(const ty_step_summary *summary, const char *noun, ty_text *text);
void ty_print_memory(const ty_plan *plan, ty_text *text);
/** "16 micro-batches of 32, 1 a replica", or "4 to 6 a replica" where stages have different
 * numbers. */
void ty_print_micro_batches(const ty_plan *plan, ty_text *text);
/** "Framework   megatron-2021 (Megatron-LM of 2021 on A100)" */
void ty_print_stack_name(const ty_stack *stack, ty_text *text);
/** Everything about a stack, each constant with its source. */
void ty_print_stack(const ty_stack *stack, ty_text *text);
void ty_print_comparison(const ty_plan *plan, const ty_comparison *comparison, ty_text *text);
/** Of a run that had a target: its steps and time, predicted and measured. */
void ty_print_target(const ty_target_comparison *target, ty_text *text);
void ty_print_run(const ty_run *run, ty_text *text);
/** Whether a comparison's figures are those of a machine that others used, too. */
bool ty_comparison_is_busy(const ty_comparison *comparison);
/** "was busy: 38 % of steps disturbed, ...; the 50 quiet ones: 10 ms, +4.0 %", of a busy one.
 * @param gap what stands behind the semicolon: " ", or a line's end */
void ty_print_busy(const ty_comparison *comparison, const char *gap, ty_text *text);

/** The member "target". */
void ty_target_comparison_to_json(const ty_target_comparison *target, ty_json_writer *writer);
/** A document: "trainyard.comparison/1". */
void ty_comparison_to_json(const ty_plan *plan, const ty_comparison *comparison,
                           ty_json_writer *writer, const char *key);

/** A part of the critical path: an instruction that what comes behind it waited for. */
typedef struct ty_critical_part {
    uint32_t stage_replica, step, instruction;
    double from_s, to_s;
} ty_critical_part;
/**
 * The critical path of a timeline's last step: what its last compute instruction waited for, and
 * what that waited for, back to where the compute of the step before ends. A receive counts as its
 * send, a collective as its last member's.
 * @param out [out] in order of time; free with ty_free
 * @return TY_EPARSE for a timeline of another program, TY_EINVAL for one without steps
 */
ty_status ty_critical_parts(const ty_plan *plan, const ty_program *program,
                            const ty_timeline *timeline, ty_critical_part **out, uint32_t *count,
                            ty_error *error) TY_MUST_CHECK;

/**
 * Chrome/Perfetto trace: one process per stage replica, one thread per stream, X events in
 * microseconds, flow arrows from each send to its receive. Measured stage replicas follow predicted
 * ones where both are given. Of a predicted timeline of devices (ty_plan_by_device), one process
 * per device.
 * @param measured may be NULL
 * @return TY_EPARSE for timelines of another program
 */
ty_status ty_trace_write(const ty_plan *plan, const ty_program *program,
                         const ty_timeline *predicted, const ty_timeline *measured, ty_text *text,
                         ty_error *error) TY_MUST_CHECK;

/**
 * A run as gauges in Prometheus' text format (0.0.4), for the text file collector of its node
 * exporter. Labels: workload, cluster, strategy, plan (its digest), backend; stage replica and
 * part. Source: prometheus.io, "Exposition formats".
 */
void ty_run_to_metrics(const ty_plan *plan, const ty_run *run, ty_text *text);

/**
 * A run as lines of MLPerf's log: `:::MLLOG {"namespace": "", "time_ms": ..., ...}`. Times are
 * those of training, evaluations taking none, before the date of the run; steps are evenly spaced.
 * Of long runs every n-th step is logged. The run stops with "success" only where an
 * evaluation reached the target, as MLPerf's rules have it. Source: mlcommons/logging,
 * mlperf_logging/mllog (mllog.py, constants.py).
 */
void ty_run_to_mlperf(const ty_plan *plan, const ty_run *run, ty_text *text);

/** A document that a report shows beside the plan: what other commands print with --json. */
typedef struct ty_report_document {
    const char *path;    /* as the user named it */
    const char *schema;  /* "trainyard.whatif/1", ... : ty_report_schemas */
    const ty_json *root; /* NULL for those that are in ty_report_input already: plan, run */
    ty_digest digest;    /* SHA-256 of the file */
    bool is_derived;     /* made of the plan for this report: no file, no digest */
} ty_report_document;

/** Schemas of documents that a report can show, NULL at the end; docs/guides/read-a-report.md says
 * what of. */
extern const char *const ty_report_schemas[];

/** A plan that a report lays beside the one it is about. */
typedef struct ty_report_other {
    const char *path;
    const ty_plan *plan;
    const ty_program *program;
    const ty_timeline *simulated; /* NULL: it was not, but in the plan */
    const ty_cluster *cluster;    /* NULL: not known */
    const ty_json *score;         /* its trainyard.score/1; NULL: none */
} ty_report_other;

/** What a report is made of; everything may be NULL, but a plan comes with its program, and
 * without a plan there is a document at least. */
typedef struct ty_report_input {
    const char *title;
    const ty_plan *plan;
    const ty_program *program;
    const ty_timeline *estimated, *simulated;
    const ty_run *run;
    const ty_comparison *comparison;
    const ty_cluster *cluster;    /* of the plan: memory, topology, cost */
    const ty_costs *costs;        /* of the program: link load, traffic */
    const ty_report_other *other; /* the plan to compare with; NULL: none */
    const ty_report_document *documents;
    uint32_t document_count;
    const char *date;    /* when the report is made, for its head */
    const char *version; /* of trainyard, for the same */
    const char *command; /* that made it, for the provenance */
} ty_report_input;

/**
 * One self-contained HTML page: a template whose script draws one JSON document, the changes to
 * make first. docs/guides/read-a-report.md lists the sections and where their figures come from.
 * Sections without data are left out and named at the end with what would fill them. No network, no
 * external file, script and style allowed by their hashes alone. Large plans are shown by one stage
 * replica of each kind, large clusters by groups of hosts.
 * @return TY_EPARSE for timelines of another program, or a document that is not what its schema
 * says
 */
ty_status ty_report_html(const ty_report_input *input, ty_text *html,
                         ty_error *error) TY_MUST_CHECK;

/* ==== launch ================================================================================== */

/*
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
 * Placement. Process p of a launch is rank p mod w of the plan's stage replica p / w, w being the
 * ranks of a stage replica. Hosts are in the order in which processes meet them, which is the
 * plan's own: neighbours in the numbering have the best links.
 */

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

/**
 * @file cli.h
 * What the subcommands share: the option table, opening inputs, starting the worker, exit codes.
 * Only this folder prints and exits.
 */
#ifndef TY_CLI_H
#define TY_CLI_H

#include "ty_core.h"
#include "ty_planner.h"
#include "ty_reports.h"
#include "ty_simulate.h"
#include "ty_topologies.h"
#include "ty_workloads.h"

/** Documented in README and tested: do not renumber. */
typedef enum exit_code {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_BAD_INPUT = 3,
    EXIT_NO_PLAN = 4,
    EXIT_INTERRUPTED = 130
} exit_code;

#define CLI_MOST_VARIED 16

typedef struct cli_config cli_config;

/** Every option of every command; which a command accepts is in its table row. */
typedef struct cli_options {
    const char *workload, *cluster, *profile, *fix, *output, *candidates, *trace, *resolution;
    const char *backend, *data, *until, *fail_over, *title, *directory, *seed_text, *micro_batches;
    const char *collective, *precision, *system, *objective, *task;
    const char *mode, *machines, *bandwidths, *ratio, *memory, *merge;
    const char *host, *device, *format, *to, *root, *oversubscription, *hosts_text;
    const char *nodes, *script, *image, *metrics, *mlperf_log;
    const char *checkpoint, *checkpoint_every_text, *evaluate_every_text, *vocabulary_text;
    const char *global_batch_text, *top_text, *steps_text, *ranks_text, *sequence_text;
    const char *learning_rate, *compressions;
    const char *seeds_text, *straggler, *jitter;
    const char *slow_link, *failures, *beside, *horizon, *checkpoint_interval, *restart, *repair;
    /* Parsed from the texts; 0 where not given. */
    uint64_t global_batch, top, steps, ranks, seed, seeds, sequence, hosts, checkpoint_every,
        evaluate_every, vocabulary;
    bool json, quiet, no_simulate, no_fold, elastic, allow_lossy, program, straight, fewer, help,
        force, trust_config, show_origin, resume, csv, no_charts;
    const char *rows, *vary[CLI_MOST_VARIED]; /* --vary, in order */
    int vary_count;
    cli_config *config; /* where defaults lie; owned */
    const char **files; /* what is not an option, in order */
    int file_count;
} cli_options;

typedef struct cli_command {
    const char *name;
    const char *usage;          /* after the name: "PLAN [options]" */
    const char *summary;        /* one line */
    const char *details;        /* shown by --help below the options; may be NULL */
    const char *const *options; /* names from the option table, NULL at the end */
    int minimum_files, maximum_files;
    exit_code (*run)(const cli_options *options);
} cli_command;
extern const cli_command commands[]; /* ends with a NULL name */

exit_code cmd_plan(const cli_options *options);
exit_code cmd_estimate(const cli_options *options);
exit_code cmd_simulate(const cli_options *options);
exit_code cmd_memory(const cli_options *options);
exit_code cmd_run(const cli_options *options);
exit_code cmd_systems(const cli_options *options);
exit_code cmd_layout(const cli_options *options);
exit_code cmd_score(const cli_options *options);
exit_code cmd_compare(const cli_options *options);
exit_code cmd_report(const cli_options *options);
exit_code cmd_whatif(const cli_options *options);
exit_code cmd_profile(const cli_options *options);
/** What a file was taken for, and what was ignored or assumed, on stderr. */
void print_import_report(const char *path, const ty_import_report *report);
exit_code cmd_calibrate(const cli_options *options);
/** With a workload instead of logs. */
exit_code calibrate_training(const cli_options *options); /* calibrate_training.c */
exit_code cmd_partition(const cli_options *options);
exit_code cmd_workload(const cli_options *options);
exit_code cmd_cluster(const cli_options *options);
/** trainyard profile import, as `command` asks for it: a trace, its layers' times to a profile. */
exit_code profile_import(const char *command, const char *path,
                         const cli_options *options);    /* cmd_profile.c */
exit_code cluster_catalogue(const cli_options *options); /* cmd_catalogue.c */
exit_code cmd_check(const cli_options *options);
exit_code cmd_export(const cli_options *options);
exit_code cmd_demo(const cli_options *options);
exit_code cmd_validate(const cli_options *options);

/* ---- options.c --------------------------------------------------------------------------- */

/** Parses what follows the command's name. On a mistake prints one line and returns EXIT_USAGE. */
exit_code options_parse(const cli_command *command, int count, char **words, cli_options *out);
void options_clear(cli_options *options);
/** Help of a command, or of all (NULL), at most 80 columns. */
void options_help(const cli_command *command, FILE *stream);

/* ---- config.c ---------------------------------------------------------------------------- */

/**
 * Defaults of options that the command line does not have: from /etc/trainyard.conf, then the
 * user's $XDG_CONFIG_HOME/trainyard/config, then ./trainyard.conf, the last one winning;
 * $TRAINYARD_CONFIG names one file in their place. A line is KEY = VALUE, the key an option's name
 * or COMMAND.NAME. EXIT_BAD_INPUT for a file with a mistake, told with its line.
 */
exit_code config_apply(const cli_command *command, cli_options *options);
void config_free(cli_config *config);
exit_code cmd_config(const cli_options *options);
exit_code cmd_data(const cli_options *options);

/* ---- manual.c ---------------------------------------------------------------------------- */

/** `trainyard --generate WHAT [COMMAND]`, for the build: man pages and completion on stdout. */
exit_code manual_generate(int count, char **words);

/* ---- outcome.c --------------------------------------------------------------------------- */

/** Prints "trainyard: error: ..." and gives the exit code for the status. An empty message is one
 *  that the worker has given already. */
exit_code report_failure(const ty_error *error);
/** The same where the failure came from reading something the user named: an absent file counts as
 *  bad input. */
exit_code report_bad_input(const ty_error *error);
/** Prints a usage mistake in one line with a pointer to --help. */
exit_code report_usage(const char *command, const char *format, ...) TY_PRINTF(2, 3);
/** Text to standard output; full disks are noticed. Clears `text`. */
exit_code print_text(ty_text *text);
/** To a file, or to standard output where `path` is NULL; the text is cleared. */
exit_code deliver_text(const char *path, ty_text *text);
/** Catches SIGINT and SIGTERM from now on. */
void interrupts_catch(void);
/** Interrupts since interrupts_catch. */
int interrupts_so_far(void);
bool interrupted(void *unused);

/* ---- inputs.c ---------------------------------------------------------------------------- */

/** Everything a plan file stands for. */
typedef struct plan_inputs {
    ty_plan *plan;
    ty_program *program;
    ty_cluster *cluster;
    ty_costs *costs;
} plan_inputs;
ty_status plan_inputs_load(const char *path, plan_inputs *out, ty_error *error) TY_MUST_CHECK;
/** Takes ownership of the plan, also on failure. */
ty_status plan_inputs_from(ty_plan *plan, plan_inputs *out, ty_error *error) TY_MUST_CHECK;
void plan_inputs_clear(plan_inputs *inputs);

/** What a question about a workload and a cluster needs. A local cluster is measured first if no
 *  profile was named and none is cached. */
typedef struct cli_question {
    ty_workload *workload;
    ty_cluster *cluster;
    ty_profile *profile; /* NULL: data sheets */
} cli_question;

/** "throughput" and the like as a number; NULL is throughput, which is 0. */
ty_status objective_find(const char *name, int *out, ty_error *error) TY_MUST_CHECK;
/** The best plan by another objective than throughput: global batches beside the usual one are
 * tried unless one was asked for. */
ty_status plan_by_objective(const cli_options *options, const cli_question *question, int objective,
                            ty_plan_options *how, ty_plan **out, ty_error *error) TY_MUST_CHECK;
ty_status question_open(const cli_options *options, cli_question *out,
                        ty_error *error) TY_MUST_CHECK;
void question_clear(cli_question *question);

/** Whether --fix has such a key. */
bool fix_key_is_known(const char *key);

/** Applies --fix, --global-batch and the like. TY_EINVAL names the key. `replicas` gets storage
 *  that must outlive the options. */
ty_status plan_options_from(const cli_options *options, const cli_question *question,
                            ty_text *replicas, ty_plan_options *out, ty_error *error) TY_MUST_CHECK;

/* ---- cmd_estimate.c ---------------------------------------------------------------------- */

/** Adds to a summary: to the open JSON object, or where `writer` is NULL to the text. */
typedef void (*show_more)(void *context, ty_json_writer *writer, ty_text *text);
/** Prints what a reader of the program found. @param more may be NULL */
ty_status show_timeline(const cli_options *options, const plan_inputs *inputs, const char *schema,
                        const ty_timeline *timeline, show_more more, void *context, ty_text *text,
                        ty_error *error) TY_MUST_CHECK;

/* ---- findings.c -------------------------------------------------------------------------- */

/** Everything that compare and report look at. */
typedef struct findings {
    plan_inputs inputs;
    ty_timeline *estimated, *simulated;
    ty_run *run;               /* NULL: not measured */
    ty_comparison *comparison; /* NULL: not measured */
} findings;
void findings_clear(findings *f);
/** The plan and, unless NULL, its run; TY_EPARSE: the run is of another plan. */
ty_status findings_read(const char *plan_path, const char *run_path, findings *f,
                        ty_error *error) TY_MUST_CHECK;
/** Estimates and simulates where that was not done, and compares. */
ty_status findings_make(findings *f, ty_error *error) TY_MUST_CHECK;

/* ---- derive.c ---------------------------------------------------------------------------- */

/** Compressors that are compared with none, NULL at the end. */
extern const char *const shown_compressions[];
/**
 * The score, compression or launch document of a plan, as a report shows it.
 * @param schema    "trainyard.score/1", "trainyard.compression/1", "trainyard.launch/1"
 * @param plan_path for the comments in launch files
 * @param out       [out] NULL: the plan has nothing of the kind
 */
ty_status derived_document(const char *schema, const cli_options *options, const char *plan_path,
                           plan_inputs *inputs, ty_json_document **out,
                           ty_error *error) TY_MUST_CHECK;

/** A trainyard.simulation/1 document with the memory over time of one rank of each stage.
 *  @param out [out] NULL: the plan says nothing of memory */
ty_status derived_memory(const plan_inputs *inputs, const ty_timeline *timeline,
                         ty_json_document **out, ty_error *error) TY_MUST_CHECK;

/* ---- cmd_export.c ------------------------------------------------------------------------ */

/** The launch files of a plan for a target, by the options of export. */
ty_status launch_open(const cli_options *options, const char *plan_path, plan_inputs *inputs,
                      const char *target, ty_launch_files **out, ty_error *error) TY_MUST_CHECK;

/* ---- cmd_score.c ------------------------------------------------------------------------- */

/** Sets the learning rate that a plan trains with: --learning-rate, or what --task proposes for the
 * plan's batch where that is a calibration. */
ty_status learning_rate_set(const cli_options *options, ty_plan *plan,
                            ty_error *error) TY_MUST_CHECK;

/** The score of a plan by the task that is named, or NULL: the one known for its workload, if any.
 * The caller clears it, also after a failure. */
ty_status score_open(const ty_plan *plan, const ty_cluster *cluster, const char *task,
                     ty_score *out, ty_error *error) TY_MUST_CHECK;

/* ---- cmd_plan.c -------------------------------------------------------------------------- */

/** The best plan for a question, its finalists (`top` of them) judged by the simulator. Catches
 * interrupts; the plan is the best so far then. */
ty_status plan_answer(const cli_options *options, const cli_question *question, uint32_t top,
                      ty_plan **out, ty_error *error) TY_MUST_CHECK;

/* ---- simulation_details.c ---------------------------------------------------------------- */

typedef struct simulation_curve {
    uint32_t rank, count;
    ty_memory_point *points;
} simulation_curve;
/** What a simulation tells beyond the step time. */
typedef struct simulation_details {
    double step_time_s;
    double shares[TY_TIME_KIND_COUNT];
    double *busy; /* [rank] */
    ty_link_load *loads;
    uint32_t load_count;
    ty_critical_part *parts;
    uint32_t part_count;
    /* For JSON only: */
    ty_link_history history; /* of the busiest links */
    ty_traffic *traffic;
    uint32_t traffic_count;
    simulation_curve *curves;
    uint32_t curve_count;
} simulation_details;
/** @param is_all also what only JSON shows */
ty_status simulation_details_find(const plan_inputs *in, const ty_timeline *timeline,
                                  double step_time_s, bool is_all, simulation_details *out,
                                  ty_error *error) TY_MUST_CHECK;
/** To the open JSON object, or where `writer` is NULL to the text. */
void simulation_details_show(const simulation_details *details, const plan_inputs *in,
                             ty_json_writer *writer, ty_text *text);
void simulation_details_clear(simulation_details *details);

/* ---- faults.c ---------------------------------------------------------------------------- */

/** What --slow-link makes of a plan's cluster: replaces it. */
ty_status faults_slow_links(const char *text, plan_inputs *inputs, ty_error *error) TY_MUST_CHECK;

/** What --fail makes of a long run of a plan. */
typedef struct fault_outlook {
    ty_endurance_question question;
    ty_endurance endurance;         /* of the first seed */
    double p50_goodput, p5_goodput; /* of all seeds: half, and nineteen of twenty, reach it */
    uint32_t seeds;
    ty_known_fault *known; /* [question.known_count] */
    char **names;          /* [question.known_count]: as asked for */
    double *rates;         /* [question.rate_count] */
} fault_outlook;
/** @param step_time_s of the plan as it is, simulated with `how` */
ty_status faults_endure(const cli_options *options, const plan_inputs *inputs,
                        const ty_simulate_options *how, double step_time_s, fault_outlook *out,
                        ty_error *error) TY_MUST_CHECK;
void fault_outlook_clear(fault_outlook *outlook);
/** To the open JSON object, or where `writer` is NULL to the text. */
void fault_outlook_show(const fault_outlook *outlook, ty_json_writer *writer, ty_text *text);

/* ---- worker.c ---------------------------------------------------------------------------- */

/**
 * Saves the job to a temporary file, starts `ranks` local workers under mpirun and waits. SIGINT
 * ends them all.
 * @return TY_OK, TY_EINTERRUPTED, or the status that the worker's exit code stands for, with an
 *         empty message: the worker itself has said why on stderr.
 */
ty_status worker_run(ty_job *job, uint32_t ranks, bool quiet, ty_error *error) TY_MUST_CHECK;
/**
 * TY_EUNSUPPORTED where this machine's cores or memory are too few for so many processes of the
 * job. worker_run asks it before it starts any.
 */
ty_status processes_check(const ty_job *job, uint32_t processes, ty_error *error) TY_MUST_CHECK;
/**
 * Moves this process into a network namespace that has nothing but a loopback, if the system lets
 * it and $TRAINYARD_NETWORK is not "host".
 */
void private_network_enter(void);
/** An empty file of one's own in $TMPDIR (or /tmp), for the caller to unlink.
 *  @param path [out] "" on failure */
ty_status scratch_file(const char *name, char *path, size_t room, ty_error *error) TY_MUST_CHECK;

/** The training job that --backend, --steps, --until and --data ask for. Takes plan and program out
 * of the inputs, also on failure. cmd_run.c */
ty_status job_from_options(const cli_options *options, plan_inputs *inputs, const char *output,
                           ty_job **out, ty_error *error) TY_MUST_CHECK;

/* ---- cache.c ----------------------------------------------------------------------------- */

/**
 * One file of the user's cache ($XDG_CACHE_HOME/trainyard, ~/.cache/trainyard), in a folder that is
 * theirs: not a link, not another's, not open to all. Where there is none, TY_EIO says why.
 */
typedef struct cli_cache cli_cache;
ty_status cache_open(const char *name, cli_cache **out, ty_error *error) TY_MUST_CHECK;
void cache_close(cli_cache *cache);
/** Letters, digits, dots, hyphens and underscores of a word, for a file's name. */
void cache_word(const char *word, char *out, size_t room);
/** The file's path, for people. */
const char *cache_shown(const cli_cache *cache);
/** @param out [out] NULL where nothing is kept that can be read; TY_EIO: it must not be read */
ty_status cache_load(const cli_cache *cache, ty_profile **out, ty_error *error) TY_MUST_CHECK;
ty_status cache_keep(const cli_cache *cache, const ty_profile *profile,
                     ty_error *error) TY_MUST_CHECK;

/* ---- measure.c --------------------------------------------------------------------------- */

/**
 * A profile of this machine for the workload, with `ranks` ranks side by side.
 * @param micro_batches sizes to time, ascending
 */
ty_status measure_profile(const ty_workload *workload, const char *backend, const char *precision,
                          uint32_t ranks, const uint32_t *micro_batches, uint32_t micro_batch_count,
                          bool quiet, ty_profile **out, ty_error *error) TY_MUST_CHECK;
/** As above with the usual sizes for the workload, from the user's cache directory if it was
 * measured before. */
ty_status measure_profile_cached(const ty_workload *workload, uint32_t ranks, uint32_t global_batch,
                                 bool quiet, ty_profile **out, ty_error *error) TY_MUST_CHECK;

#endif

/**
 * @file cli.h
 * Declarations that the subcommands share: the option table, opening inputs, starting the worker,
 * exit codes. Only this folder prints and exits.
 */
#ifndef TY_CLI_H
#define TY_CLI_H

#include "ty_core.h"
#include "ty_planner.h"
#include "ty_reports.h"
#include "ty_simulate.h"
#include "ty_study.h"
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
#define SUGGESTION_SIZE 128

typedef struct cli_config cli_config;
typedef struct cli_command cli_command;

/** Values of all options of all commands. A command's row lists the options it accepts. */
typedef struct cli_options {
    const cli_command *commands; /* all commands; ends with a NULL name */
    const char *profile_device;  /* device of the times in a workload's own file */
    const char *training_config; /* plan: another program's configuration file */
    ty_workload **given;         /* in place of `workload`, as in ty_question */
    const char *workload, *cluster, *profile, *stack, *fix, *against, *output, *candidates, *trace,
        *resolution, *engine;
    const char *backend, *data, *until, *fail_over, *title, *directory, *seed_text, *micro_batches;
    const char *tokens, *epochs, *price;
    const char *collective, *input, *budget, *phases, *precision, *optimizer, *system, *objective,
        *task;
    const char *memory_reserve;
    const char *mode, *machines, *bandwidths, *ratio, *memory, *merge;
    const char *host, *device, *format, *to, *on, *rdma, *root, *oversubscription, *hosts_text;
    const char *nodes, *script, *image, *metrics, *mlperf_log;
    const char *init, *save_weights, *bad_samples_text;
    const char *checkpoint, *checkpoint_every, *keep_text, *evaluate_every_text, *vocabulary_text;
    const char *global_batch_text, *top_text, *steps_text, *ranks_text, *per_host_text,
        *sequence_text;
    const char *learning_rate, *compressions, *reached, *sizes, *algorithm;
    const char *mfu, *tokens_per_s, *step_time, *constants;
    const char *seeds_text, *straggler, *jitter;
    const char *slow_link, *failures, *beside, *horizon, *checkpoint_interval, *restart, *repair;
    /* Parsed from the texts; 0 if not given. */
    uint64_t global_batch, top, steps, ranks, per_host, seed, seeds, sequence, hosts, keep,
        evaluate_every, vocabulary, bad_samples;
    bool json, quiet, no_simulate, no_fold, per_device, elastic, allow_lossy, fastest, program,
        straight, queued, fewer, help, force, trust_config, show_origin, resume, anyway, csv,
        deterministic;
    const char *rows, *vary[CLI_MOST_VARIED]; /* --vary, in order */
    int vary_count;
    cli_config *config; /* the files with defaults; owned */
    const char **files; /* arguments that are not options, in order */
    int file_count;
} cli_options;

struct cli_command {
    const char *name;
    const char *usage;          /* after the name: "PLAN [options]" */
    const char *summary;        /* one line */
    const char *details;        /* shown by --help below the options; may be NULL */
    const char *const *options; /* names from the option table, NULL at the end */
    int minimum_files, maximum_files;
    exit_code (*run)(const cli_options *options);
};
/** Runs the command in the words after the program's name. */
exit_code command_run(int count, char **words);

exit_code cmd_plan(const cli_options *options);
exit_code cmd_estimate(const cli_options *options);
exit_code cmd_simulate(const cli_options *options);
exit_code cmd_memory(const cli_options *options);
exit_code cmd_run(const cli_options *options);
exit_code cmd_systems(const cli_options *options);
exit_code cmd_score(const cli_options *options);
exit_code cmd_compare(const cli_options *options);
exit_code cmd_report(const cli_options *options);
exit_code cmd_whatif(const cli_options *options);
exit_code cmd_profile(const cli_options *options);
/** Prints the detected format of a file, the keys it ignores and the assumptions on stderr. */
void print_import_report(const char *path, const ty_import_report *report);
exit_code cmd_calibrate(const cli_options *options);
exit_code cmd_partition(const cli_options *options);
exit_code cmd_workload(const cli_options *options);
exit_code cmd_cluster(const cli_options *options);
/** trainyard profile import, for `command`: converts a trace to a profile of its layers' times. */
exit_code profile_import(const char *command, const char *path,
                         const cli_options *options);    /* cmd_profile.c */
exit_code cluster_catalogue(const cli_options *options); /* cmd_catalogue.c */
exit_code cmd_check(const cli_options *options);
exit_code cmd_export(const cli_options *options);
exit_code cmd_demo(const cli_options *options);
exit_code cmd_validate(const cli_options *options);
exit_code cmd_stack(const cli_options *options);

/* ---- options.c --------------------------------------------------------------------------- */

/** Parses the words after the command's name into options that have `commands` set. On a mistake
 * prints one line and returns EXIT_USAGE. */
exit_code options_parse(const cli_command *command, int count, char **words, cli_options *out);
void options_clear(cli_options *options);
/** Prints the help of a command, at most 80 columns wide. */
void options_help(const cli_command *command, FILE *stream);
/** Prints the help of all commands. */
void options_help_all(const cli_command *commands, FILE *stream);

/* ---- examples.c -------------------------------------------------------------------------- */

/** Example number `number`, from 0, of a command; NULL: no more. */
const char *example_of(const char *command, size_t number);

/* ---- config.c ---------------------------------------------------------------------------- */

/**
 * Sets options that the command line does not have from files: /etc/trainyard.conf, then the user's
 * $XDG_CONFIG_HOME/trainyard/config, then ./trainyard.conf. The last one wins; $TRAINYARD_CONFIG
 * names one file instead. A line is KEY = VALUE; the key is an option's name or COMMAND.NAME.
 * EXIT_BAD_INPUT for a file with a mistake, with the line in the message.
 */
exit_code config_apply(const cli_command *command, cli_options *options);
void config_free(cli_config *config);
exit_code cmd_config(const cli_options *options);
exit_code cmd_data(const cli_options *options);

/* ---- manual.c ---------------------------------------------------------------------------- */

/** `trainyard --generate WHAT [COMMAND]`, for the build: man pages and completion on stdout. */
exit_code manual_generate(const cli_command *commands, int count, char **words);

/* ---- outcome.c --------------------------------------------------------------------------- */

/** Receivers of a command's output, in place of standard output and standard error. */
typedef struct cli_audience {
    ty_text *answer;                               /* receives standard output */
    ty_text *message;                              /* receives the line of a failure */
    void (*note)(void *context, const char *line); /* NULL: none */
    bool (*should_stop)(void *context);            /* NULL: never */
    void *context;
} cli_audience;
/** Sets the receivers; NULL: the terminal. One command at a time: see ty_command.h. */
void audience_set(const cli_audience *audience);
/** Prints a line about progress on stderr. */
void print_stderr(const char *format, ...) TY_PRINTF(1, 2);

/** Prints "trainyard: error: ..." and returns the exit code for the status. The worker has already
 * printed an error with an empty message. */
exit_code report_failure(const ty_error *error);
/** The same for a failure to read a file that the user named: an absent file counts as bad input.
 */
exit_code report_bad_input(const ty_error *error);
/** Prints a usage mistake in one line with a pointer to --help. */
exit_code report_usage(const char *command, const char *format, ...) TY_PRINTF(2, 3);
/** Begins a JSON document of a schema. */
ty_json_writer document_open(const char *schema, ty_text *text);
/** Ends the document with a newline. */
void document_close(ty_json_writer *w);
/** Begins a document whose last member is an array, and opens the array; only a writer unless
 * `is_json`. */
ty_json_writer list_open(bool is_json, const char *schema, const char *array, ty_text *text);
void list_close(bool is_json, ty_json_writer *w);
/** Appends the content of a file. */
ty_status add_file(const char *path, ty_text *text, ty_error *error) TY_MUST_CHECK;
/** Joins "DIRECTORY/NAME"; NAME without a directory. @param out [out] owned by the caller */
ty_status path_in(const char *directory, const char *name, char **out,
                  ty_error *error) TY_MUST_CHECK;
/** "; did you mean 'NAME'?" with the nearest name, or "".
 * @param stride as for ty_suggest */
const char *suggestion(const char *word, const void *names, size_t count, size_t stride,
                       char out[SUGGESTION_SIZE]);
/** Appends a quoted text (RFC 4180). */
void csv_text(ty_text *csv, const char *text);
/** Writes a text to a file and clears it. */
ty_status save_text(const char *path, ty_text *text, ty_error *error) TY_MUST_CHECK;
/** Prints "money       113 USD (71.5 to 178)". @param unit of the interval's figures */
void print_interval(const char *label, const ty_interval *i, double unit, const char *name,
                    ty_text *text);
/** Prints a text to standard output, reports full disks, and clears the text. */
exit_code print_text(ty_text *text);
/** As print_text; on a terminal, the first line and labels are bold. */
exit_code print_answer(ty_text *text);
/** Writes a text to a file, or to standard output if `path` is NULL, and clears it. */
exit_code deliver_text(const char *path, ty_text *text);
/** Catches SIGINT and SIGTERM from now on. */
void interrupts_catch(void);
bool interrupted(void *unused);
/** Whether there was more than one interrupt. */
bool interrupted_again(void *unused);

/* ---- phased.c ---------------------------------------------------------------------------- */

/** plan --phases, and the commands that read its file: estimate, simulate, run, compare, score. */
exit_code phased_plan(const cli_options *options);
exit_code phased_predict(const char *command, const cli_options *options);
exit_code phased_run(const cli_options *options);
exit_code phased_compare(const cli_options *options);
exit_code phased_score(const cli_options *options);

/* ---- inputs.c ---------------------------------------------------------------------------- */

/** Makes the question from the options.
 * @param usual_top candidates that are simulated without --top; 0: none, also with it */
ty_status question_from(const cli_options *options, uint32_t usual_top, ty_question *out,
                        ty_error *error) TY_MUST_CHECK;
/** Makes the cost question from --tokens, --epochs, --steps and --price. */
ty_status cost_from(const cli_options *options, ty_cost_question *out,
                    ty_error *error) TY_MUST_CHECK;
/** Opens only the inputs of the question. */
ty_status question_open(const cli_options *options, ty_question_inputs *out,
                        ty_error *error) TY_MUST_CHECK;
/** Prints on stderr which workload and cluster were taken, if the words were ambiguous. */
void note_names(const cli_options *options);
/** Makes a watch: interrupts stop the work, notes go to stderr unless --quiet. */
ty_watch watch_from(const cli_options *options);
/** Makes a training from --backend, --steps, --until and --data. */
ty_status training_from(const cli_options *options, ty_training *out,
                        ty_error *error) TY_MUST_CHECK;
/** Refuses a plan for another cluster, whose ranks would share this machine's cores, without
 * --anyway. The worker checks GPUs. */
ty_status machine_check(const cli_options *options, const ty_plan *plan, const char *backend,
                        ty_error *error) TY_MUST_CHECK;
/** Kind of collective in --collective; TY_COLLECTIVE_COUNT without it. */
ty_status collective_from(const cli_options *options, ty_collective_kind *kind,
                          ty_error *error) TY_MUST_CHECK;
/** Calls ty_training_job for the options. */
ty_status job_from_options(const cli_options *options, ty_plan_inputs *inputs, const char *output,
                           ty_job **out, ty_error *error) TY_MUST_CHECK;

/* ---- cluster_show.c ---------------------------------------------------------------------- */
/** Prints a cluster as text, or as trainyard.cluster-summary/1. */
ty_status cluster_show(const ty_cluster *cluster, bool as_json, ty_text *text,
                       ty_error *error) TY_MUST_CHECK;

/* ---- cluster_collective.c ---------------------------------------------------------------- */

exit_code cluster_collective(const cli_options *options, const char *cluster);

/* ---- calibrate_stack.c ------------------------------------------------------------------- */

/** Whether the options of calibrate are those of a stack. */
bool calibrates_stack(const cli_options *options);
/** trainyard calibrate --stack. */
exit_code calibrate_stack(const cli_options *options);

/* ---- cmd_estimate.c ---------------------------------------------------------------------- */

/** Adds members to a summary: to the open JSON object, or to the text if `writer` is NULL. */
typedef void (*show_more)(void *context, ty_json_writer *writer, ty_text *text);
/** Writes a trace of a timeline of stage replicas, or of devices. */
ty_status trace_save(const ty_plan_inputs *inputs, const ty_timeline *timeline, const char *path,
                     ty_error *error) TY_MUST_CHECK;
/** Prints the summary of a timeline. @param more may be NULL */
ty_status show_timeline(const cli_options *options, const ty_plan_inputs *inputs,
                        const char *schema, const ty_timeline *timeline, show_more more,
                        void *context, ty_text *text, ty_error *error) TY_MUST_CHECK;

/* ---- plan_results.c -------------------------------------------------------------------------- */

/** Inputs of compare and report. */
typedef struct plan_results {
    ty_plan_inputs inputs;
    ty_timeline *estimated, *simulated;
    ty_run *run;               /* NULL: not measured */
    ty_comparison *comparison; /* NULL: not measured */
} plan_results;
void plan_results_clear(plan_results *f);
/** Reads the plan and, unless NULL, its run; TY_EPARSE: the run is of another plan. */
ty_status plan_results_read(const char *plan_path, const char *run_path, const ty_watch *watch,
                            plan_results *f, ty_error *error) TY_MUST_CHECK;
/** Estimates and simulates if needed, and compares. */
ty_status plan_results_make(plan_results *f, ty_error *error) TY_MUST_CHECK;
/** Multiplies bounds by `scale`. @param to [out] low, expected, high */
void interval_spread(ty_interval from, double scale, double to[3]);

/* ---- launch_document.c ------------------------------------------------------------------- */

/** Makes `trainyard.launch/1` of a plan: the files of every target, or the reason why there are
 * none.
 * @param plan_path for the comments in the files */
ty_status launch_document(const cli_options *options, const char *plan_path, ty_plan_inputs *inputs,
                          ty_json_document **out, ty_error *error) TY_MUST_CHECK;

/* ---- cmd_export.c ------------------------------------------------------------------------ */

/** Makes the launch files of a plan for a target with the options of export. */
ty_status launch_open(const cli_options *options, const char *plan_path, ty_plan_inputs *inputs,
                      const char *target, ty_launch_files **out, ty_error *error) TY_MUST_CHECK;

/* ---- simulation_details.c ---------------------------------------------------------------- */

typedef struct simulation_curve {
    uint32_t stage_replica, count;
    ty_memory_point *points;
} simulation_curve;
/** Results of a simulation in addition to the step time. */
typedef struct simulation_details {
    double step_time_s;
    double shares[TY_TIME_KIND_COUNT];
    double *busy; /* [stage replica] */
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
/** @param is_all includes members that only JSON shows */
ty_status simulation_details_find(const ty_plan_inputs *in, const ty_timeline *timeline,
                                  double step_time_s, bool is_all, simulation_details *out,
                                  ty_error *error) TY_MUST_CHECK;
/** Prints to the open JSON object, or to the text if `writer` is NULL. */
void simulation_details_show(const simulation_details *details, const ty_plan_inputs *in,
                             ty_json_writer *writer, ty_text *text);
void simulation_details_clear(simulation_details *details);

/* ---- faults.c ---------------------------------------------------------------------------- */

/** Replaces a plan's cluster by one with the links of --slow-link. */
ty_status faults_slow_links(const char *text, ty_plan_inputs *inputs,
                            ty_error *error) TY_MUST_CHECK;
/** Reads --fail and its related options. @param texts holds strings that `out` points to */
ty_status faults_read(const cli_options *options, const ty_cluster *cluster, ty_arena *texts,
                      ty_forecast_question *out, ty_error *error) TY_MUST_CHECK;
void forecast_print(const ty_forecast *forecast, ty_text *text);

#endif

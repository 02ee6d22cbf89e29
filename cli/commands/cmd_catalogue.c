/* trainyard workload, trainyard cluster: lists, descriptions and imports. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

enum { SOURCE_COLUMNS = 60 };

/* ---- Shared by both commands ------------------------------------------------------------- */

typedef struct catalogue_kind {
    const char *command;
    ty_status (*list)(char ***names, uint32_t *count, ty_error *error);
    const char *schema, *array; /* of the list as JSON */
    /* Writes size and description on the line of a name, or with `json` as members of its
     * object. */
    ty_status (*describe)(const char *name, ty_json_writer *json, ty_text *text, ty_error *error);
    ty_status (*show)(const char *name, const cli_options *options, ty_text *text, ty_error *error);
    ty_status (*export)(const char *name, ty_text *text, ty_error *error);
    /* Imports another program's file; NULL: not for this kind. */
    ty_status (*import)(const char *path, const cli_options *options, ty_text *text,
                        ty_error *error);
} catalogue_kind;

/* Prints a line per name with description and size; with --quiet only names. */
static ty_status list_names(const catalogue_kind *kind, const cli_options *options, ty_text *text,
                            ty_error *error)
{
    ty_json_writer w = list_open(options->json, kind->schema, kind->array, text);
    char **names = NULL;
    uint32_t count = 0;
    ty_status status = kind->list(&names, &count, error);

    for (uint32_t i = 0; status == TY_OK && i < count; i++) {
        if (options->json) {
            ty_json_open_flat(&w, NULL, '{');
            ty_json_put_string(&w, "name", names[i]);
            status = kind->describe(names[i], &w, text, error);
            ty_json_close(&w, '}');
            continue;
        }
        ty_text_addf(text, options->quiet ? "%s" : "%-24s  ", names[i]);
        if (!options->quiet)
            status = kind->describe(names[i], NULL, text, error);
        ty_text_add(text, "\n");
    }
    list_close(options->json, &w);
    ty_names_free(names, count);
    return status;
}

static exit_code catalogue(const catalogue_kind *kind, const cli_options *options)
{
    static const char *const verbs[] = {"list",   "show",  "import",
                                        "export", "check", "collective"}; /* four: of workloads */
    char meant[SUGGESTION_SIZE];
    ty_error error = {0};
    ty_text text = {0};
    ty_status status;
    const char *verb = options->files[0];
    const char *name = options->file_count > 1 ? options->files[1] : NULL;
    bool is_list = strcmp(verb, "list") == 0;
    bool is_export = strcmp(verb, "export") == 0;
    bool is_import = kind->import != NULL && strcmp(verb, "import") == 0;

    if (!is_list && !is_export && !is_import && strcmp(verb, "show") != 0)
        return report_usage(
            kind->command, "found '%s', expected list, show, %s or export%s", verb,
            kind->import != NULL ? "import" : "check, collective, import",
            suggestion(verb, verbs, kind->import != NULL ? 4 : 6, sizeof verbs[0], meant));
    if (!is_import &&
        (options->sequence > 0 || options->global_batch > 0 || options->vocabulary > 0))
        return report_usage(kind->command,
                            "--seq, --global-batch and --vocabulary belong to import; for others "
                            "write '%s sequence=N batch=N vocabulary=N'",
                            name != NULL ? name : "NAME");
    if (is_list == (name != NULL))
        return report_usage(kind->command, is_list ? "list takes no name" : "%s needs a name",
                            verb);
    if (is_list)
        status = list_names(kind, options, &text, &error);
    else if (is_export)
        status = kind->export(name, &text, &error);
    else if (is_import)
        status = kind->import(name, options, &text, &error);
    else
        status = kind->show(name, options, &text, &error);
    if (status == TY_OK)
        return deliver_text(options->output, &text);
    ty_text_clear(&text);
    return report_bad_input(&error);
}

/* ---- Workloads --------------------------------------------------------------------------- */

static uint64_t activation_bytes(const ty_workload *w)
{
    uint64_t sum = 0;

    for (uint32_t l = 0; l < w->layer_count; l++)
        sum += w->layers[l].output_bytes;
    return sum;
}

/* Counts all parameters that are not frozen. */
static uint64_t trained_parameters(const ty_workload *w)
{
    uint64_t bytes = 0;

    for (uint32_t l = 0; l < w->layer_count; l++)
        bytes += w->layers[l].is_frozen ? 0 : w->layers[l].parameter_bytes;
    return bytes / w->element_bytes;
}

/* Prints a line for each member that selects another training method. */
static void show_scenario(const ty_workload *w, ty_text *text)
{
    char trained[32], seconds[32];

    ty_format_count((double)trained_parameters(w), trained);
    ty_format_seconds(w->input_s_per_sample, seconds);
    if (trained_parameters(w) * w->element_bytes <
        ty_workload_parameter_bytes(w, 0, w->layer_count))
        ty_text_addf(text, "trained: %s parameters; the others are frozen\n", trained);
    if (w->learning == TY_LEARNING_EVOLUTION)
        ty_text_add(text, "evolution: a population of a batch's size, evaluated forward only\n");
    if (w->learning == TY_LEARNING_REINFORCEMENT)
        ty_text_addf(text,
                     "reinforcement: episodes of %llu steps, played before they are learnt from\n",
                     (unsigned long long)w->input.dimensions[0]);
    if (ty_workload_has_teacher(w))
        ty_text_addf(text,
                     "teacher: the frozen layers follow the trained ones with a decay of %g; "
                     "%u samples have labels, one in %u of a batch\n",
                     w->teacher.decay, w->teacher.labelled, w->teacher.every);
    if (w->local_steps > 1)
        ty_text_addf(text, "local steps: weights are averaged every %u steps\n", w->local_steps);
    if (w->input_s_per_sample > 0)
        ty_text_addf(text, "input: %s per sample from a source of every replica's own\n", seconds);
}

static void show_workload_json(const ty_workload *w, ty_text *text)
{
    ty_json_writer out = document_open("trainyard.workload-summary/1", text);

    ty_json_put_string(&out, "name", w->name);
    ty_json_put_string(&out, "source", w->source);
    ty_json_put_uint(&out, "parameters",
                     ty_workload_parameter_bytes(w, 0, w->layer_count) / w->element_bytes);
    ty_json_put_number(&out, "forward_flop_per_sample",
                       ty_workload_forward_flop(w, 0, w->layer_count));
    ty_json_put_number(&out, "backward_flop_per_sample",
                       ty_workload_backward_flop(w, 0, w->layer_count));
    ty_json_put_uint(&out, "activation_bytes_per_sample", activation_bytes(w));
    ty_json_put_uint(&out, "stash_bytes_per_sample", ty_workload_stash_bytes(w, 0, w->layer_count));
    ty_json_put_uint(&out, "tokens_per_sample", w->tokens_per_sample);
    ty_json_put_uint(&out, "global_batch", w->global_batch);
    ty_json_put_uint(&out, "trained_parameters", trained_parameters(w));
    ty_json_put_string(&out, "learning", ty_learning_name(w->learning));
    ty_json_put_uint(&out, "local_steps", w->local_steps > 1 ? w->local_steps : 1);
    ty_json_put_number(&out, "input_s_per_sample", w->input_s_per_sample);
    ty_json_open(&out, "layers", '[');
    for (uint32_t l = 0; l < w->layer_count; l++) {
        const ty_layer *layer = &w->layers[l];
        ty_json_open_flat(&out, NULL, '{');
        ty_json_put_string(&out, "name", layer->name);
        ty_json_put_string(&out, "kind", ty_layer_kind_name(layer->kind));
        ty_json_put_uint(&out, "parameters", layer->parameter_bytes / w->element_bytes);
        ty_json_put_number(&out, "forward_flop", layer->forward_flop);
        ty_json_put_uint(&out, "output_bytes", layer->output_bytes);
        ty_json_close(&out, '}');
    }
    list_close(true, &out);
}

static void show_workload_text(const ty_workload *w, ty_text *text)
{
    char a[32], b[32], c[32], shape[64];

    ty_format_count((double)(ty_workload_parameter_bytes(w, 0, w->layer_count) / w->element_bytes),
                    a);
    ty_format_count(ty_workload_forward_flop(w, 0, w->layer_count), b);
    ty_format_bytes((double)activation_bytes(w), c);
    ty_text_addf(text,
                 "%s: %u layers, %s parameters, %sflop forward and %s of activations per sample\n",
                 w->name, w->layer_count, a, b, c);
    ty_text_addf(text, "%s\n", w->source);
    show_scenario(w, text);
    ty_text_add(text, "\n");
    ty_text_addf(text, "%-24s %-22s %14s %12s %12s\n", "layer", "kind", "output", "parameters",
                 "forward flop");
    for (uint32_t l = 0; l < w->layer_count; l++) {
        const ty_layer *layer = &w->layers[l];
        int at = 0;
        shape[0] = '\0';
        for (uint32_t d = 0; d < layer->output.dimension_count && at < 48; d++)
            at += snprintf(shape + at, sizeof shape - (size_t)at, "%s%llu", d > 0 ? "x" : "",
                           (unsigned long long)layer->output.dimensions[d]);
        ty_format_count((double)(layer->parameter_bytes / w->element_bytes), a);
        ty_format_count(layer->forward_flop, b);
        ty_text_addf(text, "%-24s %-22s %14s %12s %12s\n", layer->name,
                     ty_layer_kind_name(layer->kind), shape, a, b);
    }
}

static ty_status show_workload(const char *name, const cli_options *options, ty_text *text,
                               ty_error *error)
{
    ty_workload *workload = NULL;

    TY_TRY(ty_workload_open(name, &workload, error));
    if (options->json)
        show_workload_json(workload, text);
    else
        show_workload_text(workload, text);
    ty_workload_free(workload);
    return TY_OK;
}

static ty_status describe_workload(const char *name, ty_json_writer *json, ty_text *text,
                                   ty_error *error)
{
    ty_workload *w = NULL;
    char shown[32];
    uint64_t parameters;

    TY_TRY(ty_workload_open(name, &w, error));
    parameters = ty_workload_parameter_bytes(w, 0, w->layer_count) / w->element_bytes;
    if (json != NULL) {
        ty_json_put_uint(json, "parameters", parameters);
        ty_json_put_string(json, "source", w->source);
    } else {
        /* Beginning of a source, in a line of 100 columns. */
        size_t length = strcspn(w->source, ";");
        if (length > SOURCE_COLUMNS)
            for (length = SOURCE_COLUMNS; length > 0 && w->source[length] != ' ';)
                length--;
        ty_format_count((double)parameters, shown);
        ty_text_addf(text, "%8s  %.*s%s", shown, (int)length, w->source,
                     w->source[length] != '\0' ? " ..." : "");
    }
    ty_workload_free(w);
    return TY_OK;
}

static ty_status export_workload(const char *name, ty_text *text, ty_error *error)
{
    ty_workload *workload = NULL;
    ty_json_writer writer = ty_json_writer_on(text);

    TY_TRY(ty_workload_open(name, &workload, error));
    ty_workload_to_json(workload, &writer, NULL);
    ty_text_add(text, "\n");
    ty_workload_free(workload);
    return TY_OK;
}

/* Writes the workload to a file, else prints its summary. */
static ty_status import_workload(const char *path, const cli_options *options, ty_text *text,
                                 ty_error *error)
{
    ty_import_options how = {.sequence = options->sequence,
                             .batch = (uint32_t)options->global_batch,
                             .vocabulary = options->vocabulary,
                             .model = options->workload,
                             .open_model = ty_workload_open};
    ty_import_report report = {0};
    ty_workload *workload = NULL;
    ty_json_writer writer = ty_json_writer_on(text);

    TY_TRY(ty_workload_import(path, &how, &workload, &report, error));
    if (!options->quiet)
        print_import_report(path, &report);
    if (options->output != NULL) {
        ty_workload_to_json(workload, &writer, NULL);
        ty_text_add(text, "\n");
    } else if (options->json) {
        show_workload_json(workload, text);
    } else {
        show_workload_text(workload, text);
    }
    ty_import_report_clear(&report);
    ty_workload_free(workload);
    return TY_OK;
}

static exit_code export_chakra(const cli_options *options)
{
    ty_workload *workload = NULL;
    ty_error error = {0};
    exit_code code = EXIT_DONE;

    if (options->output == NULL || strcmp(options->output, "-") == 0)
        return report_usage("workload", "export --to chakra needs --output FILE: it is binary");
    if (ty_workload_open(options->files[1], &workload, &error) != TY_OK)
        return report_bad_input(&error);
    if (ty_workload_export_chakra(workload, options->output, &error) != TY_OK)
        code = report_failure(&error);
    ty_workload_free(workload);
    return code;
}

exit_code cmd_workload(const cli_options *options)
{
    static const catalogue_kind workloads = {
        "workload",        ty_zoo_list,   "trainyard.workloads/1", "workloads",
        describe_workload, show_workload, export_workload,         import_workload};
    static const char *const formats[] = {"json", "chakra"};
    const char *verb = options->files[0];
    char meant[SUGGESTION_SIZE];
    bool is_import = strcmp(verb, "import") == 0, is_export = strcmp(verb, "export") == 0;

    if (options->to != NULL && !is_export)
        return report_usage("workload", "--to belongs to export");
    if (options->micro_batches != NULL && !is_import)
        return report_usage("workload", "--micro-batches belongs to import");
    /* A trace has times but no layers, so it makes a profile. */
    if (is_import && options->file_count > 1 && ty_is_profiler_trace(options->files[1])) {
        if (options->sequence > 0 || options->global_batch > 0 || options->vocabulary > 0)
            return report_usage("workload",
                                "--seq, --global-batch and --vocabulary: a trace of PyTorch's "
                                "profiler gives a profile, which has none of them");
        return profile_import("workload", options->files[1], options);
    }
    if (is_export && options->to != NULL && options->file_count > 1) {
        if (strcmp(options->to, "chakra") == 0)
            return export_chakra(options);
        if (strcmp(options->to, "json") != 0)
            return report_usage("workload", "--to: found '%s', expected json or chakra%s",
                                options->to,
                                suggestion(options->to, formats, 2, sizeof formats[0], meant));
    }
    return catalogue(&workloads, options);
}

/* ---- Clusters ---------------------------------------------------------------------------- */

/* A local cluster is shown as measured for the smallest workload of the zoo. */
static ty_status open_cluster(const char *name, bool quiet, ty_cluster **out, ty_error *error)
{
    ty_status status = TY_OK;
    uint32_t ranks;
    ty_question_inputs q = {0};

    if (!ty_cluster_is_local(name, &ranks))
        return ty_cluster_open(name, NULL, out, error);
    TY_CHECK(question_open(&(cli_options){.workload = "mlp", .cluster = name, .quiet = quiet}, &q,
                           error),
             status, done);
    *out = q.cluster;
    q.cluster = NULL;
done:
    ty_question_inputs_clear(&q);
    return status;
}

static ty_status describe_cluster(const char *name, ty_json_writer *json, ty_text *text,
                                  ty_error *error)
{
    ty_cluster *cluster = NULL;
    const ty_device_type *type;
    char memory[32];

    TY_TRY(ty_cluster_open(name, NULL, &cluster, error));
    type = ty_cluster_device_type(cluster, 0);
    if (json != NULL) {
        ty_json_put_uint(json, "devices", ty_cluster_device_count(cluster));
        ty_json_put_uint(json, "hosts", ty_cluster_host_count(cluster));
        ty_json_put_string(json, "device_type", type->name);
        ty_json_put_uint(json, "memory_bytes", type->memory_bytes);
    } else {
        ty_format_memory((double)type->memory_bytes, memory);
        ty_text_addf(text, "%4u x %s, %s", ty_cluster_device_count(cluster), type->name, memory);
        if (ty_cluster_host_count(cluster) > 1)
            ty_text_addf(text, ", %u hosts", ty_cluster_host_count(cluster));
    }
    ty_cluster_free(cluster);
    return TY_OK;
}

static ty_status show_cluster(const char *name, const cli_options *options, ty_text *text,
                              ty_error *error)
{
    ty_cluster *cluster = NULL;
    ty_status status = open_cluster(name, options->quiet, &cluster, error);

    if (status == TY_OK)
        status = cluster_show(cluster, options->json, text, error);
    ty_cluster_free(cluster);
    return status;
}

static ty_status export_cluster(const char *name, ty_text *text, ty_error *error)
{
    ty_cluster *cluster = NULL;
    ty_json_writer writer = ty_json_writer_on(text);

    TY_TRY(open_cluster(name, true, &cluster, error));
    ty_cluster_to_json(cluster, &writer, NULL);
    ty_text_add(text, "\n");
    ty_cluster_free(cluster);
    return TY_OK;
}

/* List, show and export as JSON, for cmd_cluster. */
exit_code cluster_catalogue(const cli_options *options)
{
    static const catalogue_kind clusters = {
        "cluster",        ty_catalogue_list, "trainyard.clusters/1", "clusters",
        describe_cluster, show_cluster,      export_cluster,         NULL};
    return catalogue(&clusters, options);
}

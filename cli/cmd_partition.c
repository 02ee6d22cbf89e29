/* trainyard partition: PipeDream's search, and one that beats it, on its profiles. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

typedef enum partition_mode { MODE_PIPEDREAM, MODE_FLAT } partition_mode;
static const char *const mode_names[] = {"pipedream", "flat"};
#define MODE_COUNT (sizeof mode_names / sizeof *mode_names)

typedef enum merge_choice { MERGE_AUTO, MERGE_NONE, MERGE_BRANCHES } merge_choice;

/* A profile with its states: `states` are of `merged` if that is not NULL, else of `graph`. */
typedef struct profile_states {
    ty_layer_graph *graph, *merged;
    uint32_t *owners; /* [graph layer] merged one */
    ty_states *states;
} profile_states;

static void clear(profile_states *p)
{
    ty_states_free(p->states);
    ty_layer_graph_free(p->merged);
    ty_layer_graph_free(p->graph);
    ty_free(p->owners);
}

/* ---- Options --------------------------------------------------------------------------------- */

static exit_code find_mode(const cli_options *options, partition_mode *out)
{
    *out = MODE_PIPEDREAM;
    if (options->mode == NULL)
        return EXIT_DONE;
    for (size_t i = 0; i < MODE_COUNT; i++)
        if (strcmp(options->mode, mode_names[i]) == 0) {
            *out = (partition_mode)i;
            return EXIT_DONE;
        }
    return report_usage("partition", "--mode: found '%s', expected pipedream or flat",
                        options->mode);
}

/* One item of a list; moves behind it. Empty at the end. */
static void next_item(const char **at, char separator, char out[32])
{
    size_t length = 0;

    while (**at != '\0' && **at != separator) {
        if (length < 31)
            out[length++] = **at;
        ++*at;
    }
    out[length] = '\0';
    if (**at == separator)
        ++*at;
}

/* "4x2" and "30GB/s,25Gb/s": innermost first. */
static exit_code find_levels(const cli_options *options, ty_level *levels, uint32_t *count)
{
    const char *machines = options->machines, *bandwidths = options->bandwidths;
    ty_error error = {0};

    if (machines == NULL || bandwidths == NULL)
        return report_usage("partition", "needs --machines and --bandwidths");
    for (*count = 0; *machines != '\0'; ++*count) {
        char item[32];
        uint64_t units;
        if (*count == TY_MOST_LEVELS)
            return report_usage("partition", "--machines: at most %d levels", TY_MOST_LEVELS);
        next_item(&machines, 'x', item);
        if (ty_parse_uint(item, 1, TY_MOST_DEVICES, &units, &error) != TY_OK)
            return report_usage("partition", "--machines: %s", error.message);
        if (*bandwidths == '\0')
            return report_usage("partition", "--bandwidths: one for each level of --machines %s",
                                options->machines);
        next_item(&bandwidths, ',', item);
        levels[*count].units = (uint32_t)units;
        if (ty_parse_bandwidth(item, &levels[*count].bandwidth_bytes_per_s, &error) != TY_OK)
            return report_usage("partition", "--bandwidths: %s", error.message);
    }
    if (*count == 0 || *bandwidths != '\0')
        return report_usage("partition", "--bandwidths: one for each level of --machines %s",
                            options->machines);
    return EXIT_DONE;
}

static exit_code find_ratio(const cli_options *options, double *out)
{
    char *end;

    *out = 0;
    if (options->ratio == NULL)
        return EXIT_DONE;
    *out = strtod(options->ratio, &end);
    if (end == options->ratio || *end != '\0' || !(*out > 0 && *out < 1e9))
        return report_usage("partition", "--ratio: found '%s', expected a number > 0",
                            options->ratio);
    return EXIT_DONE;
}

static exit_code find_memory(const cli_options *options, double *out)
{
    ty_error error = {0};
    uint64_t bytes;

    *out = 0;
    if (options->memory == NULL)
        return EXIT_DONE;
    if (ty_parse_bytes(options->memory, &bytes, &error) != TY_OK || bytes == 0)
        return report_usage("partition", "--memory: %s",
                            error.message[0] != '\0' ? error.message : "expected more than 0");
    *out = (double)bytes;
    return EXIT_DONE;
}

static exit_code find_merge(const cli_options *options, merge_choice *out)
{
    static const char *const names[] = {"auto", "none", "branches"};

    *out = MERGE_AUTO;
    for (int i = 0; options->merge != NULL && i < 3; i++)
        if (strcmp(options->merge, names[i]) == 0) {
            *out = (merge_choice)i;
            return EXIT_DONE;
        }
    return options->merge == NULL
               ? EXIT_DONE
               : report_usage("partition", "--merge: found '%s', expected auto, none or branches",
                              options->merge);
}

/* ---- Profiles -------------------------------------------------------------------------------- */

/* Automatically: no more than it takes. */
static ty_status open_profile(const char *path, merge_choice how, profile_states *p,
                              ty_error *error)
{
    ty_status status = TY_OK;

    TY_CHECK(ty_layer_graph_read(path, &p->graph, error), status, done);
    if (how != MERGE_BRANCHES)
        status = ty_states_find(p->graph, 0, &p->states, error);
    if (how == MERGE_BRANCHES || (how == MERGE_AUTO && status == TY_ELIMIT)) {
        p->owners = ty_alloc(p->graph->layer_count, sizeof *p->owners);
        if (p->owners == NULL)
            return ty_fail(error, TY_ENOMEM, "partition: out of memory");
        TY_CHECK(ty_layer_graph_merge(p->graph, &p->merged, p->owners, error), status, done);
        status = ty_states_find(p->merged, 0, &p->states, error);
    }
done:
    return status;
}

static bool part_has(const profile_states *p, const ty_division_part *part, uint32_t layer)
{
    uint32_t at = p->merged != NULL ? p->owners[layer] : layer;
    return ty_ideal_has(p->states->ideals, part->to, at) &&
           !ty_ideal_has(p->states->ideals, part->from, at);
}

/* ---- Printing -------------------------------------------------------------------------------- */

static void print_part(const profile_states *p, const ty_division *d, uint32_t index, ty_text *text)
{
    const ty_division_part *part = &d->parts[index];
    const char *first = "", *last = "";
    char seconds[32], bytes[32];
    uint32_t count = 0, depth = 0;

    for (uint32_t v = 0; v < p->graph->layer_count; v++)
        if (part_has(p, part, v)) {
            first = count++ == 0 ? p->graph->layers[v].name : first;
            last = p->graph->layers[v].name;
        }
    for (uint32_t i = part->parent; i != TY_NO_PART; i = d->parts[i].parent)
        depth++;
    ty_format_seconds(part->time_s, seconds);
    ty_format_bytes(p->states->parameter_bytes[part->to] - p->states->parameter_bytes[part->from],
                    bytes);
    ty_text_addf(text, "%*s%-*s %5u %8u %9u  %-10s %-10s %4u  %s .. %s\n", (int)depth * 2, "",
                 10 - (int)depth * 2, part->level == 0 ? "stage" : "servers", part->level,
                 part->units, part->first_device, seconds, bytes, count, first, last);
}

static void print_division(const profile_states *p, const ty_division *d, ty_text *text)
{
    char time[32], single[32], parallel[32];

    ty_format_seconds(d->time_s, time);
    ty_format_seconds(d->single_device_s, single);
    ty_format_seconds(d->data_parallel_s, parallel);
    ty_text_addf(text, "%u layers, %u states\n", p->graph->layer_count,
                 p->states->ideals->count - 1);
    ty_text_addf(text, "time per mini-batch  %s (one device %s, data parallel %s)\n", time, single,
                 parallel);
    ty_text_addf(text, "speed-up             %.3g over one device, %.3g over data parallel\n\n",
                 d->single_device_s / d->time_s, d->data_parallel_s / d->time_s);
    ty_text_add(text, "part       level replicas from dev.  time       parameters  layers\n");
    for (uint32_t i = 0; i < d->part_count; i++)
        print_part(p, d, i, text);
}

static void write_part(const profile_states *p, const ty_division_part *part, ty_json_writer *w)
{
    ty_json_open(w, NULL, '{');
    if (part->parent != TY_NO_PART)
        ty_json_put_uint(w, "parent", part->parent);
    ty_json_put_uint(w, "level", part->level);
    ty_json_put_uint(w, "first_state", part->from);
    ty_json_put_uint(w, "end_state", part->to);
    ty_json_put_uint(w, "replicas", part->units);
    ty_json_put_uint(w, "first_device", part->first_device);
    ty_json_put_number(w, "time_s", part->time_s);
    ty_json_open_flat(w, "layers", '[');
    for (uint32_t v = 0; v < p->graph->layer_count; v++)
        if (part_has(p, part, v))
            ty_json_put_string(w, NULL, p->graph->layers[v].name);
    ty_json_close(w, ']');
    ty_json_close(w, '}');
}

static void write_division(const profile_states *p, const ty_division *d, const char *mode,
                           ty_text *text)
{
    ty_json_writer w = ty_json_writer_on(text);

    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", "trainyard.partition/1");
    ty_json_put_string(&w, "mode", mode);
    ty_json_put_uint(&w, "layers", p->graph->layer_count);
    ty_json_put_uint(&w, "states", p->states->ideals->count - 1);
    ty_json_put_number(&w, "time_per_minibatch_s", d->time_s);
    ty_json_put_number(&w, "single_device_s", d->single_device_s);
    ty_json_put_number(&w, "data_parallel_s", d->data_parallel_s);
    ty_json_open(&w, "parts", '[');
    for (uint32_t i = 0; i < d->part_count; i++)
        write_part(p, &d->parts[i], &w);
    ty_json_close(&w, ']');
    ty_json_close(&w, '}');
    ty_text_add(text, "\n");
}

/* ---- The command ----------------------------------------------------------------------------- */

exit_code cmd_partition(const cli_options *options)
{
    ty_level levels[TY_MOST_LEVELS];
    ty_divide_options how = {
        .levels = levels, .is_straight = options->straight, .may_use_fewer = options->fewer};
    profile_states p = {0};
    ty_division *division = NULL;
    ty_text text = {0};
    ty_error error = {0};
    partition_mode mode;
    merge_choice merge;
    exit_code code = find_mode(options, &mode);

    if (code == EXIT_DONE)
        code = find_levels(options, levels, &how.level_count);
    if (code == EXIT_DONE)
        code = find_ratio(options, &how.activation_ratio);
    if (code == EXIT_DONE)
        code = find_memory(options, &how.memory_bytes);
    if (code == EXIT_DONE)
        code = find_merge(options, &merge);
    if (code != EXIT_DONE)
        return code;
    if (open_profile(options->files[0], merge, &p, &error) != TY_OK) {
        code = error.status == TY_ELIMIT ? report_failure(&error) : report_bad_input(&error);
        goto cleanup;
    }
    if ((mode == MODE_FLAT ? ty_divide_flat : ty_divide_hierarchical)(p.states, &how, &division,
                                                                      &error) != TY_OK) {
        code = report_failure(&error);
        goto cleanup;
    }
    if (options->json)
        write_division(&p, division, mode_names[mode], &text);
    else
        print_division(&p, division, &text);
    code = print_text(&text);

cleanup:
    ty_text_clear(&text);
    ty_division_free(division);
    clear(&p);
    return code;
}

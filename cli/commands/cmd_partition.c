/* trainyard partition: PipeDream's optimizer on its profiles. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* A profile with its states: those of `merged` if it is not NULL, else of `graph`. */
typedef struct profile_states {
    ty_layer_graph *graph, *merged;
    uint32_t *owners; /* [graph layer] merged layer */
    ty_states *states;
} profile_states;

/* ---- Options --------------------------------------------------------------------------------- */

/* Index of a word among three; 0 without one, 3 for another. */
static int find_word(const char *word, const char *const words[3])
{
    int i = 0;

    while (word != NULL && i < 3 && strcmp(word, words[i]) != 0)
        i++;
    return i;
}

/* Reads one item of a list and moves to the next. */
static void next_item(const char **at, char separator, char out[32])
{
    const char *end = strchr(*at, separator);
    const size_t length = end != NULL ? (size_t)(end - *at) : strlen(*at);

    snprintf(out, 32, "%.*s", (int)(length < 31 ? length : 31), *at);
    *at += length + (end != NULL);
}

/* "4x2" and "30GB/s,25Gb/s": innermost first. */
static exit_code find_levels(const cli_options *options, ty_level *levels, uint32_t *count)
{
    const char *machines = options->machines, *bandwidths = options->bandwidths;
    ty_error error = {0};
    char item[32];
    uint64_t units;

    if (machines == NULL || bandwidths == NULL)
        return report_usage("partition", "needs --machines and --bandwidths");
    for (*count = 0; *machines != '\0' && *bandwidths != '\0'; ++*count) {
        if (*count == TY_MOST_LEVELS)
            return report_usage("partition", "--machines: at most %d levels", TY_MOST_LEVELS);
        next_item(&machines, 'x', item);
        if (ty_parse_uint(item, 1, TY_MOST_DEVICES, &units, &error) != TY_OK)
            return report_usage("partition", "--machines: %s", error.message);
        levels[*count].units = (uint32_t)units;
        next_item(&bandwidths, ',', item);
        if (ty_parse_bandwidth(item, &levels[*count].bandwidth_bytes_per_s, &error) != TY_OK)
            return report_usage("partition", "--bandwidths: %s", error.message);
    }
    if (*count == 0 || *machines != '\0' || *bandwidths != '\0')
        return report_usage("partition", "--bandwidths: one for each level of --machines %s",
                            options->machines);
    return EXIT_DONE;
}

static exit_code find_options(const cli_options *options, ty_level *levels, ty_divide_options *out,
                              int *merge)
{
    const char *ratio = options->ratio;
    const int mode = find_word(options->mode, (const char *const[]){"pipedream", "flat", ""});
    ty_error error = {0};
    uint64_t bytes = 0;
    char *end = NULL;
    exit_code code;

    *merge = find_word(options->merge, (const char *const[]){"auto", "none", "branches"});
    *out = (ty_divide_options){.levels = levels,
                               .is_straight = options->straight,
                               .may_use_fewer = options->fewer,
                               .is_flat = mode == 1};
    if (mode > 1)
        return report_usage("partition", "--mode: found '%s', expected pipedream or flat",
                            options->mode);
    if (*merge > 2)
        return report_usage("partition", "--merge: found '%s', expected auto, none or branches",
                            options->merge);
    if ((code = find_levels(options, levels, &out->level_count)) != EXIT_DONE)
        return code;
    if (ratio != NULL && (!((out->activation_ratio = strtod(ratio, &end)) > 0) || *end != '\0' ||
                          out->activation_ratio > 1e9))
        return report_usage("partition", "--ratio: found '%s', expected a number > 0", ratio);
    if (options->memory != NULL && ty_parse_bytes(options->memory, &bytes, &error) != TY_OK)
        return report_usage("partition", "--memory: %s", error.message);
    if (options->memory != NULL && bytes == 0)
        return report_usage("partition", "--memory: expected more than 0");
    out->memory_bytes = (double)bytes;
    return EXIT_DONE;
}

/* ---- Profiles -------------------------------------------------------------------------------- */

/* @param merge 0: only if there are too many states; 1: never; 2: always */
static ty_status open_profile(const char *path, int merge, profile_states *p, ty_error *error)
{
    ty_status status = ty_layer_graph_read(path, &p->graph, error);

    if (status == TY_OK && merge < 2)
        status = ty_states_find(p->graph, &p->states, error);
    if ((merge == 0 && status == TY_ELIMIT) || (merge == 2 && status == TY_OK)) {
        p->owners = ty_alloc(p->graph->layer_count, sizeof *p->owners);
        status = p->owners != NULL ? ty_layer_graph_merge(p->graph, &p->merged, p->owners, error)
                                   : ty_fail(error, TY_ENOMEM, "partition: out of memory");
        if (status == TY_OK)
            status = ty_states_find(p->merged, &p->states, error);
    }
    return status;
}

static bool part_has(const profile_states *p, const ty_division_part *part, uint32_t layer)
{
    const uint32_t at = p->merged != NULL ? p->owners[layer] : layer;
    return ty_state_has(p->states, part->to, at) && !ty_state_has(p->states, part->from, at);
}

/* ---- Printing -------------------------------------------------------------------------------- */

static void print_part(const profile_states *p, const ty_division *d, uint32_t index, ty_text *text)
{
    const ty_division_part *part = &d->parts[index];
    const char *first = "", *last = "";
    char seconds[32], bytes[32];
    uint32_t count = 0;
    int depth = 0;

    for (uint32_t v = 0; v < p->graph->layer_count; v++)
        if (part_has(p, part, v)) {
            first = count++ == 0 ? p->graph->layers[v].name : first;
            last = p->graph->layers[v].name;
        }
    for (uint32_t i = part->parent; i != TY_NO_PART; i = d->parts[i].parent)
        depth += 2;
    ty_format_seconds(part->time_s, seconds);
    ty_format_bytes(p->states->parameter_bytes[part->to] - p->states->parameter_bytes[part->from],
                    bytes);
    ty_text_addf(text, "%*s%-*s %5u %8u %9u  %-10s %-10s %4u  %s .. %s\n", depth, "", 10 - depth,
                 part->level == 0 ? "stage" : "servers", part->level, part->units,
                 part->first_device, seconds, bytes, count, first, last);
}

static void print_division(const profile_states *p, const ty_division *d, ty_text *text)
{
    char time[32], single[32], parallel[32];

    ty_format_seconds(d->time_s, time);
    ty_format_seconds(d->single_device_s, single);
    ty_format_seconds(d->data_parallel_s, parallel);
    ty_text_addf(text, "%u layers, %u states\n", p->graph->layer_count, p->states->count - 1);
    ty_text_addf(text, "time per mini-batch  %s (one device %s, data parallel %s)\n", time, single,
                 parallel);
    ty_text_addf(text, "speed-up             %.3g over one device, %.3g over data parallel\n\n",
                 d->single_device_s / d->time_s, d->data_parallel_s / d->time_s);
    ty_text_add(text, "part       level replicas from dev.  time       parameters  layers\n");
    for (uint32_t i = 0; i < d->part_count; i++)
        print_part(p, d, i, text);
}

static void write_division(const profile_states *p, const ty_division *d, bool is_flat,
                           ty_text *text)
{
    ty_json_writer w = document_open("trainyard.partition/1", text);

    ty_json_put_string(&w, "mode", is_flat ? "flat" : "pipedream");
    ty_json_put_uint(&w, "layers", p->graph->layer_count);
    ty_json_put_uint(&w, "states", p->states->count - 1);
    ty_json_put_number(&w, "time_per_minibatch_s", d->time_s);
    ty_json_put_number(&w, "single_device_s", d->single_device_s);
    ty_json_put_number(&w, "data_parallel_s", d->data_parallel_s);
    ty_json_open(&w, "parts", '[');
    for (uint32_t i = 0; i < d->part_count; i++) {
        const ty_division_part *part = &d->parts[i];
        ty_json_open(&w, NULL, '{');
        if (part->parent != TY_NO_PART)
            ty_json_put_uint(&w, "parent", part->parent);
        ty_json_put_uint(&w, "level", part->level);
        ty_json_put_uint(&w, "first_state", part->from);
        ty_json_put_uint(&w, "end_state", part->to);
        ty_json_put_uint(&w, "replicas", part->units);
        ty_json_put_uint(&w, "first_device", part->first_device);
        ty_json_put_number(&w, "time_s", part->time_s);
        ty_json_open_flat(&w, "layers", '[');
        for (uint32_t v = 0; v < p->graph->layer_count; v++)
            if (part_has(p, part, v))
                ty_json_put_string(&w, NULL, p->graph->layers[v].name);
        ty_json_close(&w, ']');
        ty_json_close(&w, '}');
    }
    list_close(true, &w);
}

/* ---- The command ----------------------------------------------------------------------------- */

exit_code cmd_partition(const cli_options *options)
{
    ty_level levels[TY_MOST_LEVELS];
    ty_divide_options how;
    profile_states p = {0};
    ty_division *division = NULL;
    ty_text text = {0};
    ty_error error = {0};
    int merge;
    exit_code code = find_options(options, levels, &how, &merge);

    if (code != EXIT_DONE)
        return code;
    if (open_profile(options->files[0], merge, &p, &error) != TY_OK) {
        code = error.status == TY_ELIMIT ? report_failure(&error) : report_bad_input(&error);
    } else if (ty_divide(p.states, &how, &division, &error) != TY_OK) {
        code = report_failure(&error);
    } else {
        if (options->json)
            write_division(&p, division, how.is_flat, &text);
        else
            print_division(&p, division, &text);
        code = print_text(&text);
    }
    ty_text_clear(&text);
    ty_division_free(division);
    ty_states_free(p.states);
    ty_layer_graph_free(p.merged);
    ty_layer_graph_free(p.graph);
    ty_free(p.owners);
    return code;
}
